//! What a node keeps of one resource, and what it does with it. A server does the same by the
//! scripts (`script.rs`); in-memory nodes, the simulation and the model checker do it by this.

use crate::protocol::{Moment, Vote, next_fence};
use std::time::Duration;

/// The lock key and the fence key of one resource. `T` is what tells tokens apart.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct Entry<T> {
    /// The token, and when it expires by the node's own clock.
    lock: Option<(T, Moment)>,
    /// The last fence that was given out; never forgotten before the rest is.
    fence: u64,
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self { lock: None, fence: 0 }
    }
}

impl<T: Clone + PartialEq> Entry<T> {
    /// The token that is there.
    pub(crate) fn token(&self, now: Moment) -> Option<&T> {
        self.lock.as_ref().filter(|(_, expires)| now < *expires).map(|(token, _)| token)
    }

    fn is_held_by(&self, now: Moment, token: &T) -> bool {
        self.token(now) == Some(token)
    }

    /// When what is there expires; `None` if it is free.
    pub(crate) fn expires_in(&self, now: Moment) -> Option<Duration> {
        self.lock.as_ref().filter(|(_, expires)| now < *expires).map(|(_, end)| end.since(now))
    }

    /// The last fence that was given out, if there was one.
    #[cfg(feature = "client")]
    pub(crate) fn last_fence(&self) -> Option<u64> {
        Some(self.fence).filter(|fence| *fence > 0)
    }

    fn set(&mut self, now: Moment, token: &T, ttl: Duration, fence: u64) {
        self.fence = fence;
        self.lock = Some((token.clone(), now.plus(ttl)));
    }

    /// RAISE: whether the fence is stored.
    pub(crate) fn raise(&mut self, now: Moment, token: &T, fence: u64) -> bool {
        let is_held = self.is_held_by(now, token);
        if is_held {
            self.fence = self.fence.max(fence);
        }
        is_held
    }

    /// EXTEND: whether the key is there. It is never shortened.
    pub(crate) fn extend(&mut self, now: Moment, token: &T, ttl: Duration) -> bool {
        let lock = self.lock.as_mut().filter(|(held, expires)| held == token && now < *expires);
        lock.map(|(_, expires)| *expires = now.plus(ttl).max(*expires)).is_some()
    }

    /// HEAL: whether the key is there now.
    pub(crate) fn heal(&mut self, now: Moment, token: &T, ttl: Duration, fence: u64) -> bool {
        let is_free = self.token(now).is_none();
        if is_free {
            self.set(now, token, ttl, fence.max(self.fence));
        }
        is_free || self.is_held_by(now, token)
    }

    /// RELEASE and UNDO: whether the key was there.
    pub(crate) fn release(&mut self, now: Moment, token: &T) -> bool {
        let is_held = self.is_held_by(now, token);
        if is_held {
            self.lock = None;
        }
        is_held
    }
}

/// ACQUIRE of all of these together; `None` if the fences are used up. All get the same fence, which
/// is larger than the last of each. `wall_clock` is the node's, in microseconds.
pub(crate) fn acquire<T: Clone + PartialEq>(
    entries: &mut [&mut Entry<T>],
    now: Moment,
    token: &T,
    ttl: Duration,
    proposal: u64,
    wall_clock: u64,
) -> Option<Vote> {
    if let Some(last) = entries.iter().filter_map(|entry| entry.expires_in(now)).max() {
        return Some(Vote::Held { expires_in: Some(last) });
    }
    let last = entries.iter().map(|entry| entry.fence).max().unwrap_or_default();
    let fence = next_fence(last, proposal, wall_clock)?;
    entries.iter_mut().for_each(|entry| entry.set(now, token, ttl, fence));
    Some(Vote::Granted { fence })
}
