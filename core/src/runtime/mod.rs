//! The background runtime and the results it delivers.
//!
//! This module owns the one tokio runtime of the process, the threads that drive it, the clock, timers, randomness and
//! the handling of forks and panics. It knows nothing of nodes or locks. Modules above this one must start all their
//! tasks here, and must run work that may block with `threads.rs`. They must not start threads or tokio tasks in any
//! other way.
//!
//! Some tasks on the runtime are operations: a caller waits for their results. Others are services: other tasks rely on
//! them. Services and the tasks of renewals and connections take precedence over all operations, however many
//! operations there are: see `executor.rs`. An operation that panics ends; a service that panics is restarted: see
//! [`serve`]. Foreign code (callbacks, wakers, subscribers) runs behind `panics.rs`. docs/architecture.md has the full
//! rules.
//!
//! Reading order: `mod.rs` (tasks and results), `executor.rs` and `drivers.rs` (which thread drives the runtime),
//! `priority.rs`, `pipeline.rs` (queued requests), `cork.rs`, `deadline.rs`, `panics.rs`, `fork.rs`, then the small
//! files: `clock.rs`, `timer.rs`, `random.rs`, `mutex.rs`, `sync.rs`, `threads.rs`.

pub(crate) mod clock;
pub(crate) mod cork;
pub(crate) mod deadline;
pub(crate) mod drivers;
pub(crate) mod executor;
pub(crate) mod fork;
#[cfg(test)]
pub(crate) mod machine;
pub(crate) mod mutex;
pub(crate) mod panics;
pub(crate) mod pipeline;
pub(crate) mod priority;
pub(crate) mod random;
pub(crate) mod sync;
pub(crate) mod threads;
pub(crate) mod timer;

use crate::error::{Error, ErrorCode, Result};
use crate::runtime::executor::{Executor, LONGEST_TURN};
use crate::runtime::fork::{Owned, PerProcess};
use crate::runtime::timer::{Awaited, sleep};
use async_task::Task;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

static EXECUTOR: PerProcess<Arc<Executor>> = PerProcess::new();

/// Returns the runtime that all clients of the process share. The first call starts the runtime. If the start fails,
/// the call returns an error, and the next call tries again. This runtime is independent of the caller's own runtime or
/// event loop, so leases are renewed even while the caller's runtime or event loop stalls.
fn executor() -> Result<&'static Arc<Executor>> {
    let executor = EXECUTOR.get_or_try_init(Executor::start);
    executor.map_err(|error| {
        Error::new(ErrorCode::NoQuorum, format!("the background runtime cannot start: {error}"))
    })
}

/// The pause before a service that panicked is restarted.
const AFTER_PANIC: Duration = Duration::from_millis(100);

/// Makes sure that some thread drives the runtime, because the calling thread does not.
fn need_driver() {
    if let Some(executor) = EXECUTOR.get() {
        executor.need_driver();
    }
}

/// Runs a task on the runtime. Services take precedence over the task. Fails only if the runtime cannot start. A caller
/// that itself runs on the runtime cannot get this error.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    #[cfg(test)]
    if let Some(machine) = machine::current() {
        drop(machine::spawn(machine, task));
        return Ok(());
    }
    executor().map(|executor| executor.spawn(task).detach())
}

/// Runs a task in the background, like [`spawn`]. Must be called from code that runs on the runtime, so it cannot fail.
pub(crate) fn detach(task: impl Future<Output = ()> + Send + 'static) {
    spawn(task).expect("code that runs on the runtime has one");
}

/// Runs a task in the background. The task takes precedence over all operations. Intended for tasks that renewals
/// depend on. Each poll of the task must do little work. Must be called from code that runs on the runtime.
pub(crate) fn detach_urgent(task: impl Future<Output = ()> + Send + 'static) {
    #[cfg(test)]
    if let Some(machine) = machine::current() {
        return drop(machine::spawn(machine, task));
    }
    drop(executor().expect("code that runs on the runtime has one").handle().spawn(task));
}

/// Runs the service that `start` returns, in the background, until the service ends. If the service panics, which is a
/// bug in quorlock, calls `start` again after a pause. `start` must repair everything that the panic left unfinished.
/// Must be called from code that runs on the runtime.
pub(crate) fn serve<F>(mut start: impl FnMut() -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    detach_urgent(async move {
        while panics::contained(start()).await.is_none() {
            sleep(AFTER_PANIC).await;
        }
    });
}

/// Runs a future on the calling thread, which also drives the runtime until the future is done. Fails if the runtime
/// cannot start.
pub(crate) fn drive<T>(future: impl Future<Output = T>) -> Result<T> {
    cork::uncork();
    executor().map(|executor| executor.drive(future))
}

/// Starts a task on the calling thread, and moves the task to the runtime when the task first has to wait. So the first
/// requests of the task are sent without waking another thread. The task must not block.
pub(crate) fn begin(task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    #[cfg(test)]
    if let Some(machine) = machine::current() {
        drop(machine::spawn(machine, task));
        return Ok(());
    }
    executor().map(|executor| executor.begin(task).detach())
}

/// An operation in progress on quorlock's own runtime: a future that any executor can poll, or that
/// a thread can wait for with [`Pending::block`].
///
/// The operation runs whether or not it is polled. Dropping a pending acquire cancels the acquire; quorlock then
/// removes, in the background, everything that the acquire left on the nodes. Any other operation runs to its end even
/// if the `Pending` is dropped.
///
/// A `Pending` belongs to the process that created it; waiting for the `Pending` in a forked child panics.
#[must_use = "dropping an acquire cancels it"]
#[derive(Debug)]
pub struct Pending<T>(Owned<Receiving<T>>);

/// The receiver of an operation's result. `_awaited` is set if the operation counts as awaited in tests that move the
/// clock: see [`Awaited`].
#[derive(Debug)]
struct Receiving<T> {
    receiver: oneshot::Receiver<T>,
    _awaited: Option<Awaited>,
    /// Called with the result just before the caller receives it.
    deliver: fn(&mut T),
}

impl<T> Pending<T> {
    pub(crate) fn new(receiver: oneshot::Receiver<T>) -> Self {
        Self(Owned::new(Receiving { receiver, _awaited: Awaited::begin(), deliver: |_| () }))
    }

    /// Like [`Pending::new`], but for an operation that may never end. This operation does not count as awaited in
    /// tests that move the clock: see [`Awaited`].
    pub(crate) fn open_ended(receiver: oneshot::Receiver<T>) -> Self {
        Self(Owned::new(Receiving { receiver, _awaited: None, deliver: |_| () }))
    }

    /// Makes this `Pending` call `deliver` with the result just before the caller gets the result. If the caller never
    /// gets the result, `deliver` is not called.
    pub(crate) fn delivered_by(mut self, deliver: fn(&mut T)) -> Self {
        if let Some(receiving) = self.0.get_mut() {
            receiving.deliver = deliver;
        }
        self
    }

    pub(crate) fn ready(value: T) -> Self {
        let (sender, receiver) = oneshot::channel();
        let _ = sender.send(value);
        Self::open_ended(receiver)
    }

    /// Calls `then` with the result when the operation is done. `then` runs on the thread that drives quorlock's
    /// runtime. If the result is already available, `then` may run on the calling thread instead, before this method
    /// returns. `then` must not block. [`Operation::cancel`] drops this `Pending` and `then`. Intended for language
    /// bindings.
    ///
    /// A panic in `then` is reported by the panic hook and has no other effect.
    pub fn on_ready(mut self, then: impl FnOnce(T) + Send + 'static) -> Operation
    where
        T: Send + 'static,
    {
        let task = match executor() {
            Ok(executor) => {
                executor.need_driver();
                let work = async move { then(poll_fn(|context| self.poll_result(context)).await) };
                Some(executor.begin(work))
            }
            // Without a runtime, only a result that is already available can be delivered.
            Err(_) => {
                if let Some(value) = self.now() {
                    panics::contain(|| then(value));
                }
                None
            }
        };
        Operation(Owned::new(Mutex::new(task)))
    }

    /// Blocks the calling thread until the operation is done, and returns its result. Must not be called on a thread of
    /// an async executor, because the executor could not run other tasks on that thread meanwhile.
    ///
    /// # Panics
    ///
    /// If the operation panicked, or was started in a parent process before the fork.
    pub fn block(mut self) -> T {
        loop {
            if let Some(value) = self.block_for(Duration::MAX) {
                return value;
            }
        }
    }

    /// Like [`block`](Self::block), but waits for at most `timeout`. Returns `None` if the operation is not done by
    /// then. To continue to wait, call this method again. An acquire also has a time limit of its own: see
    /// [`Lock::wait`](crate::Lock::wait).
    #[must_use = "the result of an acquire is a lease, and dropping it releases it"]
    pub fn block_for(&mut self, timeout: Duration) -> Option<T> {
        if let Some(value) = self.now() {
            return Some(value);
        }
        cork::uncork();
        let deadline = Instant::now().checked_add(timeout);
        let left = || {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            left.unwrap_or(Duration::MAX)
        };
        // tokio does not allow a thread to drive a runtime from within another runtime, or while the thread ends.
        if let Some(executor) = EXECUTOR.get()
            && Handle::try_current().is_err_and(|error| error.is_missing_context())
        {
            while executor.may_drive() {
                let turn = left().min(LONGEST_TURN);
                let polling = poll_fn(|context| self.poll_result(context));
                let done = executor.drive(async { tokio::time::timeout(turn, polling).await.ok() });
                if done.is_some() || left().is_zero() {
                    return done;
                }
                // If another caller drives, this thread sleeps until it has to drive. Otherwise, it would wake up after
                // every turn for no reason.
                let waker = unpark_this_thread();
                if let Some(sleep) = executor.sleep(&waker)
                    && let Some(value) = self.park(left(), &waker, || sleep.is_over())
                {
                    return Some(value);
                }
            }
        }
        self.park(left(), &unpark_this_thread(), || false)
    }

    /// The result; `None` if it is not available yet.
    fn now(&mut self) -> Option<T> {
        self.poll_unconstrained(&mut Context::from_waker(Waker::noop()))
    }

    /// Polls without tokio's task budget. If the calling thread runs a tokio task whose budget is
    /// spent, a normal poll would keep returning `Pending` although the result is available.
    fn poll_unconstrained(&mut self, context: &mut Context<'_>) -> Option<T> {
        let polling = poll_fn(|context| self.poll_result(context));
        match pin!(unconstrained(polling)).poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<T> {
        let Some(Receiving { receiver, deliver, .. }) = self.0.get_mut() else {
            panic!("this operation was started by the process that forked this one");
        };
        match Pin::new(receiver).poll(context) {
            Poll::Ready(Ok(mut value)) => {
                deliver(&mut value);
                Poll::Ready(value)
            }
            // The task ended without a result: it panicked, and the panic hook has reported the panic.
            Poll::Ready(Err(_)) => panic!("a quorlock task panicked; see the message before"),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Waits for the result while other threads drive the runtime. Returns `None` after `timeout`, or when `is_over`
    /// returns `true`. `waker` unparks this thread.
    fn park(&mut self, timeout: Duration, waker: &Waker, is_over: impl Fn() -> bool) -> Option<T> {
        let deadline = Instant::now().checked_add(timeout);
        let mut context = Context::from_waker(waker);
        loop {
            if let Some(value) = self.poll_unconstrained(&mut context) {
                return Some(value);
            }
            if is_over() {
                return None;
            }
            need_driver();
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return None,
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}

/// An operation whose result is passed to a callback. Dropping an `Operation` cancels nothing.
#[derive(Debug)]
pub struct Operation(Owned<Mutex<Option<Task<()>>>>);

impl Operation {
    /// Cancels the callback, and drops the operation's [`Pending`]. Does nothing if the callback has already run.
    pub fn cancel(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<Task<()>> {
        self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if let Some(task) = self.take() {
            task.detach();
        }
    }
}

impl<T> Pending<Result<T>> {
    /// Returns the operation if it was started. If it could not be started, returns a `Pending` whose result is the
    /// error.
    pub(crate) fn started(started: Result<Self>) -> Self {
        started.unwrap_or_else(|error| Self::ready(Err(error)))
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let polled =
            self.poll_result(&mut Context::from_waker(&panics::containing(context.waker())));
        if polled.is_pending() {
            need_driver();
        }
        polled
    }
}

fn unpark_this_thread() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
