//! Permits on a node: how ACQUIRE and RELEASE of a semaphore differ from those of a lock.
//!
//! Each permit has a number, its slot, and is a lock of its own: an [`Entry`]. So this module decides nothing about who
//! holds a permit. It owns the order of the waiters, one queue for all slots, and reports which slots are free. EXTEND,
//! RAISE, HEAL, TRANSFER and GIVE BACK are those of locks.
//!
//! A server does the same in `scripts/permits/`, where a sorted set of all slots tells which are free. The in-memory
//! node (`command/memory.rs` of the crate `quorlock`) and the model call this.

use crate::fence::{fence_memory, next_fence};
use crate::node::entry::{self, Entry, Time, Value};
use crate::node::queue::{MOST_GONE, Message, Queue, wanted_permits};
use crate::node::readers::Mode;
use crate::node::record::Wanted;
use crate::round::Vote;
use crate::term::Moment;
use crate::turns::Turns;
use std::sync::Arc;
use std::time::Duration;

/// A refusal names this many free slots more than the client wants, if there are so many.
pub const SPARE: usize = 7;

/// What a node stores for a semaphore, apart from its permits.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Permits {
    /// The waiters, whatever slots they get.
    pub queue: Queue,
    /// The number of slots that the node knows: the largest limit of its clients. It forgets a slot that no client
    /// uses any more.
    known: u32,
    /// When the node forgets that number, unless there is another ACQUIRE.
    known_until: Option<Moment>,
}

/// How long the lock of each slot lasts that is held; the node's side looks at slots below the known number.
pub type Left<'a> = &'a dyn Fn(u32) -> Option<Duration>;

/// A vote against an ACQUIRE of permits, and what the client needs to choose better.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The time until enough permits are free for the client, if nobody extends; `None` if that is never.
    pub expires_in: Option<Duration>,
    /// The number of waiters before this one; `None` if it is not in the queue.
    pub rank: Option<u64>,
    /// Slots that are free for this client, some more than it wants. Empty if there are too few.
    pub free: Vec<u32>,
    /// The number of slots that the node knows.
    pub known: u32,
}

/// The answer to an ACQUIRE of permits.
#[derive(Clone, Debug, PartialEq)]
pub enum Permitted {
    /// All slots were granted with this fence.
    Granted(u64),
    /// None was granted.
    Refused(Refused),
}

/// What an ACQUIRE wants of a semaphore.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The limit of the client.
    pub limit: u32,
    /// Where in the list of free slots a refusal begins, so that clients get different ones. A number of any size.
    pub offset: u64,
}

impl Permits {
    /// The number of slots that the node knows; 0 if it has forgotten it.
    pub fn known(&self, now: Moment) -> u32 {
        if self.known_until.is_some_and(|until| now < until) { self.known } else { 0 }
    }

    /// Forgets which slots there are, as a server does whose index is deleted.
    pub fn forget_slots(&mut self) {
        self.known_until = None;
    }

    /// Returns the slots below `limit` that are free, in the order of a server's set.
    fn free(&self, limit: u32, left: Left<'_>) -> Vec<u32> {
        let mut free: Vec<_> = (0..limit).filter(|slot| left(*slot).is_none()).collect();
        free.sort_by_cached_key(u32::to_string);
        free
    }

    /// Learns the limit of a client. Forgets slots beyond it that nobody holds.
    fn learn(&mut self, now: Moment, limit: u32, left: Left<'_>) {
        let held = (limit..self.known(now)).rev().find(|slot| left(*slot).is_some());
        self.known = held.map_or(limit, |slot| slot + 1);
    }

    /// Returns how many permits are reserved for waiters before this one, if so many are free. `ticket` is `None` for a
    /// client that does not queue, and `waiter` for one that is not in the queue.
    ///
    /// A notified waiter reserves what it wants while its turn stands. The others do, too, while they are subscribed:
    /// without that, one that wants several permits would wait for ever behind those that want one.
    fn reserved(
        &mut self,
        now: Moment,
        (waiter, ticket): (Option<&str>, Option<u64>),
        free: usize,
        call: &dyn Fn(&str, Message) -> bool,
    ) -> usize {
        if waiter.is_some_and(|waiter| self.queue.has_turn(now, waiter)) {
            return 0;
        }
        let (notified, waiting) = self.queue.in_order(now);
        let mut reserved: usize = notified.iter().map(|other| wanted_permits(other)).sum();
        let mut gone = 0;
        for (other, name) in waiting {
            let is_before = ticket.is_none_or(|ticket| other < ticket);
            if reserved >= free || !is_before || gone == MOST_GONE || waiter == Some(&*name) {
                break;
            }
            if call(&name, Message::Probe) {
                reserved += wanted_permits(&name);
            } else {
                self.queue.leave(now, &name);
                gone += 1;
            }
        }
        reserved
    }

    /// Notifies waiters in their order, as many as there are permits for, each with the slots to try.
    ///
    /// `own`: the waiter that was refused just now, and how many slots are free below its limit. It is not notified of
    /// slots beyond its limit: it would try, be refused, and be notified again.
    fn notify(
        &mut self,
        now: Moment,
        free: &[u32],
        own: Option<(&str, usize)>,
        turns: Turns,
        call: &dyn Fn(&str, Option<&[u32]>) -> bool,
    ) {
        let (notified, waiting) = self.queue.in_order(now);
        let mut used: usize = notified.iter().map(|other| wanted_permits(other)).sum();
        let mut gone = 0;
        for (_, name) in waiting {
            let wanted = wanted_permits(&name);
            if used >= free.len() || gone == MOST_GONE {
                return;
            }
            let slots = free.get(used..used + wanted);
            let is_beyond = |(own, free)| own == &*name && used + wanted > free;
            if slots.is_some() && own.is_some_and(is_beyond) {
                continue;
            }
            match (call(&name, slots), slots) {
                (false, _) => {
                    self.queue.leave(now, &name);
                    gone += 1;
                }
                (true, Some(_)) => {
                    self.queue.notified(now, &name, turns);
                    used += wanted;
                }
                // It wants more than is free. So that its time comes, nobody overtakes it.
                (true, None) => return,
            }
        }
    }
}

/// ACQUIRE: locks all slots or none; `None` if the fences are used up. `left` tells how long the lock of any slot
/// still lasts, if it is held.
///
/// `call` sends a waiter the slots that are free for it, or only finds out whether it is subscribed, and returns whether
/// it is.
pub fn acquire<T: Value>(
    permits: &mut Permits,
    slots: &mut [(u32, &mut Entry<T>)],
    left: Left<'_>,
    (time, choice, turns): (Time, Choice, Turns),
    wanted: Wanted<'_, T>,
    call: &dyn Fn(&str, Option<&[u32]>) -> bool,
) -> Option<Permitted> {
    let (now, count) = (time.now, slots.len());
    let Wanted { token, ttl, proposal, waiter, ticket } = wanted;
    let is_free = slots.iter().all(|(_, entry)| entry.token(now).is_none());
    let is_held = |slot: u32| {
        let own = slots.iter().find(|(own, _)| *own == slot);
        own.map_or_else(|| left(slot), |(_, entry)| entry.expires_in(now))
    };
    let last = slots.iter().filter_map(|(_, entry)| entry.last_fence(time.wall)).max();
    let fence = next_fence(last.unwrap_or_default(), proposal, time.wall)?;
    // On the fast path, a server does not look at the index.
    let is_known = slots.iter().all(|(slot, _)| *slot < permits.known(now));
    if !(is_free && is_known && count == 1 && permits.queue.is_empty(now)) {
        permits.learn(now, choice.limit, &is_held);
    }
    permits.known_until = Some(now.plus(fence_memory(fence, ttl, time.wall)));
    let free = permits.free(choice.limit, &is_held);
    let place = (waiter.map(|waiter| &**waiter), ticket);
    let probe = |waiter: &str, _| call(waiter, None);
    let reserved = permits.reserved(now, place, free.len(), &probe);
    let may_have = reserved + count <= free.len();
    if is_free && may_have {
        let mut all: Vec<_> = slots.iter_mut().map(|(_, e)| (&mut **e, Mode::Exclusive)).collect();
        let Vote::Granted { fence } = entry::acquire(&mut all, time, token, ttl, proposal)? else {
            unreachable!("all slots are free");
        };
        if let Some(waiter) = waiter {
            permits.queue.leave(now, waiter);
        }
        return Some(Permitted::Granted(fence));
    }
    let mut ends: Vec<_> = (0..choice.limit).filter_map(&is_held).collect();
    ends.sort_unstable();
    let missing = (reserved + count).saturating_sub(free.len());
    let expires_in = match missing {
        0 => Some(Duration::ZERO),
        // All of them are free, but reserved.
        _ if ends.is_empty() => Some(Duration::ZERO),
        _ => ends.get(missing - 1).or(ends.last()).copied(),
    };
    let spare = (count + SPARE).min(free.len()) * usize::from(may_have);
    let from = (choice.offset % free.len().max(1) as u64) as usize;
    let offered = (0..spare).map(|at| free[(from + at) % free.len()]).collect();
    let all = permits.free(permits.known, &is_held);
    let rank = waiter.zip(ticket).and_then(|(waiter, ticket)| {
        permits.queue.join(now, waiter, ticket, turns);
        permits.notify(now, &all, Some((waiter, free.len())), turns, call);
        permits.queue.rank(waiter)
    });
    Some(Permitted::Refused(Refused { expires_in, rank, free: offered, known: permits.known }))
}

/// RELEASE and UNDO: deletes every permit that `token` holds, and returns whether it held all of them. With `keep`, they
/// stay for so long. With a ticket, the waiter stays in the queue. `left` and `call` are those of [`acquire`].
pub fn release<T: Value>(
    permits: &mut Permits,
    slots: &mut [(u32, &mut Entry<T>)],
    left: Left<'_>,
    (now, turns): (Moment, Turns),
    (token, keep): (&T, Option<Duration>),
    (waiter, ticket): (Option<&Arc<str>>, Option<u64>),
    call: &dyn Fn(&str, Option<&[u32]>) -> bool,
) -> bool {
    let mut done = true;
    for (_, entry) in slots.iter_mut() {
        done &= match keep {
            Some(ttl) => entry.keep(now, token, ttl),
            None => entry.release(now, token),
        };
    }
    match (waiter, ticket) {
        (Some(waiter), Some(ticket)) => permits.queue.join(now, waiter, ticket, turns),
        (Some(waiter), None) => permits.queue.leave(now, waiter),
        (None, _) => {}
    }
    let is_held = |slot: u32| {
        let own = slots.iter().find(|(own, _)| *own == slot);
        own.map_or_else(|| left(slot), |(_, entry)| entry.expires_in(now))
    };
    let free = permits.free(permits.known(now), &is_held);
    permits.notify(now, &free, None, turns, call);
    done
}
