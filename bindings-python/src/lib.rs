//! The Python binding: it converts values, waits with the GIL released, and hands results to event
//! loops. What a lock does is in the `quorlock` crate, what Python makes of it (context managers,
//! decorators) in `python/quorlock`.

mod completion;
mod convert;
mod inbox;
mod lock;
mod logging;
mod observer;
mod thread;
mod waiting;

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
    fn doctor(&self) -> Pending {
        Pending::of(self.client.doctor(), |py, diagnosis| {
            let diagnosis = diagnosis.map_err(|e| error(py, &e))?;
            let forms = (diagnosis.to_string(), diagnosis.to_json());
            Ok(forms.into_pyobject(py)?.into_any().unbind())
        })
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
    fn observe(&self, observe: Option<Py<PyAny>>) {
        self.observer.set(observe);
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
        self.0.check().map_err(|e| error(py, &e))
    }

    /// Why the lease was lost, if it was.
    #[getter]
    fn loss<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBaseException>> {
        self.0.loss().map(|loss| error(py, &loss).into_value(py).into_bound(py))
    }

    /// Calls the function when the lease is lost: in the inbox's event loop, or on a thread of its own.
    fn on_lost(&self, inbox: Option<&Inbox>, function: Py<PyAny>) {
        completion::on_lost(&self.0, inbox, function);
    }

    fn lost(&self) -> Pending {
        Pending::of(self.0.lost(), |py, loss| {
            Ok(loss.is_some().into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }

    /// Waits on this thread, for so many seconds, for the loss of the lease.
    fn wait_lost(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let lost = self.0.lost();
        let loss = match timeout {
            None => waiting::wait(py, lost)?,
            Some(timeout) => {
                waiting::wait_for(py, lost, Duration::from_secs_f64(timeout))?.flatten()
            }
        };
        Ok(loss.is_some())
    }

    fn extend(&self, ttl: &Bound<'_, PyAny>) -> Pending {
        let ttl = (!ttl.is_none()).then(|| value(ttl));
        Pending::of(self.0.extend_by(Dialect::Python, ttl.as_ref()), |py, extended| {
            extended.map_err(|e| error(py, &e))?;
            Ok(py.None())
        })
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
    let timeout = quorlock::timeout(Dialect::Python, &value(given));
    let timeout = timeout.map_err(|e| error(given.py(), &e))?;
    Ok(timeout.map(|timeout| timeout.as_secs_f64()))
}

/// For the end of the process: releases what is held, and waits for at most so many seconds.
#[pyfunction]
fn release_all(py: Python<'_>, seconds: f64) {
    py.detach(|| quorlock::release_all(Duration::from_secs_f64(seconds)));
}

/// For the end of the process, after [`release_all`]: tells what there is to tell, on this thread, and
/// lets no other thread call into Python from then on.
#[pyfunction]
fn end_calls(py: Python<'_>) -> PyResult<()> {
    thread::end(py);
    logging::log(py)
}

/// The command line with these arguments, of which the first is the program's name; returns the exit status.
#[pyfunction]
fn command_line(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| quorlock_cli::main(arguments.into_iter()))
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
    module.add_function(wrap_pyfunction!(timeout, module)?)?;
    module.add_function(wrap_pyfunction!(release_all, module)?)?;
    module.add_function(wrap_pyfunction!(end_calls, module)?)?;
    module.add_function(wrap_pyfunction!(command_line, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
