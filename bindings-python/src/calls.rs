//! Calls of Python functions that the core asks for, on threads that must not take the GIL.
//!
//! They are made by daemon threads of Python's own (`quorlock._threads`), which wait here for the next one.
//! The functions run without any frame of this module beneath them, so the interpreter may end such a thread
//! whenever it likes.

use crate::exit;
use once_cell::race::OnceBox;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use quorlock::PerProcess;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A call that has run for so long no longer holds up the others, if there is a thread for them.
const SLOW: Duration = Duration::from_millis(50);

/// At most so many threads call functions that are given to `on_lost`.
const MOST: usize = 16;

/// What a thread gets: a function, its arguments, and another worker to be started.
type Next = (Py<PyAny>, Py<PyTuple>, Option<Py<Worker>>);

/// A function and its arguments.
type Ready = (Py<PyAny>, Py<PyTuple>);

struct Call {
    /// Calls of the same key are made one after another.
    key: String,
    make: Box<dyn FnOnce(Python<'_>) -> PyResult<Ready> + Send>,
}

/// The kinds of calls. Each has threads of its own, so that one kind does not hold up another.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Functions that are given to `on_lost`.
    Losses,
    /// Event loops that are to be woken.
    Loops,
    /// Events for `logging`.
    Logging,
}

impl Kind {
    /// The name of its threads.
    fn name(self) -> &'static str {
        match self {
            Self::Losses => "quorlock-lost",
            Self::Loops => "quorlock-loops",
            Self::Logging => "quorlock-logging",
        }
    }

    fn most(self) -> usize {
        match self {
            Self::Losses => MOST,
            Self::Loops | Self::Logging => 1,
        }
    }

    fn calls(self) -> &'static Calls {
        static LOSSES: PerProcess<Calls> = PerProcess::new();
        static LOOPS: PerProcess<Calls> = PerProcess::new();
        static LOGGING: PerProcess<Calls> = PerProcess::new();
        let calls = match self {
            Self::Losses => &LOSSES,
            Self::Loops => &LOOPS,
            Self::Logging => &LOGGING,
        };
        calls.get_or_init(Calls::default)
    }

    /// Makes sure that there is a thread for these calls.
    ///
    /// Fails if the system has no thread left.
    pub(crate) fn start(self, py: Python<'_>) -> PyResult<()> {
        let Some(worker) = self.calls().add(self, |state| state.workers == 0) else {
            return Ok(());
        };
        start()
            .get_or_try_init(|| {
                let start = py.import("quorlock._threads")?.getattr("start")?.unbind();
                Ok::<_, PyErr>(Box::new(start))
            })?
            .call1(py, (worker,))?;
        Ok(())
    }

    /// Adds a call, which `make` completes when it is its turn. Does not block.
    pub(crate) fn put(
        self,
        key: &str,
        make: impl FnOnce(Python<'_>) -> PyResult<Ready> + Send + 'static,
    ) {
        let calls = self.calls();
        let call = Call { key: key.to_owned(), make: Box::new(make) };
        calls.state().waiting.push_back(call);
        calls.changed.notify_all();
    }

    /// Whether no call waits or is being made, or nobody is there to make any.
    pub(crate) fn is_idle(self) -> bool {
        let state = self.calls().state();
        state.workers == 0 || (state.waiting.is_empty() && state.running.is_empty())
    }
}

// Filled without waiting for another thread: in a forked child that thread would be gone.
fn start() -> &'static OnceBox<Py<PyAny>> {
    static START: OnceBox<Py<PyAny>> = OnceBox::new();
    &START
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
    workers: usize,
    /// Workers that wait for a call.
    idle: usize,
    /// How many workers there were so far.
    last: usize,
}

struct Running {
    worker: usize,
    key: String,
    since: Instant,
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another worker, if one is wanted.
    fn add(&self, kind: Kind, is_wanted: impl FnOnce(&State) -> bool) -> Option<Worker> {
        let mut state = self.state();
        is_wanted(&state).then(|| {
            state.workers += 1;
            state.last += 1;
            Worker { kind, number: state.last }
        })
    }

    /// Waits for the next call of a worker whose last one is done.
    fn next(&self, worker: usize) -> Call {
        let mut state = self.state();
        state.running.retain(|running| running.worker != worker);
        self.changed.notify_all();
        state.idle += 1;
        loop {
            let now = Instant::now();
            let is_free = |call: &Call| state.running.iter().all(|running| running.key != call.key);
            let next = state.waiting.iter().position(is_free);
            // One at a time, except for slow ones.
            let quick = state.running.iter().map(|running| running.since + SLOW);
            let quick = quick.filter(|until| *until > now).min();
            state = match (next, quick) {
                (None, _) => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                (Some(_), Some(until)) => {
                    let waited = self.changed.wait_timeout(state, until - now);
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

/// A thread that makes calls of one kind.
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

    /// Waits for the next call: a function and its arguments, and another worker if this was the last one
    /// that was idle.
    fn next(&self, py: Python<'_>) -> PyResult<Next> {
        let _entered = exit::enter(py);
        loop {
            let calls = self.kind.calls();
            let Call { make, .. } = exit::detach(py, || calls.next(self.number));
            match make(py) {
                Ok((function, arguments)) => {
                    let most = self.kind.most();
                    let is_wanted = |state: &State| state.idle == 0 && state.workers < most;
                    let another = calls.add(self.kind, is_wanted).map(|worker| Py::new(py, worker));
                    return Ok((function, arguments, another.transpose()?));
                }
                Err(error) => error.write_unraisable(py, None),
            }
        }
    }

    /// Reports an exception of a function.
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
        state.running.retain(|running| running.worker != self.number);
        // A forked child may have inherited it.
        state.workers = state.workers.saturating_sub(1);
        calls.changed.notify_all();
    }
}
