//! When a lease is renewed, and the limit beyond which it is not extended.

use super::{END, TERM, at, granted_by_all, is_lost};
use crate::{Answer, Ended, Extended, Lease, Moment, Quorum, Term, Upkeep};
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

fn lease(end: Moment, limit: Option<Moment>) -> Lease {
    granted_by_all(Quorum::over(1).expect("valid"), end, limit)
}

fn confirm(lease: &mut Lease, sent: Moment, term: Term) {
    let mut extension = lease.extend(sent, term).expect("valid");
    let decided = lease.extended(sent, &mut extension, 0, Answer::Yes);
    assert_eq!(decided, Some(Extended::Confirmed));
}

/// Renews a lease from `start` until the lease ends or has been held for `held`. The node confirms an extension after
/// `delay` if `answers` returns `true` for the number of that extension. Otherwise, the node does not answer. Returns
/// the number of extensions and, if the lease ended, the moment at which it ended.
fn keep(
    start: Moment,
    term: Term,
    limit: Option<Moment>,
    held: Duration,
    delay: Duration,
    answers: impl Fn(u32) -> bool,
) -> (u32, Option<Moment>) {
    let mut lease = lease(term.end(start), limit);
    let mut upkeep = Upkeep::new(term);
    let mut extensions = 0;
    let mut now = start;
    while let Some(due) = upkeep.due(&lease).map(|due| due.max(now)) {
        if due >= lease.end() {
            break;
        }
        if due >= start.plus(held) {
            return (extensions, None);
        }
        let mut extension = lease.extend(due, upkeep.term()).expect("valid");
        let answer = if answers(extensions) { Answer::Yes } else { Answer::Unknown };
        extensions += 1;
        assert!(extensions < 1_000, "too many extensions");
        let answered =
            due.plus(if answer == Answer::Yes { delay } else { upkeep.term().patience() });
        now = answered;
        match lease.extended(answered, &mut extension, 0, answer) {
            Some(Extended::Undecided) => upkeep.undecided(due),
            Some(Extended::Confirmed) => {}
            _ => break,
        }
    }
    (extensions, Some(lease.end()))
}

fn term(milliseconds: u64, drift_factor: f64) -> Term {
    Term { ttl: Duration::from_millis(milliseconds), drift_factor }
}

#[test]
fn a_lease_is_kept_with_few_renewals_at_any_ttl() {
    for milliseconds in [10, 11, 13, 50, 64, 100, 333, 1_000, 10_000, 3_600_000, 86_400_000] {
        for drift_factor in [0.0, 0.01, 0.1] {
            for offset in [0, 1, 7, 12_345] {
                let term = term(milliseconds, drift_factor);
                let held = term.ttl * 100;
                let delay = term.ttl / 50;
                let (extensions, end) = keep(at(offset), term, None, held, delay, |_| true);
                assert_eq!(end, None, "{term:?} must be held throughout");
                let most = held.as_secs_f64() / (term.ttl.as_secs_f64() / 3.0) + 1.0;
                assert!(f64::from(extensions) <= most, "{term:?}: {extensions}");
                assert!(f64::from(extensions) >= 0.8 * most, "{term:?}: {extensions}");
            }
        }
    }
}

#[test]
fn a_lease_survives_if_every_other_renewal_fails() {
    let held = TERM.ttl * 50;
    let (extensions, end) =
        keep(at(5), TERM, None, held, Duration::from_millis(10), |number| number % 2 == 1);
    assert_eq!(end, None);
    assert!(extensions <= 151, "{extensions}");
}

#[test]
fn a_lease_whose_renewals_fail_ends_at_its_last_confirmed_end() {
    let (extensions, end) =
        keep(at(0), TERM, None, TERM.ttl * 50, Duration::ZERO, |number| number < 3);
    let last = at(0).plus((TERM.ttl / 3 + TERM.ttl / 32) * 3);
    assert!(end.is_some_and(|end| end <= TERM.end(last)), "{end:?}");
    assert!((4..=6).contains(&extensions), "{extensions}");
}

#[test]
fn a_failed_renewal_is_retried_after_a_twelfth_of_the_ttl() {
    let lease = lease(at(END), None);
    let mut upkeep = Upkeep::new(TERM);
    let first = upkeep.due(&lease).expect("not at its limit");
    assert!(at(3_333) <= first && first <= at(3_333 + 10_000 / 32 + 1), "{first:?}");
    upkeep.undecided(first);
    let second = upkeep.due(&lease).expect("there is time");
    assert!(first.plus(TERM.ttl / 12) <= second && second <= first.plus(TERM.ttl / 6));
    upkeep.undecided(at(END - 100));
    assert_eq!(upkeep.due(&lease), None, "the lease ends before the next renewal");
}

#[test]
fn leases_won_at_different_times_are_renewed_together() {
    let due = |start: u64| Upkeep::new(TERM).due(&lease(TERM.end(at(start)), None));
    let all: std::collections::BTreeSet<_> = (0..1_000).map(due).collect();
    assert!(all.len() <= 5, "{all:?}");
}

#[test]
fn a_longer_extension_by_hand_delays_the_next_renewal() {
    let mut lease = lease(at(END), None);
    let upkeep = Upkeep::new(TERM);
    confirm(&mut lease, at(1_000), term(60_000, 0.01));
    let end = term(60_000, 0.01).end(at(1_000));
    assert_eq!(lease.end(), end);
    let due = upkeep.due(&lease).expect("not at its limit");
    assert!(end.minus(TERM.ttl) < due && due < end, "{due:?}");
}

#[test]
fn no_extension_goes_beyond_the_limit_and_the_last_one_reaches_it() {
    for hold in [10_000, 12_345, 25_000, 100_001] {
        for drift_factor in [0.0, 0.01, 0.3] {
            let term = term(10_000, drift_factor);
            let limit = at(7 + hold);
            let held = Duration::from_millis(2 * hold);
            let (_, end) = keep(at(7), term, Some(limit), held, Duration::ZERO, |_| true);
            assert_eq!(end, Some(limit), "{term:?}");
        }
    }
}

#[test]
fn keys_on_the_nodes_last_until_the_limit() {
    let limit = at(12_000);
    let mut lease = lease(at(END), Some(limit));
    let mut extension = lease.extend(at(6_000), TERM).expect("valid");
    let kept = Term { ttl: extension.term().ttl, ..TERM };
    assert!(kept.ttl < TERM.ttl && kept.end(at(6_000)) >= limit);
    let decided = lease.extended(at(6_001), &mut extension, 0, Answer::Yes);
    assert_eq!((decided, lease.end()), (Some(Extended::Confirmed), limit));
    assert_eq!(lease.ended(at(11_999)), None);
    assert_eq!(lease.ended(limit), Some(Ended::AtLimit));
}

#[test]
fn a_limit_below_the_first_end_changes_only_the_reason() {
    let mut lease = lease(at(END), Some(at(100)));
    assert_eq!(Upkeep::new(TERM).due(&lease), None);
    confirm(&mut lease, at(5_000), TERM);
    assert_eq!(lease.end(), at(END));
    assert!(lease.is_valid(at(END - 1)));
    assert_eq!(lease.ended(at(END)), Some(Ended::AtLimit));
}

#[test]
fn an_end_is_final_and_keeps_its_first_reason() {
    let mut expired = lease(at(END), None);
    assert!(!expired.release(at(END)).was_valid());
    assert_eq!(expired.ended(at(END)), Some(Ended::Expired));
    let mut closed = lease(at(END), None);
    assert!(closed.close(at(1)).was_valid());
    assert!(is_lost(&closed, at(1)) && closed.is_released());
    assert!(!closed.release(at(2)).was_valid());
    assert_eq!(closed.ended(at(2 * END)), Some(Ended::ClientClosed));
    let mut released = lease(at(END), None);
    assert!(released.release(at(1)).was_valid());
    assert_eq!(released.ended(at(2 * END)), Some(Ended::Released));
    assert!(!is_lost(&released, at(2 * END)));
}

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_lease_is_renewed_only_while_its_last_heartbeat_is_younger_than_the_timeout() {
    let lease = lease(at(END), None);
    let due = Upkeep::new(TERM).due(&lease).expect("not at its limit");
    for silence in [Duration::ZERO, TIMEOUT - MILLISECOND, TIMEOUT, 2 * TIMEOUT] {
        let mut upkeep = Upkeep::new(TERM).with_heartbeat(TIMEOUT, at(0));
        let _ = upkeep.check_heartbeat(at(0).plus(silence));
        let is_renewed = silence < TIMEOUT;
        assert_eq!(upkeep.due(&lease), is_renewed.then_some(due), "{silence:?}");
        let reason = if is_renewed { Ended::Expired } else { Ended::NoHeartbeat };
        assert_eq!(upkeep.reason(Ended::Expired), reason);
        for other in [Ended::AtLimit, Ended::Taken, Ended::Released] {
            assert_eq!(upkeep.reason(other), other);
        }
        // A heartbeat before the end makes a renewal due again, at once if its time has passed.
        assert_eq!(upkeep.beat(at(0).plus(silence)), silence >= TIMEOUT / 2);
        assert_eq!(upkeep.due(&lease), Some(due));
        assert_eq!(upkeep.reason(Ended::Expired), Ended::Expired);
    }
}

#[test]
fn a_holder_that_stops_has_its_lease_for_at_most_the_timeout_and_a_ttl() {
    // The holder sends a heartbeat every 10 s until `stops`, and then hangs.
    for stops in (0..100_000).step_by(10_000) {
        let mut lease = lease(TERM.end(at(0)), None);
        let mut upkeep = Upkeep::new(TERM).with_heartbeat(TIMEOUT, at(0));
        let mut beats = (1..=stops / 10_000).map(|number| at(number * 10_000)).peekable();
        let mut warnings = 0;
        loop {
            let renewal = upkeep.due(&lease).unwrap_or(lease.end());
            let now = upkeep.warning_due().map_or(renewal, |warning| warning.min(renewal));
            if let Some(beat) = beats.next_if(|beat| *beat <= now) {
                assert!(!upkeep.beat(beat), "nothing is due earlier than before");
                continue;
            }
            if now >= lease.end() {
                break;
            }
            assert!(now < at(1_000_000), "it is renewed for ever");
            warnings += usize::from(upkeep.check_heartbeat(now) == Some(TIMEOUT));
            if upkeep.due(&lease).is_some_and(|due| due <= now) {
                confirm(&mut lease, now, upkeep.term());
            }
        }
        assert_eq!(warnings, 1, "after 15 s of silence");
        assert!(lease.end() <= TERM.end(at(stops).plus(TIMEOUT)), "{:?}", lease.end());
        assert!(lease.end() > at(stops).plus(TIMEOUT), "it was renewed until then");
        assert_eq!(upkeep.reason(Ended::Expired), Ended::NoHeartbeat);
    }
}

#[test]
fn a_holder_is_warned_once_after_each_heartbeat() {
    let mut upkeep = Upkeep::new(TERM).with_heartbeat(TIMEOUT, at(0));
    for start in [0, 20_000, 90_000] {
        assert_eq!(upkeep.warning_due(), Some(at(start).plus(TIMEOUT / 2)));
        assert_eq!(upkeep.check_heartbeat(at(start + 14_999)), None);
        assert_eq!(upkeep.check_heartbeat(at(start + 15_000)), Some(TIMEOUT));
        assert_eq!(upkeep.check_heartbeat(at(start + 15_001)), None);
        assert_eq!(upkeep.warning_due(), None);
        let next = if start == 0 { 20_000 } else { 90_000 };
        assert!(upkeep.beat(at(next)), "the next warning must be scheduled");
    }
    assert_eq!(Upkeep::new(TERM).warning_due(), None);
}
