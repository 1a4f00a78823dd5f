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

/// Returns the blocks that the `caller` is in. The core refuses to wait for a shared lease of one of them.
///
/// A block counts only in the context in which it was entered. A thread of a pool may enter a block that another
/// thread leaves, and do other work in between, in another context.
pub(crate) fn blocks(py: Python<'_>, caller: Owner) -> PyResult<Vec<NonZeroU64>> {
    let mut blocks = Vec::new();
    for scope in entered(py)? {
        if Owner::Foreign(scope.getattr("owner")?.extract()?) == caller {
            blocks.extend(block(&scope));
        }
    }
    Ok(blocks)
}

/// Returns the identity of a block. No other block has it while this one is open.
fn block(scope: &Bound<'_, PyAny>) -> Option<NonZeroU64> {
    NonZeroU64::new(scope.as_ptr() as u64)
}

/// Whether the block was entered in this context, and not in one that was copied to this one.
pub(crate) fn is_of_context(scope: &Bound<'_, PyAny>) -> PyResult<bool> {
    let scopes = ENTERED.get(scope.py())?.call_method0("get")?;
    // Only the context of a token accepts it, once. This runs no Python code, so no signal handler can raise here.
    if ENTERED.get(scope.py())?.call_method1("reset", (scope.getattr("token")?,)).is_err() {
        return Ok(false);
    }
    scope.setattr("token", ENTERED.get(scope.py())?.call_method1("set", (scopes,))?)?;
    Ok(true)
}

/// Returns the identity of the task or thread that acquires.
pub(crate) fn owner(py: Python<'_>) -> PyResult<Owner> {
    Ok(Owner::Foreign(OWNER.get(py)?.call0()?.extract()?))
}

/// Returns the open blocks of this thread or task, innermost last.
fn entered(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
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
    scope.setattr("token", set_entered(scope.py(), open)?)?;
    if let Some(block) = block(scope) {
        lease.enter_block(block);
    }
    Ok(())
}

/// Marks a block as left, in all contexts, and removes it from the open ones.
pub(crate) fn leave(scope: &Bound<'_, PyAny>) -> PyResult<()> {
    scope.setattr("is_left", true)?;
    set_entered(scope.py(), entered(scope.py())?)?;
    Ok(())
}

/// Sets the open blocks of this thread or task, and returns the token.
fn set_entered<'py>(
    py: Python<'py>,
    scopes: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let references = scopes.iter().map(PyWeakrefReference::new);
    let scopes = PyTuple::new(py, references.collect::<PyResult<Vec<_>>>()?)?;
    ENTERED.get(py)?.call_method1("set", (scopes,))
}
