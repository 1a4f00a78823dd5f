//! Nodes that forget: the restart guard and repair.

use super::{END, TERM, at, granted_by_all};
use crate::{
    Answer, Ended, Event, Extended, Guard, Healed, Lease, Loss, Moment, NodeSet, Outcome, Quorum,
    Round, Term, Vote,
};
use std::time::Duration;

/// The time, in milliseconds, for which a guard with a ttl of 10 s ignores votes: the ttl plus 102 ms for drift.
const LENGTH: u64 = 10_102;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_node_counts_once_it_is_certainly_old_enough() {
    for (uptime, from) in [
        // The reported uptime may be up to a second too long.
        (0, 50_000 + LENGTH),
        (1, 50_000 + LENGTH),
        (2, 50_000 + LENGTH - 1_000),
        (11, 50_000 + LENGTH - 10_000),
        (12, 50_000 + LENGTH - 11_000),
        (1_000_000, 0),
    ] {
        let mut guard = Guard::new(TERM);
        assert!(!guard.counts(at(1 << 40)), "it has not been examined yet");
        guard.looked(at(50_000), Some(("a", seconds(uptime))));
        assert_eq!(guard.counts_from(), at(from), "{uptime}");
        assert!(guard.counts(at(from)));
        assert!(from == 0 || !guard.counts(at(from - 1)));
    }
}

#[test]
fn a_vote_in_a_round_begun_before_the_node_counts_never_counts() {
    let mut guard = Guard::new(TERM);
    guard.looked(at(50_000), Some(("a", seconds(0))));
    // Only the moment at which the round begins matters, not the moment at which the vote arrives.
    assert!(!guard.counts(at(50_000 + LENGTH - 1)));
    assert!(guard.counts(at(50_000 + LENGTH)));
}

#[test]
fn a_broken_connection_is_not_a_restart() {
    let mut guard = Guard::new(TERM);
    guard.looked(at(50_000), Some(("a", seconds(1_000))));
    guard.looked(at(60_000), Some(("a", seconds(1_010))));
    assert!(guard.counts(at(50_001)));
    // Further examinations after a restart do not prolong the guard.
    guard.looked(at(70_000), Some(("b", seconds(0))));
    guard.looked(at(75_000), Some(("b", seconds(5))));
    assert_eq!(guard.counts_from(), at(70_000 + LENGTH));
}

#[test]
fn a_replacement_server_is_guarded_whatever_its_uptime() {
    let mut guard = Guard::new(TERM);
    guard.looked(at(50_000), Some(("a", seconds(1_000))));
    guard.looked(at(60_000), Some(("b", seconds(1_000_000))));
    assert_eq!(guard.counts_from(), at(60_000 + LENGTH));
    // The original server is guarded, too, when it comes back.
    guard.looked(at(80_000), Some(("a", seconds(1_000))));
    assert_eq!(guard.counts_from(), at(80_000 + LENGTH));
}

#[test]
fn a_node_that_reports_no_identity_is_guarded_after_every_connect() {
    let mut guard = Guard::new(TERM);
    for connected in [50_000, 90_000] {
        guard.looked(at(connected), None);
        assert_eq!(guard.counts_from(), at(connected + LENGTH));
    }
    // The node now reports an identity, but its earlier identity is unknown.
    guard.looked(at(95_000), Some(("a", seconds(1_000))));
    assert_eq!(guard.counts_from(), at(95_000 + LENGTH));
    // After an examination without a report, the client no longer knows the node's identity. So the next report
    // restarts the guard, even if the node reports the same identity as before.
    for (came, name) in [(120_000, "a"), (160_000, "b")] {
        guard.looked(at(came), None);
        guard.looked(at(came + 20_000), Some((name, seconds(1_000))));
        assert_eq!(guard.counts_from(), at(came + 20_000 + LENGTH));
    }
}

#[test]
fn a_doubted_node_is_guarded_again() {
    let mut guard = Guard::new(TERM);
    guard.looked(at(50_000), Some(("a", seconds(1_000))));
    guard.doubted(at(60_000));
    guard.looked(at(61_000), Some(("a", seconds(1_011))));
    assert_eq!(guard.counts_from(), at(60_000 + LENGTH), "an unchanged identity must not help");
}

#[test]
fn a_guard_includes_the_allowance_for_drift() {
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
        let actions = round.handle(at(1), Event::Vote { node, vote, in_order: true });
        actions.undo.iter().for_each(|node| undone.insert(node));
        outcome = outcome.or(actions.outcome);
    }
    assert_eq!(outcome, None, "the last node could still grant");
    let actions = round.handle(at(1), Event::Vote { node: 4, vote: Vote::Guarded, in_order: true });
    assert_eq!(actions.outcome, Some(Outcome::Lost(Loss::NoQuorum)));
    assert_eq!(actions.undo, (0..5).collect());

    // A guarded minority does not prevent a win.
    let mut round = Round::new(Quorum::over(3).expect("valid"), at(0), TERM);
    for (node, vote) in [(0, Vote::Guarded), (1, granted)] {
        assert_eq!(
            round.handle(at(1), Event::Vote { node, vote, in_order: true }),
            Default::default()
        );
    }
    let actions = round.handle(at(1), Event::Vote { node: 2, vote: granted, in_order: true });
    assert_eq!(actions.outcome, Some(Outcome::Won { fence: 7, end: at(END) }));
    assert!(actions.undo.is_empty(), "a guarded node's grant must join the lease");
    assert_eq!(round.holders(), (0..3).collect());
}

#[test]
fn a_guarded_node_confirms_nothing_but_may_refuse() {
    assert_eq!(Answer::Yes.uncounted(), Answer::Unknown);
    assert_eq!(Answer::No.uncounted(), Answer::No);
    assert_eq!(Answer::Unknown.uncounted(), Answer::Unknown);
}

fn lease() -> Lease {
    granted_by_all(Quorum::over(5).expect("valid"), at(END), None)
}

/// Begins an extension at `sent`, and passes these answers to the lease. Returns, for each answer, the nodes to repair
/// after that answer.
fn repaired(lease: &mut Lease, sent: Moment, answers: [Answer; 5]) -> Vec<Vec<usize>> {
    let mut extension = lease.extend(sent, TERM).expect("valid");
    let now = sent.plus(Duration::from_millis(1));
    let mut repaired = Vec::new();
    for (node, answer) in answers.into_iter().enumerate() {
        lease.extended(now, &mut extension, node, answer);
        repaired.push(extension.take_missing().iter().collect());
    }
    repaired
}

#[test]
fn nodes_are_repaired_only_after_a_majority_has_confirmed() {
    use Answer::{No, Unknown, Yes};
    let none = Vec::new;
    for (answers, expected) in [
        ([Yes, Yes, Yes, Yes, Yes], [none(), none(), none(), none(), none()]),
        ([No, Yes, No, Yes, Yes], [none(), none(), none(), none(), vec![0, 2]]),
        ([Yes, Yes, Yes, No, No], [none(), none(), none(), vec![3], vec![4]]),
        ([No, Yes, Yes, Yes, No], [none(), none(), none(), vec![0], vec![4]]),
        // A node that did not answer may still have the key, so the node is not repaired.
        ([Unknown, Yes, Yes, Yes, No], [none(), none(), none(), none(), vec![4]]),
        // No majority confirmed, or a majority refused, so no node is repaired.
        ([No, Yes, Yes, Unknown, Unknown], [none(), none(), none(), none(), none()]),
        ([No, No, No, Yes, Yes], [none(), none(), none(), none(), none()]),
    ] {
        assert_eq!(repaired(&mut lease(), at(5_000), answers), expected, "{answers:?}");
    }
}

#[test]
fn an_ended_lease_repairs_nothing() {
    let mut lease = lease();
    assert!(lease.heal(at(END - 1), TERM).is_some());
    assert!(lease.heal(at(END), TERM).is_none(), "the lease has expired");
    let _ = lease.release(at(5_002));
    assert!(lease.heal(at(5_003), TERM).is_none(), "the lease was released");
}

#[test]
fn a_repaired_key_outlasts_a_lease_that_was_extended_for_longer() {
    let mut lease = lease();
    let long = Term { ttl: 100 * TERM.ttl, drift_factor: 0.01 };
    let mut extension = lease.extend(at(600), long).expect("valid");
    for node in 0..3 {
        let _ = lease.extended(at(601), &mut extension, node, Answer::Yes);
    }
    let term = Term { drift_factor: 0.01, ..TERM };
    let healed = Term { ttl: lease.heal(at(700), term).expect("valid"), ..long };
    assert!(healed.end(at(700)) >= lease.end(), "by the slowest clock");
    assert!(healed.ttl <= long.ttl, "it needs no longer than the other keys");
}

#[test]
fn a_repaired_key_expires_with_the_others() {
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
fn a_round_reports_the_nodes_that_granted_it() {
    let granted = Vote::Granted { fence: 7 };
    let held = Vote::Held { expires_in: None };
    let mut round = Round::new(Quorum::over(5).expect("valid"), at(0), TERM);
    for (node, vote) in [held, granted, granted, granted, Vote::Unknown].into_iter().enumerate() {
        let _ = round.handle(at(1), Event::Vote { node, vote, in_order: true });
    }
    assert_eq!(round.granted(), NodeSet::from_iter([1, 2, 3]));
}

/// A lease with fence 7 that the first three of five nodes granted.
fn bare_majority() -> Lease {
    Lease::new(Quorum::over(5).expect("valid"), NodeSet::from_iter(0..3), 7, at(END), None)
}

/// Begins an extension at `sent`, and returns the decision after these answers.
fn extend(lease: &mut Lease, sent: u64, answers: [Answer; 5]) -> Option<Extended> {
    let mut extension = lease.extend(at(sent), TERM).expect("valid");
    let mut decided = None;
    for (node, answer) in answers.into_iter().enumerate() {
        let decision = lease.extended(at(sent + 1), &mut extension, node, answer);
        decided = decided.or(decision);
    }
    decided
}

#[test]
fn late_grants_and_repaired_nodes_are_no_longer_missing() {
    let mut lease = bare_majority();
    assert_eq!(lease.missing(), NodeSet::from_iter([3, 4]));
    lease.granted(3, 7);
    lease.healed(4, Healed::Held);
    assert_eq!(lease.missing(), NodeSet::from_iter([4]));
    lease.healed(4, Healed::Clean);
    assert!(lease.missing().is_empty() && !lease.has_passed());
    use Answer::{No, Unknown, Yes};
    assert_eq!(extend(&mut lease, 100, [No, No, Yes, Yes, Yes]), Some(Extended::Confirmed));
    assert_eq!(lease.missing(), NodeSet::from_iter([0, 1]));
    assert_eq!(
        extend(&mut lease, 200, [Unknown, Unknown, Yes, Yes, Yes]),
        Some(Extended::Confirmed)
    );
}

/// Nodes 0 to 2 hold the key of a lease. Node 2 forgets the key. Another client wins a round on nodes 2 to 4 and
/// releases its lease. After that, nodes 3 and 4 get the key of the first lease, by repair or by a late grant. These
/// two nodes must not confirm the first lease.
#[test]
fn a_lease_that_another_client_took_over_is_lost_even_if_all_nodes_hold_it_again() {
    use Answer::{No, Yes};
    for is_healed in [true, false] {
        let mut lease = bare_majority();
        for node in [3, 4] {
            match is_healed {
                true => lease.healed(node, Healed::Passed),
                false => lease.granted(node, 8),
            }
        }
        assert!(lease.has_passed() && lease.missing().is_empty());
        let mut released = lease.clone();
        assert_eq!(extend(&mut lease, 100, [Yes, Yes, No, Yes, Yes]), Some(Extended::Lost));
        assert_eq!(lease.ended(at(101)), Some(Ended::Taken));

        let mut release = released.release(at(100));
        let answers = [Yes, Yes, No, Yes, Yes].into_iter().enumerate();
        let mut answers =
            answers.map(|(node, answer)| released.released(&mut release, node, answer));
        assert_eq!(answers.find_map(|decided| decided), Some(false));
    }
}

/// A contender that lost its round has left a larger fence on nodes 3 and 4. Nodes 0 to 2 are a majority and confirm
/// the lease, so no other client can have won a round in the meantime. After this confirmation, nodes 3 and 4 count
/// again.
#[test]
fn repaired_nodes_count_again_after_a_majority_has_confirmed() {
    use Answer::{No, Unknown, Yes};
    let mut lease = bare_majority();
    lease.healed(3, Healed::Passed);
    lease.healed(3, Healed::Clean);
    assert!(lease.has_passed(), "a later clean answer must not make it count");
    let mut early = lease.extend(at(100), TERM).expect("valid");
    lease.healed(4, Healed::Passed);
    for node in 0..3 {
        let _ = lease.extended(at(101), &mut early, node, Yes);
    }
    assert_eq!(lease.standing(3), (true, false));
    assert_eq!(lease.standing(4), (false, true), "it was repaired after the extension was sent");
    assert_eq!(extend(&mut lease, 200, [No, Yes, Yes, Yes, Unknown]), Some(Extended::Confirmed));
    assert_eq!(lease.standing(4), (true, false));
    assert!(!lease.has_passed());
}

#[test]
fn a_node_whose_grant_is_unknown_does_not_confirm() {
    use Answer::{Unknown, Yes};
    let mut lease = bare_majority();
    let undecided = extend(&mut lease, 100, [Yes, Yes, Unknown, Yes, Yes]);
    assert_eq!(undecided, Some(Extended::Undecided));
    let mut extension = lease.extend(at(200), TERM).expect("valid");
    for node in 0..4 {
        let _ = lease.extended(at(201), &mut extension, node, Yes);
    }
    assert_eq!(extension.take_missing(), NodeSet::from_iter([3]), "node 3 must be sent HEAL");
}

#[test]
fn a_verification_does_not_move_the_validity_end() {
    let mut lease = bare_majority();
    let end = lease.end();
    let mut verification = lease.verify(at(5_000), TERM).expect("valid");
    let asked = verification.term();
    assert!(asked.end(at(5_000)) >= end && asked.ttl <= TERM.ttl);
    for node in 0..3 {
        let _ = lease.extended(at(5_001), &mut verification, node, Answer::Yes);
    }
    assert_eq!(lease.end(), end);
    assert!(lease.verify(end, TERM).is_none());
}
