//! The keys that the requests of a token have left on the nodes, or may still leave there.

use super::{TERM, at};
use crate::{Event, Footprint, NodeSet, Quorum, Round, Vote};

const GONE_BY: u64 = 10_000;

fn quorum() -> Quorum {
    Quorum::over(5).expect("5 is a valid number of nodes")
}

fn set<const N: usize>(nodes: [usize; N]) -> NodeSet {
    nodes.into_iter().collect()
}

/// Returns the footprint of a round over five nodes, and the round. The first two nodes have granted the round, the
/// third has refused it, the fourth has missed its deadline, and the vote of the fifth is pending.
fn footprint() -> (Footprint<char>, Round) {
    let mut round = Round::new(quorum(), at(0), TERM);
    let granted = Vote::Granted { fence: 7 };
    for (node, vote) in [granted, granted, Vote::Refused, Vote::Unknown].into_iter().enumerate() {
        let _ = round.handle(at(0), Event::Vote { node, vote, in_order: true });
    }
    (Footprint::new(&round, at(GONE_BY)), round)
}

#[test]
fn node_is_silent_until_it_has_answered_the_round() {
    let (mut footprint, mut round) = footprint();
    assert_eq!(footprint.silent(), set([3, 4]));
    let vote = Vote::Granted { fence: 7 };
    let _ = round.handle(at(0), Event::Vote { node: 4, vote, in_order: true });
    footprint.counted_votes(&round);
    assert_eq!(footprint.silent(), set([3]));
    let _ = round.handle(at(0), Event::Late { node: 3, vote: Vote::Refused });
    footprint.counted_votes(&round);
    assert_eq!(footprint.silent(), NodeSet::EMPTY);
}

#[test]
fn node_is_silent_until_it_has_answered_each_repair() {
    let mut footprint = Footprint::<char>::with(set([0, 1]), NodeSet::EMPTY, at(GONE_BY));
    footprint.sends_heal(2);
    footprint.sends_heal(2);
    footprint.answered_heal(2);
    assert_eq!(footprint.silent(), set([2]));
    footprint.answered_heal(2);
    assert_eq!(footprint.silent(), NodeSet::EMPTY);
}

#[test]
fn node_is_silent_until_it_has_given_back_each_upgrade() {
    let mut footprint = Footprint::with(set([0, 1, 2]), NodeSet::EMPTY, at(GONE_BY));
    footprint.sent_give_back(&'a', set([0, 1, 2]));
    [0, 1].into_iter().for_each(|node| footprint.answered_give_back(&'a', node));
    footprint.sent_give_back(&'b', set([0, 1, 2]));
    [1, 2].into_iter().for_each(|node| footprint.answered_give_back(&'b', node));
    assert_eq!(footprint.silent(), set([0, 2]));
    assert_eq!(footprint.take_upgrades(), [('a', 2), ('b', 0)]);
    assert_eq!(footprint.silent(), NodeSet::EMPTY, "the upgrades are being released");
}

#[test]
fn release_is_repeated_where_the_round_or_a_repair_may_have_set_the_key() {
    let (mut footprint, _) = footprint();
    assert_eq!(footprint.holders(), set([0, 1, 3, 4]));
    footprint.sends_heal(2);
    assert_eq!(footprint.holders(), set([0, 1, 2, 3, 4]));
    footprint.answered_heal(2);
    assert_eq!(footprint.holders(), set([0, 1, 2, 3, 4]));
}

#[test]
fn heal_that_was_not_sent_changes_nothing() {
    let (mut footprint, _) = footprint();
    let before = footprint.clone();
    footprint.sends_heal(2);
    footprint.did_not_send_heal(2);
    assert_eq!(footprint, before);
}

#[test]
fn key_of_the_giver_may_be_left_where_no_grant_was_answered() {
    let (mut footprint, mut round) = footprint();
    assert_eq!(footprint.may_hold_giver(quorum()), set([2, 3, 4]));
    let _ = round.handle(at(0), Event::Vote { node: 4, vote: Vote::Guarded, in_order: true });
    footprint.counted_votes(&round);
    assert_eq!(
        footprint.may_hold_giver(quorum()),
        set([2, 3, 4]),
        "the guarded node may have refused"
    );
}

#[test]
fn keys_are_gone_when_those_of_the_longest_request_are() {
    let (mut footprint, _) = footprint();
    footprint.set_keys_until(at(20_000));
    footprint.set_keys_until(at(15_000));
    assert_eq!(footprint.gone_by(), at(20_000));
}
