//! What a node keeps of one resource, and what it does with it. A server does the same by the
//! scripts (`script.rs`); in-memory nodes, the simulation and the model checker do it by this.

use crate::fence::{FENCE_MEMORY, fence_memory, next_fence};
use crate::round::Vote;
use crate::tally::Healed;
use crate::term::Moment;
use std::time::Duration;

/// The time at a node.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// By the clock that expires lock keys.
    pub now: Moment,
    /// By its wall clock, in microseconds since the Unix epoch. It expires fence counters, and is the
    /// floor of fences.
    pub wall: u64,
}

/// The lock key and the fence key of one resource. `T` is what tells tokens apart.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Entry<T> {
    /// The token, and when it expires by the node's own clock.
    lock: Option<(T, Moment)>,
    counter: Counter,
}

/// The last fence that the node gave out, 0 if none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Hash)]
struct Counter {
    fence: u64,
    /// When it is forgotten, by the node's wall clock.
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

    /// Keeps it for at least so long from now on, if it is still there.
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
    /// The token that is there.
    pub fn token(&self, now: Moment) -> Option<&T> {
        self.lock.as_ref().filter(|(_, expires)| now < *expires).map(|(token, _)| token)
    }

    fn is_held_by(&self, now: Moment, token: &T) -> bool {
        self.token(now) == Some(token)
    }

    /// When what is there expires; `None` if it is free.
    pub fn expires_in(&self, now: Moment) -> Option<Duration> {
        self.lock.as_ref().filter(|(_, expires)| now < *expires).map(|(_, end)| end.since(now))
    }

    /// The last fence that was given out, if it is still known.
    pub fn last_fence(&self, wall: u64) -> Option<u64> {
        Some(self.counter.get(wall)).filter(|fence| *fence > 0)
    }

    fn set(&mut self, time: Time, token: &T, ttl: Duration, fence: u64) {
        self.counter.set(fence, ttl, time.wall);
        self.lock = Some((token.clone(), time.now.plus(ttl)));
    }

    /// The counter as a lease of old left it.
    #[cfg(test)]
    pub fn with_counter(time: Time, fence: u64) -> Self {
        let mut entry = Self::default();
        if fence > 0 {
            entry.counter.set(fence, Duration::ZERO, time.wall);
        }
        entry
    }

    /// Whether it had a counter that is forgotten.
    #[cfg(test)]
    pub fn has_forgotten(&self, wall: u64) -> bool {
        self.counter.fence > 0 && self.counter.get(wall) == 0
    }

    /// RAISE: whether the fence is stored.
    pub fn raise(&mut self, time: Time, token: &T, ttl: Duration, fence: u64) -> bool {
        let is_held = self.is_held_by(time.now, token);
        if is_held && self.counter.get(time.wall) < fence {
            self.counter.set(fence, ttl, time.wall);
        }
        is_held
    }

    /// EXTEND: whether the key is there. Neither it nor the counter is ever kept for less long.
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

    /// HEAL: whether the key is there now. `fence` is the lease's own.
    pub fn heal(&mut self, time: Time, token: &T, ttl: Duration, fence: u64) -> Healed {
        let last = self.counter.get(time.wall);
        if self.token(time.now).is_none() {
            self.lock = Some((token.clone(), time.now.plus(ttl)));
            if last < fence {
                self.counter.set(fence, ttl, time.wall);
            }
        } else if !self.is_held_by(time.now, token) {
            return Healed::Held;
        }
        if last > fence { Healed::Passed } else { Healed::Clean }
    }

    /// RELEASE and UNDO: whether the key was there.
    pub fn release(&mut self, now: Moment, token: &T) -> bool {
        let is_held = self.is_held_by(now, token);
        if is_held {
            self.lock = None;
        }
        is_held
    }
}

/// What tests look at, and change as a program other than quorlock might.
impl<T: Clone + PartialEq> Entry<T> {
    /// The lock key: the token, and when it expires.
    pub fn stored_lock(&self, now: Moment) -> Option<(&T, Duration)> {
        self.token(now).zip(self.expires_in(now))
    }

    /// The fence key: the last fence, and when it expires.
    pub fn stored_fence(&self, wall: u64) -> Option<(u64, Duration)> {
        let left = Duration::from_micros(self.counter.expires.saturating_sub(wall));
        self.last_fence(wall).map(|fence| (fence, left))
    }

    /// Sets or deletes the lock key.
    pub fn store_lock(&mut self, lock: Option<(T, Moment)>) {
        self.lock = lock;
    }

    /// Sets or deletes the fence key: the fence, and when it expires by the wall clock.
    pub fn store_fence(&mut self, counter: Option<(u64, u64)>) {
        let counter = counter.map(|(fence, expires)| Counter { fence, expires });
        self.counter = counter.unwrap_or_default();
    }
}

/// ACQUIRE of all of these together; `None` if the fences are used up. All get the same fence, which
/// is larger than the last of each.
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
    let last = entries.iter().map(|entry| entry.counter.get(time.wall)).max().unwrap_or_default();
    let fence = next_fence(last, proposal, time.wall)?;
    entries.iter_mut().for_each(|entry| entry.set(time, token, ttl, fence));
    Some(Vote::Granted { fence })
}
