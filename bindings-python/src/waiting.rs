//! Waiting for an operation in a blocking call.
//!
//! This module checks for signals while it waits, so that Ctrl-C ends a wait within [`SLICE`], and finds the
//! hub where gevent or eventlet runs. It must not hold the GIL while it waits. `completion` calls it.

use crate::exit;
use once_cell::race::OnceBox;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quorlock::Pending;
use std::time::{Duration, Instant};

/// The interval at which a blocking call checks for signals such as Ctrl-C.
const SLICE: Duration = Duration::from_millis(25);

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

static MODULES: OnceBox<Py<PyDict>> = OnceBox::new();

/// Returns the hub that runs the greenlets of this thread, if there is one.
pub(crate) fn hub(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
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
