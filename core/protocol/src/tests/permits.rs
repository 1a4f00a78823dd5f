//! Permits on a node: which client gets which permit, in which order, and what a refusal reports.

use super::at;
use crate::Turns;
use crate::node::entry::{Entry, Time};
use crate::node::permits::{self, Choice, Permits, Permitted, Refused};
use crate::node::queue::{self, LONGEST_SILENCE, MOST_GONE};
use crate::node::record::Wanted;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// A waiter's turn lasts one second.
const TURNS: Turns = Turns {
    call: Duration::from_secs(1),
    reserve: Duration::ZERO,
    memory: Duration::from_secs(100),
};

/// A node with one semaphore. Waiters whose channel is `live` are subscribed.
#[derive(Default)]
struct Node {
    permits: Permits,
    entries: BTreeMap<u32, Entry<char>>,
    now: u64,
    sent: RefCell<Vec<(String, Vec<u32>)>>,
}

impl Node {
    fn with<R>(
        &mut self,
        slots: &[u32],
        act: impl FnOnce(
            &mut Permits,
            &mut [(u32, &mut Entry<char>)],
            permits::Left<'_>,
            &dyn Fn(&str, Option<&[u32]>) -> bool,
        ) -> R,
    ) -> R {
        let mut own: Vec<_> = slots
            .iter()
            .map(|slot| (*slot, self.entries.remove(slot).unwrap_or_default()))
            .collect();
        let now = at(self.now);
        let left = |slot: u32| self.entries.get(&slot).and_then(|entry| entry.expires_in(now));
        let call = |waiter: &str, slots: Option<&[u32]>| {
            let is_live = waiter.starts_with("live#");
            if let Some(slots) = slots.filter(|_| is_live) {
                let (name, _) = waiter.split_once('*').expect("it says what it wants");
                self.sent.borrow_mut().push((name.to_owned(), slots.to_vec()));
            }
            is_live
        };
        let mut named: Vec<_> = own.iter_mut().map(|(slot, entry)| (*slot, entry)).collect();
        let done = act(&mut self.permits, &mut named, &left, &call);
        self.entries.extend(own);
        done
    }

    fn ask(
        &mut self,
        token: char,
        slots: &[u32],
        (limit, offset): (u32, u64),
        waiter: Option<(&str, u64)>,
    ) -> Permitted {
        let time = Time { now: at(self.now), wall: 1_000_000_000 + self.now * 1_000 };
        let name = waiter.map(|(name, _)| {
            let (number, count) = name.split_once('*').unwrap_or((name, "1"));
            queue::name_with_permits(number, count.parse().expect("it is a number"), limit)
        });
        let ticket = waiter.map(|(_, number)| 4 * number);
        let ttl = Duration::from_secs(10);
        let proposal = time.wall;
        let wanted = Wanted { token: &token, ttl, proposal, waiter: name.as_ref(), ticket };
        let choice = Choice { limit, offset };
        self.with(slots, |permits, slots, left, call| {
            permits::acquire(permits, slots, left, (time, choice, TURNS), wanted, call)
        })
        .expect("fences are left")
    }

    fn is_granted(&mut self, token: char, slots: &[u32], waiter: Option<(&str, u64)>) -> bool {
        matches!(self.ask(token, slots, (3, 0), waiter), Permitted::Granted(_))
    }

    fn refused(
        &mut self,
        token: char,
        slots: &[u32],
        choice: (u32, u64),
        waiter: Option<(&str, u64)>,
    ) -> Refused {
        match self.ask(token, slots, choice, waiter) {
            Permitted::Refused(refused) => refused,
            Permitted::Granted(_) => panic!("{token} was granted {slots:?}"),
        }
    }

    fn release(&mut self, token: char, slots: &[u32]) -> bool {
        let now = at(self.now);
        self.with(slots, |permits, slots, left, call| {
            permits::release(permits, slots, left, (now, TURNS), (&token, None), (None, None), call)
        })
    }

    /// Locks a slot for this token for 10 s from now. Unlike EXTEND, this function also locks a slot whose lock has
    /// expired.
    fn take_again(&mut self, slot: u32, token: char) {
        let expires = at(self.now + 10_000);
        self.entries.entry(slot).or_default().store_lock(Some((token, expires)));
    }

    /// Removes a waiter from the queue. The waiter wants one permit, and its limit is 3.
    fn leave(&mut self, waiter: &str) {
        let now = at(self.now);
        let waiter = queue::name_with_permits(waiter, 1, 3);
        self.with(&[0], |permits, slots, left, call| {
            let place = (Some(&waiter), None);
            permits::release(permits, slots, left, (now, TURNS), (&'-', None), place, call)
        });
    }

    /// Returns the notifications that the node has sent since the previous call of this function.
    fn sent(&self) -> Vec<(String, Vec<u32>)> {
        self.sent.take()
    }
}

fn to(waiter: &str, slots: &[u32]) -> (String, Vec<u32>) {
    (waiter.to_owned(), slots.to_vec())
}

/// A node with a semaphore of limit 3 whose permits are all held: slot 0 by `a`, slot 1 by `b`, and slot 2 by `c`.
fn full() -> Node {
    let mut node = Node::default();
    for (slot, token) in [(0, 'a'), (1, 'b'), (2, 'c')] {
        assert!(node.is_granted(token, &[slot], None));
    }
    node
}

#[test]
fn a_slot_has_one_holder_and_several_are_granted_together_or_not_at_all() {
    let mut node = Node::default();
    assert!(node.is_granted('a', &[1], None));
    let refused = node.refused('b', &[1], (3, 0), None);
    assert_eq!((refused.free, refused.known, refused.rank), (vec![0, 2], 3, None));
    // Slot 1 is held, but enough other slots are free, so the client can try again at once.
    assert_eq!(refused.expires_in, Some(Duration::ZERO));
    assert!(!node.is_granted('b', &[0, 1], None));
    assert!(node.is_granted('b', &[0, 2], None), "the refused round left something");
    let refused = node.refused('c', &[0], (3, 0), None);
    assert_eq!((refused.free, refused.expires_in), (vec![], Some(Duration::from_secs(10))));
    // The token holds only slot 1, so RELEASE deletes the lock of slot 1, but not that of slot 0.
    assert!(!node.release('a', &[0, 1]));
    assert!(!node.is_granted('c', &[0], None));
    assert!(node.is_granted('c', &[1], None));
}

#[test]
fn waiters_are_notified_in_the_order_of_their_tickets_each_of_other_slots() {
    let mut node = full();
    for (waiter, ticket) in [("live#2", 20), ("live#1", 10), ("live#3", 30)] {
        assert!(!node.is_granted('x', &[0], Some((waiter, ticket))));
    }
    assert_eq!(node.sent(), Vec::new());
    assert!(node.release('b', &[1]));
    assert_eq!(node.sent(), [to("live#1", &[1])]);
    // The first waiter already has its turn, so the next free slot is offered to the second waiter.
    assert!(node.release('a', &[0]));
    assert_eq!(node.sent(), [to("live#2", &[0])]);
    // Both free permits are reserved for the two notified waiters.
    assert!(!node.is_granted('y', &[0], None));
    assert!(!node.is_granted('y', &[0], Some(("live#3", 30))));
    assert!(node.is_granted('x', &[1], Some(("live#1", 10))));
    assert!(node.is_granted('y', &[0], Some(("live#2", 20))));
}

#[test]
fn the_only_waiter_learns_of_all_free_slots() {
    let mut node = full();
    assert!(node.release('a', &[0]) && node.release('c', &[2]));
    // Other nodes may list another slot first. To choose a slot that is free on a majority, the waiter must know all
    // free slots.
    let refused = node.refused('x', &[1], (3, 0), Some(("live#1", 10)));
    assert_eq!(refused.free, [0, 2]);
}

#[test]
fn a_waiter_that_tries_another_slot_is_offered_the_same_one_again() {
    let mut node = full();
    assert!(!node.is_granted('x', &[0], Some(("live#1", 10))));
    assert!(node.release('c', &[2]));
    assert_eq!(node.sent(), [to("live#1", &[2])]);
    // Meanwhile, another node has offered slot 1, so the waiter tries that slot.
    let refused = node.refused('x', &[1], (3, 0), Some(("live#1", 10)));
    assert_eq!((refused.free, refused.rank), (vec![2], Some(0)));
    assert!(node.is_granted('x', &[2], Some(("live#1", 10))));
}

#[test]
fn a_waiter_that_leaves_gives_back_what_it_was_offered() {
    let mut node = full();
    for (waiter, ticket) in [("live#1", 10), ("live#2", 20)] {
        assert!(!node.is_granted('x', &[0], Some((waiter, ticket))));
    }
    assert!(node.release('b', &[1]));
    assert_eq!(node.sent(), [to("live#1", &[1])]);
    node.leave("live#1");
    assert_eq!(node.sent(), [to("live#2", &[1])]);
}

#[test]
fn a_waiter_that_takes_another_slot_gives_back_only_what_it_was_offered() {
    let mut node = full();
    for (waiter, ticket) in [("live#1", 10), ("live#2", 20), ("live#3", 30), ("live#4", 40)] {
        assert!(!node.is_granted('x', &[0], Some((waiter, ticket))));
    }
    for (slot, token) in [(0, 'a'), (1, 'b'), (2, 'c')] {
        assert!(node.release(token, &[slot]));
        node.now += 1;
    }
    assert_eq!(node.sent(), [to("live#1", &[0]), to("live#2", &[1]), to("live#3", &[2])]);
    assert!(node.is_granted('x', &[1], Some(("live#1", 10))));
    assert_eq!(node.sent(), [to("live#4", &[0])]);
}

#[test]
fn waiters_that_are_notified_together_give_back_only_their_own_slots() {
    let mut node = Node::default();
    assert!(node.is_granted('a', &[0, 1, 2], None));
    for (waiter, ticket) in [("live#1", 10), ("live#2", 20), ("live#3", 30), ("live#4", 40)] {
        assert!(!node.is_granted('x', &[0], Some((waiter, ticket))));
    }
    assert!(node.release('a', &[0, 1, 2]));
    assert_eq!(node.sent(), [to("live#1", &[0]), to("live#2", &[1]), to("live#3", &[2])]);
    node.leave("live#2");
    assert_eq!(node.sent(), [to("live#4", &[1])]);
}

#[test]
fn a_waiter_for_several_permits_is_not_overtaken() {
    let mut node = full();
    assert!(!node.is_granted('x', &[0, 1], Some(("live#1*2", 10))));
    assert!(!node.is_granted('y', &[0], Some(("live#2", 20))));
    assert!(node.release('b', &[1]));
    // One free permit is too few for the first waiter. So the node notifies no waiter, and reserves the permit.
    assert_eq!(node.sent(), Vec::new());
    assert!(!node.is_granted('y', &[1], Some(("live#2", 20))));
    assert!(!node.is_granted('z', &[1], None));
    assert!(node.refused('z', &[1], (3, 0), None).free.is_empty());
    assert!(node.release('a', &[0]));
    assert_eq!(node.sent(), [to("live#1", &[0, 1])]);
    assert!(node.is_granted('x', &[0, 1], Some(("live#1*2", 10))));
    assert!(node.release('c', &[2]));
    assert_eq!(node.sent(), [to("live#2", &[2])]);
}

#[test]
fn a_waiter_for_several_permits_that_has_not_tried_for_long_is_overtaken() {
    let seconds = LONGEST_SILENCE.as_secs();
    for tries in [false, true] {
        let mut node = full();
        node.refused('n', &[0, 1], (3, 0), Some(("live#1*2", 1)));
        node.refused('m', &[0], (3, 0), Some(("live#2", 2)));
        node.release('a', &[0]);
        for _ in 0..2 {
            assert_eq!(node.sent(), [], "the permit is kept for the first waiter");
            node.now += 1_000 * seconds;
            // The holders extend their leases.
            for (slot, token) in [(1, 'b'), (2, 'c')] {
                node.take_again(slot, token);
            }
            if tries {
                node.refused('n', &[0, 1], (3, 0), Some(("live#1*2", 1)));
            }
            node.refused('m', &[1], (3, 0), Some(("live#2", 2)));
        }
        assert_eq!(node.is_granted('m', &[0], Some(("live#2", 2))), !tries);
        // The overtaken waiter keeps its ticket, so its next try makes it the first in the queue again.
        assert_eq!(node.refused('n', &[0, 1], (3, 0), Some(("live#1*2", 1))).rank, Some(0));
    }
}

#[test]
fn a_waiter_that_is_not_subscribed_is_removed() {
    let mut node = full();
    for number in 1..=3 {
        assert!(!node.is_granted('x', &[0], Some((&format!("dead#{number}*3"), number))));
    }
    assert!(!node.is_granted('y', &[0], Some(("live#4", 40))));
    assert_eq!(node.permits.queue.len(at(0)), 4);
    assert!(node.release('b', &[1]));
    assert_eq!(node.sent(), [to("live#4", &[1])]);
    assert_eq!(node.permits.queue.len(at(0)), 1);
    // An ACQUIRE of another client removes a waiter without a subscriber, and is then granted.
    assert!(node.release('a', &[0]));
    assert!(!node.is_granted('x', &[2], Some(("dead#5*2", 5))));
    assert!(node.is_granted('z', &[0], None));
    // One request removes at most `MOST_GONE` waiters, so that no request takes long.
    let mut node = full();
    for number in 1..=2 * MOST_GONE as u64 {
        assert!(!node.is_granted('x', &[0], Some((&format!("dead#{number}"), number))));
    }
    assert!(node.release('b', &[1]));
    assert_eq!(node.permits.queue.len(at(0)), MOST_GONE);
}

#[test]
fn a_waiter_that_does_not_use_its_turn_loses_it() {
    let mut node = full();
    assert!(!node.is_granted('x', &[0], Some(("live#1", 10))));
    assert!(!node.is_granted('y', &[0], Some(("live#2", 20))));
    assert!(node.release('b', &[1]));
    assert_eq!(node.sent(), [to("live#1", &[1])]);
    node.now = 999;
    assert!(!node.is_granted('y', &[1], Some(("live#2", 20))));
    assert_eq!(node.sent(), Vec::new());
    node.now = 1_000;
    assert!(node.is_granted('y', &[1], Some(("live#2", 20))));
    assert!(node.permits.queue.is_empty(at(node.now)));
}

#[test]
fn a_node_knows_the_largest_limit_until_no_slot_beyond_a_smaller_one_is_held() {
    let mut node = full();
    assert_eq!(node.permits.known(at(0)), 3);
    let asked = node.ask('d', &[4], (5, 0), None);
    assert!(matches!(asked, Permitted::Granted(_)));
    assert_eq!(node.permits.known(at(0)), 5);
    // A client with limit 3 is offered no slot beyond its limit, but learns that the semaphore has more slots.
    let refused = node.refused('x', &[0], (3, 0), Some(("live#1", 10)));
    assert_eq!((refused.free, refused.known), (vec![], 5));
    assert_eq!(node.refused('y', &[0], (5, 0), None).known, 5);
    assert!(node.release('d', &[4]));
    assert_eq!(node.refused('y', &[0], (3, 0), None).known, 3);
    // The node forgets the number of slots a minute after the keys have expired.
    assert_eq!((node.permits.known(at(69_999)), node.permits.known(at(70_000))), (3, 0));
}

#[test]
fn a_refused_waiter_is_not_notified_of_slots_beyond_its_limit() {
    let mut node = full();
    assert!(matches!(node.ask('d', &[4], (5, 0), None), Permitted::Granted(_)));
    // Slot 3 is free, but only for clients with a larger limit.
    assert!(!node.is_granted('x', &[0], Some(("live#1", 10))));
    assert_eq!(node.sent(), Vec::new());
    // No waiter overtakes the first one, not even for a slot beyond the first waiter's limit.
    let wider = node.refused('y', &[0], (5, 0), Some(("live#2", 20)));
    assert_eq!((wider.free, node.sent()), (vec![], vec![]));
    assert!(node.release('b', &[1]));
    assert_eq!(node.sent(), [to("live#1", &[1]), to("live#2", &[3])]);
}

#[test]
fn a_waiter_gets_its_offer_with_the_refusal_and_other_waiters_get_other_slots() {
    let mut node = full();
    assert!(node.release('a', &[0]) && node.release('b', &[1]));
    let first = node.refused('x', &[2], (3, 0), Some(("live#1", 10)));
    assert_eq!((first.free, first.rank), (vec![0, 1], Some(0)));
    let second = node.refused('y', &[0], (3, 0), Some(("live#2", 20)));
    assert_eq!((second.free, node.sent()), (vec![1], vec![]));
    assert!(node.is_granted('x', &[0], Some(("live#1", 10))));
    assert!(node.is_granted('y', &[1], Some(("live#2", 20))));
}

#[test]
fn clients_are_offered_different_slots_first() {
    let mut node = Node::default();
    assert!(matches!(node.ask('a', &[0], (40, 0), None), Permitted::Granted(_)));
    let offered = |node: &mut Node, offset| node.refused('b', &[0], (40, offset), None).free;
    // A refusal lists free slots in the order of a server's set, in which slot numbers are sorted as text. The list
    // begins at the offset and wraps around at the end.
    let first = [1, 10, 11, 12, 13, 14, 15, 16];
    assert_eq!(offered(&mut node, 0), first);
    assert_eq!(offered(&mut node, 39), first);
    assert_eq!(offered(&mut node, 38), [9, 1, 10, 11, 12, 13, 14, 15]);
    let mut seen: Vec<_> = (0..39).map(|offset| offered(&mut node, offset)[0]).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(1..40));
}
