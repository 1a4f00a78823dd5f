//! Which thread drives the runtime: a caller that waits, or the fallback driver.
//!
//! The state is one mutex, which is held for a few instructions and never while anything is called. So
//! there is one order of all changes, each thread sees all changes before its own, and no memory ordering
//! is left to choose. What remains is that nobody sleeps through a change that it waits for:
//!
//! - The fallback driver stops driving when a caller enters. It looks at `callers` after it has begun to
//!   listen to `Executor::wanted`; a caller notifies `wanted` after it has increased `callers`. Whichever comes
//!   first, the fallback driver sees the other.
//! - The fallback driver sleeps on `changed`, for at most [`PAUSE`] or, while the same callers stay, without
//!   a limit. `Condvar::wait` releases the mutex and begins to sleep in one step, so [`Drivers::leave`]
//!   cannot come between its last look at `callers` and its sleep.
//! - [`Drivers::need_driver`] finds a caller that is there, or sets `is_needed`. The fallback driver looks at
//!   it before it sleeps, and is notified if it stands by. A caller that is there may leave at once; then
//!   the fallback driver drives after `PAUSE`.
//!
//! `interleavings/driving.rs` checks this in every order of events, up to a bound.

use super::sync::{Condvar, Mutex, lock, wait, wait_timeout};
use std::time::Duration;

/// How long the runtime may be idle before the fallback driver drives it. Threads that come and go within
/// it find the runtime free; background work is late by as much, at worst, after they have gone.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Drivers {
    state: Mutex<DriversState>,
    /// Notified when a standing-by fallback driver must look at the state.
    changed: Condvar,
}

#[derive(Debug)]
struct DriversState {
    /// Threads that drive the runtime, or will when the one that does stops.
    callers: usize,
    /// How many callers have left so far.
    left: u64,
    /// The number of the fallback driver. One with a smaller number was replaced, and ends.
    fallback: u64,
    /// Whether the fallback driver drives, or is about to.
    fallback_drives: bool,
    /// Whether the fallback driver sleeps until the last caller leaves.
    fallback_sleeps: bool,
    /// Whether somebody needs a driver when no caller drives.
    is_needed: bool,
}

impl Drivers {
    /// No caller yet, and a fallback driver that is about to drive: its number is 1.
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

    /// A caller is about to drive. Returns whether the fallback driver must be notified to stop.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        let mut state = lock(&self.state);
        state.callers += 1;
        state.fallback_drives
    }

    /// A caller does not drive any more.
    pub(crate) fn leave(&self) {
        let mut state = lock(&self.state);
        state.callers -= 1;
        state.left += 1;
        if state.callers == 0 && state.fallback_sleeps {
            self.changed.notify_all();
        }
    }

    /// Makes sure that somebody drives, since the thread that has work for the runtime does not.
    pub(crate) fn need_driver(&self) {
        let mut state = lock(&self.state);
        if state.callers == 0 {
            // Also if the fallback driver drives: it may be about to stop.
            state.is_needed = true;
            if !state.fallback_drives {
                self.changed.notify_all();
            }
        }
    }

    /// A new fallback driver is about to drive, and replaces the one before. Returns its number. The one
    /// before must be notified to stop.
    pub(crate) fn take_over(&self) -> u64 {
        let mut state = lock(&self.state);
        state.fallback += 1;
        state.fallback_drives = true;
        state.fallback_sleeps = false;
        self.changed.notify_all();
        state.fallback
    }

    /// Whether this fallback driver goes on driving.
    pub(crate) fn goes_on(&self, fallback: u64) -> bool {
        let state = lock(&self.state);
        state.fallback == fallback && state.callers == 0
    }

    /// Waits until this fallback driver has to drive again: nobody has driven for a moment, or somebody
    /// needs a driver. Returns `false` if it was replaced.
    pub(crate) fn stand_by(&self, fallback: u64) -> bool {
        let mut state = lock(&self.state);
        if state.fallback == fallback {
            state.fallback_drives = false;
        }
        while state.fallback == fallback {
            let left = state.left;
            // A caller that is there drives.
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
                // The same callers all the time: they may stay for long.
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
