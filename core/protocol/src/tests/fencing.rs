//! Fences: which fence a node grants, and when a majority stores the fence of the lease.

use super::{END, TERM, at, digits};
use crate::node::entry::{Entry, Time, acquire};
use crate::node::readers::LockMode;
use crate::{
    Actions, Event, FENCE_LIMIT, FENCE_MEMORY, FENCE_WINDOW, NodeSet, fence_memory, next_fence,
};
use crate::{Outcome, Quorum, Round, Vote};
use std::time::Duration;

fn grant(round: &mut Round, node: usize, fence: u64) -> Actions {
    round.handle(at(1), Event::Vote { node, vote: Vote::Granted { fence }, in_order: true })
}

#[test]
fn a_fence_is_raised_exactly_if_no_majority_stores_the_largest() {
    for nodes in 1..=6 {
        let quorum = Quorum::over(nodes).expect("valid");
        for fences in digits(3, nodes) {
            let mut round = Round::new(quorum, at(0), TERM);
            for node in 0..quorum.size() {
                let actions = grant(&mut round, node, 10 + fences[node] as u64);
                if node + 1 < quorum.size() {
                    assert_eq!(actions, Actions::default());
                    continue;
                }
                let counted = &fences[..quorum.size()];
                let largest = counted.iter().copied().max().expect("not empty");
                let fence = 10 + largest as u64;
                if counted.iter().all(|fence| *fence == largest) {
                    assert!(
                        matches!(actions.outcome, Some(Outcome::Won { fence: won, .. }) if won == fence)
                    );
                } else {
                    let all = (0..quorum.size()).collect::<NodeSet>();
                    assert_eq!(actions.raise, Some((all, fence)));
                    assert_eq!(actions.outcome, None);
                }
            }
        }
    }
}

/// A round over five nodes: the first three nodes have granted the fences 10, 11 and 10.
fn raising() -> Round {
    let mut round = Round::new(Quorum::over(5).expect("valid"), at(0), TERM);
    let _ = grant(&mut round, 0, 10);
    let _ = grant(&mut round, 1, 11);
    let actions = grant(&mut round, 2, 10);
    assert_eq!(actions.raise, Some((NodeSet::from_iter([0, 1, 2]), 11)));
    round
}

#[test]
fn a_raised_fence_wins_when_a_majority_of_the_counted_nodes_stores_it() {
    for answers in digits(2, 3) {
        let mut round = raising();
        let mut outcome = None;
        let mut undone = NodeSet::EMPTY;
        for (node, stored) in answers.iter().map(|answer| *answer == 1).enumerate() {
            let actions = round.handle(at(2), Event::Raised { node, stored });
            actions.undo.iter().for_each(|node| undone.insert(node));
            outcome = outcome.or(actions.outcome);
        }
        if answers == [1, 1, 1] {
            assert_eq!(outcome, Some(Outcome::Won { fence: 11, end: at(END) }));
            assert!(undone.is_empty());
        } else {
            assert!(!matches!(outcome, Some(Outcome::Won { .. })), "{answers:?}");
            assert_eq!(undone, NodeSet::from_iter([0, 1, 2]));
        }
    }
}

#[test]
fn a_late_grant_is_not_counted_into_a_fence_round() {
    let mut round = raising();
    assert_eq!(grant(&mut round, 3, 99), Actions::default());
    for node in 0..2 {
        assert_eq!(round.handle(at(2), Event::Raised { node, stored: true }), Actions::default());
    }
    let actions = round.handle(at(2), Event::Raised { node: 2, stored: true });
    assert_eq!(actions.outcome, Some(Outcome::Won { fence: 11, end: at(END) }));
}

#[test]
fn a_fence_round_that_ends_after_the_validity_end_is_lost() {
    let mut round = raising();
    for node in 0..2 {
        let _ = round.handle(at(2), Event::Raised { node, stored: true });
    }
    let actions = round.handle(at(END), Event::Raised { node: 2, stored: true });
    assert!(matches!(actions.outcome, Some(Outcome::Lost(_))));
    assert_eq!(actions.undo, NodeSet::from_iter([0, 1, 2]));
}

#[test]
fn an_abandoned_fence_round_is_undone_with_its_late_grants() {
    let mut round = raising();
    assert_eq!(grant(&mut round, 3, 10), Actions::default());
    let actions = round.handle(at(2), Event::Abandon);
    assert_eq!(actions.undo, NodeSet::from_iter([0, 1, 2, 3]));
    assert_eq!(round.handle(at(2), Event::Raised { node: 0, stored: true }), Actions::default());
    assert_eq!(grant(&mut round, 4, 10).undo, NodeSet::from_iter([4]));
}

#[test]
fn the_holders_are_all_nodes_that_may_have_the_token() {
    let mut round = Round::new(Quorum::over(5).expect("valid"), at(0), TERM);
    assert_eq!(round.holders().len(), 5);
    let votes =
        [Vote::Granted { fence: 7 }, Vote::Held { expires_in: None }, Vote::Unknown, Vote::Refused];
    for (node, vote) in votes.into_iter().enumerate() {
        let _ = round.handle(at(1), Event::Vote { node, vote, in_order: true });
    }
    assert_eq!(round.holders(), NodeSet::from_iter([0, 2, 4]));
}

#[test]
fn a_node_never_grants_a_fence_twice() {
    for last in 0..50 {
        for proposal in 0..50 {
            for clock in 0..50 {
                let fence = next_fence(last, proposal, clock).expect("far below the limit");
                assert_eq!(fence, (last + 1).max(proposal));
            }
        }
    }
}

#[test]
fn a_node_uses_its_own_clock_if_the_proposal_is_far_from_it() {
    let clock = 1_000_000_000;
    let window = FENCE_WINDOW.as_micros() as u64;
    for last in [0, 5] {
        for near in [clock - window, clock, clock + window] {
            assert_eq!(next_fence(last, near, clock), Some(near));
        }
        for far in [0, clock - window - 1, clock + window + 1, u64::MAX] {
            assert_eq!(next_fence(last, far, clock), Some(clock));
        }
    }
    assert_eq!(next_fence(2 * clock, clock, clock), Some(2 * clock + 1));
}

/// After a node has forgotten a counter, every fence that the node grants is larger than that counter, whatever the
/// proposal.
#[test]
fn a_counter_is_forgotten_only_when_every_later_floor_is_larger() {
    let clock = 1_000_000_000_000_u64;
    let ttl = Duration::from_millis(10);
    for lead in [-3_600_i64, -2, 0, 2, 3, 100, 3_600] {
        let fence = clock.saturating_add_signed(lead * 1_000_000);
        let memory = fence_memory(fence, ttl, clock);
        let forgotten = clock + memory.as_micros() as u64;
        for proposal in [0, fence, forgotten - 2_000_000, forgotten, u64::MAX] {
            assert!(next_fence(0, proposal, forgotten).expect("far below the limit") > fence);
        }
        assert!(memory <= ttl + FENCE_MEMORY + Duration::from_secs(lead.max(0) as u64));
    }
}

#[test]
fn fences_stay_below_the_largest_exact_number() {
    assert_eq!(next_fence(FENCE_LIMIT - 2, 0, 0), Some(FENCE_LIMIT - 1));
    assert_eq!(next_fence(FENCE_LIMIT - 1, 0, 0), None);
    assert_eq!((FENCE_LIMIT - 1) as f64 as u64, FENCE_LIMIT - 1);
}

/// Two successive leases of one resource, with every choice of the granting majorities and of the initial counters.
#[test]
fn the_next_winner_has_a_larger_fence() {
    let quorum = Quorum::over(3).expect("valid");
    for counters in digits(4, 3) {
        for (first_out, second_out) in (0..9).map(|pair| (pair / 3, pair % 3)) {
            let mut counters: Vec<u64> = counters.iter().map(|counter| *counter as u64).collect();
            let mut win = |out: usize| {
                let mut round = Round::new(quorum, at(0), TERM);
                let mut outcome = None;
                let mut raise = None;
                for node in (0..3).filter(|node| *node != out) {
                    counters[node] = next_fence(counters[node], 0, 0).expect("small");
                    let actions = grant(&mut round, node, counters[node]);
                    (outcome, raise) = (actions.outcome, actions.raise);
                }
                if let Some((nodes, fence)) = raise {
                    for node in nodes.iter() {
                        counters[node] = counters[node].max(fence);
                        let event = Event::Raised { node, stored: true };
                        outcome = outcome.or(round.handle(at(1), event).outcome);
                    }
                }
                match outcome {
                    Some(Outcome::Won { fence, .. }) => fence,
                    other => panic!("not won: {other:?}"),
                }
            };
            let first = win(first_out);
            let second = win(second_out);
            assert!(second > first, "{first} then {second}");
        }
    }
}

/// Two successive leases on three nodes, with wrong clocks and proposals, every choice of the granting majorities, and
/// several pauses between the leases. In some cases, one node forgets everything before the second lease and is
/// guarded.
#[test]
fn fences_grow_across_wrong_clocks_forgotten_counters_and_guarded_restarts() {
    const NEAR: i64 = 2_000_000;
    const MINUTE: i64 = 60_000_000;
    const EPOCH: i64 = 1_000_000_000_000;
    let ttl = Duration::from_secs(1);
    let offsets = [[0, 0, 0], [NEAR, 0, -NEAR], [10 * MINUTE, 0, 0], [0, MINUTE, -10 * MINUTE]];
    let proposals = [-EPOCH, -10 * MINUTE, -NEAR, 0, NEAR, 10 * MINUTE, EPOCH];
    let quorum = Quorum::over(3).expect("valid");
    let mut checked = 0;
    for clocks in offsets {
        let apart = clocks.iter().max().expect("three") - clocks.iter().min().expect("three");
        let guard = 2 * NEAR + apart + 1;
        for (case, pause) in [1, NEAR, MINUTE, 2 * MINUTE, 20 * MINUTE, guard].iter().enumerate() {
            for forgetful in [None, Some(0), Some(1), Some(2)] {
                // After a node has forgotten its counters, the restart guard ignores the node for the time `guard`. So
                // the test skips shorter pauses if a node forgets.
                if forgetful.is_some() && (case != 5 && *pause < guard) {
                    continue;
                }
                for choice in digits(proposals.len(), 2) {
                    for (out, then_out) in (0..9).map(|pair| (pair / 3, pair % 3)) {
                        let mut nodes: [Entry<u8>; 3] = Default::default();
                        let mut win =
                            |token: u8, elapsed: i64, out: usize, forgets: Option<usize>| {
                                let now = at(u64::try_from(elapsed).expect("later") / 1_000);
                                let time = |node: usize| {
                                    let wall = (EPOCH + elapsed + clocks[node]) as u64;
                                    Time { now, wall }
                                };
                                if let Some(node) = forgets {
                                    nodes[node] = Entry::default();
                                }
                                let proposal =
                                    EPOCH + elapsed + proposals[choice[usize::from(token)]];
                                let mut round = Round::new(quorum, at(0), TERM);
                                let mut outcome = None;
                                let mut raise = None;
                                for node in (0..3).filter(|node| *node != out) {
                                    let entry = &mut [(&mut nodes[node], LockMode::Exclusive)];
                                    let vote =
                                        acquire(entry, time(node), &token, ttl, proposal as u64);
                                    let vote = vote.expect("in range");
                                    let event = Event::Vote { node, vote, in_order: true };
                                    let actions = round.handle(at(1), event);
                                    (outcome, raise) = (actions.outcome, actions.raise);
                                }
                                for node in raise.iter().flat_map(|(nodes, _)| nodes.iter()) {
                                    let fence = raise.expect("there is one").1;
                                    let time = time(node);
                                    let mode = LockMode::Exclusive;
                                    let stored = nodes[node].raise(time, &token, ttl, fence, mode);
                                    let raised =
                                        round.handle(at(1), Event::Raised { node, stored });
                                    outcome = outcome.or(raised.outcome);
                                }
                                nodes.iter_mut().for_each(|node| {
                                    node.release(now, &token);
                                });
                                match outcome {
                                    Some(Outcome::Won { fence, .. }) => fence,
                                    other => panic!("not won: {other:?}"),
                                }
                            };
                        let first = win(0, 0, out, None);
                        let second = win(1, *pause, then_out, forgetful);
                        assert!(
                            second > first,
                            "{first} then {second}: clocks {clocks:?}, pause {pause}, {choice:?}, {forgetful:?}"
                        );
                        checked += 1;
                    }
                }
            }
        }
    }
    assert!(checked > 10_000, "{checked}");
}
