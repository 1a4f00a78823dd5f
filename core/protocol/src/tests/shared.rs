//! Shared mode on a node: what a failed upgrade and a late release leave behind.

use super::at;
use crate::Vote;
use crate::node::entry::{Entry, Time, acquire};
use crate::node::readers::LockMode;
use crate::node::record::{self, LockRecord, Wanted};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);
const WALL: u64 = 1_000_000_000;

fn time(milliseconds: u64) -> Time {
    Time { now: at(milliseconds), wall: WALL + 1_000 * milliseconds }
}

fn read(entry: &mut Entry<u8>, milliseconds: u64, token: u8, ttl: Duration) {
    let vote = acquire(&mut [(entry, LockMode::Shared)], time(milliseconds), &token, ttl, WALL);
    assert!(matches!(vote, Some(Vote::Granted { .. })), "{vote:?}");
}

/// Only the one that is read is `Upgraded`, but the lease relies on both.
#[test]
fn failed_upgrade_shortens_no_resource_of_the_lease() {
    let modes = [LockMode::Shared, LockMode::Exclusive];
    let upgraded = [LockMode::Upgraded, LockMode::Exclusive];
    let mut records = [LockRecord::default(), LockRecord::default()];
    let mut entries: Vec<_> =
        records.iter_mut().map(|record| &mut record.entry).zip(modes).collect();
    let vote = acquire(&mut entries, time(0), &1, TTL, WALL);
    assert!(matches!(vote, Some(Vote::Granted { .. })), "{vote:?}");
    // The TRANSFER arrives after an extension that began later, and has a shorter ttl.
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
    // Nobody has been granted the resource exclusively since.
    assert!(entry.release_in(at(late), &1, LockMode::Shared));
    assert!(!entry.release_in(at(late), &1, LockMode::Shared));
    assert!(entry.has_share(at(late), &2) && entry.is_read(at(late)));
}
