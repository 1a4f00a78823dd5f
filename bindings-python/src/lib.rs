//! The Python binding: it converts values, waits with the GIL released, and hands results to event
//! loops. What a lock does is in the `quorlock` crate, what Python makes of it (context managers,
//! decorators) in `python/quorlock`.

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

/// How long the end of the process waits for a handler of `logging`.
const PATIENCE: Duration = Duration::from_secs(1);

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
        logging::look_now(py)?;
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

    /// The diagnosis as text and as JSON.
    fn doctor(&self, py: Python<'_>) -> PyResult<Pending> {
        let _entered = exit::enter(py);
        logging::look(py)?;
        Ok(Pending::of(self.client.doctor(), |py, diagnosis| {
            let diagnosis = diagnosis.map_err(|e| error(py, &e))?;
            let forms = (diagnosis.to_string(), diagnosis.to_json());
            Ok(forms.into_pyobject(py)?.into_any().unbind())
        }))
    }

    /// The counts as JSON.
    fn stats(&self) -> String {
        self.client.stats().to_json()
    }

    /// The counts as metrics, as JSON.
    fn metrics(&self) -> String {
        self.client.stats().metrics_to_json()
    }

    /// Has acquires observed: `observe` is called with the resources of each, and returns a context
    /// manager. Its block is left when the acquire is over; it gives what is called with the lease.
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

    /// Why the lease was lost, if it was.
    #[getter]
    fn loss<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBaseException>> {
        let _entered = exit::enter(py);
        self.0.loss().map(|loss| error(py, &loss).into_value(py).into_bound(py))
    }

    /// Calls the function when the lease is lost: in the inbox's event loop, or on a Python thread.
    fn on_lost(&self, py: Python<'_>, inbox: Option<&Inbox>, function: Py<PyAny>) -> PyResult<()> {
        let _entered = exit::enter(py);
        completion::on_lost(py, &self.0, inbox, function)
    }

    fn lost(&self) -> Pending {
        Pending::of(self.0.lost(), |py, loss| {
            Ok(loss.is_some().into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }

    /// Waits for the loss of the lease, for at most so many seconds.
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

    /// For a lease that is garbage-collected: whether it was valid, and is dropped without being released.
    fn abandon(&self) -> bool {
        self.0.abandon()
    }

    fn release(&self) -> Pending {
        Pending::of(self.0.release(), |py, released| {
            Ok(released.into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }
}

/// A time to wait, in seconds; None for ever.
#[pyfunction]
fn timeout(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let _entered = exit::enter(given.py());
    let timeout = quorlock::timeout(Dialect::Python, &value(given));
    let timeout = timeout.map_err(|e| error(given.py(), &e))?;
    Ok(timeout.map(|timeout| timeout.as_secs_f64()))
}

/// For the end of the process: closes all clients, releases what is held, and waits for at most so many
/// seconds.
#[pyfunction]
fn release_all(py: Python<'_>, seconds: f64) {
    exit::begin();
    exit::detach(py, || quorlock::release_all(Duration::from_secs_f64(seconds)));
}

/// For the end of the process, after [`release_all`]: hands on what is left to log. From then on, other
/// threads that call this module do not come back.
#[pyfunction]
fn end(py: Python<'_>) -> PyResult<()> {
    let is_idle = || Kind::Logging.is_idle();
    py.detach(|| exit::wait_until(PATIENCE, is_idle));
    // A handler that is stuck must not be called on this thread as well.
    let is_idle = is_idle();
    exit::end(py);
    if is_idle { logging::log(py) } else { Ok(()) }
}

/// The command line with these arguments, of which the first is the program's name; returns the exit status.
#[pyfunction]
fn command_line(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    exit::detach(py, || quorlock_cli::main(arguments.into_iter()))
}

/// The types of this module, and the threads that call into Python, belong to one interpreter.
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
    // PyO3 looks for it when it is first used. A child that is forked meanwhile would wait for that for ever.
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
