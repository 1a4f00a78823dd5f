//! Hostile environments: foreign code that panics or is slow, no threads or files available, low thread
//! priority, threads of another runtime. Tests that affect the whole process run in a process of their own (`alone`).
#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "the integration tests use more of it")]
#[path = "../integration/servers.rs"]
mod servers;

mod busy;
#[cfg(target_os = "linux")]
mod files;
mod panics;
#[cfg(target_os = "linux")]
mod priorities;
mod runtimes;
#[cfg(target_os = "linux")]
mod threads;

use quorlock::{Client, Lease, Lock, Pending};
use std::process::Command;
use std::time::{Duration, Instant};

/// The maximum time that a test waits for an operation. It is far longer than any operation takes, even on a
/// loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The environment variable that holds the test's name in the process that runs it.
const CHILD: &str = "QUORLOCK_TEST_CHILD";

/// Runs the test of this name in a process of its own. Returns `true` in that process, which then runs the
/// body of the test, and `false` in the parent.
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
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait<T>(mut pending: Pending<T>) -> T {
    pending.block_for(TIMEOUT).expect("the operation timed out")
}

fn acquire(lock: &Lock) -> Lease {
    wait(lock.acquire()).expect("the lock is free")
}

fn client(nodes: &[String], ttl: Duration) -> Client {
    Client::builder().nodes(nodes).ttl(ttl).build().unwrap()
}

/// Checks that the lease stays valid for this time.
fn hold(lease: &Lease, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        assert!(lease.is_valid(), "{:?} after {:?}", lease.loss(), began.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
}
