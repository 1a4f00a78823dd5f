//! Blocking calls.

use pyo3::prelude::*;
use quorlock::Pending;
use std::time::{Duration, Instant};

/// How often a blocking call looks whether a signal, such as Ctrl-C, has come in.
const SLICE: Duration = Duration::from_millis(25);

/// Waits for `pending` with the GIL released. An exception from a signal handler drops it, which
/// cancels an acquire.
pub(crate) fn wait<T: Send>(py: Python<'_>, mut pending: Pending<T>) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(|| pending.wait(SLICE)) {
            return Ok(value);
        }
        py.check_signals()?;
    }
}

/// [`wait`] for at most `timeout`; `None` if there is no result by then.
pub(crate) fn wait_for<T: Send>(
    py: Python<'_>,
    mut pending: Pending<T>,
    timeout: Duration,
) -> PyResult<Option<T>> {
    let began = Instant::now();
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        if let Some(value) = py.detach(|| pending.wait(left.min(SLICE))) {
            return Ok(Some(value));
        }
        py.check_signals()?;
        if left.is_zero() {
            return Ok(None);
        }
    }
}
