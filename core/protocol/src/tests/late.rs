//! Answers to ACQUIRE that arrive after the node's deadline or out of order.

use super::{TERM, at};
use crate::{Actions, Answer, Event, NodeSet, Outcome, Quorum, Round, Vote};

const GRANTED: Vote = Vote::Granted { fence: 7 };
const HELD: Vote = Vote::Held { expires_in: None };

/// A round over three nodes after these votes, and its outcome if it is decided.
fn round(votes: &[Vote]) -> (Round, Option<Outcome>) {
    let mut round = Round::new(Quorum::over(3).expect("valid"), at(0), TERM);
    let mut outcome = None;
    for (node, vote) in votes.iter().enumerate() {
        let actions = round.handle(at(1), Event::Vote { node, vote: *vote, in_order: true });
        outcome = outcome.or(actions.outcome);
    }
    (round, outcome)
}

fn undo(nodes: &[usize]) -> Actions {
    Actions { undo: nodes.iter().copied().collect(), ..Actions::default() }
}

#[test]
fn late_grant_of_a_lost_round_is_undone() {
    for (vote, undone) in
        [(GRANTED, &[1][..]), (Vote::Guarded, &[1]), (Vote::Unknown, &[1]), (HELD, &[])]
    {
        let (mut round, outcome) = round(&[HELD, Vote::Unknown, HELD]);
        assert!(matches!(outcome, Some(Outcome::Lost(_))));
        assert_eq!(round.handle(at(100_000), Event::Late { node: 1, vote }), undo(undone));
    }
}

#[test]
fn late_grant_joins_a_lease_and_is_undone_after_its_release() {
    let (mut won, outcome) = round(&[GRANTED, GRANTED, Vote::Unknown]);
    assert!(matches!(outcome, Some(Outcome::Won { .. })));
    let mut released = won.clone();
    assert_eq!(won.handle(at(2), Event::Late { node: 2, vote: GRANTED }), undo(&[]));
    assert_eq!(won.holders(), [0, 1, 2].into_iter().collect::<NodeSet>());

    assert_eq!(released.handle(at(2), Event::Abandon), undo(&[]));
    assert_eq!(released.handle(at(3), Event::Late { node: 2, vote: GRANTED }), undo(&[2]));
}

#[test]
fn late_refusal_shows_that_a_node_does_not_hold_the_lease() {
    let (mut won, _) = round(&[GRANTED, GRANTED, Vote::Unknown]);
    assert_eq!(won.handle(at(2), Event::Late { node: 2, vote: HELD }), undo(&[]));
    assert_eq!(won.holders(), [0, 1].into_iter().collect::<NodeSet>());
    assert_eq!(won.granted(), [0, 1].into_iter().collect::<NodeSet>());
}

#[test]
fn late_grant_does_not_count_in_a_round_that_is_not_decided() {
    let (mut round, _) = round(&[GRANTED, Vote::Unknown]);
    assert_eq!(round.handle(at(2), Event::Late { node: 1, vote: GRANTED }), undo(&[]));
    let last = Event::Vote { node: 2, vote: HELD, in_order: true };
    let actions = round.handle(at(3), last);
    assert_eq!(actions.undo, [0, 1].into_iter().collect::<NodeSet>());
    assert!(matches!(actions.outcome, None | Some(Outcome::Lost(_))));
}

#[test]
fn grant_out_of_order_is_undone_after_release() {
    for in_order in [true, false] {
        let (mut released, _) = round(&[GRANTED, GRANTED]);
        let mut held = released.clone();
        let event = Event::Vote { node: 2, vote: GRANTED, in_order };
        assert_eq!(held.handle(at(2), event), undo(&[]), "the release will follow it");

        assert_eq!(released.handle(at(2), Event::Abandon), undo(&[]));
        let undone: &[usize] = if in_order { &[] } else { &[2] };
        assert_eq!(released.handle(at(3), event), undo(undone));
    }
}

#[test]
fn lost_round_could_win_again_with_the_nodes_whose_connections_were_closed() {
    for (votes, lost, expected) in [
        (&[Vote::Unknown, Vote::Unknown][..], &[0, 1][..], true),
        // The third node has not voted and may still grant.
        (&[Vote::Unknown, Vote::Unknown], &[0], true),
        (&[GRANTED, HELD, Vote::Unknown], &[2], true),
        (&[GRANTED, Vote::Unknown, Vote::Unknown], &[], false),
        (&[HELD, HELD, Vote::Unknown], &[2], false),
        (&[HELD, Vote::Refused, Vote::Unknown], &[2], false),
        // The vote of a guarded node would not count in the next round either.
        (&[HELD, Vote::Guarded, Vote::Unknown], &[2], false),
    ] {
        let lost = lost.iter().copied().collect();
        assert_eq!(round(votes).0.could_win_again(lost), expected, "{votes:?}");
    }
}

#[test]
fn missing_key_proves_nothing_to_a_release_that_was_sent_twice() {
    let quorum = Quorum::over(3).expect("valid");
    for (is_repeated, expected) in [(false, Some(false)), (true, None)] {
        let mut lease = super::granted_by_all(quorum, at(super::END), None);
        let mut release = lease.release(at(1));
        let answer = if is_repeated { Answer::No.without_no() } else { Answer::No };
        assert_eq!(lease.released(&mut release, 0, answer), None);
        assert_eq!(lease.released(&mut release, 1, answer), expected);
        assert_eq!(super::is_lost(&lease, at(2)), !is_repeated);
    }
    assert_eq!(Answer::Yes.without_no(), Answer::Yes);
}
