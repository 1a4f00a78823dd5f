//! Quorums, node sets, fences, delays and waits.

use super::{cases, moment, up_to};
use crate::fence::{Settlement, settle};
use crate::{
    FENCE_LIMIT, FENCE_WINDOW, Loss, MAX_NODES, Next, NodeSet, Quorum, RetryDelay, Waiting,
    next_fence,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

fn delay() -> impl Strategy<Value = RetryDelay> {
    let range = (up_to(Duration::from_secs(3600)), up_to(Duration::from_secs(3600)));
    range.prop_map(|(one, other)| RetryDelay {
        shortest: one.min(other).max(MILLISECOND),
        longest: one.max(other).max(MILLISECOND),
    })
}

fn loss() -> impl Strategy<Value = Loss> {
    let free_in = proptest::option::of(up_to(Duration::from_secs(10)));
    prop_oneof![
        2 => free_in.prop_map(|free_in| Loss::Contended { free_in }),
        1 => Just(Loss::NoQuorum),
    ]
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn two_majorities_overlap(
        nodes in 1..=MAX_NODES,
        one in btree_set(0..MAX_NODES, 0..=MAX_NODES),
        other in btree_set(0..MAX_NODES, 0..=MAX_NODES),
    ) {
        let quorum = Quorum::over(nodes).expect("within the range");
        let within = |set: BTreeSet<usize>| -> BTreeSet<usize> {
            set.into_iter().filter(|node| *node < nodes).collect()
        };
        let one = within(one);
        let other = within(other);
        if one.len() >= quorum.size() && other.len() >= quorum.size() {
            prop_assert!(one.intersection(&other).next().is_some());
        }
        prop_assert_eq!(quorum.size() + quorum.tolerated(), nodes);
        prop_assert!(quorum.tolerated() < quorum.size());
    }

    #[test]
    fn no_other_number_of_nodes_is_a_quorum(nodes in any::<usize>()) {
        prop_assert_eq!(Quorum::over(nodes).is_some(), (1..=MAX_NODES).contains(&nodes));
    }

    #[test]
    fn a_node_set_is_a_set(nodes in vec(0..MAX_NODES, 0..64)) {
        let model: BTreeSet<usize> = nodes.iter().copied().collect();
        let set: NodeSet = nodes.into_iter().collect();
        prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), model.clone());
        prop_assert_eq!(set.len(), model.len());
        prop_assert_eq!(set.is_empty(), model.is_empty());
        prop_assert!((0..MAX_NODES).all(|node| set.contains(node) == model.contains(&node)));
    }

    #[test]
    fn a_fence_is_larger_than_the_last_and_exact_in_every_language(
        last in prop_oneof![any::<u64>(), Just(u64::MAX), 0..=FENCE_LIMIT, FENCE_LIMIT - 3..=FENCE_LIMIT],
        proposal in prop_oneof![any::<u64>(), 0..=FENCE_LIMIT],
        node_clock in prop_oneof![any::<u64>(), 0..=FENCE_LIMIT],
    ) {
        match next_fence(last, proposal, node_clock) {
            Some(fence) => {
                prop_assert!(last < fence && fence < FENCE_LIMIT);
                let is_near =
                    u128::from(proposal.abs_diff(node_clock)) <= FENCE_WINDOW.as_micros();
                let floor = if is_near { proposal } else { node_clock };
                prop_assert_eq!(fence, floor.max(last + 1));
            }
            None => prop_assert!(last.max(proposal).max(node_clock) >= FENCE_LIMIT - 1),
        }
    }

    #[test]
    fn a_fence_is_settled_when_a_majority_stores_the_largest(fences in vec(1_u64..4, 1..=8)) {
        let quorum = Quorum::over(fences.len()).expect("within the range");
        let largest = fences.iter().copied().max().unwrap_or_default();
        let storing = fences.iter().filter(|fence| **fence == largest).count();
        let expected = if storing >= quorum.size() {
            Settlement::Stored(largest)
        } else {
            Settlement::Raise(largest)
        };
        prop_assert_eq!(settle(quorum, fences.into_iter().enumerate()), expected);
    }

    #[test]
    fn a_delay_is_drawn_from_its_range(delay in delay(), random in any::<u32>()) {
        let drawn = delay.draw(random);
        prop_assert!(delay.shortest <= drawn && drawn <= delay.longest);
        prop_assert!(delay.draw(random / 2) <= drawn);
    }

    #[test]
    fn no_round_begins_after_the_deadline_and_waiting_ends(
        start in moment(),
        wait in up_to(Duration::from_secs(5)),
        patience in up_to(Duration::from_secs(5)),
        delay in delay(),
        rounds in vec((loss(), up_to(Duration::from_millis(300)), any::<u32>()), 1..20),
    ) {
        let deadline = start.plus(wait);
        let mut waiting = Waiting::new(start, Some(wait), patience, delay);
        let mut began = start;
        let mut outage = None;
        let mut last = false;
        let mut rounds = rounds.iter().cycle();
        loop {
            let (loss, took, random) = rounds.next().expect("a cycle");
            let now = began.plus(*took);
            let limit = match loss {
                Loss::Contended { .. } => {
                    outage = None;
                    deadline
                }
                Loss::NoQuorum => deadline.min(outage.get_or_insert(began).plus(patience)),
            };
            match waiting.after(now, began, *loss, *random) {
                Next::GiveUp => {
                    prop_assert!(now >= limit, "it gave up early");
                    break;
                }
                Next::TryAt(at) => {
                    prop_assert!(!last, "only one round may begin at the deadline");
                    // Each round begins after the end of the previous one, so the wait is finite.
                    prop_assert!(now < at && at <= limit);
                    last = at == deadline;
                    began = at;
                }
            }
        }
    }
}
