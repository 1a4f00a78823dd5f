//! Which leader an observer of an election may report.

use crate::{Quorum, is_adopted, next_leader};

fn leader(nodes: usize, after: u64, stored: &[(&'static str, u64)]) -> Option<(&'static str, u64)> {
    next_leader(Quorum::over(nodes).expect("1 to 32"), after, stored).copied()
}

#[test]
fn leader_is_the_token_of_a_majority() {
    assert_eq!(leader(3, 0, &[]), None);
    assert_eq!(leader(3, 0, &[("a", 5)]), None);
    assert_eq!(leader(3, 0, &[("a", 5), ("b", 6)]), None);
    assert_eq!(leader(3, 0, &[("a", 5), ("a", 5)]), Some(("a", 5)));
    assert_eq!(leader(3, 0, &[("b", 9), ("a", 5), ("a", 5)]), Some(("a", 5)));
    // Half of the nodes are not a majority.
    assert_eq!(leader(4, 0, &[("a", 5), ("a", 5), ("b", 6), ("b", 6)]), None);
    assert_eq!(leader(1, 0, &[("a", 5)]), Some(("a", 5)));
}

#[test]
fn fence_of_a_late_grant_is_not_reported() {
    // The node with fence 9 granted late, so its vote was not counted.
    let stored = [("a", 9), ("a", 5), ("a", 5)];
    assert_eq!(leader(3, 0, &stored), Some(("a", 5)));
    // The next leader is reported even if its fence is smaller than that of the late grant.
    assert_eq!(leader(3, 5, &[("a", 9), ("b", 6), ("b", 6)]), Some(("b", 6)));
    // If no majority stores the same fence, the observer cannot know which fence belongs to the lease.
    assert_eq!(leader(3, 0, &[("a", 9), ("a", 5)]), None);
}

#[test]
fn observer_never_goes_back() {
    let stored = [("a", 5), ("a", 5), ("a", 5)];
    assert_eq!(leader(3, 4, &stored), Some(("a", 5)));
    assert_eq!(leader(3, 5, &stored), None);
    assert_eq!(leader(3, 6, &stored), None);
}

#[test]
fn lease_is_passed_by_a_majority_of_larger_counters_without_its_token() {
    let passed = |counters: &[u64]| {
        let stored: Vec<_> = counters.iter().map(|counter| (false, *counter)).collect();
        is_adopted(Quorum::over(3).expect("1 to 32"), 5, &stored)
    };
    assert!(passed(&[6, 7]) && passed(&[5, 6, 6]));
    // An adopter that lost its round has left a larger counter only on a minority of the nodes.
    assert!(!passed(&[5, 5, 6]) && !passed(&[6]) && !passed(&[5, 5, 5]) && !passed(&[]));
    // Two nodes have granted another client, and then the key of the lease was restored.
    assert!(!is_adopted(Quorum::over(3).expect("1 to 32"), 5, &[(true, 6), (true, 7), (false, 8)]));
}
