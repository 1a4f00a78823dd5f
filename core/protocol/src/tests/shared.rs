//! Shared mode on a node: what a failed upgrade and a late release leave behind.

use super::at;
use crate::Vote;
use crate::node::entry::{Entry, Time, acquire, transfer};
use crate::node::readers::Mode;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);
const WALL: u64 = 1_000_000_000;

fn time(milliseconds: u64) -> Time {
    Time { now: at(milliseconds), wall: WALL + 1_000 * milliseconds }
}

fn read(entry: &mut Entry<u8>, milliseconds: u64, token: u8, ttl: Duration) {
    let vote = acquire(&mut [(entry, Mode::Shared)], time(milliseconds), &token, ttl, WALL);
    assert!(matches!(vote, Some(Vote::Granted { .. })), "{vote:?}");
}

#[test]
fn failed_upgrade_never_shortens_the_share() {
    let mut entry = Entry::default();
    read(&mut entry, 0, 1, TTL);
    // The TRANSFER arrives after an extension that began later, and has a shorter ttl.
    assert!(entry.extend_in(time(0), &1, LONG, Mode::Shared));
    let vote = transfer(&mut [(&mut entry, Mode::Upgraded)], time(1_000), &1, &2, TTL, WALL);
    assert!(matches!(vote, Some(Vote::Granted { .. })), "{vote:?}");
    assert!(!entry.is_read(at(1_000)));
    assert_eq!(entry.stored_lock(at(59_999)).map(|(token, _)| *token), Some(2));
    assert!(entry.give_back_in(at(2_000), (&2, &1), TTL, Mode::Upgraded));
    assert!(entry.has_share(at(59_999), &1));
    assert!(!entry.has_share(at(60_000), &1));
}

#[test]
fn share_that_is_listed_is_released_though_it_has_expired() {
    let mut entry = Entry::default();
    read(&mut entry, 0, 1, TTL);
    read(&mut entry, 1, 2, LONG);
    let late = 20_001;
    assert!(!entry.has_share(at(late), &1));
    assert!(!entry.extend_in(time(late), &1, LONG, Mode::Shared));
    // Nobody has been granted the resource exclusively since.
    assert!(entry.release_in(at(late), &1, Mode::Shared));
    assert!(!entry.release_in(at(late), &1, Mode::Shared));
    assert!(entry.has_share(at(late), &2) && entry.is_read(at(late)));
}
