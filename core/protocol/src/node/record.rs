//! The lock record: everything that a node stores for one resource, and the effect of each request.
//!
//! An ACQUIRE, TRANSFER, RAISE, EXTEND or HEAL of several resources changes all of their records or none. Other
//! requests change each record on its own. The callers of this module are the model and the in-memory nodes
//! (`memory/entries.rs` of the crate `quorlock`), which the simulation also uses.

use crate::node::entry::{self, Entry, LockValue, Time};
use crate::node::queue::{self, Message, Queue, reader_name};
use crate::node::readers::LockMode;
use crate::round::Vote;
use crate::tally::Healed;
use crate::term::Moment;
use crate::turns::Turns;
use std::sync::Arc;
use std::time::Duration;

/// The lock record of one resource. `T` is the type of tokens.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct LockRecord<T> {
    /// The lock and its fence counter.
    pub entry: Entry<T>,
    /// The waiters for the resource.
    pub queue: Queue,
}

impl<T> Default for LockRecord<T> {
    fn default() -> Self {
        Self { entry: Entry::default(), queue: Queue::default() }
    }
}

/// The record of a resource, and the mode in which a lease has or wants the resource.
pub type RecordInMode<'a, T> = (&'a mut LockRecord<T>, LockMode);

/// The arguments of ACQUIRE and TRANSFER.
#[derive(Clone, Copy)]
pub struct Wanted<'a, T> {
    /// The round's token.
    pub token: &'a T,
    /// The time for which the node keeps the lock.
    pub ttl: Duration,
    /// The fence that the client proposes.
    pub proposal: u64,
    /// The waiter that the round is for; `None` for a round that does not join the queue.
    pub waiter: Option<&'a Arc<str>>,
    /// The waiter's ticket; `None` if the waiter does not join the queue.
    pub ticket: Option<u64>,
}

/// Returns the name under which a waiter queues for a resource that it wants in this mode.
fn name(waiter: &Arc<str>, mode: LockMode) -> Arc<str> {
    if mode == LockMode::Shared { reader_name(waiter) } else { Arc::clone(waiter) }
}

impl<T: LockValue> LockRecord<T> {
    /// Returns how much longer the queue blocks a client that wants to lock the resource in this mode; `None` if the
    /// queue does not block the client.
    fn is_blocked(
        &mut self,
        now: Moment,
        mode: LockMode,
        (waiter, ticket): (Option<&Arc<str>>, Option<u64>),
        turns: Turns,
        call: impl Fn(&str, Message) -> bool,
    ) -> Option<Duration> {
        let is_waiter = waiter.is_some();
        let waiter = waiter.map(|waiter| name(waiter, mode));
        let is_reader = mode == LockMode::Shared;
        let blocked = self.queue.is_blocked(now, waiter.as_deref(), is_reader);
        let is_notified = waiter.is_some_and(|waiter| self.queue.is_notified(&waiter));
        if !is_reader || is_notified || !self.entry.is_read(now) {
            return blocked;
        }
        if !self.queue.writer_waits(now, ticket, call) {
            return blocked;
        }
        // A waiter tries again soon, to notice when the writer before it has left.
        let retry = if is_waiter { Some(turns.call) } else { self.entry.expires_in(now) };
        blocked.max(retry).max(Some(Duration::from_millis(1)))
    }

    /// Removes the waiter from the queue, both as a writer and as a reader. An upgrade or a DOWNGRADE may have changed
    /// the mode of the waiter's lease since the waiter joined the queue.
    fn leave(&mut self, now: Moment, waiter: &str) {
        self.queue.leave(now, waiter);
        self.queue.leave(now, &reader_name(waiter));
    }

    /// Notifies the readers at the front of the queue, if readers hold the resource.
    fn invite_readers(&mut self, now: Moment, turns: Turns, call: impl Fn(&str, Message) -> bool) {
        let is_reader = self.queue.first(now).is_some_and(|first| queue::reads(first));
        if is_reader && self.entry.is_read(now) {
            self.queue.notify_next(now, false, turns, call);
        }
    }
}

/// ACQUIRE: locks all records or none, and returns the vote; `None` if a fence has reached its maximum. If the
/// request is refused and the round is for a waiter, call [`join`] next.
///
/// `call` sends a message to a waiter about the resource at the given position, and returns whether the waiter is
/// subscribed.
pub fn acquire<T: LockValue>(
    records: &mut [RecordInMode<'_, T>],
    time: Time,
    wanted: Wanted<'_, T>,
    turns: Turns,
    call: impl Fn(usize, &str, Message) -> bool,
) -> Option<Vote> {
    let Wanted { token, ttl, proposal, waiter, ticket } = wanted;
    let now = time.now;
    let mut blocked = None;
    for (position, (record, mode)) in records.iter_mut().enumerate() {
        let call = |waiter: &str, message| call(position, waiter, message);
        blocked = blocked.max(record.is_blocked(now, *mode, (waiter, ticket), turns, call));
    }
    if blocked.is_some() {
        let held =
            |(record, mode): &RecordInMode<'_, T>| entry::held_for(&record.entry, now, *mode);
        let held = records.iter().filter_map(held).max();
        return Some(Vote::Held { expires_in: blocked.max(held) });
    }
    let entries = records.iter_mut().map(|(record, mode)| (&mut record.entry, *mode));
    let mut entries: Vec<_> = entries.collect();
    let vote = entry::acquire(&mut entries, time, token, ttl, proposal);
    if let (Some(Vote::Granted { .. }), Some(waiter)) = (vote, waiter) {
        for (position, (record, mode)) in records.iter_mut().enumerate() {
            record.queue.leave(now, &name(waiter, *mode));
            if *mode == LockMode::Shared {
                record.invite_readers(now, turns, |next, message| call(position, next, message));
            }
        }
    }
    vote
}

/// TRANSFER: locks all records for another token if `giver` holds all of them, and returns the vote; `None` if
/// the fences are used up. Waiters stay in the queues.
pub fn transfer<T: LockValue>(
    records: &mut [RecordInMode<'_, T>],
    time: Time,
    giver: &T,
    wanted: Wanted<'_, T>,
) -> Option<Vote> {
    let Wanted { token, ttl, proposal, .. } = wanted;
    let entries = records.iter_mut().map(|(record, mode)| (&mut record.entry, *mode));
    let mut entries: Vec<_> = entries.collect();
    entry::transfer(&mut entries, time, giver, token, ttl, proposal)
}

/// GIVE BACK: sets the giver's token again in every record that `token` holds, for the time `left`. Returns whether
/// `token` held all records.
pub fn give_back<T: LockValue>(
    records: &mut [RecordInMode<'_, T>],
    now: Moment,
    token: &T,
    giver: &T,
    left: Duration,
) -> bool {
    let is_upgrade = records.iter().any(|(_, mode)| *mode == LockMode::Upgraded);
    let give_back = |(record, mode): &mut RecordInMode<'_, T>| {
        record.entry.give_back_in(now, (token, giver), left, *mode, is_upgrade)
    };
    records.iter_mut().map(give_back).fold(true, |all, is_held| all & is_held)
}

/// Puts a waiter whose ACQUIRE was refused into the queues. Returns the largest number of waiters that are before this
/// waiter in any of the queues; `None` if the waiter is in no queue. `call` is the same as for [`acquire`].
pub fn join<T: LockValue>(
    records: &mut [RecordInMode<'_, T>],
    now: Moment,
    (waiter, ticket): (&Arc<str>, u64),
    turns: Turns,
    call: impl Fn(usize, &str, Message) -> bool,
) -> Option<u64> {
    let mut rank = None;
    for (position, (record, mode)) in records.iter_mut().enumerate() {
        let waiter = name(waiter, *mode);
        let is_held = entry::held_for(&record.entry, now, *mode).is_some();
        if !record.queue.is_notified(&waiter) || is_held {
            record.queue.join(now, &waiter, ticket, turns);
        } else if !turns.reserve.is_zero() {
            record.queue.reserve(now, &waiter, turns);
        } else {
            // The waiter cannot use this resource yet, because another resource that it wants is not free. The waiter
            // leaves this queue, and joins it again with its next try.
            record.queue.leave(now, &waiter);
            let call = |next: &str, message| call(position, next, message);
            match record.entry.is_read(now) {
                true => record.invite_readers(now, turns, call),
                false => record.queue.notify_next(now, false, turns, call),
            }
        }
        rank = rank.max(record.queue.rank(&waiter));
    }
    rank
}

/// RELEASE and UNDO: releases every record that `token` holds, and returns whether `token` held all records. With
/// `keep`, the locks expire after that time instead, so the resources are not free for waiters yet. With a ticket, the
/// waiter stays in the queues; without a ticket, the waiter leaves the queues. `call` is the same as for [`acquire`].
pub fn release<T: LockValue>(
    records: &mut [RecordInMode<'_, T>],
    now: Moment,
    (token, keep): (&T, Option<Duration>),
    (waiter, ticket): (Option<&Arc<str>>, Option<u64>),
    turns: Turns,
    call: impl Fn(usize, &str, Message) -> bool,
) -> bool {
    let mut done = true;
    for (position, (record, mode)) in records.iter_mut().enumerate() {
        let is_held = match keep {
            Some(ttl) => record.entry.keep_in(now, token, ttl, *mode),
            None => record.entry.release_in(now, token, *mode),
        };
        done &= is_held;
        match (waiter, ticket) {
            (Some(waiter), Some(ticket)) => {
                record.queue.join(now, &name(waiter, *mode), ticket, turns)
            }
            (Some(waiter), None) => record.leave(now, waiter),
            (None, _) => {}
        }
        let call = |next: &str, message| call(position, next, message);
        match record.entry.token(now) {
            None => record.queue.notify_next(now, is_held, turns, call),
            Some(_) => record.invite_readers(now, turns, call),
        }
    }
    done
}

/// DOWNGRADE: makes `token` a reader of every record that it holds, and returns whether `token` now reads all records.
/// The waiter leaves the queues, and the readers at the front of each queue are notified. `call` is the same as for
/// [`acquire`].
pub fn downgrade<T: LockValue>(
    records: &mut [RecordInMode<'_, T>],
    now: Moment,
    (token, waiter): (&T, Option<&Arc<str>>),
    turns: Turns,
    call: impl Fn(usize, &str, Message) -> bool,
) -> bool {
    let mut done = true;
    for (position, (record, _)) in records.iter_mut().enumerate() {
        let reads = record.entry.downgrade(now, token);
        done &= reads;
        if let Some(waiter) = waiter {
            record.leave(now, waiter);
        }
        // The notification is needed even if an earlier EXTEND has already made the token a reader: EXTEND notifies
        // nobody.
        if reads {
            record.invite_readers(now, turns, |next, message| call(position, next, message));
        }
    }
    done
}

/// RAISE and EXTEND: applies `act` to every entry if `token` holds all records. Returns whether `act` has succeeded on
/// all entries.
pub fn act_on_held<T: LockValue>(
    records: &mut [RecordInMode<'_, T>],
    now: Moment,
    token: &T,
    act: impl Fn(&mut Entry<T>, LockMode) -> bool,
) -> bool {
    records.iter().all(|(record, mode)| record.entry.holds(now, token, *mode))
        && records.iter_mut().all(|(record, mode)| act(&mut record.entry, *mode))
}

/// HEAL: repairs all records, or none if one of them cannot be repaired (`Entry::can_be_healed`). `tokens` are the
/// token of the lease and that of its giver.
pub fn heal<T: LockValue>(
    records: &mut [RecordInMode<'_, T>],
    time: Time,
    tokens: (&T, Option<&T>),
    ttl: Duration,
    fence: u64,
) -> Healed {
    let can_be_healed =
        |(record, mode): &RecordInMode<'_, T>| record.entry.can_be_healed(time.now, tokens, *mode);
    if !records.iter().all(can_be_healed) {
        return Healed::Held;
    }
    let mut healed = Healed::Clean;
    for (record, mode) in records {
        if record.entry.heal(time, tokens, ttl, fence, *mode) == Healed::Passed {
            healed = Healed::Passed;
        }
    }
    healed
}
