//! Queues of Python functions to call for the core, whose own threads must not take the GIL.
//!
//! This module owns the queues and decides how many threads serve each [`Kind`]. The threads are Python
//! daemon threads (`quorlock._threads`), which fetch calls with [`Worker::next`]. It must not call the
//! functions itself: they run with no frame of this module on the stack, so the interpreter may
//! terminate such a thread at any time (see `exit`). `completion`, `inbox` and `logging` enqueue calls.

use crate::exit;
use crate::imports::START;
use crate::mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use quorlock::PerProcess;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time after which most kinds of calls no longer delay the next one.
const SLOW: Duration = Duration::from_millis(50);

/// The maximum number of threads that run `on_lost` callbacks.
const MAX_LOSS_WORKERS: usize = 16;

/// The maximum number of threads that ask for credentials: one for each node of a client.
const MAX_CREDENTIALS_WORKERS: usize = 32;

/// The result of [`Worker::next`]: a function, its arguments, and another worker to start if one is needed.
type Next = (Py<PyAny>, Py<PyTuple>, Option<Py<Worker>>);

/// A function and its arguments, ready to be called.
type Ready = (Py<PyAny>, Py<PyTuple>);

struct Call {
    /// Whether the call is still needed. A call that is not is removed from the queue.
    is_needed: Box<dyn Fn() -> bool + Send>,
    /// Calls with the same key never run concurrently.
    key: String,
    make: Box<dyn FnOnce(Python<'_>) -> PyResult<Ready> + Send>,
}

/// The kinds of calls. Each kind has its own threads, so that one kind cannot delay another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `on_lost` callbacks.
    Losses,
    /// Functions that wake up an event loop.
    Loops,
    /// Forwarding of events to `logging`.
    Logging,
    /// Functions of the option `credentials`.
    Credentials,
}

impl Kind {
    /// The name of the threads that serve this kind.
    fn name(self) -> &'static str {
        match self {
            Self::Losses => "quorlock-lost",
            Self::Loops => "quorlock-loops",
            Self::Logging => "quorlock-logging",
            Self::Credentials => "quorlock-credentials",
        }
    }

    /// The maximum time that a running call delays the next one, if another thread is idle.
    fn slow(self) -> Duration {
        match self {
            // Each call may take as long as a request to another service.
            Self::Credentials => Duration::ZERO,
            _ => SLOW,
        }
    }

    fn max_workers(self) -> usize {
        match self {
            Self::Losses => MAX_LOSS_WORKERS,
            Self::Credentials => MAX_CREDENTIALS_WORKERS,
            Self::Loops | Self::Logging => 1,
        }
    }

    fn calls(self) -> &'static Calls {
        static LOSSES: PerProcess<Calls> = PerProcess::new();
        static LOOPS: PerProcess<Calls> = PerProcess::new();
        static LOGGING: PerProcess<Calls> = PerProcess::new();
        static CREDENTIALS: PerProcess<Calls> = PerProcess::new();
        let calls = match self {
            Self::Losses => &LOSSES,
            Self::Loops => &LOOPS,
            Self::Logging => &LOGGING,
            Self::Credentials => &CREDENTIALS,
        };
        calls.get_or_init(Calls::default)
    }

    /// Starts the first thread for this kind, unless there is one.
    ///
    /// Returns an error if the system cannot start another thread.
    pub(crate) fn start(self, py: Python<'_>) -> PyResult<()> {
        let Some(worker) = self.calls().add_worker_if(self, |state| state.workers == 0) else {
            return Ok(());
        };
        START.get(py)?.call1((worker,))?;
        Ok(())
    }

    /// Enqueues a call. `make` builds the function and its arguments when a worker takes it. Never
    /// blocks, and does not need the GIL.
    pub(crate) fn put(
        self,
        key: &str,
        make: impl FnOnce(Python<'_>) -> PyResult<Ready> + Send + 'static,
    ) {
        self.put_while(key, || true, make);
    }

    /// Like [`Kind::put`], but the call is not made once `is_needed` returns `false`. `is_needed` must
    /// not block.
    pub(crate) fn put_while(
        self,
        key: &str,
        is_needed: impl Fn() -> bool + Send + 'static,
        make: impl FnOnce(Python<'_>) -> PyResult<Ready> + Send + 'static,
    ) {
        let calls = self.calls();
        let is_needed = Box::new(is_needed);
        let call = Call { is_needed, key: key.to_owned(), make: Box::new(make) };
        let mut state = calls.state();
        // Without this, calls would pile up behind one that hangs.
        state.remove_needless();
        state.waiting.push_back(call);
        state.put += 1;
        drop(state);
        calls.changed.notify_all();
    }

    /// Waits until the calls that are queued or running now are done, for at most `timeout`. Returns whether
    /// they are.
    ///
    /// Does not wait for them if no worker exists that could run them, or if this thread is a worker of this
    /// kind. Must be called without the GIL, unless `timeout` is zero. The calls must run one at a time.
    pub(crate) fn flush(self, timeout: Duration) -> bool {
        let calls = self.calls();
        let mut state = calls.state();
        let end = Instant::now() + timeout;
        let is_last = state.put;
        while state.done < is_last && state.workers > 0 && RUNS.get() != Some(self) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = calls.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Returns whether no call is queued or running, or no worker exists that could run one.
    pub(crate) fn is_idle(self) -> bool {
        let state = self.calls().state();
        state.workers == 0 || (state.waiting.is_empty() && state.running.is_empty())
    }
}

#[derive(Default)]
struct Calls {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Call>,
    running: Vec<Running>,
    /// The number of calls that were queued, and of those that were run.
    put: u64,
    done: u64,
    workers: usize,
    /// Workers that are waiting for a call.
    idle: usize,
    /// The number of the worker created last; numbers are never reused.
    last: usize,
}

thread_local! {
    /// The kind of calls that this thread runs; `None` if it is not a worker.
    static RUNS: Cell<Option<Kind>> = const { Cell::new(None) };
}

struct Running {
    worker: usize,
    key: String,
    since: Instant,
}

impl State {
    /// Removes the queued calls that are not needed any more.
    fn remove_needless(&mut self) {
        let before = self.waiting.len();
        self.waiting.retain(|call| (call.is_needed)());
        self.done += (before - self.waiting.len()) as u64;
    }

    /// Marks the call that a worker runs as done, if there is one.
    fn end_call(&mut self, worker: usize) {
        let before = self.running.len();
        self.running.retain(|running| running.worker != worker);
        self.done += (before - self.running.len()) as u64;
    }
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        mutex::lock(&self.state)
    }

    /// Adds a worker if `is_needed` returns `true`. Returns it; the caller must start its thread.
    fn add_worker_if(&self, kind: Kind, is_needed: impl FnOnce(&State) -> bool) -> Option<Worker> {
        let mut state = self.state();
        is_needed(&state).then(|| {
            state.workers += 1;
            state.last += 1;
            Worker { kind, number: state.last }
        })
    }

    /// Marks the previous call of this worker as done and waits for its next one.
    fn next(&self, kind: Kind, worker: usize) -> Call {
        let mut state = self.state();
        state.end_call(worker);
        self.changed.notify_all();
        state.idle += 1;
        loop {
            let now = Instant::now();
            state.remove_needless();
            let is_free = |call: &Call| state.running.iter().all(|running| running.key != call.key);
            let next = state.waiting.iter().position(is_free);
            // Calls run one at a time, except that slow ones do not delay the rest.
            let slow_at = state.running.iter().map(|running| running.since + kind.slow());
            let next_slow_at = slow_at.filter(|time| *time > now).min();
            state = match (next, next_slow_at) {
                (None, _) => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                (Some(_), Some(slow_at)) => {
                    let waited = self.changed.wait_timeout(state, slow_at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                (Some(index), None) => {
                    let Some(call) = state.waiting.remove(index) else { continue };
                    state.idle -= 1;
                    let key = call.key.clone();
                    state.running.push(Running { worker, key, since: now });
                    return call;
                }
            }
        }
    }
}

/// A thread that runs calls of one kind.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Worker {
    kind: Kind,
    number: usize,
}

#[pymethods]
impl Worker {
    #[getter]
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Waits for the next call. Returns a function and its arguments, and another worker to start if no
    /// other worker is idle.
    fn next(&self, py: Python<'_>) -> PyResult<Next> {
        let _entered = exit::enter(py);
        RUNS.set(Some(self.kind));
        loop {
            let calls = self.kind.calls();
            let Call { make, .. } = exit::detach(py, || calls.next(self.kind, self.number));
            match make(py) {
                Ok((function, arguments)) => {
                    let most = self.kind.max_workers();
                    let is_needed = |state: &State| state.idle == 0 && state.workers < most;
                    let another = calls.add_worker_if(self.kind, is_needed);
                    let another = another.map(|worker| Py::new(py, worker));
                    return Ok((function, arguments, another.transpose()?));
                }
                Err(error) => error.write_unraisable(py, None),
            }
        }
    }

    /// Reports an exception that a called function raised.
    #[staticmethod]
    fn report(function: &Bound<'_, PyAny>, error: Bound<'_, PyAny>) {
        let _entered = exit::enter(function.py());
        PyErr::from_value(error).write_unraisable(function.py(), Some(function));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let calls = self.kind.calls();
        let mut state = calls.state();
        state.end_call(self.number);
        // A forked child may drop a worker of its parent, which the child's own state never counted.
        state.workers = state.workers.saturating_sub(1);
        calls.changed.notify_all();
    }
}
