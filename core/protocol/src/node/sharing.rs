//! Shared mode on a node: how each request changes the readers of a resource. A server does the same in
//! `scripts/shared/readers.lua`.
//!
//! While readers hold the resource, the lock key holds a marker ([`LockValue::readers`]). The marker expires together
//! with the last share. Because of the marker, the node refuses exclusive requests, even those of programs other than
//! quorlock. Without the marker, the resource has no readers, whatever the set of readers contains.
//!
//! `record.rs` and the model call this module. `entry.rs` has the rules that are the same in shared and exclusive mode.

use crate::node::entry::{Entry, LockValue, Time};
use crate::node::readers::{LockMode, Readers};
use crate::term::Moment;
use std::time::Duration;

impl<T: LockValue> Entry<T> {
    /// Whether readers hold the resource.
    pub fn is_read(&self, now: Moment) -> bool {
        self.token(now) == Some(&T::readers())
    }

    /// The set of readers as a server stores it: each reader with the moment at which its share expires, and the time
    /// until the set expires. `None` if a server would store no set.
    pub fn stored_readers(&self, now: Moment) -> Option<(&[(T, Moment)], Duration)> {
        let Readers { shares, kept_until } = &self.readers;
        (now < *kept_until && !shares.is_empty()).then(|| (&**shares, kept_until.since(now)))
    }

    /// Simulates a node that was paused for `pause` between reading its clock and setting the keys. The ttl of a key
    /// counts from the moment at which the key is set, so the keys that the request changed expire later. The ttl of a
    /// share counts from the clock reading, so shares do not expire later.
    #[cfg(test)]
    pub(crate) fn set_after(&mut self, before: &Self, pause: Duration) {
        let set = |(token, expires): &(T, Moment)| (token.clone(), expires.plus(pause));
        if self.lock != before.lock {
            self.lock = self.lock.as_ref().map(set);
        }
        if self.readers.kept_until != before.readers.kept_until {
            self.readers.kept_until = self.readers.kept_until.plus(pause);
        }
    }

    /// The readers whose share has not expired, each with the time until the share expires.
    pub fn shares(&self, now: Moment) -> impl Iterator<Item = (&T, Duration)> {
        let set = self.stored_readers(now).filter(|_| self.is_read(now));
        let shares = set.map_or(&[][..], |(shares, _)| shares).iter();
        shares
            .filter(move |(_, until)| now < *until)
            .map(move |(token, end)| (token, end.since(now)))
    }

    /// Whether the token is a reader of the resource.
    pub fn has_share(&self, now: Moment, token: &T) -> bool {
        self.shares(now).any(|(reader, _)| reader == token)
    }

    /// Whether the token holds the resource in this mode. Even in shared mode, a token in the lock key holds the
    /// resource: the token of a downgraded lease may still be in the lock key.
    pub fn holds(&self, now: Moment, token: &T, mode: LockMode) -> bool {
        self.token(now) == Some(token) || (mode == LockMode::Shared && self.has_share(now, token))
    }

    /// Whether a TRANSFER in this mode can take the resource from `giver`.
    pub fn is_given(&self, now: Moment, giver: &T, mode: LockMode) -> bool {
        match mode {
            LockMode::Upgraded => self.token(now) == Some(giver) || self.reads_alone(now, giver),
            _ => self.holds(now, giver, mode),
        }
    }

    /// Whether the token is the only reader.
    pub(crate) fn reads_alone(&self, now: Moment, token: &T) -> bool {
        self.has_share(now, token) && self.shares(now).count() == 1
    }

    /// Removes the readers whose share has expired.
    pub(crate) fn forget_expired(&mut self, now: Moment) {
        self.readers.shares.retain(|(_, until)| now < *until);
    }

    /// Makes the token the only reader.
    pub(crate) fn begin_reading(&mut self, now: Moment, token: &T, ttl: Duration) {
        let until = now.plus(ttl);
        self.readers = Readers { shares: vec![(token.clone(), until)], kept_until: until };
        self.lock = Some((T::readers(), until));
    }

    /// Adds the token to the readers of a resource that readers hold. Never shortens the token's share, or the life of
    /// a key.
    pub(crate) fn join_readers(&mut self, now: Moment, token: &T, ttl: Duration) {
        let until = now.plus(ttl);
        if self.stored_readers(now).is_none() {
            self.readers = Readers::default();
        }
        let own = self.shares(now).find(|(reader, _)| *reader == token).map(|(_, left)| left);
        if own.is_none_or(|left| left < ttl) {
            self.readers.put(token.clone(), until);
        }
        self.readers.kept_until = self.readers.kept_until.max(until);
        if let Some((_, expires)) = &mut self.lock {
            *expires = until.max(*expires);
        }
    }

    /// Makes the keys expire together with the last share, or deletes the keys if no unexpired share is left. Called
    /// after a share was removed or shortened.
    fn fit_expiry(&mut self, now: Moment) {
        let last = self.readers.shares.iter().map(|(_, until)| *until).max();
        match last.filter(|last| now < *last) {
            Some(last) => {
                self.readers.kept_until = last;
                self.lock = Some((T::readers(), last));
            }
            None => {
                self.readers = Readers::default();
                self.lock = None;
            }
        }
    }

    /// Removes the share of the token. Returns whether the share was stored. If it was, no writer has acquired the
    /// resource since the share was granted, even if the share has expired.
    pub(crate) fn stop_reading(&mut self, now: Moment, token: &T) -> bool {
        let is_stored = self.stored_readers(now).is_some();
        let is_removed = self.is_read(now) && is_stored && self.readers.remove(token);
        if is_removed {
            self.fit_expiry(now);
        }
        is_removed
    }

    /// Makes the share of the token expire after `ttl`. Returns whether the token has a share.
    pub(crate) fn keep_share(&mut self, now: Moment, token: &T, ttl: Duration) -> bool {
        let has_share = self.has_share(now, token);
        if has_share {
            self.readers.put(token.clone(), now.plus(ttl));
            self.fit_expiry(now);
        }
        has_share
    }

    /// DOWNGRADE: if the token holds the resource exclusively, makes the token a reader for as long as its lock still
    /// lasts. Returns whether the token is a reader now.
    pub fn downgrade(&mut self, now: Moment, token: &T) -> bool {
        if self.token(now) == Some(token) {
            let left = self.expires_in(now).unwrap_or_default();
            self.begin_reading(now, token, left);
        }
        self.has_share(now, token)
    }

    /// EXTEND of a lock in this mode: prolongs the lock and the life of the counter if the token holds the resource.
    /// Never shortens either, and never revives an expired share. Returns whether the token holds the resource.
    pub fn extend_in(&mut self, time: Time, token: &T, ttl: Duration, mode: LockMode) -> bool {
        if mode != LockMode::Shared {
            return self.extend(time, token, ttl);
        }
        let is_held = self.holds(time.now, token, mode);
        if is_held {
            self.keep_counter(time, ttl);
            if self.token(time.now) == Some(token) {
                let ttl = self.expires_in(time.now).unwrap_or_default().max(ttl);
                self.begin_reading(time.now, token, ttl);
            } else {
                self.join_readers(time.now, token, ttl);
            }
        }
        is_held
    }

    /// RELEASE and UNDO of a lock in this mode. Returns whether the token held the resource.
    pub fn release_in(&mut self, now: Moment, token: &T, mode: LockMode) -> bool {
        if self.release(now, token) {
            return true;
        }
        mode == LockMode::Shared && self.stop_reading(now, token)
    }

    /// RELEASE that keeps the lock in this mode for `ttl`. Returns whether the token held the resource. A share that
    /// has expired but is still stored also counts as held, and is removed.
    pub fn keep_in(&mut self, now: Moment, token: &T, ttl: Duration, mode: LockMode) -> bool {
        if self.keep(now, token, ttl) {
            return true;
        }
        mode == LockMode::Shared
            && (self.keep_share(now, token, ttl) || self.stop_reading(now, token))
    }

    /// Makes the token a holder in this mode, in place of `giver` if there is one. The caller must have checked that
    /// the token may hold the resource.
    pub(crate) fn take(
        &mut self,
        now: Moment,
        (token, giver): (&T, Option<&T>),
        ttl: Duration,
        mode: LockMode,
    ) {
        if mode != LockMode::Shared {
            if mode == LockMode::Upgraded {
                self.readers = Readers::default();
            }
            self.lock = Some((token.clone(), now.plus(ttl)));
        } else if self.is_read(now) {
            self.join_readers(now, token, ttl);
            if let Some(giver) = giver {
                self.stop_reading(now, giver);
            }
        } else {
            self.begin_reading(now, token, ttl);
        }
    }

    /// GIVE BACK, the undo of TRANSFER: if `token` holds the resource in this mode, makes `giver` the holder again, for
    /// the time `left`. If `left` is zero, only releases `token`. Returns whether `token` held the resource.
    ///
    /// If `is_upgrade` is set and `left` is not zero, never shortens the life of the lock, because the giver's lease
    /// may still be valid.
    pub(crate) fn give_back_in(
        &mut self,
        now: Moment,
        (token, giver): (&T, &T),
        left: Duration,
        mode: LockMode,
        is_upgrade: bool,
    ) -> bool {
        if mode == LockMode::Shared && self.has_share(now, token) {
            if !left.is_zero() {
                self.join_readers(now, giver, left);
            }
            return self.stop_reading(now, token);
        }
        let kept = self.expires_in(now).filter(|_| is_upgrade && !left.is_zero());
        let left = kept.unwrap_or_default().max(left);
        if mode == LockMode::Upgraded && !left.is_zero() && self.token(now) == Some(token) {
            self.begin_reading(now, giver, left);
            return true;
        }
        self.give_back(now, token, giver, left)
    }
}
