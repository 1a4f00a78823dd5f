//! Turns: calls, tickets, and the line within a client.

use super::{at, digits, orders};
use crate::{Calls, LONGEST_CALL, Line, NodeClocks, Quorum, RetryDelay, Turns};
use std::time::Duration;

const DELAY: RetryDelay =
    RetryDelay { shortest: Duration::from_millis(50), longest: Duration::from_millis(200) };
/// Later than anything that is tested.
const FAR: u64 = 1_000_000;

fn calls(nodes: usize) -> Calls {
    Calls::new(Quorum::over(nodes).expect("valid"), at(0), Turns::new(DELAY))
}

#[test]
fn a_majority_of_different_nodes_calls_for_one_resource() {
    // Each digit is a call, of one of three nodes for one of two resources.
    for told in digits(6, 4) {
        let mut calls = calls(3);
        let mut heard = [[false; 3]; 2];
        for (time, call) in told.iter().enumerate() {
            let (node, resource, now) = (call % 3, call / 3, at(time as u64));
            let next = calls.add(now, node, resource, at(FAR), DELAY, 0);
            heard[resource][node] = true;
            let is_turn = heard.iter().any(|nodes| nodes.iter().filter(|n| **n).count() >= 2);
            assert_eq!(calls.is_turn(now), is_turn, "{told:?}");
            // With less than a majority it tries soon, but not again and again.
            let pause = if time == 0 { DELAY.shortest / 16 } else { DELAY.shortest };
            assert_eq!(next, if is_turn { now } else { now.plus(pause) });
        }
    }
}

#[test]
fn a_call_is_over_when_others_may_go() {
    let mut calls = calls(3);
    calls.add(at(0), 0, 0, at(FAR), DELAY, 0);
    assert_eq!(calls.add(at(49), 1, 0, at(FAR), DELAY, 0), at(49));
    assert!(!calls.is_turn(at(50)));
    assert_eq!(calls.add(at(210), 2, 0, at(FAR), DELAY, 0), at(210).plus(DELAY.shortest / 16));
    // It does not put off what is due already.
    assert_eq!(calls.add(at(299), 2, 0, at(300), DELAY, u32::MAX), at(300));
}

#[test]
fn a_round_uses_its_calls_up() {
    let mut calls = calls(1);
    calls.add(at(0), 0, 0, at(FAR), DELAY, 0);
    let _ = calls.begin(at(1));
    assert!(!calls.is_turn(at(1)));
}

#[test]
fn what_cannot_be_used_is_kept_from_others_for_a_small_part_of_the_time() {
    let mut calls = calls(1);
    let mut kept = Duration::ZERO;
    let mut longest = Duration::ZERO;
    for now in 0..100_000 {
        // It is called all the time.
        calls.add(at(now), 0, 0, at(FAR), DELAY, 0);
        let Turns { keep, .. } = calls.begin(at(now));
        assert!(keep.is_zero() || keep >= DELAY.shortest);
        assert!(keep <= DELAY.shortest.max(Duration::from_millis(now) / 8));
        kept += keep;
        longest = longest.max(keep);
    }
    assert!(kept <= Duration::from_secs(100) / 5 + longest, "{kept:?}");
    let mut waits_for_long = super::turns::calls(1);
    waits_for_long.add(at(FAR), 0, 0, at(FAR), DELAY, 0);
    assert_eq!(waits_for_long.begin(at(FAR)).keep, LONGEST_CALL);
    // Long enough for ever longer turns of others, up to a limit.
    assert!(longest >= Duration::from_secs(100) / 20, "{longest:?}");
    // Who was not called has nothing to keep.
    assert!(super::turns::calls(1).begin(at(0)).keep.is_zero());
}

#[test]
fn a_queue_outlives_the_pause_between_two_tries() {
    for longest in [200, 60_000] {
        let delay = RetryDelay { longest: Duration::from_millis(longest), ..DELAY };
        let pause = delay.longest + Duration::from_secs(2);
        assert!(Turns::new(delay).memory > pause);
    }
}

#[test]
fn tickets_are_in_the_order_of_arrival_whatever_clocks_say() {
    let told = [7_000_000, 1_000_000, 9_000_000];
    for order in orders(3) {
        // Two clients see the clocks at different times, and arrive at different times.
        let ticket = |seen: u64, arrived: u64| {
            let mut clocks = NodeClocks::new(3);
            assert_eq!(clocks.at(at(arrived)), None);
            for node in &order {
                clocks.saw(at(seen), *node, told[*node] + seen * 1_000);
            }
            clocks.at(at(arrived)).expect("the time is known")
        };
        for seen in [0, 500, 1_000] {
            assert_eq!(ticket(seen, 600), 7_600_000, "the median, when it arrived");
        }
        assert!(ticket(1_000, 599) < ticket(0, 600));
    }
}

#[test]
fn no_minority_moves_a_ticket_by_more_than_the_others_differ() {
    for lies in digits(3, 2) {
        let mut clocks = NodeClocks::new(5);
        for node in 0..3 {
            clocks.saw(at(0), node, 5_000_000 + node as u64);
        }
        for (node, lie) in lies.iter().enumerate() {
            clocks.saw(at(0), 3 + node, [0, 5_000_001, u64::MAX][*lie]);
        }
        let ticket = clocks.at(at(0)).expect("the time is known");
        assert!((5_000_000..=5_000_002).contains(&ticket), "{ticket}");
    }
    let mut clocks = NodeClocks::new(1);
    for (micros, ticket) in [(0, 1), (u64::MAX, (1 << 53) - 1)] {
        clocks.saw(at(0), 0, micros);
        assert_eq!(clocks.at(at(0)), Some(ticket), "servers know it exactly");
    }
}

#[test]
fn one_at_a_time_is_first_and_they_go_in_order() {
    // In every order in which five waiters for two resources may leave.
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
            let was_first = waiting[first.expect("it waits")] == leaves;
            waiting.retain(|waiter| *waiter != leaves);
            let next = waiting.iter().find(|waiter| **waiter % 2 == resource && was_first);
            let told = line.leave(&resource, joined[leaves].0).map(|waiter| *waiter);
            assert_eq!(told, next.copied());
            assert_eq!(line.leave(&resource, joined[leaves].0), None, "it has left");
            let left: Vec<_> = line.waiters(&resource).copied().collect();
            let expected = waiting.iter().copied().filter(|waiter| waiter % 2 == resource);
            assert_eq!(left, expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_reading_whose_answer_was_quickest_is_kept_for_a_moment() {
    let mut clocks = NodeClocks::new(1);
    clocks.saw(at(1_000), 0, 5_000_000);
    clocks.saw(at(1_050), 0, 5_020_000);
    assert_eq!(clocks.at(at(1_050)), Some(5_050_000), "the second answer took 30 ms longer");
    clocks.saw(at(1_060), 0, 5_065_000);
    assert_eq!(clocks.at(at(1_060)), Some(5_065_000), "the third was quicker");
    clocks.saw(at(1_200), 0, 5_100_000);
    assert_eq!(clocks.at(at(1_200)), Some(5_100_000), "the clock may run slower, or was set");
}
