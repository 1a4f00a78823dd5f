//! The lock and the fence counter of one resource on a node, and each request's effect on them.
//!
//! This module decides the answers to ACQUIRE, TRANSFER, RAISE, EXTEND, HEAL, RELEASE, UNDO and GIVE BACK without
//! regard to the queue of waiters. Its callers are `record.rs`, which adds the queue, and the model.

use crate::fence::{FENCE_MEMORY, fence_memory, next_fence};
use crate::node::readers::{LockMode, Readers};
use crate::round::Vote;
use crate::tally::Healed;
use crate::term::Moment;
use std::time::Duration;

/// The time by the clocks of a node.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// The time by the clock that decides when lock keys expire.
    pub now: Moment,
    /// The wall clock, in microseconds since the Unix epoch. It decides when fence counters expire, and which floor a
    /// new fence has (`fence.rs`).
    pub wall: u64,
}

/// About one in this many ACQUIREs of readers also removes the expired shares, so that the set stays small. The wall
/// clock decides which of them do so.
const FORGETTING: u64 = 32;

/// A value of a lock key: a token, the marker, or a value that another program stored.
pub trait LockValue: Clone + PartialEq {
    /// The marker that the lock key holds while readers hold the resource. It is not a token.
    fn readers() -> Self;
}

/// The lock key, the readers and the fence key of one resource. `T` is the type of tokens.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Entry<T> {
    /// The value of the lock key, and when the key expires by the node's own clock; `None` if there is no key. The key
    /// may have expired already.
    pub(super) lock: Option<(T, Moment)>,
    pub(super) readers: Readers<T>,
    counter: Counter,
}

/// The fence counter: the last fence that the node granted; 0 if it has granted none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Hash)]
struct Counter {
    fence: u64,
    /// When the node forgets the fence, by the node's wall clock in microseconds.
    expires: u64,
}

impl Counter {
    fn get(self, wall: u64) -> u64 {
        if wall < self.expires { self.fence } else { 0 }
    }

    fn set(&mut self, fence: u64, ttl: Duration, wall: u64) {
        *self = Self { fence, expires: wall };
        self.remember(fence_memory(fence, ttl, wall), wall);
    }

    /// Remembers the counter for at least `memory` from now on.
    fn remember(&mut self, memory: Duration, wall: u64) {
        let memory = u64::try_from(memory.as_micros()).unwrap_or(u64::MAX);
        self.expires = self.expires.max(wall.saturating_add(memory));
    }
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self { lock: None, readers: Readers::default(), counter: Counter::default() }
    }
}

impl<T: LockValue> Entry<T> {
    /// The token that holds the resource, or the marker if readers hold it; `None` if the resource is free.
    pub fn token(&self, now: Moment) -> Option<&T> {
        self.lock.as_ref().filter(|(_, expires)| now < *expires).map(|(token, _)| token)
    }

    fn is_held_by(&self, now: Moment, token: &T) -> bool {
        self.token(now) == Some(token)
    }

    /// The time until the lock expires; `None` if the resource is free.
    pub fn expires_in(&self, now: Moment) -> Option<Duration> {
        self.lock.as_ref().filter(|(_, expires)| now < *expires).map(|(_, end)| end.since(now))
    }

    /// The last fence that the node granted; `None` if the node has granted none or has forgotten it.
    pub fn last_fence(&self, wall: u64) -> Option<u64> {
        Some(self.counter.get(wall)).filter(|fence| *fence > 0)
    }

    /// Creates an entry with the fence counter of an earlier lease; without a counter if `fence` is 0.
    #[cfg(test)]
    pub fn with_counter(time: Time, fence: u64) -> Self {
        let mut entry = Self::default();
        if fence > 0 {
            entry.counter.set(fence, Duration::ZERO, time.wall);
        }
        entry
    }

    /// Whether the entry had a counter that the node has forgotten.
    #[cfg(test)]
    pub fn has_forgotten(&self, wall: u64) -> bool {
        self.counter.fence > 0 && self.counter.get(wall) == 0
    }

    /// RAISE: raises the counter to at least `fence` if `token` holds the resource in this mode. Returns whether
    /// `token` holds the resource.
    pub fn raise(
        &mut self,
        time: Time,
        token: &T,
        ttl: Duration,
        fence: u64,
        mode: LockMode,
    ) -> bool {
        let is_held = self.holds(time.now, token, mode);
        if is_held && self.counter.get(time.wall) < fence {
            self.counter.set(fence, ttl, time.wall);
        }
        is_held
    }

    /// EXTEND: prolongs the lock and the life of the counter if `token` holds the resource. Never shortens either.
    /// Returns whether `token` holds the resource.
    pub fn extend(&mut self, time: Time, token: &T, ttl: Duration) -> bool {
        let is_held = self.is_held_by(time.now, token);
        if let Some((_, expires)) = self.lock.as_mut().filter(|_| is_held) {
            *expires = time.now.plus(ttl).max(*expires);
            self.keep_counter(time, ttl);
        }
        is_held
    }

    /// Remembers the counter for at least as long as a lock of this ttl needs it.
    pub(super) fn keep_counter(&mut self, time: Time, ttl: Duration) {
        if self.counter.get(time.wall) > 0 {
            self.counter.remember(ttl.saturating_add(FENCE_MEMORY), time.wall);
        }
    }

    /// HEAL: makes `token` a holder in this mode if the resource is free or if `giver` holds it. `giver` is the token
    /// from which other nodes have transferred the lease to `token`. In shared mode, `token` also joins other readers.
    /// Returns whether `token` holds the resource now, and whether the node has granted a larger fence than `fence`,
    /// the fence of the lease.
    pub fn heal(
        &mut self,
        time: Time,
        (token, giver): (&T, Option<&T>),
        ttl: Duration,
        fence: u64,
        mode: LockMode,
    ) -> Healed {
        let now = time.now;
        let last = self.counter.get(time.wall);
        if !self.can_be_healed(now, (token, giver), mode) {
            return Healed::Held;
        }
        let is_held = match mode {
            LockMode::Shared => self.has_share(now, token),
            _ => self.is_held_by(now, token),
        };
        if !is_held {
            let is_own = self.token(now).is_some_and(|held| held == token || Some(held) == giver);
            let kept = self.expires_in(now).filter(|_| mode == LockMode::Shared && is_own);
            self.take(now, (token, giver), kept.unwrap_or_default().max(ttl), mode);
            if last < fence {
                self.counter.set(fence, ttl, time.wall);
            }
        }
        if last > fence { Healed::Passed } else { Healed::Clean }
    }

    /// Whether HEAL can make `token` a holder in this mode: the resource is free, or is held by `token` or its giver,
    /// or the mode is shared and readers hold the resource.
    pub(super) fn can_be_healed(
        &self,
        now: Moment,
        (token, giver): (&T, Option<&T>),
        mode: LockMode,
    ) -> bool {
        let Some(held) = self.token(now) else { return true };
        held == token
            || giver.is_some_and(|giver| self.is_given(now, giver, mode))
            || (mode == LockMode::Shared && self.is_read(now))
    }

    /// RELEASE and UNDO: deletes the key if `token` holds the resource. Returns whether `token` held the resource.
    pub fn release(&mut self, now: Moment, token: &T) -> bool {
        let is_held = self.is_held_by(now, token);
        if is_held {
            self.lock = None;
        }
        is_held
    }

    /// GIVE BACK, the undo of TRANSFER: if `token` holds the resource, sets the giver's token again, for the time
    /// `left`; deletes the key if `left` is zero. Returns whether `token` held the resource.
    pub(crate) fn give_back(&mut self, now: Moment, token: &T, giver: &T, left: Duration) -> bool {
        let is_held = self.is_held_by(now, token);
        if is_held {
            self.lock = (!left.is_zero()).then(|| (giver.clone(), now.plus(left)));
        }
        is_held
    }

    /// RELEASE that keeps the key: makes the key expire after `ttl` if `token` holds the resource, and returns whether
    /// `token` holds it. Unlike EXTEND, this RELEASE may shorten the life of the key, and does not prolong the life of
    /// the counter: no lease relies on the key any more.
    pub fn keep(&mut self, now: Moment, token: &T, ttl: Duration) -> bool {
        let is_held = self.is_held_by(now, token);
        if let Some((_, expires)) = self.lock.as_mut().filter(|_| is_held) {
            *expires = now.plus(ttl);
        }
        is_held
    }
}

/// Direct access to the keys, for tests. Some tests change the keys as a program other than quorlock might.
impl<T: LockValue> Entry<T> {
    /// The lock key: the token and the time until it expires.
    pub fn stored_lock(&self, now: Moment) -> Option<(&T, Duration)> {
        self.token(now).zip(self.expires_in(now))
    }

    /// The fence key: the last fence and the time until it expires.
    pub fn stored_fence(&self, wall: u64) -> Option<(u64, Duration)> {
        let left = Duration::from_micros(self.counter.expires.saturating_sub(wall));
        self.last_fence(wall).map(|fence| (fence, left))
    }

    /// Sets or deletes the lock key.
    pub fn store_lock(&mut self, lock: Option<(T, Moment)>) {
        self.lock = lock;
    }

    /// Deletes the set of readers.
    pub fn delete_readers(&mut self) {
        self.readers = Readers::default();
    }

    /// Sets or deletes the fence key: the fence and when it expires, by the wall clock in microseconds.
    pub fn store_fence(&mut self, counter: Option<(u64, u64)>) {
        let counter = counter.map(|(fence, expires)| Counter { fence, expires });
        self.counter = counter.unwrap_or_default();
    }
}

/// The entry of a resource, and the mode in which a request locks it.
pub type EntryInMode<'a, T> = (&'a mut Entry<T>, LockMode);

/// The time until the resource can be locked in this mode, if no holder extends its lease; `None` if it can be locked
/// now.
pub(super) fn held_for<T: LockValue>(
    entry: &Entry<T>,
    now: Moment,
    mode: LockMode,
) -> Option<Duration> {
    entry.expires_in(now).filter(|_| mode != LockMode::Shared || !entry.is_read(now))
}

/// ACQUIRE: locks all entries or none, each in its mode, and returns the vote; `None` if the fences are used up. All
/// entries get the same fence, which is larger than the last fence of every entry.
pub fn acquire<T: LockValue>(
    entries: &mut [EntryInMode<'_, T>],
    time: Time,
    token: &T,
    ttl: Duration,
    proposal: u64,
) -> Option<Vote> {
    let held = entries.iter().filter_map(|(entry, mode)| held_for(entry, time.now, *mode));
    if let Some(last) = held.max() {
        return Some(Vote::Held { expires_in: Some(last) });
    }
    for (entry, mode) in entries.iter_mut() {
        if *mode == LockMode::Shared
            && entry.is_read(time.now)
            && time.wall.is_multiple_of(FORGETTING)
        {
            entry.forget_expired(time.now);
        }
    }
    grant(entries, time, (token, None), ttl, proposal)
}

/// TRANSFER: like ACQUIRE, but the token `giver` must hold all entries. (For ACQUIRE, all entries must be free.) A
/// refusal does not say when the lock expires, because waiting does not help: an expired lock cannot be transferred
/// either.
pub fn transfer<T: LockValue>(
    entries: &mut [EntryInMode<'_, T>],
    time: Time,
    giver: &T,
    token: &T,
    ttl: Duration,
    proposal: u64,
) -> Option<Vote> {
    if !entries.iter().all(|(entry, mode)| entry.is_given(time.now, giver, *mode)) {
        return Some(Vote::Held { expires_in: None });
    }
    grant(entries, time, (token, Some(giver)), ttl, proposal)
}

/// Makes the token the holder of all entries, in place of their present holders. All entries get the same fence, which
/// is larger than the last fence of every entry.
fn grant<T: LockValue>(
    entries: &mut [EntryInMode<'_, T>],
    time: Time,
    tokens: (&T, Option<&T>),
    ttl: Duration,
    proposal: u64,
) -> Option<Vote> {
    let last = entries.iter().map(|(entry, _)| entry.counter.get(time.wall)).max();
    let fence = next_fence(last.unwrap_or_default(), proposal, time.wall)?;
    let is_upgrade = entries.iter().any(|(_, mode)| *mode == LockMode::Upgraded);
    for (entry, mode) in entries {
        entry.counter.set(fence, ttl, time.wall);
        // If an upgrade fails, the shared lease goes on, and relies on the time that the node has promised. So an
        // upgrade never shortens the life of a lock, not even for resources that the lease already holds exclusively.
        let promised = entry.expires_in(time.now).filter(|_| is_upgrade);
        let ttl = promised.unwrap_or_default().max(ttl);
        entry.take(time.now, tokens, ttl, *mode);
    }
    Some(Vote::Granted { fence })
}
