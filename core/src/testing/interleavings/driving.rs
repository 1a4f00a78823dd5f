//! Whenever a thread waits or there is work for the runtime, somebody drives it.

use super::check;
use super::drivers::Drivers;
use super::sync::{Condvar, Mutex, lock, set_times_out, wait};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

/// The number of the fallback driver that is there from the beginning.
const FIRST: u64 = 1;

/// What `Executor` has, with a model of tokio's runtime: of the threads that block on it, one drives it, and
/// when that one leaves another does.
struct Executor {
    drivers: Drivers,
    runtime: Mutex<Runtime>,
    /// Notified at every change.
    changed: Condvar,
}

#[derive(Default)]
struct Runtime {
    is_driven: bool,
    /// Work that is to be done, and how much is done.
    ready: usize,
    done: usize,
    /// How often `Executor::wanted` was notified.
    wanted: usize,
}

impl Executor {
    /// With its fallback driver, until [`Executor::end`].
    fn start() -> (Arc<Self>, JoinHandle<()>) {
        let (drivers, runtime, changed) = (Drivers::new(), Mutex::default(), Condvar::new());
        let executor = Arc::new(Self { drivers, runtime, changed });
        let fallback = Arc::clone(&executor);
        (executor, thread::spawn(move || fallback.fall_back(FIRST)))
    }

    /// Blocks on the runtime until `is_done`, which is told whether this thread drives.
    fn block_on(&self, mut is_done: impl FnMut(&Runtime, bool) -> bool) {
        let mut drives = false;
        let mut runtime = lock(&self.runtime);
        loop {
            if !runtime.is_driven {
                (runtime.is_driven, drives) = (true, true);
            }
            if drives && runtime.ready > 0 {
                runtime.done += std::mem::take(&mut runtime.ready);
                self.changed.notify_all();
            }
            if is_done(&runtime, drives) {
                break;
            }
            runtime = wait(&self.changed, runtime);
        }
        runtime.is_driven &= !drives;
        self.changed.notify_all();
    }

    fn change(&self, change: impl FnOnce(&mut Runtime)) {
        change(&mut lock(&self.runtime));
        self.changed.notify_all();
    }

    /// Waits on a thread that does not drive.
    fn wait_until_done(&self, work: usize) {
        let mut runtime = lock(&self.runtime);
        while runtime.done < work {
            runtime = wait(&self.changed, runtime);
        }
    }

    /// `Executor::fall_back`.
    fn fall_back(&self, number: u64) {
        loop {
            let mut heard = None;
            self.block_on(|runtime, _| {
                if heard == Some(runtime.wanted) {
                    return false;
                }
                heard = Some(runtime.wanted);
                !self.drivers.goes_on(number)
            });
            if !self.drivers.stand_by(number) {
                return;
            }
        }
    }

    /// `Executor::drive`, until this thread drives and its work is done.
    fn drive(&self) {
        if self.drivers.enter() {
            self.change(|runtime| runtime.wanted += 1);
        }
        self.block_on(|runtime, drives| drives && runtime.ready == 0);
        self.drivers.leave();
    }

    /// Replaces the fallback driver by none.
    fn end(&self, fallback: JoinHandle<()>) {
        self.drivers.take_over();
        self.change(|runtime| runtime.wanted += 1);
        fallback.join().expect("it does not panic");
    }
}

#[test]
fn a_caller_drives_and_work_that_it_leaves_behind_is_done() {
    check(|| {
        set_times_out(true);
        let (executor, fallback) = Executor::start();
        let caller = Arc::clone(&executor);
        let caller = thread::spawn(move || caller.drive());
        executor.change(|runtime| runtime.ready += 1);
        executor.wait_until_done(1);
        caller.join().expect("it does not panic");
        executor.change(|runtime| runtime.ready += 1);
        executor.wait_until_done(2);
        executor.end(fallback);
    });
}

#[test]
fn callers_take_turns() {
    check(|| {
        set_times_out(true);
        let (executor, fallback) = Executor::start();
        let other = Arc::clone(&executor);
        let other = thread::spawn(move || other.drive());
        executor.drive();
        other.join().expect("it does not panic");
        executor.change(|runtime| runtime.ready += 1);
        executor.wait_until_done(1);
        executor.end(fallback);
    });
}

#[test]
fn whoever_needs_a_driver_does_not_wait_for_a_timeout() {
    check(|| {
        set_times_out(false);
        let (executor, fallback) = Executor::start();
        executor.drive();
        executor.change(|runtime| runtime.ready += 1);
        executor.drivers.need_driver();
        executor.wait_until_done(1);
        executor.end(fallback);
    });
}

#[test]
fn a_fallback_driver_that_is_replaced_ends() {
    check(|| {
        set_times_out(true);
        let (executor, first) = Executor::start();
        let second = Arc::clone(&executor);
        let second = thread::spawn(move || {
            let number = second.drivers.take_over();
            second.change(|runtime| runtime.wanted += 1);
            second.fall_back(number);
        });
        executor.drive();
        first.join().expect("it does not panic");
        executor.change(|runtime| runtime.ready += 1);
        executor.wait_until_done(1);
        executor.end(second);
    });
}
