//! Threads that belong to another runtime, or that end.

use crate::{TIMEOUT, acquire, alone, client, wait};
use quorlock::Lease;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn nodes() -> Vec<String> {
    (0..3).map(|node| format!("memory://runtimes-{node}")).collect()
}

#[test]
fn a_thread_that_runs_a_task_of_tokio_can_wait_any_number_of_times() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let cycles = tokio::spawn(async {
            let lock = client(&nodes(), TIMEOUT).lock("r");
            // tokio's budget lets a task poll 128 times before it must yield. This loop exceeds it.
            for _ in 0..500 {
                assert!(wait(acquire(&lock).release()));
            }
        });
        cycles.await.unwrap();
    });
}

/// A stack size above the memory limit, so that no thread can be started; see `threads.rs`.
const STACK: &str = "1073741824";

#[cfg(target_os = "linux")]
#[test]
fn the_first_use_within_a_runtime_fails_without_threads_and_works_later() {
    let name = "runtimes::the_first_use_within_a_runtime_fails_without_threads_and_works_later";
    if !alone(name, &[("RUST_MIN_STACK", STACK)]) {
        return;
    }
    let lock = client(&nodes(), TIMEOUT).lock("r");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let acquiring = crate::threads::without_threads(|| lock.acquire());
        let error = tokio::time::timeout(TIMEOUT, acquiring).await.unwrap().unwrap_err();
        assert_eq!(error.code(), quorlock::ErrorCode::NoQuorum);
        assert!(error.to_string().contains("the background runtime cannot start"), "{error}");
        let lease = tokio::time::timeout(TIMEOUT, lock.acquire()).await.unwrap().unwrap();
        assert!(lease.remaining() > Duration::ZERO);
    });
}

/// Releases its lease, and blocks for that, when its thread ends: later than tokio's thread-local values.
struct Guard(Lease);

impl Drop for Guard {
    fn drop(&mut self) {
        let released = self.0.release().block_for(TIMEOUT);
        RELEASED.store(released == Some(true), Ordering::SeqCst);
    }
}

static RELEASED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static GUARD: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

#[test]
fn a_thread_that_ends_can_block() {
    let lock = client(&nodes(), TIMEOUT).lock("r");
    let ending = std::thread::spawn(move || {
        GUARD.with(|guard| *guard.borrow_mut() = Some(Guard(acquire(&lock))));
    });
    ending.join().unwrap();
    assert!(RELEASED.load(Ordering::SeqCst));
}
