//! What surrounds quorlock fails or is in its way: a subscriber that panics, a callback that panics, no
//! threads to be had, a thread of low priority, a thread that belongs to another runtime. Each test runs in
//! a process of its own.
#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "the integration tests use more of it")]
#[path = "../integration/servers.rs"]
mod servers;

mod panics;
#[cfg(target_os = "linux")]
mod priorities;
mod runtimes;
#[cfg(target_os = "linux")]
mod threads;

use quorlock::{Client, Lease, Lock, Pending};
use std::process::Command;
use std::time::{Duration, Instant};

/// Far more than anything here takes, also on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Set in the process that runs the test, to its name.
const CHILD: &str = "QUORLOCK_TEST_CHILD";

/// Runs the test of this name in a process of its own. Returns whether this is that process.
fn alone(test: &str, environment: &[(&str, &str)]) -> bool {
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    child.env(CHILD, test).envs(environment.iter().copied());
    let status = child.status().unwrap();
    assert!(status.success(), "{test}: {status}");
    false
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come true that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait<T>(mut pending: Pending<T>) -> T {
    pending.wait(TIMEOUT).expect("an operation hangs")
}

fn acquire(lock: &Lock) -> Lease {
    wait(lock.acquire()).expect("it is free")
}

fn client(nodes: &[String], ttl: Duration) -> Client {
    Client::builder().nodes(nodes).ttl(ttl).build().unwrap()
}

/// Checks that the lease is valid for so long.
fn hold(lease: &Lease, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        assert!(lease.is_valid(), "{:?} after {:?}", lease.loss(), began.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
}
