//! loom's synchronization primitives, with the interface of `crate::runtime::sync`.

pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
pub(super) use loom::thread_local;
use std::cell::Cell;
use std::time::Duration;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics")
}

pub(super) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).expect("no thread panics")
}

std::thread_local! {
    static TIMES_OUT: Cell<bool> = const { Cell::new(true) };
}

/// Chooses how a wait with a timeout ends, because loom has no clock. If `times_out` is `true`, the wait
/// times out immediately. Otherwise, only a notification ends it.
pub(super) fn set_times_out(times_out: bool) {
    TIMES_OUT.set(times_out);
}

pub(super) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    _timeout: Duration,
) -> MutexGuard<'a, T> {
    if !TIMES_OUT.get() {
        return wait(condvar, guard);
    }
    drop(guard);
    loom::thread::yield_now();
    lock(mutex)
}
