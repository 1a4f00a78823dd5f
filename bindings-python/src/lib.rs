//! The Python binding: it converts values, waits with the GIL released, and hands results to event
//! loops. What a lock does is in the `quorlock` crate, what Python makes of it (context managers,
//! decorators) in `python/quorlock`.

mod completion;
mod convert;
mod waiting;

use completion::{Completing, Pending};
use convert::{error, value, values};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use quorlock::Dialect;

/// The native part of `quorlock.Client`.
#[pyclass(frozen, module = "quorlock._quorlock")]
struct Client(quorlock::Client);

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
        Ok(Self(builder.build().map_err(|e| error(py, &e))?))
    }

    fn lock(&self, resource: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Lock> {
        // What is not a string gets the same error as an empty one.
        let mut lock = self.0.lock(resource.extract::<String>().unwrap_or_default());
        for (name, value) in values(options)? {
            lock = lock.option(Dialect::Python, &name, &value);
        }
        Ok(Lock(lock.checked().map_err(|e| error(resource.py(), &e))?))
    }

    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.addresses().collect::<Vec<_>>())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&self) -> Pending {
        Pending::of(self.0.close(), |py, ()| Ok(py.None()))
    }
}

/// The native part of `quorlock.Lock`.
#[pyclass(frozen, module = "quorlock._quorlock")]
struct Lock(quorlock::Lock);

#[pymethods]
impl Lock {
    #[getter]
    fn resource(&self) -> &str {
        self.0.resource()
    }

    fn acquire(&self) -> Pending {
        Pending::of(self.0.acquire(), |py, acquired| {
            let lease = acquired.map_err(|e| error(py, &e))?;
            Ok(Py::new(py, Lease(lease))?.into_any())
        })
    }

    fn locked(&self) -> Pending {
        Pending::of(self.0.locked(), |py, locked| {
            let locked = locked.map_err(|e| error(py, &e))?;
            Ok(locked.into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }
}

/// The native part of `quorlock.Lease`.
#[pyclass(frozen, module = "quorlock._quorlock")]
struct Lease(quorlock::Lease);

#[pymethods]
impl Lease {
    #[getter]
    fn resource(&self) -> &str {
        self.0.resource()
    }

    #[getter]
    fn token(&self) -> &str {
        self.0.token()
    }

    #[getter]
    fn fence(&self) -> u64 {
        self.0.fence()
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

    /// Raises why the lease was lost, if it was.
    fn check_not_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.0.loss().map_or(Ok(()), |e| Err(error(py, &e)))
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

#[pymodule]
fn _quorlock(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Client>()?;
    module.add_class::<Lock>()?;
    module.add_class::<Lease>()?;
    module.add_class::<Pending>()?;
    module.add_class::<Completing>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
