//! The data of an in-memory node: its lock records and listeners, and its answer to each request.
//!
//! The rules for each lock record are in `quorlock_protocol::node`. `node.rs` and simulations call
//! this module.

use crate::config::permits::MAX_PERMITS;
use crate::wire::keys::{Keys, Permit};
use crate::wire::reply::{
    Elsewhere, FreePermits, HeldPermit, Holder, Refusal, Reply, StoredLock, StoredPermits,
};
use crate::wire::request::{Request, Subject};
use crate::wire::token::Token;
use quorlock_protocol::node::entry::{Entry, Time};
use quorlock_protocol::node::permits::{self, Choice, Permits, Permitted};
use quorlock_protocol::node::queue::{self, Message};
use quorlock_protocol::node::readers::LockMode;
use quorlock_protocol::node::record::{self, LockRecord, RecordInMode, Wanted};
use quorlock_protocol::{FENCE_MEMORY, Moment, Turns, Vote, next_fence};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The error of a request that needs a new fence when the fence counter cannot grow any more.
const USED_UP: &str = "the fence counter is used up";

#[derive(Default)]
pub(crate) struct NodeMemory {
    /// The lock records, by lock key.
    records: HashMap<String, LockRecord<Token>>,
    /// For each semaphore, its queue and the number of its slots, by index key. Each permit has a lock record in
    /// `records`.
    permits: HashMap<String, Permits>,
    /// The callbacks for messages, by channel.
    listeners: HashMap<String, RefCell<Vec<MessageCallback>>>,
    /// The [`NodeMemory::size`] at which the node next removes expired data.
    full: usize,
}

/// The smallest [`NodeMemory::size`] at which a node removes expired data.
const LEAST_FULL: usize = 256;

/// A callback for the messages on one channel. Returns `false` if nobody listens any more.
pub(crate) type MessageCallback = Box<dyn Fn(&str) -> bool + Send>;

impl NodeMemory {
    pub(crate) fn answer(&mut self, time: Time, request: &Request) -> Result<Reply, &'static str> {
        let now = time.now;
        self.forget_expired(time);
        let done = match request {
            Request::Acquire { subject, ttl, proposal, ticket, turns }
                if subject.permit().is_some() =>
            {
                let token = &subject.token;
                let waiter = subject.waiter.as_ref();
                let ttl = *ttl;
                let proposal = *proposal;
                let ticket = *ticket;
                let wanted = Wanted { token, ttl, proposal, waiter, ticket };
                return self.acquire_permits(time, subject, wanted, *turns);
            }
            Request::Acquire { subject, ttl, proposal, ticket, turns } => {
                return self.with(subject, |records, notify| {
                    if let Some(reply) = check(records, time, subject, *proposal) {
                        return reply;
                    }
                    let token = &subject.token;
                    let waiter = subject.waiter.as_ref();
                    let ttl = *ttl;
                    let proposal = *proposal;
                    let ticket = *ticket;
                    let wanted = Wanted { token, ttl, proposal, waiter, ticket };
                    match record::acquire(records, time, wanted, *turns, notify) {
                        Some(Vote::Granted { fence }) => {
                            Ok(Reply::Granted { fence, clock: time.wall })
                        }
                        Some(Vote::Held { expires_in }) => {
                            let place = subject.waiter.as_ref().zip(ticket);
                            let holder = last_holder(records, now);
                            let join = |place| record::join(records, now, place, *turns, notify);
                            let rank = place.and_then(join);
                            let clock = time.wall;
                            let permits = FreePermits::default();
                            Ok(Reply::Held(Refusal { expires_in, clock, rank, holder, permits }))
                        }
                        _ => Err(USED_UP),
                    }
                });
            }
            Request::Transfer { subject, ttl, proposal } => {
                let answered = self.with(subject, |records, _| {
                    if let Some(reply) = check(records, time, subject, *proposal) {
                        return reply;
                    }
                    let token = &subject.token;
                    let ttl = *ttl;
                    let proposal = *proposal;
                    let wanted = Wanted { token, ttl, proposal, waiter: None, ticket: None };
                    let giver = subject.giver();
                    match record::transfer(records, time, giver, wanted) {
                        Some(Vote::Granted { fence }) => {
                            Ok(Reply::Granted { fence, clock: time.wall })
                        }
                        Some(_) => Ok(Reply::NotTransferred(elsewhere(records, time, giver))),
                        None => Err(USED_UP),
                    }
                });
                if let Ok(Reply::Granted { .. }) = answered {
                    self.forget_offers(now, subject);
                }
                return answered;
            }
            Request::GiveBack(subject) => {
                self.forget_offers(now, subject);
                self.with(subject, |records, _| {
                    let given = subject.giver.as_ref();
                    let left = given.map(|given| given.left(time.wall)).unwrap_or_default();
                    record::give_back(records, now, &subject.token, subject.giver(), left)
                })
            }
            Request::Extend(leases) => {
                let extend = |(subject, ttl): &(Arc<Subject>, Duration)| {
                    let token = &subject.token;
                    let done = self.with(subject, |records, _| {
                        record::act_on_held(records, now, token, |entry, mode| {
                            entry.extend_in(time, token, *ttl, mode)
                        })
                    });
                    if done {
                        self.keep_slots(now, subject, *ttl);
                    }
                    done
                };
                return Ok(Reply::Each(leases.iter().map(extend).collect()));
            }
            Request::Heal(leases) => {
                let heal = |(subject, ttl, fence): &(Arc<Subject>, _, _)| {
                    let tokens =
                        (&subject.token, subject.giver.as_ref().map(|given| &*given.token));
                    self.with(subject, |records, _| {
                        record::heal(records, time, tokens, *ttl, *fence)
                    })
                };
                return Ok(Reply::Healed(leases.iter().map(heal).collect()));
            }
            Request::Raise { subject, ttl, fence } => {
                let token = &subject.token;
                self.with(subject, |records, _| {
                    record::act_on_held(records, now, token, |entry, mode| {
                        entry.raise(time, token, *ttl, *fence, mode)
                    })
                })
            }
            Request::Downgrade { subject, turns } => self.with(subject, |records, notify| {
                let from = (&subject.token, subject.waiter.as_ref());
                record::downgrade(records, now, from, *turns, notify)
            }),
            Request::Release { subject, ticket, turns, keep } => {
                let place = (subject.waiter.as_ref(), *ticket);
                let released = match subject.permit() {
                    Some(_) => self.release_permits(now, subject, *keep, place, *turns),
                    None => self.with(subject, |records, notify| {
                        let token = (&subject.token, *keep);
                        record::release(records, now, token, place, *turns, notify)
                    }),
                };
                // A RELEASE with a ticket always succeeds: it puts the waiter into the queue even if the token held
                // nothing.
                released || ticket.is_some()
            }
            Request::Exists(keys) => {
                let is_held = |keys: &Keys| {
                    let entry = self.records.get(&keys.lock).map(|record| &record.entry);
                    entry.is_some_and(|entry| {
                        let is_shared = keys.is_shared() && entry.is_read(now);
                        entry.token(now).is_some() && !is_shared
                    })
                };
                keys.iter().any(is_held)
            }
            Request::Inspect(keys) => return Ok(Reply::Seen(self.inspect(time, &keys[0]))),
            Request::InspectPermits { semaphore } => {
                return Ok(Reply::SeenPermits(self.inspect_permits(time, semaphore)));
            }
            Request::List { prefix, .. } => {
                let is_held = |(lock, record): &(&String, &LockRecord<Token>)| {
                    lock.starts_with(&**prefix)
                        && record
                            .entry
                            .token(now)
                            .is_some_and(|token| token.is_own() || token.is_marker())
                };
                let keys = self.records.iter().filter(is_held).map(|(lock, _)| lock.clone());
                return Ok(Reply::Page { cursor: 0, keys: keys.collect() });
            }
            Request::Forget(keys) => {
                let StoredLock { holder, waiters, .. } = self.inspect(time, &keys[0]);
                let is_idle = holder == Holder::Nobody && waiters == Some(0);
                if is_idle {
                    self.records.remove(&keys[0].lock);
                }
                is_idle
            }
            Request::Publish { channel, message, .. } => {
                return Ok(Reply::Published(self.publish(channel, message)));
            }
        };
        Ok(if done { Reply::Yes } else { Reply::No })
    }

    fn inspect(&mut self, time: Time, keys: &Keys) -> StoredLock {
        let now = time.now;
        let Some(record) = self.records.get_mut(&keys.lock) else {
            let holder = Holder::Nobody;
            let waiters = Some(0);
            return StoredLock {
                holder,
                expires_in: None,
                fence: None,
                waiters,
                readers: Vec::new(),
            };
        };
        let token = record.entry.token(now).cloned();
        let shares = record.entry.shares(now);
        let mut readers: Vec<_> = shares.map(|(token, left)| (token.clone(), left)).collect();
        // Sorts the readers as a server's sorted set does.
        readers.sort_by(|(a, x), (b, y)| (x, a.as_str()).cmp(&(y, b.as_str())));
        StoredLock {
            holder: token.map_or(Holder::Nobody, Holder::Token),
            expires_in: record.entry.expires_in(now),
            fence: record.entry.last_fence(time.wall),
            waiters: Some(record.queue.len(now) as u64),
            readers,
        }
    }

    /// Calls `act` with the lock records of the subject's resources, and with a function that sends a waiter a message
    /// about one of these resources. The function returns `false` if the waiter does not listen.
    fn with<R>(
        &mut self,
        subject: &Subject,
        act: impl FnOnce(&mut [RecordInMode<'_, Token>], &dyn Fn(usize, &str, Message) -> bool) -> R,
    ) -> R {
        let take = |keys: &Keys| self.records.remove(&keys.lock).unwrap_or_default();
        let mut records: Vec<_> = subject.keys.iter().map(take).collect();
        let notify = |position: usize, waiter: &str, message| {
            let Some((channel, number)) = queue::parts(waiter) else { return false };
            let lock = &subject.keys[position].lock;
            match message {
                Message::Free => self.publish(channel, &format!("{number} {lock}")) > 0,
                Message::Probe => self.publish(channel, "") > 0,
            }
        };
        let modes = subject.keys.iter().map(|keys| keys.mode.protocol());
        let done = act(&mut records.iter_mut().zip(modes).collect::<Vec<_>>(), &notify);
        self.records.extend(subject.keys.iter().map(|keys| keys.lock.clone()).zip(records));
        done
    }

    /// Calls `act` with the queue of a semaphore, the slots that the subject names, and two functions:
    ///
    /// - The first function returns how long another slot is still held.
    /// - The second function sends a waiter the slots that the waiter can have. With `None`, the function sends an
    ///   empty message instead, to check that the waiter listens. The function returns `false` if the waiter does not
    ///   listen.
    fn with_permits<R>(
        &mut self,
        now: Moment,
        subject: &Subject,
        act: impl FnOnce(
            &mut Permits,
            &mut [(u32, &mut Entry<Token>)],
            permits::Left<'_>,
            &dyn Fn(&str, Option<&[u32]>) -> bool,
        ) -> R,
    ) -> R {
        let first = subject.permit().expect("the subject is permits");
        let mut permits = self.permits.remove(first.index).unwrap_or_default();
        let take = |keys: &Keys| self.records.remove(&keys.lock).unwrap_or_default();
        let mut records: Vec<_> = subject.keys.iter().map(take).collect();
        let slots = subject.keys.iter().filter_map(Keys::as_permit).map(|permit| permit.slot);
        let mut slots: Vec<_> =
            slots.zip(&mut records).map(|(slot, record)| (slot, &mut record.entry)).collect();
        let left = |slot: u32| {
            let record = self.records.get(&format!("{}{slot}", first.base));
            record.and_then(|record| record.entry.expires_in(now))
        };
        let notify = |waiter: &str, slots: Option<&[u32]>| {
            let Some((channel, number)) = queue::parts(waiter) else { return false };
            let listed = |slots: &[u32]| {
                let slots: Vec<_> = slots.iter().map(u32::to_string).collect();
                format!("{number} {}{}", first.base, slots.join(","))
            };
            self.publish(channel, &slots.map_or_else(String::new, listed)) > 0
        };
        let done = act(&mut permits, &mut slots, &left, &notify);
        self.records.extend(subject.keys.iter().map(|keys| keys.lock.clone()).zip(records));
        self.permits.insert(first.index.clone(), permits);
        done
    }

    fn acquire_permits(
        &mut self,
        time: Time,
        subject: &Subject,
        wanted: Wanted<'_, Token>,
        turns: Turns,
    ) -> Result<Reply, &'static str> {
        let limit = subject.permit().map_or(0, |permit| permit.limit);
        let choice = Choice { limit, offset: wanted.proposal };
        let (checked, holder) = self.with(subject, |records, _| {
            let checked = check(records, time, subject, wanted.proposal);
            (checked, last_holder(records, time.now))
        });
        if let Some(reply) = checked {
            return reply;
        }
        let answered = self.with_permits(time.now, subject, |permits, slots, left, notify| {
            permits::acquire(permits, slots, left, (time, choice, turns), wanted, notify)
        });
        match answered {
            Some(Permitted::Granted(fence)) => Ok(Reply::Granted { fence, clock: time.wall }),
            Some(Permitted::Refused(refused)) => Ok(Reply::Held(Refusal {
                expires_in: refused.expires_in,
                clock: time.wall,
                rank: refused.rank,
                holder,
                permits: FreePermits { slots: refused.free, known: refused.known },
            })),
            None => Err(USED_UP),
        }
    }

    fn release_permits(
        &mut self,
        now: Moment,
        subject: &Subject,
        keep: Option<Duration>,
        place: (Option<&Arc<str>>, Option<u64>),
        turns: Turns,
    ) -> bool {
        self.with_permits(now, subject, |permits, slots, left, notify| {
            let token = (&subject.token, keep);
            permits::release(permits, slots, left, (now, turns), token, place, notify)
        })
    }

    /// Withdraws all offers of the subject's slots to waiters. Lets the node remember the number of the semaphore's
    /// slots for about `ttl` + [`FENCE_MEMORY`] from now; never shortens that time. Must be called after an EXTEND of
    /// the subject.
    fn keep_slots(&mut self, now: Moment, subject: &Subject, ttl: Duration) {
        self.forget_offers(now, subject);
        let permits = subject.permit().and_then(|permit| self.permits.get_mut(permit.index));
        if let Some(permits) = permits {
            permits.keep_slots(now, now.plus(ttl.saturating_add(FENCE_MEMORY)));
        }
    }

    /// For each slot that the subject's token holds, withdraws the offer of the slot to a waiter.
    fn forget_offers(&mut self, now: Moment, subject: &Subject) {
        let Some(Permit { index, .. }) = subject.permit() else { return };
        let is_held = |keys: &&Keys| {
            let record = self.records.get(&keys.lock);
            record.and_then(|record| record.entry.token(now)) == Some(&subject.token)
        };
        let held = subject.keys.iter().filter(is_held).filter_map(Keys::as_permit);
        if let Some(permits) = self.permits.get_mut(index) {
            permits.forget_offers(held.map(|permit| permit.slot));
        }
    }

    fn inspect_permits(&mut self, time: Time, semaphore: &Keys) -> StoredPermits {
        let stored =
            |permits: &mut Permits| (permits.queue.len(time.now) as u64, permits.known(time.now));
        let (waiters, known) =
            self.permits.get_mut(&semaphore.lock).map(stored).unwrap_or_default();
        let held = |slot: u32| {
            let record = self.records.get(&format!("{}{slot}", semaphore.fence))?;
            let holder = Holder::Token(record.entry.token(time.now)?.clone());
            let expires_in = record.entry.expires_in(time.now);
            Some(HeldPermit { slot, holder, expires_in, fence: record.entry.last_fence(time.wall) })
        };
        let held = (0..MAX_PERMITS).filter_map(held).collect();
        StoredPermits { waiters: Some(waiters), known, held }
    }

    /// Forgets records and queues that have expired, and channels without a listener, as a server does. Does nothing
    /// until the node's size has doubled since the last time, so the average request takes little extra time.
    fn forget_expired(&mut self, time: Time) {
        if self.size() < self.full.max(LEAST_FULL) {
            return;
        }
        self.records.retain(|_, LockRecord { entry, queue }| {
            entry.token(time.now).is_some()
                || entry.stored_readers(time.now).is_some()
                || entry.last_fence(time.wall).is_some()
                || !queue.is_empty(time.now)
        });
        self.permits
            .retain(|_, permits| permits.known(time.now) > 0 || !permits.queue.is_empty(time.now));
        self.listeners.retain(|_, listeners| {
            // An empty message only checks whether the callback still listens.
            listeners.get_mut().retain(|listener| listener(""));
            !listeners.get_mut().is_empty()
        });
        self.full = 2 * self.size();
    }

    /// The number of lock keys, semaphores and channels for which the node stores data.
    pub(crate) fn size(&self) -> usize {
        self.records.len() + self.permits.len() + self.listeners.len()
    }

    pub(crate) fn listen(&mut self, channel: &str, listener: MessageCallback) {
        self.listeners.entry(channel.to_owned()).or_default().get_mut().push(listener);
    }

    /// Sends a message, and returns the number of listeners that received it. Removes callbacks that do not listen any
    /// more.
    fn publish(&self, channel: &str, message: &str) -> u64 {
        let Some(listeners) = self.listeners.get(channel) else { return 0 };
        let mut listeners = listeners.borrow_mut();
        listeners.retain(|listener| listener(message));
        listeners.len() as u64
    }

    /// Deletes a lock key, even if it is held, and notifies no waiter.
    pub(crate) fn delete(&mut self, lock: &str) {
        if let Some(record) = self.records.get_mut(lock) {
            record.entry.store_lock(None);
        }
    }

    #[cfg(test)]
    pub(crate) fn record(&mut self, lock: &str) -> &mut LockRecord<Token> {
        self.records.entry(lock.to_owned()).or_default()
    }

    #[cfg(test)]
    pub(crate) fn permits(&mut self, index: &str) -> &mut Permits {
        self.permits.entry(index.to_owned()).or_default()
    }

    /// Fills the queues with invalid entries.
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
        let mut permits: Vec<_> = self.permits.iter_mut().collect();
        permits.sort_unstable_by_key(|(index, _)| *index);
        for (_, permits) in permits {
            permits.forge(now, channels.iter().map(String::as_str), random);
        }
    }

    /// Removes all listeners, as if all connections were closed.
    pub(crate) fn forget_listeners(&mut self) {
        self.listeners.clear();
    }

    /// The tokens that hold a lock.
    #[cfg(test)]
    pub(crate) fn tokens(&self, now: Moment) -> Vec<Token> {
        let tokens = |record: &LockRecord<Token>| {
            let readers: Vec<_> =
                record.entry.shares(now).map(|(token, _)| token.clone()).collect();
            if readers.is_empty() {
                record.entry.token(now).cloned().into_iter().collect()
            } else {
                readers
            }
        };
        self.records.values().flat_map(tokens).collect()
    }

    #[cfg(test)]
    pub(crate) fn has_waiters(&mut self, now: Moment) -> bool {
        self.records.values_mut().any(|record| !record.queue.is_empty(now))
            || self.permits.values_mut().any(|permits| !permits.queue.is_empty(now))
    }
}

/// Checks an ACQUIRE or TRANSFER. Returns an error if the fence counter is used up, as fence.lua does. Returns `Own` if
/// the token already holds one of the resources. Otherwise returns `None`: the node then handles the request.
fn check(
    records: &[RecordInMode<'_, Token>],
    time: Time,
    subject: &Subject,
    proposal: u64,
) -> Option<Result<Reply, &'static str>> {
    let fences = records.iter().filter_map(|(record, _)| record.entry.last_fence(time.wall));
    let last = fences.max().unwrap_or_default();
    if next_fence(last, proposal, time.wall).is_none() {
        return Some(Err(USED_UP));
    }
    let is_own = |(record, mode): &RecordInMode<'_, Token>| {
        let entry = &record.entry;
        let token = &subject.token;
        let may_read = *mode != LockMode::Exclusive;
        entry.token(time.now) == Some(token) || (may_read && entry.has_share(time.now, token))
    };
    records.iter().any(is_own).then_some(Ok(Reply::Own))
}

/// Returns why the node refuses TRANSFER, as transfer.lua does: a lock key or the share to upgrade is missing, or a
/// lock key has another value. The marker of readers counts only if no other resource has another token.
fn elsewhere(records: &[RecordInMode<'_, Token>], time: Time, giver: &Token) -> Elsewhere {
    let mut elsewhere = Elsewhere { holder: Holder::Nobody, expires_in: None, clock: time.wall };
    for (record, mode) in records {
        let is_given = record.entry.is_given(time.now, giver, *mode);
        let is_read = *mode == LockMode::Upgraded && record.entry.is_read(time.now);
        let lacks_share = is_read && !record.entry.has_share(time.now, giver);
        match record.entry.token(time.now) {
            Some(_) if is_given => {}
            Some(token) if !lacks_share => {
                if token.is_marker() && elsewhere.holder != Holder::Nobody {
                    continue;
                }
                elsewhere.holder = Holder::Token(token.clone());
                elsewhere.expires_in = record.entry.expires_in(time.now);
            }
            _ => return Elsewhere { holder: Holder::Nobody, expires_in: None, ..elsewhere },
        }
    }
    elsewhere
}

/// Returns the name of the holder whose lock expires last, as acquire.lua does. Ignores resources that readers hold and
/// that the request wants to read.
fn last_holder(records: &[RecordInMode<'_, Token>], now: Moment) -> Option<Arc<str>> {
    // Among equal elements, acquire.lua chooses the first, but `max_by_key` the last. So the order is reversed here.
    let entries = records
        .iter()
        .rev()
        .filter(|(record, mode)| *mode != LockMode::Shared || !record.entry.is_read(now));
    let last = entries.map(|(record, _)| &record.entry).max_by_key(|e| e.expires_in(now))?;
    last.token(now)?.holder().map(Arc::from)
}

impl fmt::Debug for NodeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.fmt(f)
    }
}
