//! The mutex for the modules `lock`, `client` and `memory`. In builds with debug assertions, this mutex checks that its
//! users follow the rules in docs/architecture.md.
//!
//! A thread that holds one of these mutexes must not lock another one, and must not run foreign code: `panics.rs`
//! checks the second rule with [`assert_none_held`]. The guard is not `Send`, so a task cannot hold it across an
//! `await`. `drivers.rs` and `pipeline.rs` use `sync.rs` instead, for the loom model checker.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError};
use std::thread;

thread_local! {
    /// The number of mutexes of this module that this thread has locked. Counted only in builds with debug assertions.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// A mutex that ignores poisoning. Ignoring it is safe because no code panics between two updates that belong together.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

/// A guard that gives access to the value of a [`Mutex`]. Dropping the guard unlocks the mutex.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    // Declared first, so that dropping the guard unlocks the mutex before `_held` lowers the count.
    guard: sync::MutexGuard<'a, T>,
    _held: Held,
}

#[derive(Debug)]
struct Held(());

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Locks the mutex.
    ///
    /// # Panics
    ///
    /// In builds with debug assertions, if this thread already holds a mutex of this type.
    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        assert_none_held("locks another one");
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { guard, _held: Held::count() }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl Held {
    fn count() -> Self {
        if cfg!(debug_assertions) {
            // `try_with` fails while the thread is ending. The thread's mutexes are not checked any more from then on.
            let _ = HELD.try_with(|held| held.set(held.get() + 1));
        }
        Self(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(1)));
        }
    }
}

/// In builds with debug assertions, panics if this thread has locked a mutex of this module. `what` says what the
/// thread is about to do; the message of the panic contains it.
#[track_caller]
pub(crate) fn assert_none_held(what: &str) {
    if cfg!(debug_assertions) && !thread::panicking() {
        let held = HELD.try_with(Cell::get).unwrap_or_default();
        assert!(held == 0, "a thread that holds a mutex {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::Mutex;
    use std::panic::catch_unwind;

    #[test]
    fn thread_that_holds_a_mutex_locks_no_other() {
        static ONE: Mutex<u32> = Mutex::new(1);
        static OTHER: Mutex<u32> = Mutex::new(2);
        for _ in 0..2 {
            let nested = catch_unwind(|| {
                let _one = ONE.lock();
                *OTHER.lock()
            });
            assert!(nested.is_err());
            let shadowed = catch_unwind(|| {
                let guard = ONE.lock();
                OTHER.lock().max(*guard)
            });
            assert!(shadowed.is_err());
            // Locking one mutex after unlocking the other is allowed.
            assert_eq!(*ONE.lock(), 1);
            assert_eq!(*OTHER.lock(), 2);
        }
    }
}
