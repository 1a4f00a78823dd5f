//! The background runtime, and results that it delivers.
//!
//! What runs on it is an operation, which a caller waits for, or a service, which others rely on. The
//! panic of an operation ends that operation; a service begins again: see [`serve`]. Foreign code runs
//! behind `panics.rs`. docs/architecture.md has the whole rule.

pub(crate) mod clock;
pub(crate) mod deadline;
pub(crate) mod drivers;
pub(crate) mod executor;
pub(crate) mod fork;
#[cfg(test)]
pub(crate) mod machine;
pub(crate) mod panics;
pub(crate) mod pipeline;
pub(crate) mod priority;
pub(crate) mod random;
pub(crate) mod sync;
pub(crate) mod timer;

use crate::error::{Error, ErrorCode, Result};
use crate::runtime::executor::{Executor, LONGEST_TURN};
use crate::runtime::fork::{Owned, PerProcess};
use crate::runtime::timer::sleep;
use async_task::Task;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, unconstrained};

static EXECUTOR: PerProcess<Arc<Executor>> = PerProcess::new();

/// The runtime that all clients of the process share. It is started at first use (if that fails, for want
/// of a thread, it is tried again at the next), and is independent of the caller's own runtime or event loop: these may stall without harm to leases.
fn executor() -> Result<&'static Arc<Executor>> {
    let executor = EXECUTOR.get_or_try_init(Executor::start);
    executor.map_err(|error| {
        Error::new(ErrorCode::NoQuorum, format!("the background runtime cannot start: {error}"))
    })
}

/// How long a service that has panicked waits before it begins again.
const AFTER_PANIC: Duration = Duration::from_millis(100);

/// Makes sure that somebody drives the runtime, since the caller does not.
fn need_driver() {
    if let Some(executor) = EXECUTOR.get() {
        executor.need_driver();
    }
}

/// Runs a task on the runtime. It cannot fail there.
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> Result<JoinHandle<T>> {
    #[cfg(test)]
    if let Some(machine) = machine::current() {
        return Ok(machine::spawn(machine, task));
    }
    Ok(executor()?.handle().spawn(task))
}

/// Runs a task that a task, or an operation, has to leave to the runtime, which is there: it runs them.
pub(crate) fn detach(task: impl Future<Output = ()> + Send + 'static) {
    spawn(task).map(drop).expect("whoever runs on the runtime has one");
}

/// Runs a service of the runtime, as [`detach`] does, until it ends by itself. If it panics, which is a
/// mistake in quorlock, it begins again. `start` has to put right what a panic may have left half done.
pub(crate) fn serve<F>(mut start: impl FnMut() -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    detach(async move {
        while panics::contained(start()).await.is_none() {
            sleep(AFTER_PANIC).await;
        }
    });
}

/// Begins a task on this thread, and goes on with it on the runtime when it first has to wait. So its
/// requests are sent without waking another thread. It must not block.
pub(crate) fn begin(task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    #[cfg(test)]
    if let Some(machine) = machine::current() {
        drop(machine::spawn(machine, task));
        return Ok(());
    }
    executor().map(|executor| executor.begin(task).detach())
}

/// An operation under way on quorlock's own runtime: a future that any executor can poll, or that
/// a thread can wait for.
///
/// The operation runs whether or not it is polled. Dropping an acquire cancels it: what it may have
/// left on the nodes is undone in the background. Everything else runs to its end.
///
/// It belongs to the process that started it. A forked child must not wait for it.
#[must_use = "dropping an acquire cancels it"]
#[derive(Debug)]
pub struct Pending<T>(Owned<oneshot::Receiver<T>>);

impl<T> Pending<T> {
    pub(crate) fn new(receiver: oneshot::Receiver<T>) -> Self {
        Self(Owned::new(receiver))
    }

    pub(crate) fn ready(value: T) -> Self {
        let (sender, receiver) = oneshot::channel();
        let _ = sender.send(value);
        Self::new(receiver)
    }

    /// Calls `then` with the result, on the thread that drives quorlock's runtime or, if the result is
    /// there already, on this one; it must not block. [`Operation::cancel`] drops both instead. For
    /// language bindings.
    ///
    /// A panic of `then` is reported by the panic hook, and has no other effect.
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
            // Without a runtime, nothing but a result that is there already can be under way.
            Err(_) => {
                if let Some(value) = self.now() {
                    panics::contain(|| then(value));
                }
                None
            }
        };
        Operation(Owned::new(Mutex::new(task)))
    }

    /// Blocks the calling thread until the operation is done, for at most `timeout`; `None` if it
    /// is not done by then. Can be called again. It must not be called on an async executor's
    /// thread, which it would block.
    #[must_use = "the result of an acquire is a lease, and dropping it releases it"]
    pub fn wait(&mut self, timeout: Duration) -> Option<T> {
        if let Some(value) = self.now() {
            return Some(value);
        }
        let deadline = Instant::now().checked_add(timeout);
        let left = || {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            left.unwrap_or(Duration::MAX)
        };
        // Within a runtime, no other one can be driven.
        if let Some(executor) = EXECUTOR.get()
            && Handle::try_current().is_err()
        {
            while executor.may_drive() {
                let turn = left().min(LONGEST_TURN);
                let looking = poll_fn(|context| self.poll_result(context));
                let done = executor.drive(async { tokio::time::timeout(turn, looking).await.ok() });
                if done.is_some() || left().is_zero() {
                    return done;
                }
            }
        }
        self.park(left())
    }

    /// The result, if it is there.
    fn now(&mut self) -> Option<T> {
        self.poll_unconstrained(&mut Context::from_waker(Waker::noop()))
    }

    /// Looks whether the result is there. This thread may run a task of tokio, which lets it look only so
    /// often before that task has to yield. It would never see the result then.
    fn poll_unconstrained(&mut self, context: &mut Context<'_>) -> Option<T> {
        let looking = poll_fn(|context| self.poll_result(context));
        match pin!(unconstrained(looking)).poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<T> {
        let Some(receiver) = self.0.get_mut() else {
            panic!("this operation was started by the process that forked this one");
        };
        match Pin::new(receiver).poll(context) {
            Poll::Ready(Ok(value)) => Poll::Ready(value),
            // The operation's task ended without a result: it panicked, and tokio has said so.
            Poll::Ready(Err(_)) => panic!("a quorlock task panicked; see the message before"),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Waits while others drive the runtime.
    fn park(&mut self, timeout: Duration) -> Option<T> {
        let deadline = Instant::now().checked_add(timeout);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Some(value) = self.poll_unconstrained(&mut context) {
                return Some(value);
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

/// An operation whose result goes to a callback.
#[derive(Debug)]
pub struct Operation(Owned<Mutex<Option<Task<()>>>>);

impl Operation {
    /// Drops the operation, as if its [`Pending`] were dropped, unless it is done.
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

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
