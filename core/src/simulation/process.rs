//! A simulated process: its clocks, its randomness, and whether it runs.

use super::network::Link;
use super::world::World;
use crate::protocol::Moment;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Process>>> = const { RefCell::new(None) };
}

/// The simulated process that the running code belongs to, if it belongs to one.
pub(crate) fn process() -> Option<Arc<Process>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs something as this process.
pub(super) fn within<T>(process: &Arc<Process>, run: impl FnOnce() -> T) -> T {
    struct Back(Option<Arc<Process>>);
    impl Drop for Back {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _back = Back(CURRENT.replace(Some(Arc::clone(process))));
    run()
}

/// A process on a machine of its own.
pub(crate) struct Process {
    pub(super) name: String,
    pub(super) world: Arc<World>,
    /// Its ways to the nodes.
    pub(super) links: Vec<Arc<Link>>,
    /// How fast its clock runs.
    rate: f64,
    /// What its clock shows in the beginning.
    origin: Duration,
    handle: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By how many microseconds its wall clock is wrong.
    wall_clock_error: i64,
    /// For how long its machine was suspended.
    suspended: Duration,
    is_stopped: bool,
    is_dead: bool,
    /// Its tasks that are to run on when it does.
    held: Vec<Waker>,
}

impl Process {
    pub(super) fn new(
        world: &Arc<World>,
        name: String,
        rate: f64,
        wall_clock_error: i64,
        links: Vec<Arc<Link>>,
    ) -> Arc<Self> {
        let origin = Duration::from_millis(world.random(0..10_000_000));
        let state = State { wall_clock_error, ..State::default() };
        let (world, handle) = (Arc::clone(world), Handle::current());
        Arc::new(Self { name, world, links, rate, origin, handle, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock that validity is measured by: it counts suspension.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_origin(self.origin + self.world.elapsed().mul_f64(self.rate))
    }

    /// For how long the machine has been running, by its own clock.
    pub(super) fn running(&self) -> Duration {
        (self.world.elapsed() - self.state().suspended).mul_f64(self.rate)
    }

    /// How long a time by its clock takes.
    pub(super) fn in_true_time(&self, duration: Duration) -> Duration {
        duration.div_f64(self.rate)
    }

    pub(crate) fn wall_clock_micros(&self) -> u64 {
        self.world.wall_clock_micros().saturating_add_signed(self.state().wall_clock_error)
    }

    pub(super) fn step_wall_clock(&self, error: i64) {
        self.state().wall_clock_error = error;
    }

    pub(crate) fn fill(&self, bytes: &mut [u8]) {
        self.world.fill(bytes);
        self.world.made(bytes, &self.name);
    }

    /// Runs a task in this process.
    pub(crate) fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(Task { process: Arc::clone(self), inner: Some(Box::pin(task)) })
    }

    /// SIGSTOP.
    pub(super) fn stop(&self) {
        self.state().is_stopped = true;
    }

    /// SIGCONT; `suspended` is for how long its machine, too, stood still.
    pub(super) fn go_on(&self, suspended: Duration) {
        let held = {
            let mut state = self.state();
            state.is_stopped = false;
            state.suspended += suspended;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(Waker::wake);
    }

    /// SIGKILL. Its connections are closed; what it sent is on its way.
    pub(super) fn kill(&self) {
        self.state().is_dead = true;
        self.world.killed(&self.name);
        self.links.iter().for_each(|link| link.abandon());
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }
}

/// A task of a process: it runs while the process does.
struct Task<T> {
    process: Arc<Process>,
    /// `None` only while it is being dropped.
    inner: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let process = Arc::clone(&self.process);
        {
            let mut state = process.state();
            if state.is_dead {
                return Poll::Pending;
            }
            if state.is_stopped {
                state.held.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        process.world.count_step();
        let Some(inner) = &mut self.inner else { return Poll::Pending };
        let polled =
            within(&process, || catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll(context))));
        polled.unwrap_or_else(|panic| {
            process.world.violation(format!("{} panicked", process.name));
            resume_unwind(panic)
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        let process = Arc::clone(&self.process);
        within(&process, || self.inner = None);
    }
}
