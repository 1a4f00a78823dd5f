//! Decides which thread drives the runtime: a caller that waits, or the fallback driver.
//!
//! This module owns only that decision. It must not drive, block on the runtime or call anything
//! with its mutex held. `executor.rs` is its only user.
//!
//! All state is behind one mutex, which is held for a few instructions. So all changes have one
//! order, each thread sees every change before its own, and there is no memory ordering to choose.
//! What remains to show is that no thread sleeps through a change that it waits for:
//!
//! - The fallback driver stops driving when a caller enters. It reads `callers` after it has
//!   started to listen to `Executor::wanted`; a caller notifies `wanted` after it has incremented
//!   `callers`. Whichever happens first, the fallback driver notices the caller.
//! - The fallback driver sleeps on `changed`, for at most [`PAUSE`] or, while the same callers
//!   stay, without a limit. `Condvar::wait` releases the mutex and goes to sleep in one step, so
//!   [`Drivers::leave`] cannot run between its last read of `callers` and its sleep.
//! - [`Drivers::need_driver`] either finds a caller, which drives, or sets `is_needed`. The
//!   fallback driver reads `is_needed` before it sleeps, and is notified if it stands by. If the
//!   caller leaves immediately afterwards, the fallback driver drives after `PAUSE`.
//!
//! `interleavings/driving.rs` checks this in every order of events, up to a bound.

use super::sync::{Condvar, Mutex, lock, wait, wait_timeout};
use std::time::Duration;

/// How long the runtime may be idle before the fallback driver drives it. Threads that call one
/// operation after another within this time find the runtime free; background work after the last
/// of them is delayed by at most this long.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Drivers {
    state: Mutex<DriversState>,
    /// Notified when a fallback driver that stands by must re-read the state.
    changed: Condvar,
}

#[derive(Debug)]
struct DriversState {
    /// The number of callers that drive the runtime or wait to take over from the thread that does.
    callers: usize,
    /// The number of callers that have left so far. A change tells the fallback driver that callers
    /// are active.
    left: u64,
    /// The number of the current fallback driver. A thread with a smaller number was replaced, and
    /// ends.
    fallback: u64,
    /// Whether the fallback driver drives or is about to.
    fallback_drives: bool,
    /// Whether the fallback driver sleeps until the last caller leaves.
    fallback_sleeps: bool,
    /// Whether there is work for the runtime that no caller drives.
    is_needed: bool,
}

impl Drivers {
    /// The initial state: no caller, and a fallback driver with number 1 that is about to drive.
    pub(crate) fn new() -> Self {
        let state = DriversState {
            callers: 0,
            left: 0,
            fallback: 1,
            fallback_drives: true,
            fallback_sleeps: false,
            is_needed: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Registers a caller that is about to drive. Returns whether the fallback driver must be
    /// notified to stop.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        let mut state = lock(&self.state);
        state.callers += 1;
        state.fallback_drives
    }

    /// Unregisters a caller.
    pub(crate) fn leave(&self) {
        let mut state = lock(&self.state);
        state.callers -= 1;
        state.left += 1;
        if state.callers == 0 && state.fallback_sleeps {
            self.changed.notify_all();
        }
    }

    /// Whether a caller drives. It may leave at any time; a thread that relies on it must call
    /// [`Drivers::need_driver`] afterwards.
    pub(crate) fn has_callers(&self) -> bool {
        lock(&self.state).callers > 0
    }

    /// Makes sure that a thread drives. Called by a thread that has work for the runtime but does
    /// not drive it.
    pub(crate) fn need_driver(&self) {
        let mut state = lock(&self.state);
        if state.callers == 0 {
            // Also set while the fallback driver drives: it may be about to stop.
            state.is_needed = true;
            if !state.fallback_drives {
                self.changed.notify_all();
            }
        }
    }

    /// Registers a new fallback driver, which is about to drive and replaces the previous one.
    /// Returns its number. The previous one must be notified to stop.
    pub(crate) fn take_over(&self) -> u64 {
        let mut state = lock(&self.state);
        state.fallback += 1;
        state.fallback_drives = true;
        state.fallback_sleeps = false;
        self.changed.notify_all();
        state.fallback
    }

    /// Whether this fallback driver should continue to drive.
    pub(crate) fn goes_on(&self, fallback: u64) -> bool {
        let state = lock(&self.state);
        state.fallback == fallback && state.callers == 0
    }

    /// Waits until this fallback driver has to drive again: no caller has driven for [`PAUSE`], or
    /// there is work that needs a driver. Returns `false` if it was replaced.
    pub(crate) fn stand_by(&self, fallback: u64) -> bool {
        let mut state = lock(&self.state);
        if state.fallback == fallback {
            state.fallback_drives = false;
        }
        while state.fallback == fallback {
            let left = state.left;
            // If a caller is registered, it drives, so this thread is not needed.
            state.is_needed &= state.callers == 0;
            if !state.is_needed {
                state = wait_timeout(&self.changed, &self.state, state, PAUSE);
            }
            let is_quiet = state.left == left;
            if state.fallback != fallback {
                break;
            }
            if state.callers == 0 && (is_quiet || state.is_needed) {
                state.is_needed = false;
                state.fallback_drives = true;
                return true;
            }
            if state.callers > 0 && is_quiet {
                // The same callers are still here and may stay for long, so do not poll.
                state.fallback_sleeps = true;
                while state.callers > 0 && state.fallback == fallback {
                    state = wait(&self.changed, state);
                }
                if state.fallback == fallback {
                    state.fallback_sleeps = false;
                }
            }
        }
        false
    }
}
