//! Hand-over: TRANSFER and its undo on a node, whether a lease can still be adopted, and detached leases.

use super::{END, TERM, at, digits, exclusive, granted_by_all};
use crate::node::entry::{Entry, Time, acquire, transfer};
use crate::node::readers::LockMode;
use crate::{AdoptionTally, Ended, Event, Healed, NotGiven, Quorum, Round, Untransferable, Vote};
use std::time::Duration;

const GIVER: u8 = 0;
const TTL: Duration = Duration::from_secs(10);
const WALL: u64 = 1_000_000_000;

fn time(milliseconds: u64) -> Time {
    Time { now: at(milliseconds), wall: WALL + 1_000 * milliseconds }
}

/// An entry that the giver locked at `at(0)`, and the fence of that grant.
fn given() -> (Entry<u8>, u64) {
    let mut entry = Entry::default();
    let vote = acquire(&mut exclusive([&mut entry]), time(0), &GIVER, TTL, WALL);
    let Some(Vote::Granted { fence }) = vote else { panic!("{vote:?}") };
    (entry, fence)
}

#[test]
fn transfer_needs_the_token_of_the_giver_on_all_resources() {
    // Each digit stands for the token of an entry: the giver's, another one, none, or the giver's in an expired lock.
    for tokens in digits(4, 3) {
        let mut entries: Vec<_> = tokens
            .iter()
            .map(|token| {
                let mut entry = Entry::with_counter(time(0), 7);
                let token = match token {
                    0 => Some((GIVER, at(5))),
                    1 => Some((9, at(5))),
                    2 => None,
                    _ => Some((GIVER, at(1))),
                };
                entry.store_lock(token);
                entry
            })
            .collect();
        let before = entries.clone();
        let vote = transfer(&mut exclusive(&mut entries), time(2), &GIVER, &1, TTL, 0);
        if tokens.iter().all(|token| *token == 0) {
            assert!(matches!(vote, Some(Vote::Granted { .. })));
            let token = (&1, TTL);
            assert!(entries.iter().all(|entry| entry.stored_lock(at(2)) == Some(token)));
        } else {
            assert_eq!(vote, Some(Vote::Held { expires_in: None }));
            assert_eq!(entries, before, "{tokens:?}");
        }
    }
}

#[test]
fn transfer_grants_a_larger_fence_each_time() {
    let (mut entry, mut last) = given();
    for adopter in 1..5 {
        let giver = adopter - 1;
        // A small proposal, like that of a client whose readings of the nodes' clocks are too low.
        let vote = transfer(&mut exclusive([&mut entry]), time(1), &giver, &adopter, TTL, WALL - 1);
        let Some(Vote::Granted { fence }) = vote else { panic!("{vote:?}") };
        assert!(fence > last);
        last = fence;
    }
}

#[test]
fn giving_back_restores_the_token_for_the_time_that_is_left() {
    let (mut entry, _) = given();
    let left = Duration::from_millis(7);
    assert!(!entry.give_back(at(1), &1, &GIVER, left), "nothing was transferred");
    let vote = transfer(&mut exclusive([&mut entry]), time(2), &GIVER, &1, TTL / 2, WALL);
    let Some(Vote::Granted { fence }) = vote else { panic!("{vote:?}") };
    assert!(!entry.give_back(at(3), &2, &GIVER, left), "another token has the key");
    assert!(entry.give_back(at(3), &1, &GIVER, left));
    assert_eq!(entry.stored_lock(at(3)), Some((&GIVER, left)));
    assert_eq!(entry.last_fence(WALL), Some(fence));
    assert!(!entry.give_back(at(10), &GIVER, &1, left), "the key has expired");
}

#[test]
fn giving_back_deletes_the_key_if_no_time_is_left() {
    let (mut entry, _) = given();
    let vote = transfer(&mut exclusive([&mut entry]), time(2), &GIVER, &1, TTL, WALL);
    assert!(matches!(vote, Some(Vote::Granted { .. })));
    assert!(entry.give_back(at(3), &1, &GIVER, Duration::ZERO));
    assert_eq!(entry.token(at(3)), None);
}

#[test]
fn at_most_one_of_two_adopters_has_a_majority() {
    for nodes in 1..=6 {
        let quorum = Quorum::over(nodes).expect("valid");
        // Each digit says which adopter's request arrives first at a node, or that no request arrives.
        for first in digits(3, nodes) {
            let mut entries: Vec<_> = (0..nodes).map(|_| given().0).collect();
            let mut votes = [0, 0];
            for (entry, first) in entries.iter_mut().zip(&first) {
                let order = [&[1, 2][..], &[2, 1], &[]][*first];
                for adopter in order {
                    let vote = transfer(
                        &mut exclusive([&mut *entry]),
                        time(1),
                        &GIVER,
                        adopter,
                        TTL,
                        WALL,
                    );
                    votes[usize::from(*adopter) - 1] +=
                        usize::from(matches!(vote, Some(Vote::Granted { .. })));
                }
            }
            assert!(votes.iter().filter(|votes| **votes >= quorum.size()).count() <= 1);
            let seen_by_the_first: Vec<_> =
                first.iter().filter(|first| **first == 1).map(|_| NotGiven::Token(2)).collect();
            let mut adoption = AdoptionTally::new(quorum, 0);
            assert_eq!(adoption.lost(seen_by_the_first), None);
            assert_eq!(adoption.is_taken(), votes[1] >= quorum.size(), "{first:?}");
            // After both adopters have undone their rounds, all nodes have the giver's token again.
            for entry in &mut entries {
                let _ = [1, 2].map(|adopter| entry.give_back(at(2), &adopter, &GIVER, TTL));
                assert_eq!(entry.token(at(2)), Some(&GIVER));
            }
        }
    }
}

#[test]
fn lease_is_lost_for_adopters_once_no_majority_can_have_its_token() {
    for nodes in 1..=6 {
        let quorum = Quorum::over(nodes).expect("valid");
        // Each digit stands for the answer of a node: granted, key missing, readers, or one of two other tokens.
        for answers in digits(5, nodes) {
            let refusals: Vec<_> = answers
                .iter()
                .filter_map(|answer| match answer {
                    0 => None,
                    1 => Some(NotGiven::Missing),
                    2 => Some(NotGiven::Readers),
                    token => Some(NotGiven::Token(*token)),
                })
                .collect();
            let count = |wanted| answers.iter().filter(|answer| **answer == wanted).count();
            let is_gone = nodes - count(1) < quorum.size();
            let mut adoption = AdoptionTally::new(quorum, 0);
            let most = count(3).max(count(4));
            let gone = is_gone.then_some(Untransferable::Gone);
            let taken = (most >= quorum.size()).then_some(Untransferable::Taken);
            let is_unclear = most + count(2) >= quorum.size();
            let unclear = is_unclear.then_some(Untransferable::Unclear);
            assert_eq!(adoption.lost(refusals.clone()), gone, "{answers:?}");
            for _ in 2..5 {
                assert_eq!(adoption.lost(refusals.clone()), gone.or(taken), "{answers:?}");
            }
            assert_eq!(adoption.lost(refusals), gone.or(taken).or(unclear), "{answers:?}");
            assert_eq!(adoption.is_taken(), gone.is_none() && taken.is_some(), "{answers:?}");
        }
    }
}

#[test]
fn majority_of_another_token_counts_only_in_two_rounds() {
    let quorum = Quorum::over(3).expect("valid");
    let one = vec![NotGiven::Token(1); 2];
    let other = vec![NotGiven::Token(2); 3];
    let none = vec![NotGiven::Token(1)];
    let mut adoption = AdoptionTally::new(quorum, 0);
    for refusals in [&one, &other, &none, &other] {
        assert_eq!(adoption.lost(refusals.clone()), None);
        assert_eq!(adoption.is_taken(), refusals.len() > 1);
    }
    assert_eq!(adoption.lost(other), Some(Untransferable::Taken));
}

#[test]
fn lease_is_lost_if_a_majority_has_other_tokens_again_and_again() {
    let mut adoption = AdoptionTally::new(Quorum::over(3).expect("valid"), 0);
    for token in 1..5 {
        assert_eq!(adoption.lost(vec![NotGiven::Token(token); 2]), None);
        assert_eq!(adoption.lost(vec![NotGiven::Token(token)]), None, "no majority");
    }
    assert_eq!(adoption.lost(vec![NotGiven::Token(5); 3]), Some(Untransferable::Taken));
}

#[test]
fn nodes_that_may_not_vote_count_as_nodes_without_the_key() {
    for (nodes, silent, missing, is_gone) in
        [(3, 1, 1, true), (3, 1, 0, false), (5, 1, 1, false), (5, 1, 2, true)]
    {
        let mut adoption = AdoptionTally::new(Quorum::over(nodes).expect("valid"), silent);
        let gone = is_gone.then_some(Untransferable::Gone);
        assert_eq!(
            adoption.lost(vec![NotGiven::Missing::<u8>; missing]),
            gone,
            "{silent} and {missing} of {nodes}"
        );
    }
}

#[test]
fn repair_of_an_adopted_lease_replaces_the_token_of_its_giver_only() {
    let giver = Some(&GIVER);
    let (mut entry, fence) = given();
    assert_eq!(entry.heal(time(1), (&1, None), TTL, fence, LockMode::Exclusive), Healed::Held);
    assert_eq!(entry.heal(time(1), (&1, Some(&2)), TTL, fence, LockMode::Exclusive), Healed::Held);
    assert_eq!(entry.heal(time(1), (&1, giver), TTL, fence, LockMode::Exclusive), Healed::Clean);
    assert_eq!(entry.stored_lock(at(1)), Some((&1, TTL)));
    assert_eq!(
        entry.heal(time(2), (&1, giver), 2 * TTL, fence, LockMode::Exclusive),
        Healed::Clean
    );
    assert_eq!(entry.stored_lock(at(1)), Some((&1, TTL)), "its own key stays as it is");
    assert_eq!(entry.heal(time(2), (&3, giver), TTL, fence, LockMode::Exclusive), Healed::Held);
}

#[test]
fn detached_lease_is_over_for_its_holder() {
    let quorum = Quorum::over(3).expect("valid");
    let mut lease = granted_by_all(quorum, at(END), None);
    let mut extension = lease.extend(at(1), TERM).expect("it is valid");
    assert!(lease.detach(at(2)));
    assert_eq!(lease.ended(at(2)), Some(Ended::Detached));
    assert_eq!(lease.ended(at(2 * END)), Some(Ended::Detached), "it is never lost later");
    assert!(lease.is_released());
    assert_eq!(lease.extend(at(3), TERM), None);
    assert_eq!(lease.verify(at(3), TERM), None);
    assert_eq!(lease.heal(at(3), TERM), None, "the key must not come back where it is transferred");
    let answers =
        [0, 1, 2].map(|node| lease.extended(at(3), &mut extension, node, crate::Answer::Yes));
    assert_eq!(answers, [Some(crate::Extended::Lost); 3], "a late extension changes nothing");
    assert!(!lease.detach(at(3)), "only once");
    assert!(!lease.release(at(3)).was_valid());
    assert_eq!(lease.ended(at(3)), Some(Ended::Detached));
}

#[test]
fn ended_lease_cannot_be_detached() {
    let quorum = Quorum::over(3).expect("valid");
    let mut expired = granted_by_all(quorum, at(END), None);
    assert!(!expired.detach(at(END)));
    assert_eq!(expired.ended(at(END)), Some(Ended::Expired));
    let mut released = granted_by_all(quorum, at(END), None);
    let _ = released.release(at(1));
    assert!(!released.detach(at(2)));
    assert_eq!(released.ended(at(2)), Some(Ended::Released));
}

#[test]
fn round_knows_which_nodes_may_still_grant_it() {
    let votes = [
        Vote::Granted { fence: 1 },
        Vote::Held { expires_in: None },
        Vote::Unknown,
        Vote::Refused,
        Vote::Guarded,
    ];
    let mut round = Round::new(Quorum::over(6).expect("valid"), at(0), TERM);
    for (node, vote) in votes.into_iter().enumerate() {
        let _ = round.handle(at(1), Event::Vote { node, vote, in_order: true });
    }
    assert!(round.unanswered().iter().eq([2, 5]));
    let vote = Vote::Granted { fence: 2 };
    let _ = round.handle(at(2), Event::Vote { node: 5, vote, in_order: true });
    assert!(round.unanswered().iter().eq([2]));
}
