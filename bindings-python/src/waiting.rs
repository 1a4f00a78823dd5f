//! Waiting for an operation in a blocking call.
//!
//! This module checks for signals while the main thread waits, so that Ctrl-C ends a wait within [`SLICE`], and
//! finds the hub where gevent or eventlet runs. It must not hold the GIL while it waits. `completion` calls it.

use crate::exit;
use once_cell::race::OnceBox;
use pyo3::exceptions::PyValueError;
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
        if let Some(value) = exit::detach(py, || pending.wait(slice)) {
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
/// `threading`. `_signal` is used because libraries replace functions of `signal`.
fn may_handle_signals(py: Python<'_>) -> bool {
    // Initialized without waiting for another thread: in a forked child that thread would not exist.
    static SIGNAL: OnceBox<Py<PyAny>> = OnceBox::new();
    let import = || Ok::<_, PyErr>(Box::new(py.import("_signal")?.getattr("signal")?.unbind()));
    let signal = SIGNAL.get_or_try_init(import);
    let refusal = signal.and_then(|signal| signal.call1(py, (SIGINT, py.None())));
    !refusal.is_err_and(|error| error.is_instance_of::<PyValueError>(py))
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
