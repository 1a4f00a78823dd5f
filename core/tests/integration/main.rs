//! The lock on real servers, through its public interface.
#![allow(clippy::unwrap_used, reason = "tests")]

mod connections;
mod endurance;
mod failovers;
mod faults;
mod forms;
mod hand_over;
mod late;
mod many;
mod nodes;
mod repair;
mod secrets;
mod servers;
mod several;
mod telling;
mod upkeep;
mod vectors;
mod waiting;

use std::time::{Duration, Instant};

/// Far more than anything here takes, also on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns when the condition is true; fails the test if it does not come true.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come true that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for an operation on this thread.
fn wait<T>(mut pending: quorlock::Pending<T>) -> T {
    pending.wait(TIMEOUT).expect("an operation hangs")
}
