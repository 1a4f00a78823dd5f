//! The delays between the rounds of a waiter, and when the waiter gives up.

use super::at;
use crate::{Loss, Next, RetryDelay, Waiting};
use std::time::Duration;

const DELAY: RetryDelay =
    RetryDelay { shortest: Duration::from_millis(50), longest: Duration::from_millis(200) };
const PATIENCE: Duration = Duration::from_millis(1_000);
const HELD: Loss = Loss::Contended { free_in: None };

fn waiting(wait: Option<u64>) -> Waiting {
    Waiting::new(at(0), wait.map(Duration::from_millis), PATIENCE, DELAY)
}

#[test]
fn no_wait_is_one_round() {
    for loss in [HELD, Loss::NoQuorum] {
        assert_eq!(waiting(Some(0)).after(at(0), at(0), loss, 0), Next::GiveUp);
        assert_eq!(waiting(Some(0)).after(at(5), at(0), loss, 0), Next::GiveUp);
    }
}

#[test]
fn a_round_that_could_win_again_is_repeated_once() {
    let mut waiting = waiting(Some(0));
    assert!(!waiting.repeats(false));
    assert!(waiting.repeats(true));
    assert!(!waiting.repeats(true), "a repetition is not repeated");
    assert_eq!(waiting.after(at(5), at(0), Loss::NoQuorum, 0), Next::GiveUp);
    assert!(waiting.repeats(true));
}

#[test]
fn the_last_round_is_at_the_deadline() {
    let mut waiting = waiting(Some(1_000));
    assert_eq!(waiting.after(at(990), at(980), HELD, 0), Next::TryAt(at(1_000)));
    assert_eq!(waiting.after(at(1_001), at(1_000), HELD, 0), Next::GiveUp);
}

#[test]
fn contention_can_be_waited_out_without_limit() {
    let mut waiting = waiting(None);
    for round in 0..1_000_000 {
        let now = at(round * 1_000);
        assert_eq!(waiting.after(now, now, HELD, 0), Next::TryAt(now.plus(DELAY.shortest)));
    }
}

#[test]
fn an_outage_is_waited_out_only_for_the_patience() {
    for wait in [None, Some(60_000)] {
        let mut waiting = waiting(wait);
        assert_eq!(waiting.after(at(10), at(0), Loss::NoQuorum, 0), Next::TryAt(at(60)));
        assert_eq!(waiting.after(at(990), at(980), Loss::NoQuorum, 0), Next::TryAt(at(1_000)));
        assert_eq!(waiting.after(at(1_000), at(1_000), Loss::NoQuorum, 0), Next::GiveUp);
    }
}

#[test]
fn contention_between_outages_restarts_the_patience() {
    let mut waiting = waiting(None);
    assert_eq!(waiting.after(at(10), at(0), Loss::NoQuorum, 0), Next::TryAt(at(60)));
    assert_eq!(waiting.after(at(900), at(900), HELD, 0), Next::TryAt(at(950)));
    assert_eq!(waiting.after(at(1_500), at(1_490), Loss::NoQuorum, 0), Next::TryAt(at(1_550)));
    assert_eq!(waiting.after(at(2_490), at(2_400), Loss::NoQuorum, 0), Next::GiveUp);
}

#[test]
fn a_delay_is_within_its_range() {
    assert_eq!(DELAY.draw(0), DELAY.shortest);
    assert_eq!(DELAY.draw(u32::MAX), DELAY.longest);
    for random in (0..u32::MAX).step_by(99_991) {
        assert!((DELAY.shortest..=DELAY.longest).contains(&DELAY.draw(random)));
    }
}

#[test]
fn a_key_that_expires_soon_is_tried_soon_but_never_at_once() {
    for random in [0, u32::MAX / 2, u32::MAX] {
        let soon = Loss::Contended { free_in: Some(Duration::ZERO) };
        let Next::TryAt(moment) = waiting(None).after(at(0), at(0), soon, random) else {
            panic!("gave up");
        };
        assert!(
            at(1) <= moment && moment <= at(0).plus(DELAY.shortest).plus(Duration::from_millis(1))
        );
    }
    let late = Loss::Contended { free_in: Some(Duration::from_secs(100)) };
    let next = waiting(None).after(at(0), at(0), late, u32::MAX);
    assert_eq!(next, Next::TryAt(at(200)), "the holder may release before the key expires");
}

#[test]
fn every_bounded_wait_ends() {
    let mut random = 12_345_u32;
    let mut draw = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random
    };
    for wait in [0, 1, 49, 50, 1_000, 7_777] {
        let mut waiting = waiting(Some(wait));
        let mut now = at(0);
        let mut rounds = 0;
        loop {
            let started = now;
            now = now.plus(Duration::from_millis(u64::from(draw() % 20)));
            let loss = if draw() % 2 == 0 { HELD } else { Loss::NoQuorum };
            rounds += 1;
            match waiting.after(now, started, loss, draw()) {
                Next::GiveUp => break,
                Next::TryAt(next) => {
                    assert!(next >= now && next <= at(wait), "beyond the deadline");
                    now = next;
                }
            }
        }
        assert!(rounds <= 2 + wait / 50, "{rounds} rounds in {wait} ms");
    }
}

#[test]
fn a_waiter_sleeps_longer_the_more_waiters_are_before_it() {
    let next = |before, loss, random| {
        let mut waiting = waiting(None);
        waiting.stands_behind(before);
        match waiting.after(at(0), at(0), loss, random) {
            Next::TryAt(moment) => moment,
            Next::GiveUp => panic!("gave up"),
        }
    };
    assert_eq!(next(None, HELD, 0), at(50));
    assert_eq!(next(Some(0), HELD, 0), at(50));
    assert_eq!(next(Some(1), HELD, 0), at(100));
    assert_eq!(next(Some(9), HELD, u32::MAX), at(2_000));
    for before in [100, u64::MAX] {
        assert_eq!(next(Some(before), HELD, u32::MAX), at(2_200));
    }
    // The position in the queue does not matter in an outage.
    assert_eq!(next(Some(9), Loss::NoQuorum, 0), at(50));
    // When the key of a crashed holder expires, waiters try one after the other, in queue order.
    let soon = Loss::Contended { free_in: Some(Duration::from_millis(20)) };
    for before in 0..8 {
        let one = next(Some(before), soon, u32::MAX);
        let other = next(Some(before + 1), soon, 0);
        assert!(one <= other && at(21) <= one, "{before}");
    }
    assert!(next(Some(0), soon, u32::MAX) <= at(35));
}

#[test]
fn an_outage_found_by_other_waiters_is_not_waited_out_again() {
    let mut waiting = waiting(None);
    waiting.met_outage(at(0));
    assert_eq!(waiting.after(at(1_000), at(990), Loss::NoQuorum, 0), Next::GiveUp);
    let mut waiting = super::waiting::waiting(None);
    waiting.met_outage(at(0));
    assert_eq!(waiting.after(at(1_000), at(990), HELD, 0), Next::TryAt(at(1_050)));
    assert_eq!(waiting.outage(), None);
}
