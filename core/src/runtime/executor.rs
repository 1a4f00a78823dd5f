//! Runs the runtime on the threads that wait for results.
//!
//! A thread that waits for its operation can drive the runtime itself. Then no other thread has to be woken to send the
//! requests, and the waiting thread need not be woken when the answers arrive. So waiting threads drive the runtime,
//! one at a time (the leader/followers pattern). tokio supports this pattern: any number of threads may block on one
//! runtime; one of them drives the runtime, and another one takes over when the first is done.
//!
//! While no thread waits, quorlock's own thread, the fallback driver, drives the runtime. The fallback driver stops
//! when a caller starts to drive. It drives again when no caller has driven for a short time. `drivers.rs` makes these
//! decisions.
//!
//! A thread with a lower priority than the fallback driver does not drive: see `priority.rs`. The fallback driver
//! inherits the priority of the thread that starts it. If a thread of higher priority waits later, that thread starts a
//! new fallback driver. The new fallback driver replaces the old one.
//!
//! Renewals take precedence over all other tasks of quorlock. So tokio's own queue contains only tasks that renewals
//! depend on: services, renewals and connections. All other tasks wait in a second queue. [`run`], a single task in
//! tokio's queue, runs a slice of this second queue, and then yields to tokio's other tasks. So each step of a renewal
//! is delayed by at most one slice, however many operations there are.
//!
//! This module owns the tokio runtime and the fallback driver. It must not know what its tasks do. `runtime/mod.rs`
//! calls it; `client` uses only [`new_runtime`].

use crate::runtime::drivers::Drivers;
use crate::runtime::panics;
use crate::runtime::pipeline::together;
use crate::runtime::priority::Priority;
use async_task::{Runnable, Task};
use futures_util::future::FutureExt;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::coop::has_budget_remaining;
use tokio::task::{unconstrained, yield_now};

/// How long a caller drives before it checks its priority again, because the priority may have changed.
pub(crate) const LONGEST_TURN: Duration = Duration::from_millis(250);

/// The pause of the fallback driver after a panic in quorlock's own code, which is a bug.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// The maximum number of ready tasks in a batch. After each batch, the requests that its tasks have queued are written,
/// and services that are ready run.
const BATCH: usize = 64;

/// The time limit of a batch. After this time, services that are ready run before the rest of the batch.
const SLICE: Duration = Duration::from_micros(500);

/// The number of socket pairs that together use at least as many file descriptors as a runtime. A runtime uses five:
/// one to poll, one for its waker, and three for signals (a pair of sockets, and a duplicate of one of them).
#[cfg(unix)]
const FILE_PAIRS: usize = 3;

/// A runtime and the state that decides which thread drives it.
#[derive(Debug)]
pub(crate) struct Executor {
    runtime: Runtime,
    drivers: Drivers,
    /// Notified when a caller needs the fallback driver to stop.
    wanted: Notify,
    /// The priority of the fallback driver. Other threads may read an outdated value, and may therefore decide wrongly
    /// whether to drive, for up to [`LONGEST_TURN`].
    priority: AtomicU8,
    /// Whether a thread is already replacing the fallback driver, so that other threads do not also replace it.
    is_replacing: AtomicBool,
    /// Adds a ready task to the queue of [`run`]. Tasks in this queue run after services.
    ready: UnboundedSender<Runnable>,
}

impl Executor {
    /// Starts a runtime and its fallback driver. Fails if no thread can be started.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let runtime = new_runtime()?;
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
        match start_thread(move || fallback.run_fallback(1)) {
            Ok(()) => Ok(executor),
            Err(error) => {
                // tokio panics if a runtime is dropped on a thread of another runtime, so shut this runtime down in the
                // background.
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

    /// Whether the calling thread may do work that other threads wait for: only if its priority is not lower than that
    /// of the fallback driver. If its priority is higher, this call also replaces the fallback driver.
    pub(crate) fn may_drive(self: &Arc<Self>) -> bool {
        let own = Priority::of_this_thread();
        let fallback = Priority(self.priority.load(Ordering::Relaxed));
        if own < fallback {
            self.replace_fallback();
        }
        own <= fallback
    }

    /// Starts a task on the calling thread if this thread may drive; otherwise on the runtime. The runtime continues
    /// the task. Dropping the returned [`Task`] cancels it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Task<()> {
        let (runnable, task) = self.create(task);
        // While a thread ends, it loses its thread-local values, and tokio needs some of them. So this thread cannot
        // run the task.
        let is_ending = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        if is_ending || !self.may_drive() {
            runnable.schedule();
            self.need_driver();
        } else {
            let _entered = self.runtime.enter();
            // If this thread runs a task of another runtime, the budget of that task must not limit the new task.
            unconstrained(async { run_one(runnable) }).now_or_never();
        }
        task
    }

    /// Starts a task on the runtime, never on the calling thread. Dropping the returned [`Task`] cancels it.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Task<()> {
        let (runnable, task) = self.create(task);
        runnable.schedule();
        task
    }

    fn create(&self, task: impl Future<Output = ()> + Send + 'static) -> (Runnable, Task<()>) {
        let ready = self.ready.clone();
        // Sending fails only if the runtime is gone, which means that the process is ending.
        let schedule = move |runnable| drop(ready.send(runnable));
        async_task::spawn(task, schedule)
    }

    /// Runs the future on the calling thread, which also drives the runtime if no other thread does.
    pub(crate) fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        struct Leave<'a>(&'a Drivers);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                if let Some(waker) = self.0.leave() {
                    waker.wake();
                }
            }
        }
        let must_notify = self.drivers.enter();
        let _leave = Leave(&self.drivers);
        if must_notify {
            self.wanted.notify_waiters();
        }
        self.runtime.block_on(future)
    }

    /// Registers the calling thread as a sleeper while another caller drives the runtime. Returns `None` if there is no
    /// other caller. `waker` is woken when the thread should drive.
    pub(crate) fn sleep(&self, waker: &Waker) -> Option<Sleep<'_>> {
        let number = self.drivers.sleep(waker)?;
        Some(Sleep { drivers: &self.drivers, number })
    }

    /// Makes sure that a thread drives the runtime, although the calling thread does not.
    pub(crate) fn need_driver(&self) {
        self.drivers.need_driver();
    }

    /// The main function of the fallback driver's thread. Continues after panics, so that the runtime always has a
    /// driver.
    fn run_fallback(&self, number: u64) {
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
                    // Must start to listen before reading the state: otherwise, a caller that enters after the read
                    // would go unnoticed.
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

    /// Replaces the fallback driver by a new one with the priority of the calling thread. If no thread can be started,
    /// the next operation on a thread of higher priority than the fallback driver tries again.
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
            executor.run_fallback(number);
        });
        if started.is_err() {
            self.is_replacing.store(false, Ordering::Release);
        }
    }
}

/// The sleep of a caller while another caller drives. Dropping this value unregisters the sleeper.
pub(crate) struct Sleep<'a> {
    drivers: &'a Drivers,
    number: u64,
}

impl Sleep<'_> {
    /// Whether the thread was woken because it should drive now.
    pub(crate) fn is_over(&self) -> bool {
        !self.drivers.is_asleep(self.number)
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(waker) = self.drivers.end_sleep(self.number) {
            waker.wake();
        }
    }
}

/// Builds a runtime that is driven by the threads that block on it. Fails if the process cannot open enough files.
pub(crate) fn new_runtime() -> io::Result<Runtime> {
    // tokio panics if it cannot open the sockets that it uses for signals. So first check that enough files can be
    // opened.
    #[cfg(unix)]
    {
        let pairs = (0..FILE_PAIRS).map(|_| std::os::unix::net::UnixStream::pair());
        drop(pairs.collect::<io::Result<Vec<_>>>()?);
    }
    // tokio may still panic, because another thread may have opened files since the check.
    let built = panics::contain(|| Builder::new_current_thread().enable_all().build());
    built.unwrap_or_else(|| Err(io::Error::other("too few files can be opened")))
}

fn start_thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("quorlock".to_owned()).spawn(run).map(drop)
}

/// Runs the tasks that are ready, in batches. Writes the requests of each batch together, and lets all services run
/// after each batch.
async fn run(mut tasks: UnboundedReceiver<Runnable>) {
    let mut received = Vec::new();
    let mut batch = VecDeque::new();
    while !batch.is_empty() || tasks.recv_many(&mut received, BATCH).await > 0 {
        batch.extend(received.drain(..));
        let end = Instant::now() + SLICE;
        together(|| {
            while let Some(runnable) = batch.pop_front() {
                run_one(runnable);
                // The tasks of a batch share the budget that tokio gives to `run`. When the budget is used up, further
                // tasks would make no progress.
                if Instant::now() >= end || !has_budget_remaining() {
                    break;
                }
            }
        });
        if !batch.is_empty() || !tasks.is_empty() {
            // Services that the kernel or a timer has woken run first, too.
            yield_now().await;
        }
    }
}

fn run_one(runnable: Runnable) {
    // A panic ends only this task, as with tokio's own tasks.
    let _ = panics::contain(|| runnable.run());
}

#[cfg(test)]
mod order {
    use super::{BATCH, Executor};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use tokio::task::yield_now;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn services_do_not_wait_for_all_operations() {
        let executor = Executor::start().expect("a thread");
        let polls = Arc::new(AtomicUsize::new(0));
        // Each operation is always ready to run again.
        let operation = |_| {
            let polls = Arc::clone(&polls);
            executor.spawn(std::future::poll_fn(move |context| {
                polls.fetch_add(1, Ordering::Relaxed);
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            }))
        };
        let operations: Vec<_> = (0..10 * BATCH).map(operation).collect();
        let (sender, receiver) = channel();
        let seen = Arc::clone(&polls);
        executor.handle().spawn(async move {
            let mut most = 0;
            for _ in 0..100 {
                let before = seen.load(Ordering::Relaxed);
                yield_now().await;
                most = most.max(seen.load(Ordering::Relaxed) - before);
            }
            let _ = sender.send(most);
        });
        let most = receiver.recv_timeout(PATIENCE).expect("services run");
        drop(operations);
        // tokio may swap the order of the service and `run` one time. So at most two batches run before the service.
        assert!(0 < most && most <= 2 * BATCH, "{most} operations ran before a service");
    }
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

    /// Runs `work` on a thread of low priority.
    fn nicely<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let nice = thread::spawn(move || {
            rustix::process::nice(5).expect("raising the nice value is permitted");
            work()
        });
        nice.join().expect("the thread does not panic")
    }

    #[test]
    fn low_priority_thread_does_not_drive() {
        let executor = Executor::start().expect("a thread");
        assert!(executor.may_drive());
        let nice = Arc::clone(&executor);
        let (may_drive, task_thread) = nicely(move || {
            let (sender, receiver) = std::sync::mpsc::channel();
            let task = nice.begin(async move {
                sender.send(thread::current().id()).expect("the receiver exists");
            });
            task.detach();
            let began_on = receiver.recv_timeout(PATIENCE).expect("the runtime is driven");
            (nice.may_drive(), began_on == thread::current().id())
        });
        assert!(!may_drive && !task_thread);
    }

    #[test]
    fn low_priority_fallback_driver_is_replaced() {
        let executor = nicely(|| Executor::start().expect("a thread"));
        let own = Priority::read();
        let began = Instant::now();
        // The fallback driver is replaced in the background.
        while !executor.may_drive() || executor.priority.load(Ordering::Relaxed) != own.0 {
            assert!(began.elapsed() < PATIENCE, "it is not replaced");
            thread::sleep(Duration::from_millis(1));
        }
        let task = executor.begin(std::future::ready(()));
        executor.drive(task);
    }
}
