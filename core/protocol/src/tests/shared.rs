//! Shared mode on a node: failed upgrades, late releases and downgrades.

use super::at;
use crate::node::entry::{Entry, Time, acquire};
use crate::node::readers::LockMode;
use crate::node::record::{self, LockRecord, Wanted};
use crate::{RetryDelay, Turns, Vote};
use std::cell::Cell;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);
const WALL: u64 = 1_000_000_000;
const DELAY: RetryDelay =
    RetryDelay { shortest: Duration::from_millis(50), longest: Duration::from_millis(200) };

fn time(milliseconds: u64) -> Time {
    Time { now: at(milliseconds), wall: WALL + 1_000 * milliseconds }
}

fn read(entry: &mut Entry<u8>, milliseconds: u64, token: u8, ttl: Duration) {
    let vote = acquire(&mut [(entry, LockMode::Shared)], time(milliseconds), &token, ttl, WALL);
    assert!(matches!(vote, Some(Vote::Granted { .. })), "{vote:?}");
}

/// The upgrade changes only the shared resource to `Upgraded`, but the lease relies on both resources.
#[test]
fn failed_upgrade_shortens_no_resource_of_the_lease() {
    let modes = [LockMode::Shared, LockMode::Exclusive];
    let upgraded = [LockMode::Upgraded, LockMode::Exclusive];
    let mut records = [LockRecord::default(), LockRecord::default()];
    let mut entries: Vec<_> =
        records.iter_mut().map(|record| &mut record.entry).zip(modes).collect();
    let vote = acquire(&mut entries, time(0), &1, TTL, WALL);
    assert!(matches!(vote, Some(Vote::Granted { .. })), "{vote:?}");
    // An EXTEND with a longer ttl is sent after the TRANSFER, but arrives before the TRANSFER.
    for (entry, mode) in entries {
        assert!(entry.extend_in(time(0), &1, LONG, mode));
    }
    let wanted = Wanted { token: &2, ttl: TTL, proposal: WALL, waiter: None, ticket: None };
    let mut targets: Vec<_> = records.iter_mut().zip(upgraded).collect();
    let vote = record::transfer(&mut targets, time(1_000), &1, wanted);
    assert!(matches!(vote, Some(Vote::Granted { .. })), "{vote:?}");
    for (record, _) in &targets {
        assert!(!record.entry.is_read(at(1_000)));
        assert_eq!(record.entry.stored_lock(at(59_999)).map(|(token, _)| *token), Some(2));
    }
    assert!(record::give_back(&mut targets, at(2_000), &2, &1, TTL));
    let holds = |milliseconds| {
        let both = records.iter().zip(modes);
        both.map(|(record, mode)| record.entry.holds(at(milliseconds), &1, mode))
            .collect::<Vec<_>>()
    };
    assert_eq!(holds(59_999), [true, true]);
    assert_eq!(holds(60_000), [false, false]);
}

#[test]
fn share_that_is_listed_is_released_though_it_has_expired() {
    let mut entry = Entry::default();
    read(&mut entry, 0, 1, TTL);
    read(&mut entry, 1, 2, LONG);
    let late = 20_001;
    assert!(!entry.has_share(at(late), &1));
    assert!(!entry.extend_in(time(late), &1, LONG, LockMode::Shared));
    // No writer has been granted the resource since the share expired, so the release succeeds.
    assert!(entry.release_in(at(late), &1, LockMode::Shared));
    assert!(!entry.release_in(at(late), &1, LockMode::Shared));
    assert!(entry.has_share(at(late), &2) && entry.is_read(at(late)));
}

#[test]
fn downgrade_after_an_extension_notifies_the_readers_that_wait() {
    let mut record = LockRecord::default();
    let turns = Turns::new(DELAY);
    let called = Cell::new(0);
    let call = |_, _: &str, _| {
        called.set(called.get() + 1);
        true
    };
    let vote = acquire(&mut [(&mut record.entry, LockMode::Exclusive)], time(0), &1, TTL, WALL);
    assert!(matches!(vote, Some(Vote::Granted { .. })), "{vote:?}");
    let waiter = (&"client#1".into(), 1);
    let _ = record::join(&mut [(&mut record, LockMode::Shared)], at(0), waiter, turns, call);
    assert_eq!(called.get(), 0);
    // The client has downgraded the lease. An EXTEND of the shared lease arrives before the DOWNGRADE.
    assert!(record.entry.extend_in(time(1), &1, LONG, LockMode::Shared));
    assert_eq!(called.get(), 0);
    let downgraded = &mut [(&mut record, LockMode::Shared)];
    assert!(record::downgrade(downgraded, at(2), (&1, None), turns, call));
    assert_eq!(called.get(), 1);
}
