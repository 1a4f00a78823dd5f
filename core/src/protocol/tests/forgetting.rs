//! Nodes that forget: the restart guard, and healing.

use super::super::{
    Answer, Event, Extended, Guard, Lease, Loss, Moment, NodeSet, Outcome, Quorum, Round, Term,
    Vote,
};
use super::{END, TERM, at};
use std::time::Duration;

/// A guard of 10 s, of which 102 ms more are needed for clocks.
const LENGTH: u64 = 10_102;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_node_counts_from_the_moment_in_which_it_is_certainly_old_enough() {
    for (uptime, from) in [
        // At the time of the look it is between zero and one second younger than it says.
        (0, 50_000 + LENGTH),
        (1, 50_000 + LENGTH),
        (2, 50_000 + LENGTH - 1_000),
        (11, 50_000 + LENGTH - 10_000),
        (12, 50_000 + LENGTH - 11_000),
        (1_000_000, 0),
    ] {
        let mut guard = Guard::new(TERM);
        assert!(!guard.counts(at(1 << 40)), "nobody has looked at it yet");
        guard.looked(at(50_000), Some(("a", seconds(uptime))));
        assert_eq!(guard.counts_from(), at(from), "{uptime}");
        assert!(guard.counts(at(from)));
        assert!(from == 0 || !guard.counts(at(from - 1)));
    }
}

#[test]
fn what_was_begun_before_a_node_counts_never_counts() {
    let mut guard = Guard::new(TERM);
    guard.looked(at(50_000), Some(("a", seconds(0))));
    // However late the answer comes: only the beginning matters.
    assert!(!guard.counts(at(50_000 + LENGTH - 1)));
    assert!(guard.counts(at(50_000 + LENGTH)));
}

#[test]
fn a_connection_that_breaks_is_no_restart() {
    let mut guard = Guard::new(TERM);
    guard.looked(at(50_000), Some(("a", seconds(1_000))));
    guard.looked(at(60_000), Some(("a", seconds(1_010))));
    assert!(guard.counts(at(50_001)));
    // A restart seen late does not begin anew with every look.
    guard.looked(at(70_000), Some(("b", seconds(0))));
    guard.looked(at(75_000), Some(("b", seconds(5))));
    assert_eq!(guard.counts_from(), at(70_000 + LENGTH));
}

#[test]
fn what_takes_the_place_of_a_node_is_guarded_however_old_it_is() {
    let mut guard = Guard::new(TERM);
    guard.looked(at(50_000), Some(("a", seconds(1_000))));
    guard.looked(at(60_000), Some(("b", seconds(1_000_000))));
    assert_eq!(guard.counts_from(), at(60_000 + LENGTH));
    // And so is the first one, when it comes back.
    guard.looked(at(80_000), Some(("a", seconds(1_000))));
    assert_eq!(guard.counts_from(), at(80_000 + LENGTH));
}

#[test]
fn a_node_that_does_not_tell_is_guarded_after_every_connection() {
    let mut guard = Guard::new(TERM);
    for connected in [50_000, 90_000] {
        guard.looked(at(connected), None);
        assert_eq!(guard.counts_from(), at(connected + LENGTH));
    }
    // It tells now, but who knows what was there before.
    guard.looked(at(95_000), Some(("a", seconds(1_000))));
    assert_eq!(guard.counts_from(), at(95_000 + LENGTH));
    // And the other way round: also if it is, or says that it is, the one that was there before.
    for (came, name) in [(120_000, "a"), (160_000, "b")] {
        guard.looked(at(came), None);
        guard.looked(at(came + 20_000), Some((name, seconds(1_000))));
        assert_eq!(guard.counts_from(), at(came + 20_000 + LENGTH));
    }
}

#[test]
fn a_node_in_doubt_is_guarded_anew() {
    let mut guard = Guard::new(TERM);
    guard.looked(at(50_000), Some(("a", seconds(1_000))));
    guard.doubted(at(60_000));
    guard.looked(at(61_000), Some(("a", seconds(1_011))));
    assert_eq!(guard.counts_from(), at(60_000 + LENGTH), "a look does not end the doubt");
}

#[test]
fn a_longer_guard_is_longer_by_what_clocks_may_differ() {
    let term = Term { ttl: seconds(100), drift_factor: 0.1 };
    let mut guard = Guard::new(term);
    guard.looked(at(1_000), None);
    assert_eq!(guard.counts_from(), at(1_000 + 100_000 + 10_002));
}

#[test]
fn guarded_votes_win_nothing_and_are_undone() {
    let granted = Vote::Granted { fence: 7 };
    let held = Vote::Held { expires_in: None };
    for vote in [granted, held] {
        assert_eq!(vote.uncounted(), Vote::Guarded);
    }
    assert_eq!(Vote::Unknown.uncounted(), Vote::Unknown);
    assert_eq!(Vote::Refused.uncounted(), Vote::Refused);

    let mut round = Round::new(Quorum::over(5).expect("valid"), at(0), TERM);
    let mut undone = NodeSet::EMPTY;
    let mut outcome = None;
    for (node, vote) in [(0, granted), (1, granted), (2, Vote::Guarded), (3, Vote::Guarded)] {
        let actions = round.handle(at(1), Event::Vote { node, vote });
        actions.undo.iter().for_each(|node| undone.insert(node));
        outcome = outcome.or(actions.outcome);
    }
    assert_eq!(outcome, None, "the last one could still grant it");
    let actions = round.handle(at(1), Event::Vote { node: 4, vote: Vote::Guarded });
    assert_eq!(actions.outcome, Some(Outcome::Lost(Loss::NoQuorum)));
    assert_eq!(actions.undo, (0..5).collect());

    // A guarded node costs nothing where a majority is not.
    let mut round = Round::new(Quorum::over(3).expect("valid"), at(0), TERM);
    for (node, vote) in [(0, Vote::Guarded), (1, granted)] {
        assert_eq!(round.handle(at(1), Event::Vote { node, vote }), Default::default());
    }
    let actions = round.handle(at(1), Event::Vote { node: 2, vote: granted });
    assert_eq!(actions.outcome, Some(Outcome::Won { fence: 7, end: at(END) }));
    assert!(actions.undo.is_empty(), "what a guarded node granted joins the lease");
    assert_eq!(round.holders(), (0..3).collect());
}

#[test]
fn a_guarded_node_confirms_nothing_but_may_refuse() {
    assert_eq!(Answer::Yes.uncounted(), Answer::Unknown);
    assert_eq!(Answer::No.uncounted(), Answer::No);
    assert_eq!(Answer::Unknown.uncounted(), Answer::Unknown);
}

fn lease() -> Lease {
    Lease::new(Quorum::over(5).expect("valid"), at(END), None)
}

/// The nodes to heal after each of these answers.
fn healed(lease: &mut Lease, sent: Moment, answers: [Answer; 5]) -> Vec<Vec<usize>> {
    let mut extension = lease.extend(sent, TERM).expect("valid");
    let now = sent.plus(Duration::from_millis(1));
    let mut healed = Vec::new();
    for (node, answer) in answers.into_iter().enumerate() {
        lease.extended(now, &mut extension, node, answer);
        healed.push(extension.take_missing().iter().collect());
    }
    healed
}

#[test]
fn nodes_are_healed_once_a_majority_has_confirmed_and_never_before() {
    use Answer::{No, Unknown, Yes};
    let none = Vec::new;
    for (answers, expected) in [
        ([Yes, Yes, Yes, Yes, Yes], [none(), none(), none(), none(), none()]),
        ([No, Yes, No, Yes, Yes], [none(), none(), none(), none(), vec![0, 2]]),
        ([Yes, Yes, Yes, No, No], [none(), none(), none(), vec![3], vec![4]]),
        ([No, Yes, Yes, Yes, No], [none(), none(), none(), vec![0], vec![4]]),
        // What did not answer is not known to lack it.
        ([Unknown, Yes, Yes, Yes, No], [none(), none(), none(), none(), vec![4]]),
        // No majority, or a majority against it.
        ([No, Yes, Yes, Unknown, Unknown], [none(), none(), none(), none(), none()]),
        ([No, No, No, Yes, Yes], [none(), none(), none(), none(), none()]),
    ] {
        assert_eq!(healed(&mut lease(), at(5_000), answers), expected, "{answers:?}");
    }
}

#[test]
fn a_lease_that_is_over_heals_nothing() {
    let mut lease = lease();
    assert!(lease.heal(at(END - 1), TERM).is_some());
    assert!(lease.heal(at(END), TERM).is_none(), "it has expired");
    let _ = lease.release(at(5_002));
    assert!(lease.heal(at(5_003), TERM).is_none(), "it was released");
}

#[test]
fn a_healed_key_lasts_as_long_as_the_others() {
    let mut lease = lease();
    assert_eq!(lease.heal(at(600), TERM), Some(Duration::from_millis(9_400)));
    let mut extension = lease.extend(at(5_000), TERM).expect("valid");
    for node in 0..3 {
        let decided = lease.extended(at(5_001), &mut extension, node, Answer::Yes);
        assert_eq!(decided, (node == 2).then_some(Extended::Confirmed));
    }
    assert_eq!(lease.heal(at(5_600), TERM), Some(Duration::from_millis(9_400)));
}

#[test]
fn a_round_that_is_won_knows_where_others_were() {
    let granted = Vote::Granted { fence: 7 };
    let held = Vote::Held { expires_in: None };
    let mut round = Round::new(Quorum::over(5).expect("valid"), at(0), TERM);
    let votes = [held, granted, granted, granted, held, Vote::Refused];
    for (node, vote) in votes.into_iter().take(5).enumerate() {
        let _ = round.handle(at(1), Event::Vote { node, vote });
    }
    assert_eq!(round.lacking(), NodeSet::from_iter([0, 4]));
}
