//! A simulated process: its clocks, its randomness, and whether it runs.

use super::link::Link;
use super::world::World;
use crate::runtime::machine::{self, Machine};
use quorlock_protocol::Moment;
use std::any::Any;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The simulated process that the running code belongs to, if it belongs to one.
pub(super) fn process() -> Option<Arc<Process>> {
    let machine: Arc<dyn Any + Send + Sync> = machine::current()?;
    machine.downcast().ok()
}

/// Runs something as this process.
pub(super) fn within<T>(process: &Arc<Process>, run: impl FnOnce() -> T) -> T {
    machine::within(Arc::<Process>::clone(process), run)
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
    state: Mutex<ProcessState>,
}

/// For how long the operating system takes the processor away from a process, and where.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Preemption {
    /// Each time that it has read its clock.
    pub(super) after_reading: Duration,
    /// Each time that it has sent a request.
    pub(super) after_sending: Duration,
}

#[derive(Default)]
struct ProcessState {
    /// By how many microseconds its wall clock is wrong.
    wall_clock_error: i64,
    /// For how long its machine was suspended.
    suspended: Duration,
    is_stopped: bool,
    /// When it stood still the last time, until it does not any more.
    last_stop: Option<Duration>,
    is_dead: bool,
    /// The true time until which it is preempted.
    preempted_until: Duration,
    /// For how long it is preempted behind each reading of its clock, and behind each request it sends.
    preemption: Preemption,
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
        let state = ProcessState { wall_clock_error, ..ProcessState::default() };
        let (world, handle) = (Arc::clone(world), Handle::current());
        Arc::new(Self { name, world, links, rate, origin, handle, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true time at which the running code is. While the process is preempted, that is later than the
    /// world's: what the code does next happens then.
    pub(super) fn elapsed(&self) -> Duration {
        self.world.elapsed().max(self.state().preempted_until)
    }

    /// How far the running code is ahead of the world.
    pub(super) fn ahead(&self) -> Duration {
        self.elapsed().saturating_sub(self.world.elapsed())
    }

    /// What its clock shows.
    pub(super) fn moment(&self) -> Moment {
        Moment::from_origin(self.origin + self.elapsed().mul_f64(self.rate))
    }

    /// It has sent a request.
    pub(super) fn has_sent(self: &Arc<Self>) {
        let preemption = self.state().preemption;
        self.preempt(preemption.after_sending);
    }

    pub(super) fn set_preemption(&self, preemption: Preemption) {
        self.state().preemption = preemption;
    }

    /// The running code goes on after this time. Unlike a process that is stopped, it need not be waiting
    /// for anything.
    fn preempt(self: &Arc<Self>, time: Duration) {
        if time.is_zero() {
            return;
        }
        let until = self.elapsed() + time;
        self.state().preempted_until = until;
        let process = Arc::clone(self);
        drop(self.handle.spawn(async move {
            tokio::time::sleep(process.ahead()).await;
            process.wake();
        }));
    }

    pub(super) fn step_wall_clock(&self, error: i64) {
        self.state().wall_clock_error = error;
    }

    /// Runs a task in this process.
    pub(crate) fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        machine::spawn(Arc::<Self>::clone(self), task)
    }

    /// SIGSTOP.
    pub(super) fn stop(&self) {
        self.state().is_stopped = true;
    }

    /// SIGCONT; `suspended` is for how long its machine, too, stood still.
    pub(super) fn go_on(&self, suspended: Duration) {
        {
            let mut state = self.state();
            state.is_stopped = false;
            state.last_stop = Some(self.world.elapsed());
            state.suspended += suspended;
        }
        self.wake();
    }

    /// Lets the tasks go on that were held.
    fn wake(&self) {
        let held = std::mem::take(&mut self.state().held);
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

    /// Whether it has run all the time since then.
    pub(super) fn has_run_since(&self, since: Duration) -> bool {
        self.state().last_stop.is_none_or(|stop| stop < since)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }
}

impl Machine for Process {
    fn now(self: Arc<Self>) -> Moment {
        let now = self.moment();
        let preemption = self.state().preemption;
        self.preempt(preemption.after_reading);
        now
    }

    fn wall_clock_micros(&self) -> u64 {
        self.world.wall_clock_micros().saturating_add_signed(self.state().wall_clock_error)
    }

    fn running(&self) -> Duration {
        (self.elapsed() - self.state().suspended).mul_f64(self.rate)
    }

    fn in_true_time(&self, duration: Duration) -> Duration {
        duration.div_f64(self.rate)
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.world.fill(bytes);
        self.world.made(bytes, &self.name);
    }

    fn handle(&self) -> &Handle {
        &self.handle
    }

    fn may_run(&self, context: &mut Context<'_>) -> bool {
        let mut state = self.state();
        if state.is_dead {
            return false;
        }
        if state.is_stopped || self.world.elapsed() < state.preempted_until {
            state.held.push(context.waker().clone());
            return false;
        }
        drop(state);
        self.world.count_step();
        true
    }

    fn panicked(&self) {
        self.world.violation(format!("{} panicked", self.name));
    }
}
