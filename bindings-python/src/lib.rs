//! The native module `quorlock._quorlock`, which only the Python package in `python/quorlock` imports.
//!
//! It owns the conversion between Python and core values, waiting with the GIL released, and the
//! delivery of results to event loops. It must not contain lock logic, which is in the `quorlock`
//! crate, or Python API such as decorators, which is in `python/quorlock`.

mod calls;
mod completion;
mod convert;
mod exit;
mod inbox;
mod lock;
mod logging;
mod observer;
mod waiting;

use calls::{Kind, Worker};
use completion::{Completing, Pending};
use convert::{error, value, values};
use inbox::Inbox;
use lock::Lock;
use observer::Observer;
use pyo3::exceptions::{PyBaseException, PyImportError};
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyDict, PyTuple};
use quorlock::Dialect;
use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long [`end`] waits for a running `logging` handler at interpreter exit.
const LOGGING_TIMEOUT: Duration = Duration::from_secs(1);

/// The native part of `quorlock.Client`.
#[pyclass(frozen, module = "quorlock._quorlock")]
struct Client {
    client: quorlock::Client,
    observer: Observer,
}

#[pymethods]
impl Client {
    #[new]
    fn new(nodes: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = nodes.py();
        let _entered = exit::enter(py);
        let mut builder = quorlock::Client::builder();
        if !nodes.is_none() {
            builder = match convert::texts(nodes) {
                Some(urls) => builder.nodes(urls),
                None => builder.option(Dialect::Python, "nodes", &value(nodes)),
            };
        }
        for (name, value) in values(options)? {
            builder = builder.option(Dialect::Python, &name, &value);
        }
        let client = builder.build().map_err(|e| error(py, &e))?;
        logging::read_levels(py)?;
        Ok(Self { client, observer: Observer::default() })
    }

    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.client.addresses().collect::<Vec<_>>())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns the diagnosis as text and as JSON.
    fn doctor(&self, py: Python<'_>) -> PyResult<Pending> {
        let _entered = exit::enter(py);
        logging::prepare(py)?;
        Ok(Pending::of(self.client.doctor(), |py, diagnosis| {
            let diagnosis = diagnosis.map_err(|e| error(py, &e))?;
            let forms = (diagnosis.to_string(), diagnosis.to_json());
            Ok(forms.into_pyobject(py)?.into_any().unbind())
        }))
    }

    /// Returns the statistics as JSON.
    fn stats(&self) -> String {
        self.client.stats().to_json()
    }

    /// Returns the statistics in the form of metric families, as JSON.
    fn metrics(&self) -> String {
        self.client.stats().metrics_to_json()
    }

    /// Sets the observer of all acquires of this client; `None` removes it.
    ///
    /// `observe` is called with the resources of an acquire and returns a context manager, which is
    /// exited when the acquire ends. Entering it returns a function, which is called with the lease.
    fn observe(&self, py: Python<'_>, observe: Option<Py<PyAny>>) {
        let _entered = exit::enter(py);
        drop(self.observer.replace(observe));
    }

    fn close(&self) -> Pending {
        Pending::of(self.client.close(), |py, ()| Ok(py.None()))
    }
}

/// The native part of `quorlock.Lease`.
#[pyclass(frozen, module = "quorlock._quorlock")]
struct Lease(quorlock::Lease);

#[pymethods]
impl Lease {
    #[getter]
    fn resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.resources())
    }

    #[getter]
    fn token(&self) -> &str {
        self.0.token()
    }

    #[getter]
    fn fence(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.only_fence().map_err(|e| error(py, &e))
    }

    #[getter]
    fn fences<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fences = PyDict::new(py);
        for (resource, fence) in self.0.fences() {
            fences.set_item(resource, fence)?;
        }
        Ok(fences)
    }

    #[getter]
    fn valid(&self) -> bool {
        self.0.is_valid()
    }

    #[getter]
    fn remaining(&self) -> f64 {
        self.0.remaining().as_secs_f64()
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let _entered = exit::enter(py);
        self.0.check().map_err(|e| error(py, &e))
    }

    /// The reason why the lease was lost; `None` if it was not lost.
    #[getter]
    fn loss<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBaseException>> {
        let _entered = exit::enter(py);
        self.0.loss().map(|loss| error(py, &loss).into_value(py).into_bound(py))
    }

    /// Registers a function that is called when the lease is lost: in the event loop of `inbox`, or
    /// on a Python thread if `inbox` is `None`.
    fn on_lost(&self, py: Python<'_>, inbox: Option<&Inbox>, function: Py<PyAny>) -> PyResult<()> {
        let _entered = exit::enter(py);
        completion::on_lost(py, &self.0, inbox, function)
    }

    fn lost(&self) -> Pending {
        Pending::of(self.0.lost(), |py, loss| {
            Ok(loss.is_some().into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }

    /// Waits until the lease is lost, for at most `timeout` seconds. Returns whether it is lost.
    fn wait_lost(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let _entered = exit::enter(py);
        let timeout = timeout.map(Duration::from_secs_f64);
        let is_lost = waiting::wait_here(py, self.lost(), timeout)?;
        is_lost.map_or(Ok(false), |is_lost| is_lost.extract(py))
    }

    fn extend(&self, ttl: &Bound<'_, PyAny>) -> Pending {
        let _entered = exit::enter(ttl.py());
        let ttl = (!ttl.is_none()).then(|| value(ttl));
        Pending::of(self.0.extend_by(Dialect::Python, ttl.as_ref()), |py, extended| {
            extended.map_err(|e| error(py, &e))?;
            Ok(py.None())
        })
    }

    /// Abandons a lease that is garbage-collected: renewal stops, the keys stay until they expire.
    ///
    /// Returns whether the lease was still valid.
    fn abandon(&self) -> bool {
        self.0.abandon()
    }

    fn release(&self) -> Pending {
        Pending::of(self.0.release(), |py, released| {
            Ok(released.into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }
}

/// Converts a timeout option to seconds; `None` waits forever.
#[pyfunction]
fn timeout(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let _entered = exit::enter(given.py());
    let timeout = quorlock::timeout(Dialect::Python, &value(given));
    let timeout = timeout.map_err(|e| error(given.py(), &e))?;
    Ok(timeout.map(|timeout| timeout.as_secs_f64()))
}

/// Closes all clients and releases their leases at interpreter exit. Waits for at most `seconds`.
#[pyfunction]
fn release_all(py: Python<'_>, seconds: f64) {
    exit::begin();
    exit::detach(py, || quorlock::release_all(Duration::from_secs_f64(seconds)));
}

/// Forwards the remaining log records at interpreter exit, after [`release_all`].
///
/// Other threads that call this module afterwards block forever.
#[pyfunction]
fn end(py: Python<'_>) -> PyResult<()> {
    let is_idle = || Kind::Logging.is_idle();
    py.detach(|| exit::wait_until(LOGGING_TIMEOUT, is_idle));
    // If a handler hangs on the logging thread, calling it here as well would block the exit.
    let is_idle = is_idle();
    exit::end(py);
    if is_idle { logging::log(py) } else { Ok(()) }
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

#[pymodule]
fn _quorlock(module: &Bound<'_, PyModule>) -> PyResult<()> {
    check_interpreter(module.py())?;
    // PyO3 imports this type on first use. A child forked during that import would wait forever.
    let _ = module.py().get_type::<PyDelta>();
    module.add_class::<Client>()?;
    module.add_class::<Lock>()?;
    module.add_class::<Lease>()?;
    module.add_class::<Pending>()?;
    module.add_class::<Completing>()?;
    module.add_class::<Inbox>()?;
    module.add_class::<Worker>()?;
    module.add_function(wrap_pyfunction!(timeout, module)?)?;
    module.add_function(wrap_pyfunction!(release_all, module)?)?;
    module.add_function(wrap_pyfunction!(end, module)?)?;
    module.add_function(wrap_pyfunction!(logging::records, module)?)?;
    module.add_function(wrap_pyfunction!(command_line, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
