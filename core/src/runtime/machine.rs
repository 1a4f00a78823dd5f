//! Unit tests only: replaces the operating system while code of a simulated process runs.
//!
//! The crate's clock, timers, randomness and task functions first ask this module for a machine. Only the simulation
//! sets a machine; all other tests use the real operating system.

use quorlock_protocol::Moment;
use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A machine of the simulation, on which one simulated process runs.
pub(crate) trait Machine: Any + Send + Sync {
    /// The clock that measures lease validity. This clock keeps running while the machine is suspended.
    fn now(self: Arc<Self>) -> Moment;

    fn wall_clock_micros(&self) -> u64;

    /// The clock that timers use. This clock stands still while the machine is suspended.
    fn running(&self) -> Duration;

    /// Converts a duration on the machine's clock, which may run fast or slow, to simulation time.
    fn in_true_time(&self, duration: Duration) -> Duration;

    fn fill(&self, bytes: &mut [u8]);

    /// The runtime on which the process's tasks run.
    fn handle(&self) -> &Handle;

    /// Whether a task of the process may run now. If not, arranges that the task is woken when it may run.
    fn may_run(&self, context: &mut Context<'_>) -> bool;

    fn panicked(&self);

    /// Records a step of the protocol in the trace of the simulation. `step` returns the elements of a JSON array,
    /// without the brackets.
    fn record(&self, step: &dyn Fn() -> String);
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Machine>>> = const { RefCell::new(None) };
}

/// The machine on which the running code is simulated; `None` outside the simulation.
pub(crate) fn current() -> Option<Arc<dyn Machine>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Reports a step of the protocol to the simulation; does nothing outside the simulation.
pub(crate) fn record(step: impl Fn() -> String) {
    if let Some(machine) = current() {
        machine.record(&step);
    }
}

/// Runs `work` with `machine` as the current machine.
pub(crate) fn within<T>(machine: Arc<dyn Machine>, work: impl FnOnce() -> T) -> T {
    struct Back(Option<Arc<dyn Machine>>);
    impl Drop for Back {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _back = Back(CURRENT.replace(Some(machine)));
    work()
}

/// Starts a task of the simulated process that runs on `machine`.
pub(crate) fn spawn<T: Send + 'static>(
    machine: Arc<dyn Machine>,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let handle = machine.handle().clone();
    handle.spawn(Task { machine, inner: Some(Box::pin(task)) })
}

/// A task that makes progress only while its simulated process may run.
struct Task<T> {
    machine: Arc<dyn Machine>,
    /// `None` only during the drop.
    inner: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let machine = Arc::clone(&self.machine);
        if !machine.may_run(context) {
            return Poll::Pending;
        }
        let Some(inner) = &mut self.inner else { return Poll::Pending };
        let poll = || catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll(context)));
        within(Arc::clone(&machine), poll).unwrap_or_else(|panic| {
            machine.panicked();
            resume_unwind(panic)
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        within(Arc::clone(&self.machine), || self.inner = None);
    }
}
