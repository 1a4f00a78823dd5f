//! Decides which thread drives the runtime: a caller that waits, or the fallback driver.
//!
//! This module owns only this decision. It must not drive the runtime or block on it, and must not call other code
//! while its mutex is held. `executor.rs` is its only user.
//!
//! All state is behind one mutex, which a thread holds for only a few instructions. So all changes have one order, each
//! thread sees all changes that precede its own, and the code needs no explicit memory orderings. One property remains
//! to be shown: no thread keeps sleeping after a change that it waits for. These points show it:
//!
//! - The fallback driver stops driving when a caller enters. The fallback driver first starts to listen to
//!   `Executor::wanted`, and then reads `callers`; a caller first increments `callers`, and then notifies `wanted`.
//!   However these four steps interleave, the fallback driver notices the caller.
//! - The fallback driver sleeps on `changed`. It sleeps for at most [`PAUSE`] or, while the same callers stay, without
//!   a time limit. `Condvar::wait` releases the mutex and goes to sleep in one step, so [`Drivers::leave`] cannot run
//!   between the fallback driver's last read of `callers` and its sleep.
//! - [`Drivers::need_driver`] either finds a caller that drives, or sets `is_needed`. The fallback driver reads
//!   `is_needed` before it sleeps; if the fallback driver already stands by, `need_driver` notifies it. If
//!   `need_driver` finds a caller that leaves immediately afterwards, the fallback driver drives after `PAUSE`.
//! - A caller goes to sleep only while another caller is registered. The last caller to leave wakes one sleeper. If
//!   that sleeper does not drive, it wakes another sleeper, or the fallback driver drives.
//!
//! `interleavings/driving.rs` checks these claims in every order of events, up to a bound.

use super::sync::{Condvar, Mutex, lock, wait, wait_timeout};
use std::task::Waker;
use std::time::Duration;

/// How long the runtime may be idle before the fallback driver drives it. Threads that start their next operation
/// within this time find the runtime free. After the last operation, background work is delayed by at most this time.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Drivers {
    state: Mutex<DriversState>,
    /// Notified when the fallback driver must read the state again while it stands by.
    changed: Condvar,
}

#[derive(Debug)]
struct DriversState {
    /// The number of callers that drive the runtime, or wait to take over from the thread that drives it.
    callers: usize,
    /// The number of times that a caller has left. If this number changes while the fallback driver waits, callers are
    /// still starting operations.
    left: u64,
    /// The ID of the current fallback driver. IDs increase, so a fallback driver with a smaller ID was replaced, and
    /// its thread ends.
    fallback: u64,
    /// Whether the fallback driver drives or is about to drive.
    fallback_drives: bool,
    /// Whether the fallback driver sleeps until the last caller leaves.
    fallback_sleeps: bool,
    /// Whether the runtime has work although no caller drives it. If so, the fallback driver must drive at once.
    is_needed: bool,
    /// The callers that sleep while another caller drives, each with its ID.
    sleepers: Vec<(u64, Waker)>,
    /// The ID of the caller that went to sleep last.
    slept: u64,
}

impl DriversState {
    /// If no caller drives, removes the sleeper that has to drive, and returns its waker. Chooses the sleeper that went
    /// to sleep last, because its operation is likely to end last.
    fn next_driver(&mut self) -> Option<Waker> {
        let next = if self.callers == 0 { self.sleepers.pop() } else { None };
        next.map(|(_, waker)| waker)
    }
}

impl Drivers {
    /// The initial state: no caller, and a fallback driver with the ID 1 that is about to drive.
    pub(crate) fn new() -> Self {
        let state = DriversState {
            callers: 0,
            left: 0,
            fallback: 1,
            fallback_drives: true,
            fallback_sleeps: false,
            is_needed: false,
            sleepers: Vec::new(),
            slept: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Registers a caller that is about to drive. Returns whether the fallback driver drives, so that the caller must
    /// notify it to stop.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        let mut state = lock(&self.state);
        state.callers += 1;
        state.fallback_drives
    }

    /// Unregisters a caller. Returns the waker of the sleeper that has to drive now, if any.
    #[must_use]
    pub(crate) fn leave(&self) -> Option<Waker> {
        let mut state = lock(&self.state);
        state.callers -= 1;
        state.left += 1;
        if state.callers == 0 && state.fallback_sleeps {
            self.changed.notify_all();
        }
        state.next_driver()
    }

    /// Registers a sleeper: a caller that has left, and sleeps while another caller drives. Returns the sleeper's ID,
    /// or `None` if no other caller is registered. `waker` is woken when the sleeper has to drive.
    pub(crate) fn sleep(&self, waker: &Waker) -> Option<u64> {
        let mut state = lock(&self.state);
        if state.callers == 0 {
            return None;
        }
        state.slept += 1;
        let number = state.slept;
        state.sleepers.push((number, waker.clone()));
        Some(number)
    }

    /// Whether this sleeper still sleeps: it has not been woken to drive.
    pub(crate) fn is_asleep(&self, sleeper: u64) -> bool {
        lock(&self.state).sleepers.iter().any(|(number, _)| *number == sleeper)
    }

    /// Unregisters a sleeper. If this sleeper was woken to drive and no caller drives, returns the waker of another
    /// sleeper.
    #[must_use]
    pub(crate) fn end_sleep(&self, sleeper: u64) -> Option<Waker> {
        let mut state = lock(&self.state);
        let place = state.sleepers.iter().position(|(number, _)| *number == sleeper);
        match place {
            Some(place) => {
                state.sleepers.remove(place);
                None
            }
            None => state.next_driver(),
        }
    }

    /// Makes sure that a thread drives the runtime. Called by a thread that has given the runtime work, but does not
    /// drive it.
    pub(crate) fn need_driver(&self) {
        let mut state = lock(&self.state);
        if state.callers == 0 {
            // Also set this while the fallback driver drives, because it may be about to stop.
            state.is_needed = true;
            if !state.fallback_drives {
                self.changed.notify_all();
            }
        }
    }

    /// Registers a new fallback driver, which is about to drive, in place of the previous one. Returns the new fallback
    /// driver's ID. The caller must notify the previous fallback driver to stop.
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

    /// Waits until this fallback driver has to drive again: no caller has driven for [`PAUSE`], or there is work that
    /// needs a driver. Returns `false` if this fallback driver was replaced.
    pub(crate) fn stand_by(&self, fallback: u64) -> bool {
        let mut state = lock(&self.state);
        if state.fallback == fallback {
            state.fallback_drives = false;
        }
        while state.fallback == fallback {
            let left = state.left;
            // While a caller is registered, that caller drives, so the fallback driver is not needed.
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
                // The same callers still drive, and may drive for a long time. Sleep until they leave instead of
                // polling.
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
