//! Who drives the runtime.
//!
//! A thread that blocks until its operation is done may as well do the work itself: then nobody has to
//! be woken to send its requests, and it need not be woken when the answers are there. So the runtime
//! belongs to whoever waits, one at a time (leader and followers): tokio lets any number of threads
//! block on one runtime, of which one drives it, and another takes over when that one is done. While
//! nobody waits, a thread of quorlock's own drives it, the stand-in; it steps aside for the others, and
//! comes back when they have stayed away for a moment.

use crate::pipe::together;
use async_task::{Runnable, Task};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// So long nobody may drive the runtime before the stand-in does. Threads that come and go within it find
/// the runtime free; by so much, at worst, the first background work after they have gone is late.
const PAUSE: Duration = Duration::from_millis(1);

/// So many tasks that can go on do so before what they send goes out.
const BATCH: usize = 64;

/// A runtime, and who drives it.
#[derive(Debug)]
pub(crate) struct Lead {
    runtime: Runtime,
    /// Threads that drive the runtime, or will when it is their turn.
    waiting: AtomicUsize,
    /// How many have gone.
    gone: AtomicU64,
    /// Whether the stand-in drives, or is about to.
    standing_in: AtomicBool,
    /// Whether it sleeps until it is told that all have gone.
    asleep: AtomicBool,
    awake: (Mutex<()>, Condvar),
    /// Somebody wants to drive.
    wanted: Notify,
    /// Tasks that were begun elsewhere and can go on.
    ready: UnboundedSender<Runnable>,
}

impl Lead {
    /// A runtime that its stand-in drives.
    pub(crate) fn start() -> std::io::Result<Arc<Self>> {
        // The name is that of threads that look up host names.
        let runtime =
            Builder::new_current_thread().thread_name("quorlock-lookup").enable_all().build()?;
        let (ready, tasks) = mpsc::unbounded_channel();
        runtime.spawn(run(tasks));
        let lead = Arc::new(Self {
            runtime,
            waiting: AtomicUsize::new(0),
            gone: AtomicU64::new(0),
            standing_in: AtomicBool::new(true),
            asleep: AtomicBool::new(false),
            awake: Default::default(),
            wanted: Notify::new(),
            ready,
        });
        let stand_in = Arc::clone(&lead);
        thread::Builder::new().name("quorlock".to_owned()).spawn(move || stand_in.stand_in())?;
        Ok(lead)
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Begins a task on this thread; the runtime goes on with it. Dropping what it returns cancels it.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + Send + 'static) -> Task<()> {
        let ready = self.ready.clone();
        // An error means that the runtime is gone, and so the process ends.
        let schedule = move |runnable| drop(ready.send(runnable));
        let (runnable, task) = async_task::spawn(task, schedule);
        // A thread that is about to end can have nothing of its own any more.
        match Handle::try_current() {
            Err(error) if error.is_thread_local_destroyed() => runnable.schedule(),
            _ => {
                let _entered = self.runtime.enter();
                run_one(runnable);
            }
        }
        task
    }

    /// Runs the future on this thread, which drives the runtime meanwhile if no other one does.
    pub(crate) fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        struct Gone<'a>(&'a Lead);
        impl Drop for Gone<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        // One of both sees what the other one has stored.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if self.standing_in.load(Ordering::SeqCst) {
            self.wanted.notify_one();
        }
        let _gone = Gone(self);
        self.runtime.block_on(future)
    }

    fn leave(&self) {
        self.gone.fetch_add(1, Ordering::SeqCst);
        let is_last = self.waiting.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.asleep.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Makes sure that somebody drives the runtime now.
    pub(crate) fn wake_stand_in(&self) {
        let is_driven = self.standing_in.load(Ordering::SeqCst);
        if !is_driven && self.waiting.load(Ordering::SeqCst) == 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        let (lock, awake) = &self.awake;
        // With the lock held, so not between the stand-in's last look and its sleep.
        let _lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
        awake.notify_one();
    }

    fn stand_in(&self) {
        loop {
            self.standing_in.store(true, Ordering::SeqCst);
            self.runtime.block_on(async {
                while self.waiting.load(Ordering::SeqCst) == 0 {
                    self.wanted.notified().await;
                }
            });
            self.standing_in.store(false, Ordering::SeqCst);
            self.stand_by();
        }
    }

    /// Waits until nobody has driven the runtime for a moment, or until it is woken while nobody does.
    fn stand_by(&self) {
        let (lock, awake) = &self.awake;
        loop {
            let gone = self.gone.load(Ordering::SeqCst);
            let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let (woken, slept) =
                awake.wait_timeout(guard, PAUSE).unwrap_or_else(PoisonError::into_inner);
            guard = woken;
            let is_quiet = self.gone.load(Ordering::SeqCst) == gone;
            if self.waiting.load(Ordering::SeqCst) == 0 {
                if is_quiet || !slept.timed_out() {
                    return;
                }
            } else if is_quiet {
                // The same ones all the time: they may stay for long, and the last one says when it goes.
                self.asleep.store(true, Ordering::SeqCst);
                while self.waiting.load(Ordering::SeqCst) > 0 {
                    guard = awake.wait(guard).unwrap_or_else(PoisonError::into_inner);
                }
                self.asleep.store(false, Ordering::SeqCst);
            }
        }
    }
}

/// Goes on with the tasks that can go on, and lets what they send go out together.
async fn run(mut tasks: UnboundedReceiver<Runnable>) {
    let mut batch = Vec::new();
    while tasks.recv_many(&mut batch, BATCH).await > 0 {
        together(|| batch.drain(..).for_each(run_one));
    }
}

fn run_one(runnable: Runnable) {
    // As in tokio's own tasks, a panic ends the task and is told by the panic hook.
    let _ = catch_unwind(AssertUnwindSafe(|| runnable.run()));
}
