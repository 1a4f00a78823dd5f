//! The observer of a client's acquires, such as a tracer.
//!
//! This module owns the observing Python function, and calls it around the acquires of threads. `_lock.py`
//! does the same for the acquires of event loops.

use crate::lease::Lease;
use crate::mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::{Arc, Mutex};

/// The observer of a client's acquires, shared with its locks.
#[derive(Clone, Default)]
pub(crate) struct Observer(Arc<Mutex<Option<Py<PyAny>>>>);

impl Observer {
    /// Sets the function and returns the previous one, which the caller drops without holding the mutex:
    /// its finalizer may call this client.
    #[must_use]
    pub(crate) fn replace(&self, observe: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
        std::mem::replace(&mut *mutex::lock(&self.0), observe)
    }

    /// Returns the function, if there is one.
    pub(crate) fn get(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let observe = mutex::lock(&self.0);
        observe.as_ref().map(|observe| observe.clone_ref(py))
    }

    /// Calls `acquire` within the observer's context manager, if there is an observer.
    pub(crate) fn observed<'py>(
        &self,
        py: Python<'py>,
        resources: impl FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>>,
        acquire: impl FnOnce(Python<'py>) -> PyResult<Option<Py<Lease>>>,
    ) -> PyResult<Option<Py<Lease>>> {
        let Some(observe) = self.get(py) else { return acquire(py) };
        let block = observe.bind(py).call1((resources(py)?,))?;
        let acquired = block.call_method0("__enter__")?;
        let result = acquire(py).and_then(|lease| {
            if let Some(lease) = &lease {
                acquired.call1((lease.clone_ref(py),))?;
            }
            Ok(lease)
        });
        match result {
            Ok(lease) => {
                block.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
                Ok(lease)
            }
            Err(error) => {
                let kind = error.get_type(py);
                let value = error.value(py);
                block.call_method1("__exit__", (kind, value, error.traceback(py)))?;
                Err(error)
            }
        }
    }
}
