//! Turns: notifications, tickets, and the local wait queue of a client.

use super::{at, digits, orders};
use crate::{Calls, LONGEST_CALL, Line, NodeClocks, Quorum, RetryDelay, Turns};
use std::time::Duration;

const DELAY: RetryDelay =
    RetryDelay { shortest: Duration::from_millis(50), longest: Duration::from_millis(200) };
/// Later than every moment in these tests, in milliseconds.
const FAR: u64 = 1_000_000;

fn calls(nodes: usize) -> Calls {
    Calls::new(Quorum::over(nodes).expect("valid"), at(0), Turns::new(DELAY))
}

#[test]
fn a_turn_needs_notifications_from_a_majority_for_the_same_resource() {
    // Each digit is a notification, from one of three nodes for one of two resources.
    for notifications in digits(6, 4) {
        let mut calls = calls(3);
        let mut heard = [[false; 3]; 2];
        for (time, digit) in notifications.iter().enumerate() {
            let node = digit % 3;
            let resource = digit / 3;
            let now = at(time as u64);
            let next = calls.add(now, node, resource, at(FAR), DELAY, 0);
            heard[resource][node] = true;
            let is_turn = heard.iter().any(|nodes| nodes.iter().filter(|n| **n).count() >= 2);
            assert_eq!(calls.is_turn(now), is_turn, "{notifications:?}");
            // If fewer nodes than a majority have notified the waiter, the waiter still tries early, but only once.
            let pause = if time == 0 { DELAY.shortest / 16 } else { DELAY.shortest };
            assert_eq!(next, if is_turn { now } else { now.plus(pause) });
        }
    }
}

#[test]
fn a_node_that_repeats_a_notification_takes_no_more_memory() {
    let [mut once, mut often] = [calls(3), calls(3)];
    for _ in 0..100 {
        often.add(at(1), 0, 0, at(FAR), DELAY, 0);
    }
    once.add(at(1), 0, 0, at(FAR), DELAY, 0);
    assert_eq!(once, often);
}

#[test]
fn a_waiter_for_permits_hears_all_nodes_or_waits_a_moment_unless_a_majority_agrees() {
    let soon = |now: u64| at(now).plus(Duration::from_millis(1));
    let mut calls = calls(3);
    let hurried = at(0).plus(DELAY.shortest / 16);
    assert_eq!(calls.add_offer(at(0), 0, false, at(FAR), DELAY, 0), hurried);
    // Two of three nodes offer different permits.
    let next = calls.add_offer(at(1), 1, false, hurried, DELAY, 0);
    assert_eq!(next, soon(1));
    // Another offer from the same node does not postpone the try.
    assert_eq!(calls.add_offer(at(2), 1, false, next, DELAY, 0), next);
    // All three nodes have notified the waiter, so it tries at once.
    assert_eq!(calls.clone().add_offer(at(2), 2, false, next, DELAY, 0), at(2));
    // Two nodes, a majority, offer the same permits.
    assert_eq!(calls.add_offer(at(2), 1, true, at(FAR), DELAY, 0), at(2));
}

#[test]
fn a_notification_expires_with_its_precedence() {
    let mut calls = calls(3);
    calls.add(at(0), 0, 0, at(FAR), DELAY, 0);
    assert_eq!(calls.add(at(49), 1, 0, at(FAR), DELAY, 0), at(49));
    assert!(!calls.is_turn(at(50)));
    assert_eq!(calls.add(at(210), 2, 0, at(FAR), DELAY, 0), at(210).plus(DELAY.shortest / 16));
    // A notification does not delay a try that is due earlier.
    assert_eq!(calls.add(at(299), 2, 0, at(300), DELAY, u32::MAX), at(300));
}

#[test]
fn a_round_consumes_its_notifications() {
    let mut calls = calls(1);
    calls.add(at(0), 0, 0, at(FAR), DELAY, 0);
    let _ = calls.begin(at(1));
    assert!(!calls.is_turn(at(1)));
}

#[test]
fn an_unusable_resource_is_reserved_for_a_small_part_of_the_time() {
    let mut calls = calls(1);
    let mut reserved = Duration::ZERO;
    let mut longest = Duration::ZERO;
    for now in 0..100_000 {
        // The waiter is notified every millisecond.
        calls.add(at(now), 0, 0, at(FAR), DELAY, 0);
        let Turns { reserve, .. } = calls.begin(at(now));
        assert!(reserve <= DELAY.shortest.max(Duration::from_millis(now) / 8));
        reserved += Duration::from_millis(u64::from(!reserve.is_zero()));
        longest = longest.max(reserve);
    }
    assert!(reserved <= Duration::from_secs(100) / 5 + longest, "{reserved:?}");
    let mut waits_for_long = super::turns::calls(1);
    waits_for_long.add(at(FAR), 0, 0, at(FAR), DELAY, 0);
    assert_eq!(waits_for_long.begin(at(FAR)).reserve, LONGEST_CALL);
    // The longer a waiter waits, the longer its reservations are. So a waiter eventually reserves a resource for longer
    // than other clients hold their leases.
    assert!(longest >= Duration::from_secs(100) / 20, "{longest:?}");
    // A waiter that was not notified reserves nothing.
    assert!(super::turns::calls(1).begin(at(0)).reserve.is_zero());
}

#[test]
fn a_reservation_lasts_through_the_next_rounds_of_its_waiter() {
    let mut calls = calls(1);
    calls.add(at(40_000), 0, 0, at(FAR), DELAY, 0);
    let mut reserved = |now| calls.begin(at(now)).reserve;
    assert_eq!(reserved(40_000), Duration::from_secs(5));
    assert_eq!(reserved(40_100), Duration::from_millis(4_900));
    assert_eq!(reserved(44_999), Duration::from_millis(1));
    assert_eq!(reserved(45_000), Duration::ZERO);
}

#[test]
fn a_queue_is_kept_longer_than_the_pause_between_two_tries() {
    for longest in [200, 60_000] {
        let delay = RetryDelay { longest: Duration::from_millis(longest), ..DELAY };
        let pause = delay.longest + Duration::from_secs(2);
        assert!(Turns::new(delay).memory > pause);
    }
}

#[test]
fn tickets_follow_the_order_of_arrival_whatever_the_clocks_show() {
    let clock_times = [7_000_000, 1_000_000, 9_000_000];
    for order in orders(3) {
        // The ticket of a waiter that arrives at `arrived`, if its client read the nodes' clocks at `seen`.
        let ticket = |seen: u64, arrived: u64| {
            let mut clocks = NodeClocks::new(3);
            assert_eq!(clocks.at(at(arrived)), None);
            for node in &order {
                clocks.saw(at(seen), *node, clock_times[*node] + seen * 1_000);
            }
            clocks.at(at(arrived)).expect("a clock has been read")
        };
        for seen in [0, 500, 1_000] {
            assert_eq!(ticket(seen, 600), 7_600_000, "the median at the arrival");
        }
        assert!(ticket(1_000, 599) < ticket(0, 600));
    }
}

#[test]
fn a_minority_cannot_move_a_ticket_beyond_the_other_clocks() {
    for lies in digits(3, 2) {
        let mut clocks = NodeClocks::new(5);
        for node in 0..3 {
            clocks.saw(at(0), node, 5_000_000 + node as u64);
        }
        for (node, lie) in lies.iter().enumerate() {
            clocks.saw(at(0), 3 + node, [0, 5_000_001, u64::MAX][*lie]);
        }
        let ticket = clocks.at(at(0)).expect("a clock has been read");
        assert!((5_000_000..=5_000_002).contains(&ticket), "{ticket}");
    }
    let mut clocks = NodeClocks::new(1);
    for (micros, ticket) in [(0, 1), (u64::MAX, (1 << 53) - 1)] {
        clocks.saw(at(0), 0, micros);
        assert_eq!(clocks.at(at(0)), Some(ticket), "tickets must be exact on servers");
    }
}

#[test]
fn local_waiters_become_first_one_at_a_time_and_in_order() {
    // Try every order in which five waiters for two resources can leave.
    for order in orders(5) {
        let mut line = Line::default();
        let joined: Vec<_> = (0..5).map(|waiter| line.join(&(waiter % 2), waiter)).collect();
        assert_eq!(
            joined.iter().map(|(_, first)| *first).collect::<Vec<_>>(),
            [true, true, false, false, false]
        );
        let mut waiting: Vec<_> = (0..5).collect();
        for leaves in order {
            let resource = leaves % 2;
            let first = waiting.iter().position(|waiter| waiter % 2 == resource);
            let was_first = waiting[first.expect("the waiter is in the queue")] == leaves;
            waiting.retain(|waiter| *waiter != leaves);
            let next = waiting.iter().find(|waiter| **waiter % 2 == resource && was_first);
            let notified = line.leave(&resource, joined[leaves].0).map(|waiter| *waiter);
            assert_eq!(notified, next.copied());
            assert_eq!(line.leave(&resource, joined[leaves].0), None, "it has left already");
            let left: Vec<_> = line.waiters(&resource).copied().collect();
            let expected = waiting.iter().copied().filter(|waiter| waiter % 2 == resource);
            assert_eq!(left, expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_reading_with_the_fastest_answer_is_kept_for_100_ms() {
    let mut clocks = NodeClocks::new(1);
    clocks.saw(at(1_000), 0, 5_000_000);
    clocks.saw(at(1_050), 0, 5_020_000);
    assert_eq!(clocks.at(at(1_050)), Some(5_050_000), "the second answer took 30 ms longer");
    clocks.saw(at(1_060), 0, 5_065_000);
    assert_eq!(clocks.at(at(1_060)), Some(5_065_000), "the third answer was faster");
    clocks.saw(at(1_200), 0, 5_100_000);
    assert_eq!(clocks.at(at(1_200)), Some(5_100_000), "an old reading must be replaced");
}
