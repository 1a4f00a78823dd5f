//! What a node keeps of one resource: the lock with its fence, and the queue of those who wait. What is
//! about several resources is done to all of their slots or to none.

use crate::entry::{self, Entry, Time};
#[cfg(feature = "client")]
use crate::protocol::Healed;
use crate::protocol::{Moment, Turns, Vote};
use crate::queue::Queue;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct Slot<T> {
    pub(crate) entry: Entry<T>,
    pub(crate) queue: Queue,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { entry: Entry::default(), queue: Queue::default() }
    }
}

/// What ACQUIRE asks for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a, T> {
    pub(crate) token: &'a T,
    pub(crate) ttl: Duration,
    pub(crate) proposal: u64,
    pub(crate) waiter: Option<&'a str>,
}

/// ACQUIRE, but for the place of who is refused, see [`join`]; `None` if the fences are used up.
pub(crate) fn acquire<T: Clone + PartialEq>(
    slots: &mut [&mut Slot<T>],
    time: Time,
    wanted: Wanted<'_, T>,
) -> Option<Vote> {
    let Wanted { token, ttl, proposal, waiter } = wanted;
    let now = time.now;
    let blocked = slots.iter_mut().filter_map(|slot| slot.queue.is_blocked(now, waiter)).max();
    if blocked.is_some() {
        let held = slots.iter().filter_map(|slot| slot.entry.expires_in(now)).max();
        return Some(Vote::Held { expires_in: blocked.max(held) });
    }
    let mut entries: Vec<_> = slots.iter_mut().map(|slot| &mut slot.entry).collect();
    let vote = entry::acquire(&mut entries, time, token, ttl, proposal);
    if let (Some(Vote::Granted { .. }), Some(waiter)) = (vote, waiter) {
        slots.iter_mut().for_each(|slot| slot.queue.leave(now, waiter));
    }
    vote
}

/// A waiter that was refused takes its place. Returns how many are before it. `call` calls a waiter for
/// the resource in this position, and tells whether it listens.
pub(crate) fn join<T: Clone + PartialEq>(
    slots: &mut [&mut Slot<T>],
    now: Moment,
    (waiter, ticket): (&Arc<str>, u64),
    turns: Turns,
    call: impl Fn(usize, &str) -> bool,
) -> Option<u64> {
    for (position, slot) in slots.iter_mut().enumerate() {
        if !slot.queue.is_called(waiter) || slot.entry.token(now).is_some() {
            slot.queue.join(now, waiter, ticket, turns);
        } else if !turns.keep.is_zero() {
            slot.queue.keep(now, waiter, turns);
        } else {
            // It cannot use its turn, for want of another resource. It comes back when it tries again.
            slot.queue.leave(now, waiter);
            slot.queue.call_next(now, false, turns, |next| call(position, next));
        }
    }
    slots.iter().filter_map(|slot| slot.queue.rank(waiter)).max()
}

/// RELEASE and UNDO: whether this token held all. With a ticket, the waiter stays in the queues.
pub(crate) fn release<T: Clone + PartialEq>(
    slots: &mut [&mut Slot<T>],
    now: Moment,
    token: &T,
    (waiter, ticket): (Option<&Arc<str>>, Option<u64>),
    turns: Turns,
    call: impl Fn(usize, &str) -> bool,
) -> bool {
    let mut done = true;
    for (position, slot) in slots.iter_mut().enumerate() {
        let is_held = slot.entry.release(now, token);
        done &= is_held;
        match (waiter, ticket) {
            (Some(waiter), Some(ticket)) => slot.queue.join(now, waiter, ticket, turns),
            (Some(waiter), None) => slot.queue.leave(now, waiter),
            (None, _) => {}
        }
        if slot.entry.token(now).is_none() {
            slot.queue.call_next(now, is_held, turns, |next| call(position, next));
        }
    }
    done
}

/// RAISE and EXTEND: whether this token holds all, and `act` has done it to each.
#[cfg(feature = "client")]
pub(crate) fn act_on_held<T: Clone + PartialEq>(
    slots: &mut [&mut Slot<T>],
    now: Moment,
    token: &T,
    act: impl Fn(&mut Entry<T>) -> bool,
) -> bool {
    slots.iter().all(|slot| slot.entry.token(now) == Some(token))
        && slots.iter_mut().all(|slot| act(&mut slot.entry))
}

/// HEAL of all of these together.
#[cfg(feature = "client")]
pub(crate) fn heal<T: Clone + PartialEq>(
    slots: &mut [&mut Slot<T>],
    time: Time,
    token: &T,
    ttl: Duration,
    fence: u64,
) -> Healed {
    let is_foreign =
        |slot: &&mut Slot<T>| slot.entry.token(time.now).is_some_and(|held| held != token);
    if slots.iter().any(is_foreign) {
        return Healed::Held;
    }
    let mut healed = Healed::Clean;
    for slot in slots {
        if slot.entry.heal(time, token, ttl, fence) == Healed::Passed {
            healed = Healed::Passed;
        }
    }
    healed
}
