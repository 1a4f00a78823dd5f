//! Checks `runtime/drivers.rs`: whenever a caller waits or there is work for the runtime, some thread drives the
//! runtime.

use super::check;
use super::drivers::Drivers;
use super::sync::{Condvar, Mutex, lock, set_times_out, wait};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// The number of the first fallback driver.
const FIRST: u64 = 1;

/// The driving part of `runtime::executor::Executor`, with a model of tokio's runtime. One of the threads
/// that block on the runtime drives it. When that thread returns, another one takes over.
struct Executor {
    drivers: Drivers,
    runtime: Mutex<Runtime>,
    /// Notified at every change.
    changed: Condvar,
}

#[derive(Default)]
struct Runtime {
    is_driven: bool,
    /// The number of tasks that are ready.
    ready: usize,
    /// The number of tasks done.
    done: usize,
    /// The number of notifications of `Executor::wanted`.
    wanted: usize,
}

impl Executor {
    /// Starts an executor with its fallback driver, which runs until [`Executor::end`].
    fn start() -> (Arc<Self>, JoinHandle<()>) {
        let drivers = Drivers::new();
        let changed = Condvar::new();
        let executor = Arc::new(Self { drivers, runtime: Mutex::default(), changed });
        let fallback = Arc::clone(&executor);
        (executor, thread::spawn(move || fallback.fall_back(FIRST)))
    }

    /// Blocks on the runtime until `is_done` returns `true`. The second argument of `is_done` says whether this thread
    /// drives the runtime.
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

    /// Waits, without driving, until this many tasks are done.
    fn wait_until_done(&self, work: usize) {
        let mut runtime = lock(&self.runtime);
        while runtime.done < work {
            runtime = wait(&self.changed, runtime);
        }
    }

    /// Does what `fall_back` in `runtime/executor.rs` does.
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

    /// Does what `drive` in `runtime/executor.rs` does. Returns as soon as this thread drives and no task is ready.
    fn drive(&self) {
        if self.drivers.enter() {
            self.change(|runtime| runtime.wanted += 1);
        }
        self.block_on(|runtime, drives| drives && runtime.ready == 0);
        if let Some(waker) = self.drivers.leave() {
            waker.wake();
        }
    }

    /// Does what `Pending::block_for` does after a turn: sleeps while another caller drives the runtime, then drives
    /// it.
    fn sleep_and_drive(self: &Arc<Self>) {
        let waker = Waker::from(Arc::new(Changed(Arc::clone(self))));
        if let Some(number) = self.drivers.sleep(&waker) {
            let mut runtime = lock(&self.runtime);
            while self.drivers.is_asleep(number) {
                runtime = wait(&self.changed, runtime);
            }
            drop(runtime);
            if let Some(waker) = self.drivers.end_sleep(number) {
                waker.wake();
            }
        }
        self.drive();
    }

    /// Ends the fallback driver without a replacement.
    fn end(&self, fallback: JoinHandle<()>) {
        self.drivers.take_over();
        self.change(|runtime| runtime.wanted += 1);
        fallback.join().expect("no panic");
    }
}

/// Wakes a sleeper, as unparking its thread does.
struct Changed(Arc<Executor>);

impl Wake for Changed {
    fn wake(self: Arc<Self>) {
        self.0.change(|_| ());
    }
}

#[test]
fn work_left_by_a_caller_is_done_by_the_fallback_driver() {
    check(|| {
        set_times_out(true);
        let (executor, fallback) = Executor::start();
        let caller = Arc::clone(&executor);
        let caller = thread::spawn(move || caller.drive());
        executor.change(|runtime| runtime.ready += 1);
        executor.wait_until_done(1);
        caller.join().expect("no panic");
        executor.change(|runtime| runtime.ready += 1);
        executor.wait_until_done(2);
        executor.end(fallback);
    });
}

#[test]
fn two_callers_drive_in_turn() {
    check(|| {
        set_times_out(true);
        let (executor, fallback) = Executor::start();
        let other = Arc::clone(&executor);
        let other = thread::spawn(move || other.drive());
        executor.drive();
        other.join().expect("no panic");
        executor.change(|runtime| runtime.ready += 1);
        executor.wait_until_done(1);
        executor.end(fallback);
    });
}

#[test]
fn a_sleeping_caller_drives_after_the_last_other_caller_left() {
    check(|| {
        set_times_out(false);
        let (executor, fallback) = Executor::start();
        let other = Arc::clone(&executor);
        let other = thread::spawn(move || other.sleep_and_drive());
        executor.drive();
        other.join().expect("no panic");
        executor.end(fallback);
    });
}

#[test]
fn a_request_for_a_driver_does_not_wait_for_a_timeout() {
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
fn a_replaced_fallback_driver_ends() {
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
        first.join().expect("no panic");
        executor.change(|runtime| runtime.ready += 1);
        executor.wait_until_done(1);
        executor.end(second);
    });
}
