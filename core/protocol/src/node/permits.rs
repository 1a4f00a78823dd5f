//! Permits on a node: how ACQUIRE and RELEASE of a semaphore differ from those of a lock.
//!
//! Each permit has a number, its slot, and is a lock of its own: an [`Entry`]. The entry decides who holds the permit.
//! This module owns the order of the waiters, in one queue for all slots, and reports which slots are free. EXTEND,
//! RAISE, HEAL, TRANSFER and GIVE BACK work as for locks.
//!
//! A server does the same in `scripts/permits/`, where a sorted set of all slots tells which slots are free. The
//! in-memory node (`memory/entries.rs` of the crate `quorlock`) and the model call this module.

use crate::fence::{fence_memory, next_fence};
use crate::node::entry::{self, Entry, LockValue, Time};
use crate::node::queue::{MOST_GONE, Message, Queue, wanted_permits};
use crate::node::readers::LockMode;
use crate::node::record::Wanted;
use crate::round::Vote;
use crate::term::Moment;
use crate::turns::Turns;
use std::sync::Arc;
use std::time::Duration;

/// A refusal names up to this many free slots more than the client wants.
pub const SPARE: usize = 7;

/// The smallest step by which a node postpones the moment at which it forgets its slots. The step is large, so that the
/// node seldom postpones that moment. The step is less than [`FENCE_MEMORY`](crate::FENCE_MEMORY), so that the node
/// knows a slot for longer than a lease holds the slot.
pub const INDEX_SLACK: Duration = Duration::from_secs(30);

/// What a node stores for a semaphore, in addition to an entry for each permit.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Permits {
    /// The waiters for any of the slots.
    pub queue: Queue,
    /// The slots that are offered to waiters, each with the end of the waiter's turn. Until its waiter's turn ends, an
    /// offered slot is not free for others. No two turns end at the same time, so the end identifies the waiter.
    offered: Vec<(u32, Moment)>,
    /// The number of slots that the node knows: the limit of the client that it last learned from, or more if a slot
    /// beyond that limit is held or offered.
    known: u32,
    /// When the node forgets `known`, unless another ACQUIRE postpones that moment; `None` if it knows no slots.
    known_until: Option<Moment>,
}

/// A function that returns how long the lock of a slot still lasts; `None` if nobody holds the slot.
pub type Left<'a> = &'a dyn Fn(u32) -> Option<Duration>;

/// A vote against an ACQUIRE of permits, and what the client needs to choose better slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The time until enough permits are free for the client, if no holder extends its lease; `None` if there will
    /// never be enough.
    pub expires_in: Option<Duration>,
    /// The number of waiters before this one; `None` if this client is not in the queue.
    pub rank: Option<u64>,
    /// Slots that are free for this client. For a waiter: the slots offered to it, and some that no waiter needs. For a
    /// client that does not queue: some more slots than the client wants. Empty if too few slots are free.
    pub free: Vec<u32>,
    /// The number of slots that the node knows.
    pub known: u32,
}

/// The answer to an ACQUIRE of permits.
#[derive(Clone, Debug, PartialEq)]
pub enum Permitted {
    /// All slots were granted with this fence.
    Granted(u64),
    /// No slot was granted.
    Refused(Refused),
}

/// The arguments that an ACQUIRE has only for a semaphore.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The number of permits that the semaphore has, according to the client.
    pub limit: u32,
    /// The position in the list of free slots at which a refusal begins to name slots, so that clients get different
    /// slots. May exceed the list's length.
    pub offset: u64,
}

impl Permits {
    /// The number of slots that the node knows; 0 if the node has forgotten that number.
    pub fn known(&self, now: Moment) -> u32 {
        if self.known_until.is_some_and(|until| now < until) { self.known } else { 0 }
    }

    /// Makes the node remember its number of slots at least until `until` − [`INDEX_SLACK`]. Does nothing if the node
    /// has forgotten its number of slots. Never shortens the time.
    pub fn keep_slots(&mut self, now: Moment, until: Moment) {
        let is_short = self.known_until.is_some_and(|kept| kept.plus(INDEX_SLACK) < until);
        if self.known(now) > 0 && is_short {
            self.known_until = Some(until);
        }
    }

    /// Simulates the loss of the semaphore's index on a server: the node knows no slots any more, and drops all offers.
    pub fn forget_slots(&mut self) {
        self.known_until = None;
        self.offered.clear();
    }

    /// Returns the moment until which the slot is offered to a waiter; `None` if it is not offered.
    pub fn offered_until(&self, now: Moment, slot: u32) -> Option<Moment> {
        let stands = |until: Moment| now < until && slot < self.known(now);
        let offer = self.offered.iter().find(|(offered, until)| *offered == slot && stands(*until));
        offer.map(|(_, until)| *until)
    }

    /// Whether a slot that nobody holds is offered to a waiter that still has its turn. Otherwise, the slot is free,
    /// and this method removes any outdated offer of the slot.
    fn is_kept(&mut self, now: Moment, slot: u32) -> bool {
        let Some(until) = self.offered_until(now, slot) else { return false };
        let is_kept = self.queue.has_turn_until(now, until);
        if !is_kept {
            self.forget_offers([slot].into_iter());
        }
        is_kept
    }

    /// Returns the slots below `limit` that are free, in the order of a server's set.
    fn free(&self, limit: u32, busy: Left<'_>) -> Vec<u32> {
        let mut free: Vec<_> = (0..limit).filter(|slot| busy(*slot).is_none()).collect();
        free.sort_by_cached_key(u32::to_string);
        free
    }

    /// Learns the limit of a client: sets the number of known slots to that limit, or higher if a slot beyond the
    /// limit is busy. If the limit is larger than the number known before, the node keeps the number until `until`.
    fn learn(
        &mut self,
        now: Moment,
        limit: u32,
        until: Moment,
        busy: impl Fn(&Self, u32) -> Option<Duration>,
    ) {
        let known = self.known(now);
        let last_busy = (0..known).rev().find(|slot| busy(self, *slot).is_some());
        if known == 0 {
            self.offered.clear();
            self.known_until = Some(until);
        }
        if known < limit {
            self.keep_slots(now, until);
        }
        self.known = last_busy.map_or(limit, |slot| limit.max(slot + 1));
    }

    /// Corrupts the queue and the offers at random, for tests.
    pub fn forge<'a>(
        &mut self,
        now: Moment,
        channels: impl Iterator<Item = &'a str>,
        random: &dyn Fn(std::ops::Range<u64>) -> u64,
    ) {
        self.queue.forge(now, channels, random);
        match random(0..3) {
            0 => self.forget_slots(),
            1 => {
                let until = now.plus(Duration::from_millis(random(0..1_000)));
                let slots = 0..self.known(now).min(random(1..5) as u32);
                self.offered.extend(slots.map(|slot| (slot, until)));
            }
            _ => {}
        }
    }

    /// Withdraws the offers to the waiter whose turn ends at `turn`. Returns whether there were any.
    fn take_back(&mut self, turn: Moment) -> bool {
        let before = self.offered.len();
        self.offered.retain(|(_, until)| *until != turn);
        self.offered.len() < before
    }

    /// Withdraws the offers of these slots.
    pub fn forget_offers(&mut self, slots: impl Iterator<Item = u32>) {
        for slot in slots {
            self.offered.retain(|(offered, _)| *offered != slot);
        }
    }

    /// Returns how many permits are reserved for the subscribed waiters before this one, but stops counting at `free`.
    /// `ticket` is `None` for a client that does not queue. `waiter` is `None` for a client that is not in the queue.
    ///
    /// Without reservations, a waiter for several permits might never get its permits, because other waiters that want
    /// only one would take them.
    fn reserved(
        &mut self,
        now: Moment,
        (waiter, ticket): (Option<&str>, Option<u64>),
        free: usize,
        call: &dyn Fn(&str, Message) -> bool,
    ) -> usize {
        let mut reserved = 0;
        let mut gone = 0;
        if free == 0 {
            return reserved;
        }
        for (other, name) in self.queue.waiting(now) {
            let is_before = ticket.is_none_or(|ticket| other < ticket);
            if reserved >= free || !is_before || gone == MOST_GONE || waiter == Some(&*name) {
                break;
            }
            if call(&name, Message::Probe) {
                reserved += wanted_permits(&name).0;
            } else {
                self.queue.leave(now, &name);
                gone += 1;
            }
        }
        reserved
    }

    /// Offers free slots to the waiters, in the order of the queue. The waiter `own` gets its offer in the answer to
    /// its request: this method returns that offer, and some slots that no waiter needs.
    ///
    /// Stops at the first waiter for which too few slots are free. So nobody overtakes this waiter, and it eventually
    /// gets its turn. But if this waiter has been silent for too long (`Queue::is_silent`), the method removes the
    /// waiter and goes on.
    fn notify(
        &mut self,
        now: Moment,
        free: &[u32],
        turns: Turns,
        own: Option<&str>,
        call: &dyn Fn(&str, Option<&[u32]>) -> bool,
    ) -> Vec<u32> {
        let mut free = free.iter().copied().peekable();
        let mut gone = 0;
        let mut offer = Vec::new();
        if free.peek().is_none() {
            return offer;
        }
        let mut notified = Duration::ZERO;
        for (_, name) in self.queue.waiting(now) {
            if free.peek().is_none() || gone == MOST_GONE {
                return offer;
            }
            let ((wanted, limit), mut rest) = (wanted_permits(&name), free.clone());
            let slots: Vec<_> = rest.by_ref().filter(|slot| *slot < limit).take(wanted).collect();
            let is_enough = slots.len() == wanted;
            let is_own = own == Some(&*name);
            let listens = is_own || call(&name, is_enough.then_some(&slots));
            if !listens || (!is_enough && self.queue.is_silent(now, &name)) {
                self.queue.leave(now, &name);
                gone += 1;
                continue;
            }
            if !is_enough {
                return offer;
            }
            free = rest;
            let until = now.plus(turns.call.saturating_sub(notified));
            notified += Duration::from_micros(1);
            self.queue.notified(now, &name, until);
            self.forget_offers(slots.iter().copied());
            self.offered.extend(slots.iter().map(|slot| (*slot, until)));
            if is_own {
                offer = slots;
            }
        }
        if !offer.is_empty() {
            offer.extend(free.take(SPARE));
        }
        offer
    }
}

/// Returns the time for which a slot is still held or offered; `None` if the slot is free. The slot need not be one of
/// `slots`.
fn busy_for<T: LockValue>(
    permits: &Permits,
    slots: &[(u32, &mut Entry<T>)],
    left: Left<'_>,
    now: Moment,
    slot: u32,
) -> Option<Duration> {
    let own = slots.iter().find(|(own, _)| *own == slot);
    let held = own.map_or_else(|| left(slot), |(_, entry)| entry.expires_in(now));
    held.or_else(|| permits.offered_until(now, slot).map(|until| until.since(now)))
}

/// ACQUIRE: locks all slots or none; `None` if the fences are used up. `left` returns how long the lock of any other
/// slot still lasts.
///
/// `call` sends a waiter the slots that are offered to it; with `None`, `call` only probes whether the waiter is
/// subscribed. `call` returns whether the waiter is subscribed.
pub fn acquire<T: LockValue>(
    permits: &mut Permits,
    slots: &mut [(u32, &mut Entry<T>)],
    left: Left<'_>,
    (time, choice, turns): (Time, Choice, Turns),
    wanted: Wanted<'_, T>,
    call: &dyn Fn(&str, Option<&[u32]>) -> bool,
) -> Option<Permitted> {
    let now = time.now;
    let count = slots.len();
    let Wanted { token, ttl, proposal, waiter, ticket } = wanted;
    let place = (waiter.map(|waiter| &**waiter), ticket);
    let turn = place.0.and_then(|waiter| permits.queue.end_of_turn(now, waiter));
    let has_turn = turn.is_some();
    let is_queued = !permits.queue.is_empty(now);
    let mut is_free = true;
    for (slot, entry) in slots.iter() {
        let is_held = entry.token(now).is_some();
        if is_held || (is_queued && !has_turn && permits.is_kept(now, *slot)) {
            is_free = false;
        }
    }
    let last = slots.iter().filter_map(|(_, entry)| entry.last_fence(time.wall)).max();
    let fence = next_fence(last.unwrap_or_default(), proposal, time.wall)?;
    let until = now.plus(fence_memory(fence, ttl, time.wall));
    let busy = |permits: &Permits, slots: &[(u32, &mut Entry<T>)], slot: u32| {
        busy_for(permits, slots, left, now, slot)
    };
    let mut may_have = is_free;
    let mut reserved = 0;
    if !is_free || (is_queued && !has_turn) {
        permits.learn(now, choice.limit, until, |permits, slot| busy(permits, slots, slot));
        let free = permits.free(choice.limit, &|slot| busy(permits, slots, slot)).len();
        let probe = |waiter: &str, _| call(waiter, None);
        reserved = if has_turn { 0 } else { permits.reserved(now, place, free, &probe) };
        may_have = is_free && reserved + count <= free;
    }
    if may_have {
        let is_known = slots.iter().all(|(slot, _)| *slot < permits.known(now));
        permits.forget_offers(slots.iter().map(|(slot, _)| *slot));
        let mut all: Vec<_> =
            slots.iter_mut().map(|(_, e)| (&mut **e, LockMode::Exclusive)).collect();
        let Vote::Granted { fence } = entry::acquire(&mut all, time, token, ttl, proposal)? else {
            unreachable!("all slots are free");
        };
        if let Some(waiter) = waiter {
            permits.queue.leave(now, waiter);
        }
        if !is_known {
            permits.learn(now, choice.limit, until, |permits, slot| busy(permits, slots, slot));
        }
        if turn.is_some_and(|turn| permits.take_back(turn)) {
            // The waiter took other slots than those offered to it, so the offered slots are free.
            let free = permits.free(permits.known(now), &|slot| busy(permits, slots, slot));
            permits.notify(now, &free, turns, None, call);
        }
        permits.keep_slots(now, until);
        return Some(Permitted::Granted(fence));
    }
    if let Some(turn) = turn {
        // This waiter did not get its permits, so its turn ends and the slots offered to it are free. If the waiter is
        // the first in the queue again, it gets a new offer below.
        permits.take_back(turn);
    }
    let free = permits.free(choice.limit, &|slot| busy(permits, slots, slot));
    let mut ends: Vec<_> =
        (0..choice.limit).filter_map(|slot| busy(permits, slots, slot)).collect();
    ends.sort_unstable();
    let missing = (reserved + count).saturating_sub(free.len());
    let expires_in = match missing {
        0 => Some(Duration::ZERO),
        // All slots are free, but some are reserved for earlier waiters. No key has to expire first, so the time is
        // zero.
        _ if ends.is_empty() => Some(Duration::ZERO),
        _ => ends.get(missing - 1).or(ends.last()).copied(),
    };
    let mut rank = None;
    let mut offered = Vec::new();
    if let Some((waiter, ticket)) = waiter.zip(ticket) {
        permits.queue.join(now, waiter, ticket, turns);
        let all = permits.free(permits.known(now), &|slot| busy(permits, slots, slot));
        offered = permits.notify(now, &all, turns, Some(waiter), call);
        rank = permits.queue.rank(waiter);
    } else if reserved + count <= free.len() {
        let from = (choice.offset % free.len().max(1) as u64) as usize;
        let spare = (count + SPARE).min(free.len());
        offered = (0..spare).map(|at| free[(from + at) % free.len()]).collect();
    }
    let known = permits.known(now);
    Some(Permitted::Refused(Refused { expires_in, rank, free: offered, known }))
}

/// RELEASE and UNDO: deletes every permit that `token` holds, and returns whether `token` held all slots. With `keep`,
/// the permits expire after that time instead. With a ticket, the waiter stays in the queue; without a ticket, the
/// waiter leaves the queue. `left` and `call` are the same as for [`acquire`].
pub fn release<T: LockValue>(
    permits: &mut Permits,
    slots: &mut [(u32, &mut Entry<T>)],
    left: Left<'_>,
    (now, turns): (Moment, Turns),
    (token, keep): (&T, Option<Duration>),
    (waiter, ticket): (Option<&Arc<str>>, Option<u64>),
    call: &dyn Fn(&str, Option<&[u32]>) -> bool,
) -> bool {
    let turn = waiter.and_then(|waiter| permits.queue.end_of_turn(now, waiter));
    let mut done = true;
    for (slot, entry) in slots.iter_mut() {
        let is_held = match keep {
            Some(ttl) => entry.keep(now, token, ttl),
            None => entry.release(now, token),
        };
        if is_held {
            permits.forget_offers([*slot].into_iter());
        }
        done &= is_held;
    }
    match (waiter, ticket) {
        (Some(waiter), Some(ticket)) => permits.queue.join(now, waiter, ticket, turns),
        (Some(waiter), None) => permits.queue.leave(now, waiter),
        (None, _) => {}
    }
    if let Some(turn) = turn {
        // The waiter does not use its turn, so the slots offered to it are free.
        permits.take_back(turn);
    }
    let free = permits.free(permits.known(now), &|slot| busy_for(permits, slots, left, now, slot));
    permits.notify(now, &free, turns, None, call);
    done
}
