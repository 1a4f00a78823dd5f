//! Integration tests: the public interface on real servers.
#![allow(clippy::unwrap_used, reason = "tests")]

mod adoption;
mod connections;
mod corking;
mod credentials;
mod election;
mod endurance;
mod failovers;
mod faults;
mod forms;
mod hand_over;
mod keeping;
mod late;
mod listing;
mod many;
mod nodes;
mod reconnecting;
mod repair;
mod secrets;
mod semaphores;
mod servers;
mod several;
mod shared;
mod telling;
mod upkeep;
mod vectors;
mod waiting;

use std::time::{Duration, Instant};

/// The maximum time that a test waits for an operation. It is far longer than any operation takes, even on a
/// loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns when the condition is true. Fails the test if it is not true within [`TIMEOUT`].
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits on this thread for an operation.
fn wait<T>(mut pending: quorlock::Pending<T>) -> T {
    pending.block_for(TIMEOUT).expect("the operation timed out")
}
