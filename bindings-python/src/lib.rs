//! The native module `quorlock._quorlock`, which only the Python package in `python/quorlock` imports.
//!
//! It owns the conversion between Python and core values, waiting with the GIL released, and the
//! delivery of results to event loops. It must not contain lock logic, which is in the `quorlock`
//! crate, or Python API such as decorators, which is in `python/quorlock`.

mod calls;
mod client;
mod completion;
mod convert;
mod credentials;
mod election;
mod exit;
mod imports;
mod inbox;
mod lease;
mod lock;
mod logging;
mod mutex;
mod observer;
mod scope;
mod testing;
mod waiting;

use calls::{Kind, Worker};
use client::Client;
use completion::{Completing, Pending};
use convert::{error, value};
use election::{Election, Watch};
use inbox::Inbox;
use lease::{Detached, Lease, LeaseBlock};
use lock::{Acquirable, Lock, Semaphore};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyDelta;
use quorlock::Dialect;
use std::borrow::Cow;
use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testing::{FastForward, TestNodes};

/// The maximum time that [`end`] waits for a running `logging` handler at interpreter exit.
const LOGGING_TIMEOUT: Duration = Duration::from_secs(1);

/// Converts a timeout option to seconds; `None` waits forever.
#[pyfunction]
fn timeout(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let _entered = exit::enter(given.py());
    let timeout = quorlock::timeout(Dialect::Python, &value(given));
    let timeout = timeout.map_err(|e| error(given.py(), &e))?;
    Ok(timeout.map(|timeout| timeout.as_secs_f64()))
}

/// Returns the resource as messages show it: a long name is cut.
#[pyfunction]
fn shortened(resource: &str) -> Cow<'_, str> {
    quorlock::shortened(resource)
}

/// Forwards the remaining log records, when all exit handlers have run. Other threads that call this module
/// afterwards block forever.
///
/// `releases`: also closes all clients and releases their leases, because the interpreter is not finalized.
#[pyfunction]
fn end(py: Python<'_>, releases: bool) -> PyResult<()> {
    let is_idle = || Kind::Logging.is_idle();
    py.detach(|| exit::wait_until(LOGGING_TIMEOUT, is_idle));
    // If a handler hangs on the logging thread, calling it here as well would block the exit.
    let is_idle = is_idle();
    exit::end(py);
    if releases {
        exit::detach(py, || quorlock::release_all(exit::RELEASE_TIMEOUT));
    }
    if is_idle { logging::log(py) } else { Ok(()) }
}

/// Imports what native code uses, at the end of the import of `quorlock`.
#[pyfunction]
fn import_all(py: Python<'_>) -> PyResult<()> {
    imports::import_all(py)
}

/// Makes the operations that this thread starts send their requests together, at the next call of `uncork`.
#[pyfunction]
fn cork() {
    quorlock::cork();
}

/// Sends the requests that wait because of `cork`.
#[pyfunction]
fn uncork() {
    quorlock::uncork();
}

/// Runs the command line and returns its exit status. The first argument is the program's name.
#[pyfunction]
fn command_line(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    exit::detach(py, || quorlock_cli::main(arguments.into_iter()))
}

/// Returns `ImportError` in any interpreter of the process but the first one that imports this module.
///
/// The types of this module and the threads that call into Python belong to one interpreter.
fn check_interpreter(py: Python<'_>) -> PyResult<()> {
    static HOME: AtomicUsize = AtomicUsize::new(0);
    // Every interpreter has a `sys` module of its own.
    let sys = py.import("sys")?.as_ptr() as usize;
    match HOME.compare_exchange(0, sys, Ordering::Relaxed, Ordering::Relaxed) {
        Err(home) if home != sys => Err(PyImportError::new_err(
            "quorlock is in use in another interpreter of this process; it does not support \
             subinterpreters",
        )),
        _ => Ok(()),
    }
}

// Works without the GIL, in the free-threaded builds of CPython: all state is in atomics and mutexes, and
// no Python code runs, and no Python object is dropped, while a thread holds one of the mutexes. A thread that
// runs Python code may be suspended, and the others would wait for the mutex.
#[pymodule(gil_used = false)]
fn _quorlock(module: &Bound<'_, PyModule>) -> PyResult<()> {
    check_interpreter(module.py())?;
    exit::release_after_finalization();
    // PyO3 imports this type on first use. A child forked during that import would wait forever.
    let _ = module.py().get_type::<PyDelta>();
    module.add_class::<Client>()?;
    module.add_class::<Acquirable>()?;
    module.add_class::<Lock>()?;
    module.add_class::<Semaphore>()?;
    module.add_class::<Detached>()?;
    module.add_class::<Election>()?;
    module.add_class::<Lease>()?;
    module.add_class::<LeaseBlock>()?;
    module.add_class::<Pending>()?;
    module.add_class::<Completing>()?;
    module.add_class::<Inbox>()?;
    module.add_class::<Watch>()?;
    module.add_class::<Worker>()?;
    module.add_class::<credentials::Reply>()?;
    module.add_class::<TestNodes>()?;
    module.add_class::<FastForward>()?;
    module.add_function(wrap_pyfunction!(timeout, module)?)?;
    module.add_function(wrap_pyfunction!(shortened, module)?)?;
    module.add_function(wrap_pyfunction!(end, module)?)?;
    module.add_function(wrap_pyfunction!(import_all, module)?)?;
    module.add_function(wrap_pyfunction!(logging::records, module)?)?;
    module.add_function(wrap_pyfunction!(command_line, module)?)?;
    module.add_function(wrap_pyfunction!(cork, module)?)?;
    module.add_function(wrap_pyfunction!(uncork, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
