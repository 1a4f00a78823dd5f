//! The lock record: everything that a node stores for one resource, and the effect of each request.
//!
//! ACQUIRE, TRANSFER, RAISE, EXTEND and HEAL of several resources change all of their records or none. Called by
//! the in-memory nodes (`command/memory.rs` of the crate `quorlock`), which the simulation uses too, and
//! by the model.

use crate::node::entry::{self, Entry, Time};
use crate::node::queue::Queue;
use crate::round::Vote;
use crate::tally::Healed;
use crate::term::Moment;
use crate::turns::Turns;
use std::sync::Arc;
use std::time::Duration;

/// The lock record of one resource. `T` is the type of tokens.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Record<T> {
    /// The lock and its fence counter.
    pub entry: Entry<T>,
    /// The waiters.
    pub queue: Queue,
}

impl<T> Default for Record<T> {
    fn default() -> Self {
        Self { entry: Entry::default(), queue: Queue::default() }
    }
}

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
    pub waiter: Option<&'a str>,
}

/// ACQUIRE: locks all records or none, and returns the vote; `None` if the fences are used up. If the
/// request is refused and the round is for a waiter, call [`join`] next.
pub fn acquire<T: Clone + PartialEq>(
    records: &mut [&mut Record<T>],
    time: Time,
    wanted: Wanted<'_, T>,
) -> Option<Vote> {
    let Wanted { token, ttl, proposal, waiter } = wanted;
    let now = time.now;
    let blocked =
        records.iter_mut().filter_map(|record| record.queue.is_blocked(now, waiter)).max();
    if blocked.is_some() {
        let held = records.iter().filter_map(|record| record.entry.expires_in(now)).max();
        return Some(Vote::Held { expires_in: blocked.max(held) });
    }
    let mut entries: Vec<_> = records.iter_mut().map(|record| &mut record.entry).collect();
    let vote = entry::acquire(&mut entries, time, token, ttl, proposal);
    if let (Some(Vote::Granted { .. }), Some(waiter)) = (vote, waiter) {
        records.iter_mut().for_each(|record| record.queue.leave(now, waiter));
    }
    vote
}

/// TRANSFER: locks all records for another token if `giver` holds all of them, and returns the vote; `None` if
/// the fences are used up. Waiters stay in the queues.
pub fn transfer<T: Clone + PartialEq>(
    records: &mut [&mut Record<T>],
    time: Time,
    giver: &T,
    wanted: Wanted<'_, T>,
) -> Option<Vote> {
    let Wanted { token, ttl, proposal, waiter: _ } = wanted;
    let mut entries: Vec<_> = records.iter_mut().map(|record| &mut record.entry).collect();
    entry::transfer(&mut entries, time, giver, token, ttl, proposal)
}

/// GIVE BACK: sets the token of the giver again in every record that `token` holds, for the time that is `left` to adopt
/// its lease. Returns whether it held all of them.
pub fn give_back<T: Clone + PartialEq>(
    records: &mut [&mut Record<T>],
    now: Moment,
    token: &T,
    giver: &T,
    left: Duration,
) -> bool {
    let give_back = |record: &mut &mut Record<T>| record.entry.give_back(now, token, giver, left);
    records.iter_mut().map(give_back).fold(true, |all, is_held| all & is_held)
}

/// Puts a waiter whose ACQUIRE was refused into the queues. Returns the largest number of waiters before it
/// in any of the queues.
///
/// `call` notifies a waiter about the resource at the given position and returns whether the waiter is
/// subscribed.
pub fn join<T: Clone + PartialEq>(
    records: &mut [&mut Record<T>],
    now: Moment,
    (waiter, ticket): (&Arc<str>, u64),
    turns: Turns,
    call: impl Fn(usize, &str) -> bool,
) -> Option<u64> {
    for (position, record) in records.iter_mut().enumerate() {
        if !record.queue.is_notified(waiter) || record.entry.token(now).is_some() {
            record.queue.join(now, waiter, ticket, turns);
        } else if !turns.keep.is_zero() {
            record.queue.keep(now, waiter, turns);
        } else {
            // The waiter cannot use this resource, because another one is not free. It joins the queue
            // again when it tries again.
            record.queue.leave(now, waiter);
            record.queue.notify_next(now, false, turns, |next| call(position, next));
        }
    }
    records.iter().filter_map(|record| record.queue.rank(waiter)).max()
}

/// RELEASE and UNDO: deletes every key that `token` holds, and returns whether it held all of them. With
/// `keep`, the keys stay for so long, and no waiter is notified of them. With a ticket, the waiter stays in
/// the queues.
pub fn release<T: Clone + PartialEq>(
    records: &mut [&mut Record<T>],
    now: Moment,
    (token, keep): (&T, Option<Duration>),
    (waiter, ticket): (Option<&Arc<str>>, Option<u64>),
    turns: Turns,
    call: impl Fn(usize, &str) -> bool,
) -> bool {
    let mut done = true;
    for (position, record) in records.iter_mut().enumerate() {
        let is_held = match keep {
            Some(ttl) => record.entry.keep(now, token, ttl),
            None => record.entry.release(now, token),
        };
        done &= is_held;
        match (waiter, ticket) {
            (Some(waiter), Some(ticket)) => record.queue.join(now, waiter, ticket, turns),
            (Some(waiter), None) => record.queue.leave(now, waiter),
            (None, _) => {}
        }
        if record.entry.token(now).is_none() {
            record.queue.notify_next(now, is_held, turns, |next| call(position, next));
        }
    }
    done
}

/// RAISE and EXTEND: applies `act` to every entry if `token` holds all of them. Returns whether all of
/// them were changed.
pub fn act_on_held<T: Clone + PartialEq>(
    records: &mut [&mut Record<T>],
    now: Moment,
    token: &T,
    act: impl Fn(&mut Entry<T>) -> bool,
) -> bool {
    records.iter().all(|record| record.entry.token(now) == Some(token))
        && records.iter_mut().all(|record| act(&mut record.entry))
}

/// HEAL: repairs all records, or none if another token holds one of them, apart from that of the giver.
pub fn heal<T: Clone + PartialEq>(
    records: &mut [&mut Record<T>],
    time: Time,
    (token, giver): (&T, Option<&T>),
    ttl: Duration,
    fence: u64,
) -> Healed {
    let is_foreign = |record: &&mut Record<T>| {
        record.entry.token(time.now).is_some_and(|held| held != token && Some(held) != giver)
    };
    if records.iter().any(is_foreign) {
        return Healed::Held;
    }
    let mut healed = Healed::Clean;
    for record in records {
        if record.entry.heal(time, (token, giver), ttl, fence) == Healed::Passed {
            healed = Healed::Passed;
        }
    }
    healed
}
