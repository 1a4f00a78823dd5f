//! Releases that keep the key on the nodes for a time.

use super::{END, TERM, at, granted_by_all};
use crate::node::entry::Time;
use crate::node::readers::LockMode;
use crate::node::record::{self, LockRecord, Wanted};
use crate::{Answer, Keep, Moment, Quorum, Term, Turns};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const TURNS: Turns = Turns { call: SECOND, reserve: SECOND, memory: SECOND.saturating_mul(60) };

fn time(now: Moment) -> Time {
    Time { now, wall: 1_000_000_000_000 }
}

fn exclusive(records: &mut [LockRecord<char>]) -> Vec<record::RecordInMode<'_, char>> {
    records.iter_mut().map(|record| (record, LockMode::Exclusive)).collect()
}

/// Lock records that the token `A` acquired for 10 s at `at(0)`.
fn acquired(resources: usize) -> Vec<LockRecord<char>> {
    let mut records: Vec<LockRecord<char>> =
        (0..resources).map(|_| LockRecord::default()).collect();
    let wanted = Wanted {
        token: &'A',
        ttl: TERM.ttl,
        proposal: 1_000_000_000_000,
        waiter: None,
        ticket: None,
    };
    let call = |_, _: &str, _| false;
    record::acquire(&mut exclusive(&mut records), time(at(0)), wanted, TURNS, call);
    records
}

/// Applies a RELEASE of this token at `at(1_000)`. Returns the answer, and the waiters that the node notifies.
fn release(
    records: &mut [LockRecord<char>],
    token: char,
    keep: Option<Duration>,
) -> (bool, Vec<String>) {
    let notified = RefCell::new(Vec::new());
    let call = |_, waiter: &str, _| {
        notified.borrow_mut().push(waiter.to_owned());
        true
    };
    let released = record::release(
        &mut exclusive(records),
        at(1_000),
        (&token, keep),
        (None, None),
        TURNS,
        call,
    );
    (released, notified.into_inner())
}

#[test]
fn a_key_that_has_the_token_stays_for_exactly_so_long() {
    for keep in [SECOND, 60 * SECOND] {
        let mut records = acquired(1);
        assert!(release(&mut records, 'A', Some(keep)).0);
        let left = |now| records[0].entry.stored_lock(now).map(|(token, left)| (*token, left));
        assert_eq!(left(at(1_000)), Some(('A', keep)));
        assert_eq!(left(at(1_000).plus(keep)), None);
        let fence = records[0].entry.stored_fence(1_000_000_000_000);
        assert_eq!(fence, acquired(1)[0].entry.stored_fence(1_000_000_000_000));
        // A repeated RELEASE sets the same remaining time again.
        assert!(release(&mut records, 'A', Some(keep)).0);
    }
}

#[test]
fn a_key_that_lacks_the_token_is_neither_created_nor_changed() {
    let mut records = acquired(1);
    assert!(!release(&mut records, 'B', Some(60 * SECOND)).0);
    assert_eq!(records[0].entry.stored_lock(at(1_000)), Some((&'A', 9 * SECOND)));
    records[0].entry.store_lock(None);
    assert!(!release(&mut records, 'A', Some(60 * SECOND)).0);
    assert_eq!(records[0].entry.stored_lock(at(1_000)), None);
}

#[test]
fn of_several_keys_those_with_the_token_stay() {
    let mut records = acquired(3);
    records[0].entry.store_lock(Some(('B', at(5_000))));
    records[1].entry.store_lock(None);
    assert!(!release(&mut records, 'A', Some(60 * SECOND)).0);
    let stored = records.iter().map(|record| record.entry.stored_lock(at(1_000)));
    let expected = [Some((&'B', 4 * SECOND)), None, Some((&'A', 60 * SECOND))];
    assert_eq!(stored.collect::<Vec<_>>(), expected);
}

#[test]
fn no_waiter_is_notified_of_a_key_that_stays() {
    let waiter: Arc<str> = "client#1".into();
    for (keep, expected) in [(Some(SECOND), vec![]), (None, vec!["client#1".to_owned()])] {
        let mut records = acquired(1);
        records[0].queue.join(at(0), &waiter, 4, TURNS);
        assert_eq!(release(&mut records, 'A', keep), (true, expected));
    }
}

#[test]
fn the_time_counts_from_the_release_and_allows_for_drift() {
    let keep = Keep::new(Term { ttl: 60 * SECOND, drift_factor: 0.01 }, at(1_000));
    assert_eq!(keep.ttl(at(1_000)), Some(Duration::from_millis(60_602)));
    // A node that gets the request later keeps the key for the time that is left.
    assert_eq!(keep.ttl(at(51_000)), Some(Duration::from_millis(10_102)));
    assert_eq!(keep.ttl(at(60_999)), Some(Duration::from_nanos(3_010_000)));
    assert_eq!(keep.ttl(at(61_000)), None);
}

#[test]
fn only_a_valid_lease_keeps_its_keys() {
    let quorum = Quorum::over(3).expect("valid");
    let mut lease = granted_by_all(quorum, at(END), None);
    let release = lease.release(at(1_000));
    assert_eq!(release.keep(at(1_000), TERM), Some(Keep::new(TERM, at(1_000))));
    assert!(!lease.is_valid(at(1_000)));
    assert_eq!(lease.release(at(1_001)).keep(at(1_001), TERM), None);

    let mut expired = granted_by_all(quorum, at(END), None);
    assert_eq!(expired.release(at(END)).keep(at(END), TERM), None);

    let mut taken = granted_by_all(quorum, at(END), None);
    let mut extension = taken.extend(at(1), TERM).expect("it is valid");
    for node in 0..2 {
        taken.extended(at(2), &mut extension, node, Answer::No);
    }
    assert_eq!(taken.release(at(3)).keep(at(3), TERM), None);
}
