//! Forwards the core's events to Python's `logging`.
//!
//! The core emits events on threads that must not take the GIL, so a Python thread forwards them
//! (`quorlock._logging.forward`). The thread that gets the result of an operation waits until the events of
//! the operation are forwarded, so that a program finds its log complete when a call returns.
//!
//! This module owns the core's listener and its levels. It reads the levels of the Python loggers where the
//! GIL is held anyway: when a client is created, and when an operation starts. It must not format records,
//! which `_logging.py` does.

use crate::calls::Kind;
use crate::exit;
use crate::imports::{FORWARD, LEVELS, USES_LOGGING};
use crate::waiting::hub;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use quorlock::{Detail, Listener, PerProcess, Record, TARGETS};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The maximum time that an operation waits for the handlers of its events.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static LOGGING: PerProcess<Logging> = PerProcess::new();

struct Logging {
    listener: Arc<Listener>,
    has_thread: AtomicBool,
    /// Whether handlers have once taken longer than [`FLUSH_TIMEOUT`].
    is_slow: AtomicBool,
}

impl Logging {
    fn start() -> Self {
        let wake = || {
            Kind::Logging.put("", |py| {
                let forward = FORWARD.get(py)?.clone();
                Ok((forward.unbind(), PyTuple::empty(py).unbind()))
            });
            true
        };
        Self {
            listener: Listener::new(wake),
            has_thread: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
        }
    }
}

/// Starts the thread that forwards events, unless there is one, or the program does not use `logging`.
pub(crate) fn start_thread(py: Python<'_>) -> PyResult<()> {
    let logging = LOGGING.get_or_init(Logging::start);
    if !logging.has_thread.load(Ordering::Relaxed) && py_uses_logging(py)? {
        // If the thread cannot be started, events stay in the queue; the next operation tries again.
        let has_thread = Kind::Logging.start(py).is_ok();
        logging.has_thread.store(has_thread, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits until the events of an operation that is done are logged.
///
/// A handler may wait for the caller. So once handlers have taken longer than [`FLUSH_TIMEOUT`], the
/// operations of this process do not wait for them any more. Greenlets never wait for them, because a handler
/// may wait for a lock that another greenlet of this thread holds.
pub(crate) fn flush(py: Python<'_>) {
    let Some(logging) = LOGGING.get() else { return };
    if exit::is_over() {
        // The forwarding thread does not run any more. A finalizer may get here, when `logging` has been cleared.
        let _ = log(py);
        return;
    }
    if logging.is_slow.load(Ordering::Relaxed) || Kind::Logging.flush(Duration::ZERO) {
        return;
    }
    if !matches!(hub(py), Ok(None)) {
        return;
    }
    if !exit::detach(py, || Kind::Logging.flush(FLUSH_TIMEOUT)) {
        logging.is_slow.store(true, Ordering::Relaxed);
    }
}

fn py_uses_logging(py: Python<'_>) -> PyResult<bool> {
    USES_LOGGING.get(py)?.call0()?.extract()
}

/// Reads the levels of the Python loggers, and sets those of the core's listener accordingly.
pub(crate) fn read_levels(py: Python<'_>) -> PyResult<()> {
    let levels: [u8; TARGETS.len()] = LEVELS.get(py)?.call1((TARGETS,))?.extract()?;
    LOGGING.get_or_init(Logging::start).listener.listen(levels);
    Ok(())
}

/// Forwards all queued records on this thread.
pub(crate) fn log(py: Python<'_>) -> PyResult<()> {
    FORWARD.get(py)?.call0()?;
    Ok(())
}

/// Takes the queued records, as arguments of `quorlock._logging.log`.
#[pyfunction]
pub(crate) fn records(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyTuple>>> {
    let _entered = exit::enter(py);
    let records = LOGGING.get().map(|logging| logging.listener.take()).unwrap_or_default();
    if !records.is_empty() {
        // While events occur, keep the levels up to date even if no lock is acquired.
        read_levels(py)?;
    }
    records.iter().map(|record| arguments(py, record)).collect()
}

fn arguments<'py>(py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyTuple>> {
    let fields = PyDict::new(py);
    for (name, detail) in &record.fields {
        fields.set_item(name, value(py, detail)?)?;
    }
    let Record { level, target, name, text, time, .. } = record;
    (level, target, name, text, time, fields).into_pyobject(py)
}

fn value<'py>(py: Python<'py>, detail: &Detail) -> PyResult<Bound<'py, PyAny>> {
    match detail {
        Detail::Text(text) => text.into_bound_py_any(py),
        Detail::Whole(number) => number.into_bound_py_any(py),
        Detail::Number(number) => number.into_bound_py_any(py),
        Detail::Flag(flag) => flag.into_bound_py_any(py),
        _ => Ok(py.None().into_bound(py)),
    }
}
