//! Waiting for an operation in a blocking call.
//!
//! This module checks for signals while it waits, so that Ctrl-C ends a wait within [`SLICE`], and blocks
//! only the current greenlet where gevent or eventlet runs. It must not hold the GIL while it waits. `lib`,
//! `lock` and `completion` call it.

use crate::completion::{Completing, Pending as Operation};
use crate::exit;
use once_cell::race::OnceBox;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quorlock::Pending;
use std::time::{Duration, Instant};

/// How often a blocking call checks for signals such as Ctrl-C.
const SLICE: Duration = Duration::from_millis(25);

/// Waits for `pending` with the GIL released, for at most `timeout`. Returns `None` if there is no result by
/// then.
///
/// If a signal handler raises an exception, `pending` is dropped, which cancels an acquire.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    mut pending: Pending<T>,
    timeout: Option<Duration>,
) -> PyResult<Option<T>> {
    let began = Instant::now();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        if let Some(value) = exit::detach(py, || pending.wait(slice)) {
            return Ok(Some(value));
        }
        py.check_signals()?;
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
    }
}

/// Waits for the operation on this thread, or in the hub where greenlets replace threads: there, blocking the
/// thread would block all its greenlets.
///
/// Returns `None` if there is no result within `timeout`.
pub(crate) fn wait_here(
    py: Python<'_>,
    operation: Operation,
    timeout: Option<Duration>,
) -> PyResult<Option<Py<PyAny>>> {
    let Some(hub) = hub(py)? else { return operation.wait_for(py, timeout) };
    let operation = Py::new(py, operation)?;
    let seconds = timeout.map(|timeout| timeout.as_secs_f64());
    let completing = exit::switch(|| hub.call_method1("wait", (operation, seconds)))?;
    // Take the result in native code: in Python code a signal handler could raise in between and lose it.
    let completing = completing.extract::<Option<Py<Completing>>>()?;
    completing.map(|completing| completing.get().take(py)).transpose()
}

static MODULES: OnceBox<Py<PyDict>> = OnceBox::new();

/// Returns the hub that runs the greenlets of this thread, if there is one.
fn hub(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let modules = || {
        let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
        Ok::<_, PyErr>(Box::new(modules.unbind()))
    };
    let modules = MODULES.get_or_try_init(modules)?.bind(py);
    if !modules.contains("gevent.monkey")? && !modules.contains("eventlet.patcher")? {
        return Ok(None);
    }
    let hub = py.import("quorlock._hubs")?.call_method0("current")?;
    Ok((!hub.is_none()).then_some(hub))
}
