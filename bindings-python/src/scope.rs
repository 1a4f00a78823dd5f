//! The blocks and the identity of the thread or task that calls, which the Python module `quorlock._scope` owns.
//!
//! Used by `lock`, `lease` and `client`.

use crate::imports::{ENTERED, OWNER, SCOPE};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyWeakrefMethods, PyWeakrefReference};
use quorlock::Owner;
use std::num::NonZeroU64;

/// Returns the scope of a block that holds this `quorlock.Lease`.
pub(crate) fn of<'py>(py: Python<'py>, lease: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    SCOPE.get(py)?.call1((lease,))
}

/// Returns the `quorlock.Lease` of a block.
pub(crate) fn lease<'py>(scope: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    scope.getattr("lease")
}

/// Returns the identity of a block. No other block has it while this one is open.
pub(crate) fn block(scope: &Bound<'_, PyAny>) -> Option<NonZeroU64> {
    NonZeroU64::new(scope.as_ptr() as u64)
}

/// Returns the identity of the task or thread that entered the block.
pub(crate) fn entered_by(scope: &Bound<'_, PyAny>) -> PyResult<Owner> {
    Ok(Owner::Foreign(scope.getattr("owner")?.extract()?))
}

/// Whether this thread entered the block, in any task.
pub(crate) fn is_of_thread(scope: &Bound<'_, PyAny>) -> PyResult<bool> {
    scope.call_method0("is_of_thread")?.extract()
}

/// Returns the identity of the task or thread that acquires.
pub(crate) fn owner(py: Python<'_>) -> PyResult<Owner> {
    Ok(Owner::Foreign(OWNER.get(py)?.call0()?.extract()?))
}

/// Returns the open blocks of this thread or task, innermost last.
pub(crate) fn entered(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    let references: Vec<Bound<'_, PyWeakrefReference>> =
        ENTERED.get(py)?.call_method0("get")?.extract()?;
    let mut open = Vec::with_capacity(references.len() + 1);
    for scope in references.iter().filter_map(PyWeakrefMethods::upgrade) {
        // A block that was left in another context is still in this one.
        if !scope.getattr("is_left")?.is_truthy()? {
            open.push(scope);
        }
    }
    Ok(open)
}

/// Adds a block to the open ones of this thread or task, and records it in its lease.
pub(crate) fn enter(scope: &Bound<'_, PyAny>, lease: &quorlock::Lease) -> PyResult<()> {
    let mut open = entered(scope.py())?;
    open.push(scope.clone());
    set_entered(scope.py(), open)?;
    if let Some(block) = block(scope) {
        lease.enter_block(block);
    }
    Ok(())
}

/// Marks a block as left, in all contexts, and removes it from the open ones.
pub(crate) fn leave(scope: &Bound<'_, PyAny>) -> PyResult<()> {
    scope.setattr("is_left", true)?;
    set_entered(scope.py(), entered(scope.py())?)
}

fn set_entered(py: Python<'_>, scopes: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
    let references = scopes.iter().map(PyWeakrefReference::new);
    let scopes = PyTuple::new(py, references.collect::<PyResult<Vec<_>>>()?)?;
    ENTERED.get(py)?.call_method1("set", (scopes,))?;
    Ok(())
}
