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
use crate::node::readers::LockMode;
use crate::node::record::Wanted;
use crate::round::Vote;
use crate::term::Moment;
use crate::turns::Turns;
use std::sync::Arc;
use std::time::Duration;

/// A refusal names this many free slots more than the client wants, if there are so many.
pub const SPARE: usize = 7;

/// A node prolongs how long it knows the slots by at least this much, so that it does so seldom. Less than
/// [`FENCE_MEMORY`](crate::FENCE_MEMORY), so it knows a slot for longer than that is held.
pub const INDEX_SLACK: Duration = Duration::from_secs(30);

/// What a node stores for a semaphore, apart from its permits.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Permits {
    /// The waiters, whatever slots they get.
    pub queue: Queue,
    /// The slots that waiters are offered, each with the end of the waiter's turn. Until then they are not free. No two
    /// waiters' turns end at the same time.
    offered: Vec<(u32, Moment)>,
    /// The number of slots that the node knows: the largest limit of its clients. It forgets a slot that no client
    /// uses any more.
    known: u32,
    /// When the node forgets that number, unless there is another ACQUIRE.
    known_until: Option<Moment>,
}

/// How long the lock of each slot lasts that is held.
pub type Left<'a> = &'a dyn Fn(u32) -> Option<Duration>;

/// A vote against an ACQUIRE of permits, and what the client needs to choose better.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The time until enough permits are free for the client, if nobody extends; `None` if that is never.
    pub expires_in: Option<Duration>,
    /// The number of waiters before this one; `None` if it is not in the queue.
    pub rank: Option<u64>,
    /// Slots that are free for this client: for a waiter those that it is offered, and some that no waiter needs; for
    /// others some more than they want. Empty if there are too few.
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

    /// Keeps the number of slots until about `until`, unless the node has forgotten it. Never shortens that time.
    pub fn keep_slots(&mut self, now: Moment, until: Moment) {
        let is_short = self.known_until.is_some_and(|kept| kept.plus(INDEX_SLACK) < until);
        if self.known(now) > 0 && is_short {
            self.known_until = Some(until);
        }
    }

    /// Forgets which slots there are, as a server does whose index is deleted.
    pub fn forget_slots(&mut self) {
        self.known_until = None;
        self.offered.clear();
    }

    /// Returns the time until which the slot is offered to a waiter; `None` if it is not.
    pub fn offered_until(&self, now: Moment, slot: u32) -> Option<Moment> {
        let stands = |until: Moment| now < until && slot < self.known(now);
        let offer = self.offered.iter().find(|(offered, until)| *offered == slot && stands(*until));
        offer.map(|(_, until)| *until)
    }

    /// Whether a slot that is not held is offered to a waiter that still has its turn. If not, the slot is free.
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

    /// Learns the limit of a client, and forgets slots beyond it that are not busy. If it is larger than those before, the
    /// node keeps it until `until`.
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

    /// Frees what was offered to the waiter whose turn ends then. Returns whether there was anything.
    fn take_back(&mut self, turn: Moment) -> bool {
        let before = self.offered.len();
        self.offered.retain(|(_, until)| *until != turn);
        self.offered.len() < before
    }

    /// Forgets to which waiters these slots are offered.
    pub fn forget_offers(&mut self, slots: impl Iterator<Item = u32>) {
        for slot in slots {
            self.offered.retain(|(offered, _)| *offered != slot);
        }
    }

    /// Returns how many permits are reserved for waiters before this one that are subscribed, if so many are free.
    /// `ticket` is `None` for a client that does not queue, and `waiter` for one that is not in the queue.
    ///
    /// Without that, a waiter for several permits would wait for ever behind those that want one.
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

    /// Offers free slots to waiters in their order. The waiter `own` gets its offer with the answer: returns it, and some
    /// slots that no waiter needs.
    ///
    /// The first waiter that cannot have what it wants ends this, so that its time comes: nobody overtakes it, unless it
    /// has not tried for long.
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

/// Returns the time for which a slot is held or offered: one of `slots`, or another one.
fn busy_for<T: Value>(
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
            // It took others than it was offered, so those are free.
            let free = permits.free(permits.known(now), &|slot| busy(permits, slots, slot));
            permits.notify(now, &free, turns, None, call);
        }
        permits.keep_slots(now, until);
        return Some(Permitted::Granted(fence));
    }
    if let Some(turn) = turn {
        // This waiter does not use its turn, so what it was offered is free: for itself, if it waits first.
        permits.take_back(turn);
    }
    let free = permits.free(choice.limit, &|slot| busy(permits, slots, slot));
    let mut ends: Vec<_> =
        (0..choice.limit).filter_map(|slot| busy(permits, slots, slot)).collect();
    ends.sort_unstable();
    let missing = (reserved + count).saturating_sub(free.len());
    let expires_in = match missing {
        0 => Some(Duration::ZERO),
        // All of them are free, but reserved.
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
        // The waiter does not use its turn, so what it was offered is free.
        permits.take_back(turn);
    }
    let free = permits.free(permits.known(now), &|slot| busy_for(permits, slots, left, now, slot));
    permits.notify(now, &free, turns, None, call);
    done
}
