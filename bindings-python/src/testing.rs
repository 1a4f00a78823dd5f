//! The native part of `quorlock.testing.Nodes`. It must not hold state of its own.

use crate::completion::Pending;
use crate::convert::error;
use crate::exit;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quorlock::Fault;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// In-memory nodes that tests can make fail.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct TestNodes(quorlock::TestNodes);

#[pymethods]
impl TestNodes {
    #[new]
    fn new(py: Python<'_>, count: usize) -> PyResult<Self> {
        let _entered = exit::enter(py);
        quorlock::TestNodes::new(count).map(Self).map_err(|e| error(py, &e))
    }

    #[getter]
    fn urls(&self) -> Vec<String> {
        self.0.urls()
    }

    /// Applies a fault, by its name, to one node or to all.
    fn apply(&self, node: Option<usize>, fault: &str) -> PyResult<Pending> {
        let fault =
            Fault::named(fault).ok_or_else(|| PyValueError::new_err("there is no such fault"))?;
        Ok(Pending::of(self.0.apply(node, fault)))
    }

    fn advance(&self, seconds: f64) -> PyResult<Pending> {
        Ok(Pending::of(self.0.advance(duration(seconds)?)))
    }

    fn suspend(&self, seconds: f64) -> PyResult<Pending> {
        Ok(Pending::of(self.0.suspend(duration(seconds)?)))
    }

    fn fast_forward(&self, py: Python<'_>) -> PyResult<FastForward> {
        let _entered = exit::enter(py);
        let flying = self.0.fast_forward().map_err(|e| error(py, &e))?;
        Ok(FastForward(Mutex::new(Some(flying))))
    }

    fn delete_keys(&self, keys: Vec<String>) {
        self.0.delete_keys(keys);
    }

    fn verify_leases(&self) -> Pending {
        Pending::of(self.0.verify_leases())
    }
}

fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Makes waiting take no time, until it is stopped or dropped.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct FastForward(Mutex<Option<quorlock::FastForward>>);

#[pymethods]
impl FastForward {
    fn stop(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
