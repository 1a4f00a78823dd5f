//! Leases: validity, extension and release.

use super::{END, TERM, at, digits, granted_by_all, is_lost, orders};
use crate::{Answer, Ended, Extended, Lease, Quorum, Term};
use std::time::Duration;

const ANSWERS: [Answer; 3] = [Answer::Yes, Answer::No, Answer::Unknown];

fn lease(nodes: usize) -> (Quorum, Lease) {
    let quorum = Quorum::over(nodes).expect("valid");
    (quorum, granted_by_all(quorum, at(END), None))
}

/// Passes the answers to `decide` in this order. Returns the first decision, and the index of the answer that led to
/// that decision.
fn first<T>(
    order: &[usize],
    answers: &[usize],
    mut decide: impl FnMut(usize, Answer) -> Option<T>,
) -> Option<(usize, T)> {
    order.iter().enumerate().find_map(|(index, &node)| {
        decide(node, ANSWERS[answers[node]]).map(|decision| (index, decision))
    })
}

/// Calls `check` with every combination of answers of up to five nodes, in every order.
fn for_all(check: impl Fn(Quorum, &[usize], &[usize])) {
    for nodes in 1..=5 {
        let quorum = Quorum::over(nodes).expect("valid");
        for answers in digits(ANSWERS.len(), nodes) {
            for order in orders(nodes) {
                check(quorum, &answers, &order);
            }
        }
    }
}

/// The index, in `order`, of the `count`-th answer of this kind. `count` is 1 for the first such answer.
fn nth(order: &[usize], answers: &[usize], kind: usize, count: usize) -> Option<usize> {
    let of_kind = (0..order.len()).filter(|index| answers[order[*index]] == kind);
    of_kind.skip(count - 1).take(1).next()
}

/// The candidate with the smallest index; `last` if no candidate has an index.
fn earliest<T: Copy, const N: usize>(
    candidates: [(Option<usize>, T); N],
    last: (usize, T),
) -> (usize, T) {
    let found =
        candidates.into_iter().filter_map(|(index, value)| index.map(|index| (index, value)));
    found.min_by_key(|(index, _)| *index).unwrap_or(last)
}

#[test]
fn an_extension_is_decided_by_the_earliest_possible_answer() {
    for_all(|quorum, answers, order| {
        let (_, mut lease) = lease(quorum.nodes());
        let mut extension = lease.extend(at(5_000), TERM).expect("valid");
        let decided = first(order, answers, |node, answer| {
            lease.extended(at(5_001), &mut extension, node, answer)
        });
        let confirmed = nth(order, answers, 0, quorum.size());
        let refused = nth(order, answers, 1, quorum.tolerated() + 1);
        let expected = earliest(
            [(confirmed, Extended::Confirmed), (refused, Extended::Lost)],
            (order.len() - 1, Extended::Undecided),
        );
        assert_eq!(decided, Some(expected), "{answers:?} in order {order:?}");
        let end = match expected.1 {
            Extended::Confirmed => 5_000 + END,
            _ => END,
        };
        let lost = expected.1 == Extended::Lost;
        assert_eq!(lease.is_valid(at(end - 1)), !lost);
        assert_eq!(is_lost(&lease, at(5_002)), lost);
        assert!(!lease.is_valid(at(end)));
    });
}

#[test]
fn a_lost_lease_stays_lost_whatever_the_nodes_confirm() {
    let (_, mut lease) = lease(3);
    let mut earlier = lease.extend(at(1), TERM).expect("valid");
    let mut refused = lease.extend(at(1), TERM).expect("valid");
    assert_eq!(lease.extended(at(2), &mut refused, 0, Answer::No), None);
    assert_eq!(lease.extended(at(2), &mut refused, 1, Answer::No), Some(Extended::Lost));
    for node in 0..3 {
        let decided = lease.extended(at(3), &mut earlier, node, Answer::Yes);
        assert_eq!(decided, Some(Extended::Lost));
        assert!(!lease.is_valid(at(3)));
    }
    assert!(lease.extend(at(4), TERM).is_none());
}

#[test]
fn confirmations_after_the_old_end_do_not_count() {
    let (_, mut lease) = lease(3);
    let mut extension = lease.extend(at(END - 2), TERM).expect("valid");
    assert_eq!(lease.extended(at(END - 1), &mut extension, 0, Answer::Yes), None);
    assert_eq!(lease.extended(at(END), &mut extension, 1, Answer::Yes), Some(Extended::Lost));
    assert!(!lease.is_valid(at(END)) && is_lost(&lease, at(END)));
}

#[test]
fn an_extension_never_makes_a_lease_shorter() {
    let (_, mut lease) = lease(1);
    let shorter = Term { ttl: Duration::from_secs(1), drift_factor: 0.01 };
    let mut extension = lease.extend(at(1), shorter).expect("valid");
    let decided = lease.extended(at(2), &mut extension, 0, Answer::Yes);
    assert_eq!(decided, Some(Extended::Confirmed));
    assert_eq!(lease.end(), at(END));
}

#[test]
fn a_released_lease_is_not_valid() {
    let (_, mut lease) = lease(3);
    let mut extension = lease.extend(at(1), TERM).expect("valid");
    assert!(lease.release(at(2)).was_valid());
    assert!(lease.is_released() && !lease.is_valid(at(2)) && !is_lost(&lease, at(END)));
    assert!(lease.extend(at(3), TERM).is_none());
    let decided = lease.extended(at(3), &mut extension, 0, Answer::Yes);
    assert_eq!(decided, Some(Extended::Lost));
    assert!(!lease.release(at(4)).was_valid(), "a second release must find no valid lease");
    let (_, mut expired) = self::lease(3);
    assert!(!expired.release(at(END)).was_valid());
}

#[test]
fn a_release_is_decided_by_the_earliest_possible_answer() {
    for_all(|quorum, answers, order| {
        let (_, mut lease) = lease(quorum.nodes());
        let mut release = lease.release(at(1));
        let decided =
            first(order, answers, |node, answer| lease.released(&mut release, node, answer));
        let confirmed = nth(order, answers, 0, quorum.size());
        let refused = nth(order, answers, 1, quorum.tolerated() + 1);
        let expected = earliest([(confirmed, true), (refused, false)], (order.len() - 1, false));
        assert_eq!(decided, Some(expected), "{answers:?} in order {order:?}");
        let disowned = refused == Some(expected.0);
        assert_eq!(lease.ended(at(2)), Some(if disowned { Ended::Taken } else { Ended::Released }));
        assert_eq!(is_lost(&lease, at(2)), disowned);
    });
}

#[test]
fn drift_is_subtracted_from_the_ttl() {
    assert_eq!(TERM.drift(), Duration::from_millis(102));
    assert_eq!(TERM.end(at(1_000)), at(1_000 + END));
    assert_eq!(TERM.gone(at(1_000)), at(1_000 + 10_102));
    let tiny = Term { ttl: Duration::from_millis(1), drift_factor: 0.0 };
    assert!(tiny.end(at(10)) < at(10), "a ttl shorter than the drift ends before it begins");
}

#[test]
fn an_upgrade_does_not_move_the_end_and_nothing_is_sent_meanwhile() {
    let long = Term { ttl: Duration::from_secs(100), ..TERM };
    let quorum = Quorum::over(3).expect("valid");
    let mut lease = granted_by_all(quorum, at(END), None);
    let mut extension = lease.extend(at(0), long).expect("it is valid");
    let confirmed = (0..2).filter_map(|n| lease.extended(at(1), &mut extension, n, Answer::Yes));
    assert_eq!(confirmed.last(), Some(Extended::Confirmed));
    let end = lease.end();
    assert_eq!(end, long.end(at(0)));
    let mut before = lease.extend(at(2), Term { ttl: 2 * long.ttl, ..TERM }).expect("it is valid");
    assert!(lease.begin_upgrade(at(3)) && lease.is_upgrading());
    assert!(!lease.begin_upgrade(at(3)), "one upgrade at a time");
    assert!(lease.extend(at(4), TERM).is_none() && lease.verify(at(4), TERM).is_none());
    assert!(lease.heal(at(4), TERM).is_none() && !lease.detach(at(4)));
    // A node that has granted the upgrade answers `No` to EXTEND of the shared lease.
    for node in 0..3 {
        let decided = lease.extended(at(4), &mut before, node, Answer::No);
        assert_eq!(decided, Some(Extended::Undecided));
    }
    assert!(lease.is_valid(at(5)) && lease.end() == end);
    lease.end_upgrade();
    assert!(lease.is_valid(at(6)) && lease.end() == end && !lease.is_upgrading());
    assert!(lease.extend(at(6), TERM).is_some() && lease.heal(at(6), TERM).is_some());
    // A lease that has ended cannot be upgraded.
    let mut ended = granted_by_all(quorum, at(END), None);
    assert!(!ended.begin_upgrade(at(END)) && !ended.is_upgrading());
}

#[test]
fn no_ttl_overflows() {
    let quorum = Quorum::over(1).expect("valid");
    for ttl in [Duration::MAX, Duration::from_millis(u64::MAX), Duration::from_secs(u64::MAX / 2)] {
        for drift_factor in [0.0, 0.01, 0.5] {
            let term = Term { ttl, drift_factor };
            assert!(term.end(at(1)) <= term.gone(at(1)) && term.patience() <= ttl);
            for limit in [None, Some(at(END)), Some(at(0).plus(Duration::MAX))] {
                let mut lease = granted_by_all(quorum, at(0).plus(ttl).minus(term.drift()), limit);
                let extension = lease.extend(at(1), term).map(|extension| extension.term());
                assert!(extension.is_none_or(|extended| extended.ttl <= ttl));
                lease.heal(at(1), term);
                lease.verify(at(1), term);
                lease.release(at(1)).keep(at(1), term).map(|keep| keep.ttl(at(1)));
            }
        }
    }
}

#[test]
fn moments_do_not_overflow() {
    assert_eq!(at(1).minus(Duration::from_secs(1)), at(0));
    assert_eq!(at(1).since(at(2)), Duration::ZERO);
    assert_eq!(at(1).plus(Duration::MAX), at(2).plus(Duration::MAX));
}

#[test]
fn a_resumed_lease_ends_before_a_majority_of_its_sound_nodes_can_expire_its_key() {
    let factor = TERM.drift_factor;
    let sent = at(7);
    for nodes in 1..=5 {
        let quorum = Quorum::over(nodes).expect("valid");
        // Each digit says whether a node is sound, and whether the node lacks the key or still has the key for 0, 1 or
        // 2 s.
        for states in digits(8, nodes) {
            let sound = (0..nodes).filter(|node| states[*node] & 1 == 1).collect();
            let ttl = |node: usize| Duration::from_secs(states[node] as u64 / 2);
            let left: Vec<_> = (0..nodes)
                .filter(|node| states[*node] / 2 < 3)
                .map(|node| (node, ttl(node)))
                .collect();
            let resumed = Lease::resume(quorum, sound, 1, sent, factor, &left);
            let counted: Vec<_> = left.iter().filter(|(node, _)| sound.contains(*node)).collect();
            assert_eq!(resumed.is_some(), counted.len() >= quorum.size(), "{states:?}");
            let Some(lease) = resumed else { continue };
            let lasting = |ttl: Duration| Term { ttl, ..TERM }.end(sent) >= lease.end();
            let holding = counted.iter().filter(|(_, ttl)| lasting(*ttl)).count();
            assert!(holding >= quorum.size(), "{states:?}");
            assert_eq!((lease.sound(), lease.is_at_limit()), (sound, false));
        }
    }
}
