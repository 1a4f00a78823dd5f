//! The Python functions and classes that this crate calls.
//!
//! [`import_all`] looks them up when `quorlock` is imported: imports fail while the interpreter finalizes, and a
//! child that is forked during an import would wait forever. All other modules of this crate call this one.

use once_cell::race::OnceBox;
use pyo3::prelude::*;

/// An attribute of a Python module.
///
/// Refers to the attribute, not to its module: the interpreter clears each module that something refers to when it
/// finalizes, and functions of the module would fail then.
pub(crate) struct Imported {
    module: &'static str,
    name: &'static str,
    // Initialized without waiting for another thread: in a forked child that thread would not exist. PyO3's own
    // cells, including those of `intern!`, release the GIL while they are initialized.
    cell: OnceBox<Py<PyAny>>,
}

impl Imported {
    const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name, cell: OnceBox::new() }
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let import =
            || Ok::<_, PyErr>(Box::new(py.import(self.module)?.getattr(self.name)?.unbind()));
        Ok(self.cell.get_or_try_init(import)?.bind(py))
    }
}

pub(crate) static BLAME_BLOCKING: Imported = Imported::new("quorlock._warnings", "blame_blocking");
/// The globals of `contextlib`, by which its calls are recognized.
pub(crate) static CONTEXTLIB: Imported = Imported::new("contextlib", "__dict__");
pub(crate) static ENTERED: Imported = Imported::new("quorlock._scope", "entered");
/// The exception classes, by their names.
pub(crate) static ERRORS: Imported = Imported::new("quorlock._errors", "__dict__");
pub(crate) static FORWARD: Imported = Imported::new("quorlock._logging", "forward");
/// Returns the call of a Python function: with 0 the one that calls this crate, with 1 its caller.
pub(crate) static FRAME: Imported = Imported::new("sys", "_getframe");
pub(crate) static HUB: Imported = Imported::new("quorlock._hubs", "current");
pub(crate) static LEASE: Imported = Imported::new("quorlock._lease", "Lease");
pub(crate) static LEVELS: Imported = Imported::new("quorlock._logging", "levels");
pub(crate) static MODULES: Imported = Imported::new("sys", "modules");
pub(crate) static OWNER: Imported = Imported::new("quorlock._scope", "owner");
pub(crate) static SCOPE: Imported = Imported::new("quorlock._scope", "Scope");
// Libraries replace functions of `signal`, but not of `_signal`.
pub(crate) static SIGNAL: Imported = Imported::new("_signal", "signal");
pub(crate) static START: Imported = Imported::new("quorlock._threads", "start");
pub(crate) static USES_LOGGING: Imported = Imported::new("quorlock._logging", "is_used");
pub(crate) static WARN: Imported = Imported::new("quorlock._warnings", "warn");
pub(crate) static WARN_OF_BLOCKING: Imported =
    Imported::new("quorlock._warnings", "warn_of_blocking");

/// Looks all of them up.
pub(crate) fn import_all(py: Python<'_>) -> PyResult<()> {
    let all = [
        &BLAME_BLOCKING,
        &CONTEXTLIB,
        &ENTERED,
        &ERRORS,
        &FORWARD,
        &FRAME,
        &HUB,
        &LEASE,
        &LEVELS,
        &MODULES,
        &OWNER,
        &SCOPE,
        &SIGNAL,
        &START,
        &USES_LOGGING,
        &WARN,
        &WARN_OF_BLOCKING,
    ];
    all.iter().try_for_each(|imported| imported.get(py).map(drop))
}
