//! Blocking calls.

use pyo3::prelude::*;
use std::time::Duration;

/// How often a blocking call looks whether a signal, such as Ctrl-C, has come in.
const SLICE: Duration = Duration::from_millis(25);

/// Waits for `pending` with the GIL released. An exception from a signal handler drops it, which
/// cancels an acquire.
pub(crate) fn wait<T: Send>(py: Python<'_>, mut pending: quorlock::Pending<T>) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(|| pending.wait(SLICE)) {
            return Ok(value);
        }
        py.check_signals()?;
    }
}
