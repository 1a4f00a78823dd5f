//! Who drives the runtime.
//!
//! A thread that blocks until its operation is done may as well do the work itself: then nobody has to
//! be woken to send its requests, and it need not be woken when the answers are there. So the runtime
//! belongs to whoever waits, one at a time (leader and followers): tokio lets any number of threads
//! block on one runtime, of which one drives it, and another takes over when that one is done. While
//! nobody waits, a thread of quorlock's own drives it, the fallback driver; it stops for the others, and
//! drives again when they have stayed away for a moment. `drivers.rs` says who drives.
//!
//! A thread whose priority is lower than that of the fallback driver does not drive: see
//! `priority.rs`. The fallback driver inherits its priority from the thread that starts it. So a thread of
//! higher priority that comes later starts another one in its place.

use crate::runtime::drivers::Drivers;
use crate::runtime::panics;
use crate::runtime::pipeline::together;
use crate::runtime::priority::Priority;
use async_task::{Runnable, Task};
use futures_util::future::FutureExt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::unconstrained;

/// How long a caller drives before it looks at its priority again.
pub(crate) const LONGEST_TURN: Duration = Duration::from_millis(250);

/// How long the fallback driver waits before it goes on after a panic, which is a mistake in quorlock.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// How many tasks that can go on do so before what they send goes out.
const BATCH: usize = 64;

/// A runtime, and who drives it.
#[derive(Debug)]
pub(crate) struct Executor {
    runtime: Runtime,
    drivers: Drivers,
    /// Notified when the fallback driver must stop.
    wanted: Notify,
    /// That of the fallback driver. It is a hint: a thread that reads an old value drives for a turn, or
    /// does not.
    priority: AtomicU8,
    /// Whether a fallback driver is being replaced.
    is_replacing: AtomicBool,
    /// Tasks that were begun elsewhere and can go on.
    ready: UnboundedSender<Runnable>,
}

impl Executor {
    /// A runtime that its fallback driver drives.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (ready, tasks) = mpsc::unbounded_channel();
        runtime.spawn(run(tasks));
        let executor = Arc::new(Self {
            runtime,
            drivers: Drivers::new(),
            wanted: Notify::new(),
            priority: AtomicU8::new(Priority::read().0),
            is_replacing: AtomicBool::new(false),
            ready,
        });
        let fallback = Arc::clone(&executor);
        match start_thread(move || fallback.stay(1)) {
            Ok(()) => Ok(executor),
            Err(error) => {
                // To drop a runtime is not allowed on the thread of another one.
                if let Some(executor) = Arc::into_inner(executor) {
                    executor.runtime.shutdown_background();
                }
                Err(error)
            }
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Whether this thread may do work that others wait for.
    pub(crate) fn may_drive(self: &Arc<Self>) -> bool {
        let (own, fallback) =
            (Priority::of_this_thread(), Priority(self.priority.load(Ordering::Relaxed)));
        if own < fallback {
            self.replace_fallback();
        }
        own <= fallback
    }

    /// Begins a task on this thread; the runtime goes on with it. Dropping what it returns cancels it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Task<()> {
        let ready = self.ready.clone();
        // An error means that the runtime is gone, and so the process ends.
        let schedule = move |runnable| drop(ready.send(runnable));
        let (runnable, task) = async_task::spawn(task, schedule);
        // A thread that is about to end can have nothing of its own any more.
        let is_ending = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        if is_ending || !self.may_drive() {
            runnable.schedule();
            self.need_driver();
        } else {
            let _entered = self.runtime.enter();
            // Where this thread runs a task of another runtime, that one's budget does not count.
            unconstrained(async { run_one(runnable) }).now_or_never();
        }
        task
    }

    /// Runs the future on this thread, which drives the runtime meanwhile if no other one does.
    pub(crate) fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        struct Leave<'a>(&'a Drivers);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        let must_notify = self.drivers.enter();
        let _leave = Leave(&self.drivers);
        if must_notify {
            self.wanted.notify_waiters();
        }
        self.runtime.block_on(future)
    }

    /// Makes sure that somebody drives the runtime now.
    pub(crate) fn need_driver(&self) {
        self.drivers.need_driver();
    }

    /// Is the fallback driver, whatever happens.
    fn stay(&self, number: u64) {
        while panics::contain(|| self.fall_back(number)).is_none() {
            thread::sleep(AFTER_PANIC);
        }
    }

    /// Drives whenever no caller does, until another fallback driver takes over.
    fn fall_back(&self, number: u64) {
        loop {
            self.priority.store(Priority::of_this_thread().0, Ordering::Relaxed);
            self.runtime.block_on(async {
                loop {
                    // Listens before it looks: so it misses nobody who comes in between.
                    let wanted = self.wanted.notified();
                    if !self.drivers.goes_on(number) {
                        break;
                    }
                    wanted.await;
                }
            });
            if !self.drivers.stand_by(number) {
                return;
            }
        }
    }

    /// Starts a fallback driver with this thread's priority. If that fails, it is tried again with the next
    /// operation of such a thread.
    fn replace_fallback(self: &Arc<Self>) {
        if self.is_replacing.swap(true, Ordering::AcqRel) {
            return;
        }
        let executor = Arc::clone(self);
        let started = start_thread(move || {
            let number = executor.drivers.take_over();
            executor.wanted.notify_waiters();
            executor.priority.store(Priority::read().0, Ordering::Relaxed);
            executor.is_replacing.store(false, Ordering::Release);
            executor.stay(number);
        });
        if started.is_err() {
            self.is_replacing.store(false, Ordering::Release);
        }
    }
}

fn start_thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("quorlock".to_owned()).spawn(run).map(drop)
}

/// Goes on with the tasks that can go on, and lets what they send go out together.
async fn run(mut tasks: UnboundedReceiver<Runnable>) {
    let mut batch = Vec::new();
    while tasks.recv_many(&mut batch, BATCH).await > 0 {
        together(|| batch.drain(..).for_each(run_one));
    }
}

fn run_one(runnable: Runnable) {
    // As in tokio's own tasks, a panic ends the task.
    let _ = panics::contain(|| runnable.run());
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::Executor;
    use crate::runtime::priority::Priority;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::thread;
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Does something on a thread of low priority.
    fn nicely<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let nice = thread::spawn(move || {
            rustix::process::nice(5).expect("it only becomes nicer");
            work()
        });
        nice.join().expect("it does not panic")
    }

    #[test]
    fn a_thread_of_low_priority_does_no_work_for_others() {
        let executor = Executor::start().expect("a thread");
        assert!(executor.may_drive());
        let nice = Arc::clone(&executor);
        let (may_drive, task_thread) = nicely(move || {
            let (sender, receiver) = std::sync::mpsc::channel();
            let task = nice.begin(async move {
                sender.send(thread::current().id()).expect("somebody listens");
            });
            task.detach();
            let began_on = receiver.recv_timeout(PATIENCE).expect("the runtime is driven");
            (nice.may_drive(), began_on == thread::current().id())
        });
        assert!(!may_drive && !task_thread);
    }

    #[test]
    fn a_fallback_driver_of_low_priority_is_replaced() {
        let executor = nicely(|| Executor::start().expect("a thread"));
        let own = Priority::read();
        let began = Instant::now();
        // It is replaced in the background.
        while !executor.may_drive() || executor.priority.load(Ordering::Relaxed) != own.0 {
            assert!(began.elapsed() < PATIENCE, "it is not replaced");
            thread::sleep(Duration::from_millis(1));
        }
        let task = executor.begin(std::future::ready(()));
        executor.drive(task);
    }
}
