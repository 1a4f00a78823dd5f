//! The native parts of `quorlock.Election` and `quorlock.Watch`.
//!
//! This module owns the conversion of their results. It must not decide who leads, which the core does. `_election.py`
//! has the loops.

use crate::completion::{Pending, begin};
use crate::scope::{blocks, owner};
use pyo3::prelude::*;

/// A candidate for the leader of a resource.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Election(pub(crate) quorlock::Election);

#[pymethods]
impl Election {
    #[getter]
    fn resource(&self) -> &str {
        self.0.resource()
    }

    /// Starts a candidacy. The result is a native lease.
    fn next(&self, py: Python<'_>) -> PyResult<Pending> {
        let _entered = begin(py)?;
        let blocks = blocks(py, owner(py)?)?;
        Ok(Pending::of(self.0.clone().within(blocks).next_as()))
    }
}

/// An observer of the leader of a resource.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Watch(pub(crate) quorlock::Watch);

#[pymethods]
impl Watch {
    #[getter]
    fn resource(&self) -> &str {
        self.0.resource()
    }

    /// Starts to wait for a leader with a larger fence. The result is its name and its fence.
    fn after(&self, py: Python<'_>, fence: u64) -> PyResult<Pending> {
        let _entered = begin(py)?;
        Ok(Pending::of(self.0.after(fence)))
    }
}
