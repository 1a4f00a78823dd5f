//! In-memory nodes (`memory://name`), for simulations and for users' own unit tests. They answer
//! the same requests as a server does, and expire keys by the same clock that leases are valid by.

use crate::command::keys::Keys;
use crate::command::reply::{Holder, Refusal, Reply, StoredLock};
use crate::command::request::{Request, Subject};
use crate::runtime::clock;
use crate::runtime::fork::PerProcess;
#[cfg(test)]
use quorlock_protocol::Moment;
use quorlock_protocol::node::entry::Time;
use quorlock_protocol::node::queue;
use quorlock_protocol::node::record::{self, Record, Wanted};
use quorlock_protocol::{Vote, next_fence};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The nodes of this process. They live as long as it does, like a server beside it would.
static NODES: PerProcess<Mutex<HashMap<String, Arc<MemoryNode>>>> = PerProcess::new();

/// The error where no fence is left to give out.
const USED_UP: &str = "the fence counter is used up";

#[derive(Debug, Default)]
pub(crate) struct MemoryNode {
    entries: Mutex<Entries>,
}

/// What a node keeps, and who listens to it.
#[derive(Default)]
pub(crate) struct Entries {
    /// By the lock key.
    records: HashMap<String, Record<String>>,
    /// By the channel. It tells whether it still listens.
    listeners: HashMap<String, Listener>,
}

/// Is called with the number of a waiter and the lock key that is free. It tells whether anybody still
/// listens.
pub(crate) type Listener = Box<dyn Fn(u64, &str) -> bool + Send>;

impl MemoryNode {
    /// The node of this name.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        Arc::clone(lock(NODES.get_or_init(Mutex::default)).entry(name.to_owned()).or_default())
    }

    /// What a server would answer; an error text where it would answer with an error.
    pub(crate) fn answer(&self, request: &Request) -> Result<Reply, &'static str> {
        let time = Time { now: clock::now(), wall: clock::wall_clock_micros() };
        lock(&self.entries).answer(time, request)
    }

    pub(crate) fn listen(&self, channel: &str, listener: Listener) {
        lock(&self.entries).listen(channel, listener);
    }
}

impl Entries {
    /// Answers a request at this time.
    pub(crate) fn answer(&mut self, time: Time, request: &Request) -> Result<Reply, &'static str> {
        let now = time.now;
        let done = match request {
            Request::Acquire { subject, ttl, proposal, ticket, turns } => {
                return self.with(subject, |records, call| {
                    // As the script does, before anything else.
                    let fences =
                        records.iter().filter_map(|record| record.entry.last_fence(time.wall));
                    let last = fences.max().unwrap_or_default();
                    if next_fence(last, *proposal, time.wall).is_none() {
                        return Err(USED_UP);
                    }
                    if records.iter().any(|record| record.entry.token(now) == Some(&subject.token))
                    {
                        return Ok(Reply::Own);
                    }
                    let (token, waiter) = (&subject.token, subject.waiter.as_deref());
                    let wanted = Wanted { token, ttl: *ttl, proposal: *proposal, waiter };
                    match record::acquire(records, time, wanted) {
                        Some(Vote::Granted { fence }) => {
                            Ok(Reply::Granted { fence, clock: time.wall })
                        }
                        Some(Vote::Held { expires_in }) => {
                            let place = subject.waiter.as_ref().zip(*ticket);
                            let join = |place| record::join(records, now, place, *turns, call);
                            let rank = place.and_then(join);
                            Ok(Reply::Held(Refusal { expires_in, clock: time.wall, rank }))
                        }
                        _ => Err(USED_UP),
                    }
                });
            }
            Request::Extend(leases) => {
                let extend = |(subject, ttl): &(Arc<Subject>, _)| {
                    let token = &subject.token;
                    self.with(subject, |records, _| {
                        record::act_on_held(records, now, token, |entry| {
                            entry.extend(time, token, *ttl)
                        })
                    })
                };
                return Ok(Reply::Each(leases.iter().map(extend).collect()));
            }
            Request::Heal(leases) => {
                let heal = |(subject, ttl, fence): &(Arc<Subject>, _, _)| {
                    let token = &subject.token;
                    self.with(subject, |records, _| {
                        record::heal(records, time, token, *ttl, *fence)
                    })
                };
                return Ok(Reply::Healed(leases.iter().map(heal).collect()));
            }
            Request::Raise { subject, ttl, fence } => {
                let token = &subject.token;
                self.with(subject, |records, _| {
                    record::act_on_held(records, now, token, |entry| {
                        entry.raise(time, token, *ttl, *fence)
                    })
                })
            }
            Request::Release { subject, ticket, turns } => {
                let place = (subject.waiter.as_ref(), *ticket);
                let released = self.with(subject, |records, call| {
                    record::release(records, now, &subject.token, place, *turns, call)
                });
                // What joins a queue has nothing to release.
                released || ticket.is_some()
            }
            Request::Exists(keys) => {
                let is_held = |keys: &Keys| {
                    self.records
                        .get(&keys.lock)
                        .is_some_and(|record| record.entry.token(now).is_some())
                };
                keys.iter().any(is_held)
            }
            Request::Inspect(keys) => return Ok(Reply::Seen(self.inspect(time, &keys[0]))),
            Request::Forget(keys) => {
                let StoredLock { holder, waiters, .. } = self.inspect(time, &keys[0]);
                let is_idle = holder == Holder::Nobody && waiters == Some(0);
                if is_idle {
                    self.records.remove(&keys[0].lock);
                }
                is_idle
            }
        };
        Ok(if done { Reply::Yes } else { Reply::No })
    }

    fn inspect(&mut self, time: Time, keys: &Keys) -> StoredLock {
        let now = time.now;
        let record = self.records.entry(keys.lock.clone()).or_default();
        let token = record.entry.token(now).cloned();
        StoredLock {
            holder: token.map_or(Holder::Nobody, Holder::Token),
            expires_in: record.entry.expires_in(now),
            fence: record.entry.last_fence(time.wall),
            waiters: Some(record.queue.len(now) as u64),
        }
    }

    /// Does something with what is kept of these resources, and with a function that tells a waiter that
    /// one of them is free, and returns `false` if it does not listen.
    fn with<R>(
        &mut self,
        subject: &Subject,
        act: impl FnOnce(&mut [&mut Record<String>], &dyn Fn(usize, &str) -> bool) -> R,
    ) -> R {
        let take = |keys: &Keys| self.records.remove(&keys.lock).unwrap_or_default();
        let mut records: Vec<_> = subject.keys.iter().map(take).collect();
        let call = |position: usize, waiter: &str| {
            let Some((channel, number)) = queue::parts(waiter) else { return false };
            let lock = &subject.keys[position].lock;
            self.listeners.get(channel).is_some_and(|listener| listener(number, lock))
        };
        let done = act(&mut records.iter_mut().collect::<Vec<_>>(), &call);
        self.records.extend(subject.keys.iter().map(|keys| keys.lock.clone()).zip(records));
        done
    }

    /// Calls go to this listener, instead of one that had the channel before.
    pub(crate) fn listen(&mut self, channel: &str, listener: Listener) {
        self.listeners.insert(channel.to_owned(), listener);
    }

    /// What is kept of a resource, by its lock key.
    #[cfg(test)]
    pub(crate) fn record(&mut self, lock: &str) -> &mut Record<String> {
        self.records.entry(lock.to_owned()).or_default()
    }

    /// Makes nonsense of the queues.
    #[cfg(test)]
    pub(crate) fn forge_queues(
        &mut self,
        now: Moment,
        random: &dyn Fn(std::ops::Range<u64>) -> u64,
    ) {
        let channels: Vec<_> = self.listeners.keys().cloned().collect();
        let channels: std::collections::BTreeSet<_> = channels.into_iter().collect();
        let mut records: Vec<_> = self.records.iter_mut().collect();
        records.sort_unstable_by_key(|(lock, _)| *lock);
        for (_, record) in records {
            record.queue.forge(now, channels.iter().map(String::as_str), random);
        }
    }

    /// All connections are closed.
    #[cfg(test)]
    pub(crate) fn forget_listeners(&mut self) {
        self.listeners.clear();
    }

    /// The tokens that are there.
    #[cfg(test)]
    pub(crate) fn tokens(&self, now: Moment) -> Vec<String> {
        self.records.values().filter_map(|record| record.entry.token(now).cloned()).collect()
    }

    /// Whether anybody stands in a queue.
    #[cfg(test)]
    pub(crate) fn has_waiters(&mut self, now: Moment) -> bool {
        self.records.values_mut().any(|record| !record.queue.is_empty(now))
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.fmt(f)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
