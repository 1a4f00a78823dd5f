//! A simulated process: its clocks, its random numbers, and whether it runs.

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

/// The simulated process that the current code belongs to, if any.
pub(super) fn process() -> Option<Arc<Process>> {
    let machine: Arc<dyn Any + Send + Sync> = machine::current()?;
    machine.downcast().ok()
}

/// Runs `run` as part of this process.
pub(super) fn within<T>(process: &Arc<Process>, run: impl FnOnce() -> T) -> T {
    machine::within(Arc::<Process>::clone(process), run)
}

/// A process on a machine of its own.
pub(crate) struct Process {
    pub(super) name: String,
    pub(super) world: Arc<World>,
    /// Its links to the nodes.
    pub(super) links: Vec<Arc<Link>>,
    /// The rate of its clock relative to true time.
    rate: f64,
    /// The initial time of its clock.
    origin: Duration,
    handle: Handle,
    state: Mutex<ProcessState>,
}

/// The time for which the operating system preempts a process at certain points.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Preemption {
    /// The time for which the process is preempted after each reading of its clock.
    pub(super) after_reading: Duration,
    /// The time for which the process is preempted after each request that it sends.
    pub(super) after_sending: Duration,
}

#[derive(Default)]
struct ProcessState {
    /// The error of its wall clock, in microseconds.
    wall_clock_error: i64,
    /// The total time for which its machine was suspended.
    suspended: Duration,
    is_stopped: bool,
    /// The true time at which it last resumed after a stop.
    last_stop: Option<Duration>,
    is_dead: bool,
    /// The true time until which it is preempted.
    preempted_until: Duration,
    preemption: Preemption,
    /// The tasks to wake when the process resumes.
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
        let world = Arc::clone(world);
        let handle = Handle::current();
        world.record(|| format!("\"process\",{name:?},{rate},{}", origin.as_nanos()));
        Arc::new(Self { name, world, links, rate, origin, handle, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true time at which the current code runs. If the process is preempted, this is the end of the
    /// preemption: the code's next actions happen only then.
    pub(super) fn elapsed(&self) -> Duration {
        self.world.elapsed().max(self.state().preempted_until)
    }

    /// The time by which the current code is ahead of the world's time.
    pub(super) fn ahead(&self) -> Duration {
        self.elapsed().saturating_sub(self.world.elapsed())
    }

    /// Returns the time by the process's clock.
    pub(super) fn moment(&self) -> Moment {
        Moment::from_origin(self.origin + self.elapsed().mul_f64(self.rate))
    }

    /// Preempts the process for [`Preemption::after_sending`]. Must be called after each request that the process
    /// sends.
    pub(super) fn has_sent(self: &Arc<Self>) {
        let preemption = self.state().preemption;
        self.preempt(preemption.after_sending);
    }

    pub(super) fn set_preemption(&self, preemption: Preemption) {
        self.state().preemption = preemption;
    }

    /// Preempts the process for this time. Unlike a stop, a preemption works at any instruction, not only while the
    /// code awaits something.
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

    /// Stops the process, as SIGSTOP does.
    pub(super) fn stop(&self) {
        self.state().is_stopped = true;
    }

    /// Resumes the process, as SIGCONT does. `suspended` is the time for which the whole machine was suspended; zero if
    /// only the process was stopped.
    pub(super) fn go_on(&self, suspended: Duration) {
        {
            let mut state = self.state();
            state.is_stopped = false;
            state.last_stop = Some(self.world.elapsed());
            state.suspended += suspended;
        }
        self.wake();
    }

    /// Wakes the tasks that waited for the process to resume.
    fn wake(&self) {
        let held = std::mem::take(&mut self.state().held);
        held.into_iter().for_each(Waker::wake);
    }

    /// Kills the process, as SIGKILL does. Its connections are closed; requests in flight still arrive.
    pub(super) fn kill(&self) {
        self.state().is_dead = true;
        self.world.record(|| format!("\"killed\",{:?}", self.name));
        self.world.killed(&self.name);
        self.links.iter().for_each(|link| link.abandon());
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    /// Whether the process has run without a stop since `since`.
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

    fn record(&self, step: &dyn Fn() -> String) {
        let clock = self.moment().since(Moment::from_origin(Duration::ZERO)).as_nanos();
        let step = || format!("{:?},{clock},{}", self.name, step());
        self.world.record_at(self.elapsed(), step);
    }
}
