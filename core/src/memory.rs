//! In-memory nodes (`memory://name`), for simulations and for users' own unit tests. They answer
//! the same requests as a server does, and expire keys by the same clock that leases are valid by.

use crate::clock;
use crate::entry::{Entry, acquire};
use crate::fork::PerProcess;
use crate::protocol::{Moment, Turns, Vote};
use crate::queue::{self, Queue};
use crate::request::{Keys, Refusal, Reply, Request, Subject, Ticket};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The nodes of this process. They live as long as it does, like a server beside it would.
static NODES: PerProcess<Mutex<HashMap<String, Arc<MemoryNode>>>> = PerProcess::new();

#[derive(Debug, Default)]
pub(crate) struct MemoryNode {
    entries: Mutex<Entries>,
}

/// What a node keeps, and who listens to it.
#[derive(Default)]
pub(crate) struct Entries {
    /// By the lock key.
    slots: HashMap<String, Slot>,
    /// By the channel. It tells whether it still listens.
    listeners: HashMap<String, Listener>,
}

#[derive(Debug, Default)]
struct Slot {
    entry: Entry<String>,
    queue: Queue,
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
        lock(&self.entries).answer(clock::now(), clock::wall_clock_micros(), request)
    }

    pub(crate) fn listen(&self, channel: &str, listener: Listener) {
        lock(&self.entries).listen(channel, listener);
    }
}

impl Entries {
    /// Answers a request at this time of the node's clocks; `wall_clock` is in microseconds.
    pub(crate) fn answer(
        &mut self,
        now: Moment,
        wall_clock: u64,
        request: &Request,
    ) -> Result<Reply, &'static str> {
        let done = match request {
            Request::Acquire { subject, ttl, proposal, ticket, turns } => {
                let mut slots = self.take(&subject.keys);
                let answer = grant(&mut slots, now, subject, *ttl, *proposal, wall_clock);
                if let Ok(Reply::Held(refusal)) = answer {
                    let rank = ticket
                        .and_then(|ticket| self.join(&mut slots, now, subject, ticket, *turns));
                    self.put(&subject.keys, slots);
                    return Ok(Reply::Held(Refusal { rank, ..refusal }));
                }
                self.put(&subject.keys, slots);
                return answer;
            }
            Request::Extend(leases) => {
                let extend = |(subject, ttl): &(Arc<Subject>, _)| {
                    let mut slots = self.take(&subject.keys);
                    let is_held = slots.iter().all(|slot| slot.is_held_by(now, subject));
                    if is_held {
                        slots.iter_mut().for_each(|slot| {
                            slot.entry.extend(now, &subject.token, *ttl);
                        });
                    }
                    self.put(&subject.keys, slots);
                    is_held
                };
                return Ok(Reply::Each(leases.iter().map(extend).collect()));
            }
            Request::Heal(leases) => {
                let heal = |(subject, ttl, fence): &(Arc<Subject>, _, _)| {
                    let mut slots = self.take(&subject.keys);
                    let others = |slot: &Slot| {
                        slot.entry.token(now).is_some() && !slot.is_held_by(now, subject)
                    };
                    let is_possible = !slots.iter().any(others);
                    if is_possible {
                        slots.iter_mut().for_each(|slot| {
                            slot.entry.heal(now, &subject.token, *ttl, *fence);
                        });
                    }
                    self.put(&subject.keys, slots);
                    is_possible
                };
                return Ok(Reply::Each(leases.iter().map(heal).collect()));
            }
            Request::Raise { subject, fence, .. } => {
                let mut slots = self.take(&subject.keys);
                let is_held = slots.iter().all(|slot| slot.is_held_by(now, subject));
                if is_held {
                    slots.iter_mut().for_each(|slot| {
                        slot.entry.raise(now, &subject.token, *fence);
                    });
                }
                self.put(&subject.keys, slots);
                is_held
            }
            Request::Release { subject, ticket, turns } => {
                // What joins a queue has nothing to release.
                self.release(now, subject, *ticket, *turns) || ticket.is_some()
            }
            Request::Look(keys) => {
                let is_held = |keys: &Keys| {
                    self.slots.get(&keys.lock).is_some_and(|slot| slot.entry.token(now).is_some())
                };
                keys.iter().any(is_held)
            }
        };
        Ok(if done { Reply::Yes } else { Reply::No })
    }

    /// Calls go to this listener, instead of one that had the channel before.
    pub(crate) fn listen(&mut self, channel: &str, listener: Listener) {
        self.listeners.insert(channel.to_owned(), listener);
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
        let mut slots: Vec<_> = self.slots.iter_mut().collect();
        slots.sort_unstable_by_key(|(lock, _)| *lock);
        for (_, slot) in slots {
            slot.queue.forge(now, channels.iter().map(String::as_str), random);
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
        self.slots.values().filter_map(|slot| slot.entry.token(now).cloned()).collect()
    }

    /// Whether anybody stands in a queue.
    #[cfg(test)]
    pub(crate) fn has_waiters(&mut self, now: Moment) -> bool {
        self.slots.values_mut().any(|slot| !slot.queue.is_empty(now))
    }

    /// A refused waiter takes its place. Returns how many are before it.
    fn join(
        &mut self,
        slots: &mut [Slot],
        now: Moment,
        subject: &Subject,
        ticket: Ticket,
        turns: Turns,
    ) -> Option<u64> {
        let waiter = subject.waiter.as_ref()?;
        for (slot, keys) in slots.iter_mut().zip(&*subject.keys) {
            if !slot.queue.is_called(waiter) || slot.entry.token(now).is_some() {
                slot.queue.join(now, waiter, ticket, turns);
            } else if !turns.keep.is_zero() {
                slot.queue.keep(now, waiter, turns);
            } else {
                // It cannot use its turn, for want of another resource. It comes back when it tries
                // again.
                slot.queue.leave(now, waiter);
                let call = |next: &str| self.call(next, &keys.lock);
                slot.queue.call_next(now, false, turns, call);
            }
        }
        slots.iter().filter_map(|slot| slot.queue.rank(waiter)).max()
    }

    fn release(
        &mut self,
        now: Moment,
        subject: &Subject,
        ticket: Option<Ticket>,
        turns: Turns,
    ) -> bool {
        let mut slots = self.take(&subject.keys);
        let mut done = true;
        for (slot, keys) in slots.iter_mut().zip(&*subject.keys) {
            let is_held = slot.entry.release(now, &subject.token);
            done &= is_held;
            match (&subject.waiter, ticket) {
                (Some(waiter), Some(ticket)) => slot.queue.join(now, waiter, ticket, turns),
                (Some(waiter), None) => slot.queue.leave(now, waiter),
                (None, _) => {}
            }
            if slot.entry.token(now).is_none() {
                let call = |next: &str| self.call(next, &keys.lock);
                slot.queue.call_next(now, is_held, turns, call);
            }
        }
        self.put(&subject.keys, slots);
        done
    }

    /// Tells a waiter that a key is free. `false` if it does not listen.
    fn call(&self, waiter: &str, lock: &str) -> bool {
        let Some((channel, number)) = queue::parts(waiter) else { return false };
        self.listeners.get(channel).is_some_and(|listener| listener(number, lock))
    }

    /// Takes out what is kept of these, for `put` to put it back.
    fn take(&mut self, keys: &[Keys]) -> Vec<Slot> {
        keys.iter().map(|keys| self.slots.remove(&keys.lock).unwrap_or_default()).collect()
    }

    fn put(&mut self, keys: &[Keys], slots: Vec<Slot>) {
        self.slots.extend(keys.iter().map(|keys| keys.lock.clone()).zip(slots));
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slots.fmt(f)
    }
}

impl Slot {
    fn is_held_by(&self, now: Moment, subject: &Subject) -> bool {
        self.entry.token(now) == Some(&subject.token)
    }
}

/// ACQUIRE, but for the place in the queues of who is refused.
fn grant(
    slots: &mut [Slot],
    now: Moment,
    subject: &Subject,
    ttl: Duration,
    proposal: u64,
    wall_clock: u64,
) -> Result<Reply, &'static str> {
    if slots.iter().any(|slot| slot.is_held_by(now, subject)) {
        return Ok(Reply::Own);
    }
    let refuse =
        |expires_in| Ok(Reply::Held(Refusal { expires_in, clock: wall_clock, rank: None }));
    let waiter = subject.waiter.as_deref();
    let blocked = slots.iter_mut().filter_map(|slot| slot.queue.is_blocked(now, waiter)).max();
    if let Some(time) = blocked {
        return refuse(Some(time));
    }
    let mut entries: Vec<_> = slots.iter_mut().map(|slot| &mut slot.entry).collect();
    match acquire(&mut entries, now, &subject.token, ttl, proposal, wall_clock) {
        Some(Vote::Granted { fence }) => {
            if let Some(waiter) = waiter {
                slots.iter_mut().for_each(|slot| slot.queue.leave(now, waiter));
            }
            Ok(Reply::Granted(fence))
        }
        Some(Vote::Held { expires_in }) => refuse(expires_in),
        _ => Err("the fence counter is used up"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
