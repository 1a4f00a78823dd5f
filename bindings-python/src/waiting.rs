//! Waiting for an operation in a blocking call.
//!
//! This module checks for signals while the main thread waits, so that Ctrl-C ends a wait within [`SLICE`], finds
//! the hub where gevent or eventlet runs, and warns where asyncio or trio runs. It must not hold the GIL while it waits.
//! `completion`, `lease` and `lock` call it.

use crate::exit;
use crate::imports::{BLAME_BLOCKING, HUB, MODULES, SIGNAL, WARN_OF_BLOCKING};
use once_cell::race::OnceBox;
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quorlock::Pending;
use std::time::{Duration, Instant};

/// The interval at which a blocking call of the main thread checks for signals such as Ctrl-C.
const SLICE: Duration = Duration::from_millis(25);

/// The number of the signal SIGINT, on every system.
const SIGINT: i32 = 2;

/// Waits for `pending` with the GIL released, for at most `timeout`. Returns `None` if there is no result
/// within that time.
///
/// If a signal handler raises an exception, `pending` is dropped, which cancels an acquire.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    mut pending: Pending<T>,
    timeout: Option<Duration>,
) -> PyResult<Option<T>> {
    let began = Instant::now();
    let mut longest = SLICE;
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let slice = left.map_or(longest, |left| left.min(longest));
        if let Some(value) = exit::detach(py, || pending.block_for(slice)) {
            return Ok(Some(value));
        }
        py.check_signals()?;
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        // Asked after the first slice, because most waits end within it. The answer stays true during a wait:
        // only a fork makes another thread the main one, and the forking thread does not wait.
        if longest == SLICE && !may_handle_signals(py) {
            longest = Duration::MAX;
        }
    }
}

/// Returns whether this may be the thread that runs signal handlers: the main thread of the main interpreter.
///
/// `signal.signal` checks the thread before it rejects the handler `None`. The answer of
/// `threading.main_thread()` is not reliable: before Python 3.13, it is the thread that first imported
/// `threading`.
fn may_handle_signals(py: Python<'_>) -> bool {
    let refusal = SIGNAL.get(py).and_then(|signal| signal.call1((SIGINT, py.None())));
    !refusal.is_err_and(|error| error.is_instance_of::<PyValueError>(py))
}

/// Returns the hub that runs the greenlets of this thread, if there is one.
pub(crate) fn hub(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let modules = MODULES.get(py)?.cast::<PyDict>()?;
    if !modules.contains("gevent.monkey")? && !modules.contains("eventlet.patcher")? {
        return Ok(None);
    }
    let hub = HUB.get(py)?.call0()?;
    Ok((!hub.is_none()).then_some(hub))
}

/// Does the work of a blocking call. If it blocks an event loop, warns before, and says so in the error of a lock
/// that others held for the whole wait.
pub(crate) fn block<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    if !runs_event_loop(py)? || hub(py)?.is_some() {
        return work();
    }
    WARN_OF_BLOCKING.get(py)?.call0()?;
    work().map_err(|error| {
        let blamed = BLAME_BLOCKING.get(py).and_then(|blame| blame.call1((error.value(py),)));
        match blamed {
            // A signal handler has raised it, such as that of Ctrl-C.
            Err(raised) if !raised.is_instance_of::<PyException>(py) => raised,
            // Other failures do not matter: the hint only extends the message.
            _ => error,
        }
    })
}

/// Returns whether an event loop of asyncio or trio runs in this thread.
fn runs_event_loop(py: Python<'_>) -> PyResult<bool> {
    static ASYNCIO: OnceBox<Py<PyAny>> = OnceBox::new();
    static TRIO: OnceBox<Py<PyAny>> = OnceBox::new();
    // The public `get_running_loop` raises an exception if no loop runs, which takes longer.
    if let Some(running) = loaded(py, &ASYNCIO, "asyncio.events", "_get_running_loop")?
        && !running.call0()?.is_none()
    {
        return Ok(true);
    }
    let Some(task) = loaded(py, &TRIO, "trio.lowlevel", "current_task")? else { return Ok(false) };
    match task.call0() {
        Ok(_) => Ok(true),
        // Outside of a task. A signal handler may raise other exceptions here.
        Err(e) if e.is_instance_of::<PyRuntimeError>(py) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns a function of a module. Returns `None` if the module was not imported, or its import is not finished, so
/// that it runs nothing.
fn loaded<'py>(
    py: Python<'py>,
    cell: &'static OnceBox<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<Option<&'py Bound<'py, PyAny>>> {
    if cell.get().is_none() {
        let module = MODULES.get(py)?.cast::<PyDict>()?.get_item(module)?;
        let Some(Ok(function)) = module.map(|module| module.getattr(name)) else {
            return Ok(None);
        };
        cell.get_or_init(|| Box::new(function.unbind()));
    }
    Ok(cell.get().map(|function| function.bind(py)))
}
