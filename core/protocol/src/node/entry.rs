//! The lock and the fence counter of one resource on a node, and each request's effect on them.
//!
//! Decides the answers to ACQUIRE, TRANSFER, RAISE, EXTEND, HEAL, RELEASE, UNDO and GIVE BACK without regard
//! to the queue of waiters. Called by `record.rs`, which adds the queue, and by the model.

use crate::fence::{FENCE_MEMORY, fence_memory, next_fence};
use crate::round::Vote;
use crate::tally::Healed;
use crate::term::Moment;
use std::time::Duration;

/// The time by the clocks of a node.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// The time by the clock that expires lock keys.
    pub now: Moment,
    /// The wall clock, in microseconds since the Unix epoch. It decides when fence counters expire and how
    /// large a fence must be at least.
    pub wall: u64,
}

/// The lock key and the fence key of one resource. `T` is the type of tokens.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Entry<T> {
    /// The token and when it expires by the node's own clock. May have expired already.
    lock: Option<(T, Moment)>,
    counter: Counter,
}

/// The last fence that the node granted, 0 if none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Hash)]
struct Counter {
    fence: u64,
    /// When the node forgets the fence, by its wall clock in microseconds.
    expires: u64,
}

impl Counter {
    fn get(self, wall: u64) -> u64 {
        if wall < self.expires { self.fence } else { 0 }
    }

    fn set(&mut self, fence: u64, ttl: Duration, wall: u64) {
        *self = Self { fence, expires: wall };
        self.keep(fence_memory(fence, ttl, wall), wall);
    }

    /// Keeps the counter for at least `memory` from now on.
    fn keep(&mut self, memory: Duration, wall: u64) {
        let memory = u64::try_from(memory.as_micros()).unwrap_or(u64::MAX);
        self.expires = self.expires.max(wall.saturating_add(memory));
    }
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self { lock: None, counter: Counter::default() }
    }
}

impl<T: Clone + PartialEq> Entry<T> {
    /// The token that holds the resource; `None` if it is free.
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

    /// The last fence that the node granted; `None` if there is none or it is forgotten.
    pub fn last_fence(&self, wall: u64) -> Option<u64> {
        Some(self.counter.get(wall)).filter(|fence| *fence > 0)
    }

    fn set(&mut self, time: Time, token: &T, ttl: Duration, fence: u64) {
        self.counter.set(fence, ttl, time.wall);
        self.lock = Some((token.clone(), time.now.plus(ttl)));
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

    /// RAISE: raises the counter to at least `fence` if `token` holds the resource. Returns whether `token`
    /// holds the resource.
    pub fn raise(&mut self, time: Time, token: &T, ttl: Duration, fence: u64) -> bool {
        let is_held = self.is_held_by(time.now, token);
        if is_held && self.counter.get(time.wall) < fence {
            self.counter.set(fence, ttl, time.wall);
        }
        is_held
    }

    /// EXTEND: prolongs the lock and the counter if `token` holds the resource, and returns whether it
    /// does. Never shortens them.
    pub fn extend(&mut self, time: Time, token: &T, ttl: Duration) -> bool {
        let is_held = self.is_held_by(time.now, token);
        if let Some((_, expires)) = self.lock.as_mut().filter(|_| is_held) {
            *expires = time.now.plus(ttl).max(*expires);
            if self.counter.get(time.wall) > 0 {
                self.counter.keep(ttl.saturating_add(FENCE_MEMORY), time.wall);
            }
        }
        is_held
    }

    /// HEAL: sets the key if the resource is free, or if the token `giver` holds it, from which `token` was
    /// transferred elsewhere. Returns whether `token` holds the resource now, and whether the node has granted a
    /// larger fence than `fence`, the fence of the lease.
    pub fn heal(
        &mut self,
        time: Time,
        (token, giver): (&T, Option<&T>),
        ttl: Duration,
        fence: u64,
    ) -> Healed {
        let last = self.counter.get(time.wall);
        if self.token(time.now).is_none_or(|holder| Some(holder) == giver) {
            self.lock = Some((token.clone(), time.now.plus(ttl)));
            if last < fence {
                self.counter.set(fence, ttl, time.wall);
            }
        } else if !self.is_held_by(time.now, token) {
            return Healed::Held;
        }
        if last > fence { Healed::Passed } else { Healed::Clean }
    }

    /// RELEASE and UNDO: deletes the key if `token` holds the resource, and returns whether it did.
    pub fn release(&mut self, now: Moment, token: &T) -> bool {
        let is_held = self.is_held_by(now, token);
        if is_held {
            self.lock = None;
        }
        is_held
    }

    /// GIVE BACK, the undo of TRANSFER: if `token` holds the resource, sets the token of the giver again, for the time
    /// that is `left` to adopt its lease. Returns whether `token` held the resource.
    pub fn give_back(&mut self, now: Moment, token: &T, giver: &T, left: Duration) -> bool {
        let is_held = self.is_held_by(now, token);
        if is_held {
            self.lock = (!left.is_zero()).then(|| (giver.clone(), now.plus(left)));
        }
        is_held
    }

    /// RELEASE that keeps the key: makes it expire after `ttl` if `token` holds the resource, and returns whether
    /// it does. Unlike EXTEND, it may shorten the time, and it leaves the counter as it is: no lease relies on
    /// the key any more.
    pub fn keep(&mut self, now: Moment, token: &T, ttl: Duration) -> bool {
        let is_held = self.is_held_by(now, token);
        if let Some((_, expires)) = self.lock.as_mut().filter(|_| is_held) {
            *expires = now.plus(ttl);
        }
        is_held
    }
}

/// Direct access for tests. Tests also use it to change keys as a program other than quorlock might.
impl<T: Clone + PartialEq> Entry<T> {
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

    /// Sets or deletes the fence key: the fence and when it expires, by the wall clock in microseconds.
    pub fn store_fence(&mut self, counter: Option<(u64, u64)>) {
        let counter = counter.map(|(fence, expires)| Counter { fence, expires });
        self.counter = counter.unwrap_or_default();
    }
}

/// ACQUIRE: locks all entries or none, and returns the vote; `None` if the fences are used up. All entries
/// get the same fence, which is larger than the last fence of each.
pub fn acquire<T: Clone + PartialEq>(
    entries: &mut [&mut Entry<T>],
    time: Time,
    token: &T,
    ttl: Duration,
    proposal: u64,
) -> Option<Vote> {
    if let Some(last) = entries.iter().filter_map(|entry| entry.expires_in(time.now)).max() {
        return Some(Vote::Held { expires_in: Some(last) });
    }
    grant(entries, time, token, ttl, proposal)
}

/// TRANSFER: ACQUIRE where the token `giver` holds all entries, instead of nobody. The vote of a refusal does
/// not say when the lock expires, because a lock that has expired cannot be transferred either.
pub fn transfer<T: Clone + PartialEq>(
    entries: &mut [&mut Entry<T>],
    time: Time,
    giver: &T,
    token: &T,
    ttl: Duration,
    proposal: u64,
) -> Option<Vote> {
    if !entries.iter().all(|entry| entry.is_held_by(time.now, giver)) {
        return Some(Vote::Held { expires_in: None });
    }
    grant(entries, time, token, ttl, proposal)
}

/// Locks all entries, whoever holds them. They get one fence, larger than the last fence of each.
fn grant<T: Clone + PartialEq>(
    entries: &mut [&mut Entry<T>],
    time: Time,
    token: &T,
    ttl: Duration,
    proposal: u64,
) -> Option<Vote> {
    let last = entries.iter().map(|entry| entry.counter.get(time.wall)).max().unwrap_or_default();
    let fence = next_fence(last, proposal, time.wall)?;
    entries.iter_mut().for_each(|entry| entry.set(time, token, ttl, fence));
    Some(Vote::Granted { fence })
}
