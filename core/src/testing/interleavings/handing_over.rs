//! Whenever a thread waits or there is work for the runtime, somebody drives it.

use super::check;
use super::hand_over::HandOver;
use super::sync::{Condvar, Mutex, lock, set_times_out, wait};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

/// The number of the fallback driver that is there from the beginning.
const FIRST: u64 = 1;

/// What `Lead` has, with a model of tokio's runtime: of the threads that block on it, one drives it, and
/// when that one leaves another does.
struct Lead {
    drivers: HandOver,
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
    /// How often `Lead::wanted` was notified.
    wanted: usize,
}

impl Lead {
    /// With its fallback driver, until [`Lead::end`].
    fn start() -> (Arc<Self>, JoinHandle<()>) {
        let (drivers, runtime, changed) = (HandOver::new(), Mutex::default(), Condvar::new());
        let lead = Arc::new(Self { drivers, runtime, changed });
        let fallback = Arc::clone(&lead);
        (lead, thread::spawn(move || fallback.fall_back(FIRST)))
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

    /// `Lead::fall_back`.
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

    /// `Lead::drive`, until this thread drives and its work is done.
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
        let (lead, fallback) = Lead::start();
        let caller = Arc::clone(&lead);
        let caller = thread::spawn(move || caller.drive());
        lead.change(|runtime| runtime.ready += 1);
        lead.wait_until_done(1);
        caller.join().expect("it does not panic");
        lead.change(|runtime| runtime.ready += 1);
        lead.wait_until_done(2);
        lead.end(fallback);
    });
}

#[test]
fn callers_take_turns() {
    check(|| {
        set_times_out(true);
        let (lead, fallback) = Lead::start();
        let other = Arc::clone(&lead);
        let other = thread::spawn(move || other.drive());
        lead.drive();
        other.join().expect("it does not panic");
        lead.change(|runtime| runtime.ready += 1);
        lead.wait_until_done(1);
        lead.end(fallback);
    });
}

#[test]
fn whoever_needs_a_driver_does_not_wait_for_a_timeout() {
    check(|| {
        set_times_out(false);
        let (lead, fallback) = Lead::start();
        lead.drive();
        lead.change(|runtime| runtime.ready += 1);
        lead.drivers.need_driver();
        lead.wait_until_done(1);
        lead.end(fallback);
    });
}

#[test]
fn a_fallback_driver_that_is_replaced_ends() {
    check(|| {
        set_times_out(true);
        let (lead, first) = Lead::start();
        let second = Arc::clone(&lead);
        let second = thread::spawn(move || {
            let number = second.drivers.take_over();
            second.change(|runtime| runtime.wanted += 1);
            second.fall_back(number);
        });
        lead.drive();
        first.join().expect("it does not panic");
        lead.change(|runtime| runtime.ready += 1);
        lead.wait_until_done(1);
        lead.end(second);
    });
}
