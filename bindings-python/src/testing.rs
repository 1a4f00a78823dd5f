//! The native part of `quorlock.testing.Nodes`. It must not hold state of its own.

use crate::completion::Pending;
use crate::convert::{error, value};
use crate::exit;
use crate::mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quorlock::{Dialect, Fault};
use std::sync::Mutex;

/// In-memory nodes that tests can make fail.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct TestNodes(quorlock::TestNodes);

#[pymethods]
impl TestNodes {
    #[new]
    fn new(count: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = count.py();
        let _entered = exit::enter(py);
        let nodes = quorlock::TestNodes::new_by(Dialect::Python, &value(count));
        nodes.map(Self).map_err(|e| error(py, &e))
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

    fn advance(&self, time: &Bound<'_, PyAny>) -> Pending {
        let _entered = exit::enter(time.py());
        Pending::of(self.0.advance_by(Dialect::Python, &value(time)))
    }

    fn suspend(&self, time: &Bound<'_, PyAny>) -> Pending {
        let _entered = exit::enter(time.py());
        Pending::of(self.0.suspend_by(Dialect::Python, &value(time)))
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

/// Makes waiting take no time, until it is stopped or dropped.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct FastForward(Mutex<Option<quorlock::FastForward>>);

#[pymethods]
impl FastForward {
    fn stop(&self) {
        drop(mutex::lock(&self.0).take());
    }
}
