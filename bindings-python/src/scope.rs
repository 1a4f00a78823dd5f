//! The blocks and the identity of the thread or task that calls, which the Python module `quorlock._scope` owns.
//!
//! Used by `lock` and `client`.

use once_cell::race::OnceBox;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use quorlock::Owner;

// Initializing these values must not wait for another thread: in a forked child that thread would not
// exist, and the child would wait forever. PyO3's own cells, including those of `intern!`, release the GIL
// while they are initialized, so they are not used here.
static SCOPE: OnceBox<Py<PyAny>> = OnceBox::new();
static ENTERED: OnceBox<Py<PyAny>> = OnceBox::new();
static OWNER: OnceBox<Py<PyAny>> = OnceBox::new();

fn python<'py>(
    py: Python<'py>,
    cell: &'static OnceBox<Py<PyAny>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    let import = || Ok::<_, PyErr>(Box::new(py.import("quorlock._scope")?.getattr(name)?.unbind()));
    Ok(cell.get_or_try_init(import)?.bind(py))
}

/// Returns the scope of a block that holds this `quorlock.Lease`.
pub(crate) fn of<'py>(py: Python<'py>, lease: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    python(py, &SCOPE, "Scope")?.call1((lease,))
}

/// Returns the `quorlock.Lease` of a block.
pub(crate) fn lease<'py>(scope: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    scope.getattr("lease")
}

/// Returns the identity of a block. No other block has it while this one is open, and no thread or task.
pub(crate) fn owner_of(scope: &Bound<'_, PyAny>) -> Owner {
    Owner::Foreign(scope.as_ptr() as u64)
}

/// Whether this asyncio task or thread entered the block.
pub(crate) fn is_entered_by(scope: &Bound<'_, PyAny>, owner: Owner) -> PyResult<bool> {
    Ok(Owner::Foreign(scope.getattr("owner")?.extract()?) == owner)
}

/// Returns the identity of the asyncio task or thread that acquires.
pub(crate) fn owner(py: Python<'_>) -> PyResult<Owner> {
    Ok(Owner::Foreign(python(py, &OWNER, "owner")?.call0()?.extract()?))
}

/// Returns the open blocks of this thread or task, innermost last.
pub(crate) fn entered(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    python(py, &ENTERED, "entered")?.call_method0("get")?.extract()
}

pub(crate) fn set_entered(py: Python<'_>, scopes: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
    let scopes = PyTuple::new(py, scopes)?;
    python(py, &ENTERED, "entered")?.call_method1("set", (scopes,))?;
    Ok(())
}
