//! The native part of `quorlock.Client`.
//!
//! This module owns the conversion of a client's options and reports. It must not hold state of its own
//! except the observer. `_client.py` wraps [`Client`].

use crate::completion::{Pending, begin};
use crate::convert::{self, error, values};
use crate::credentials;
use crate::election::{Election, Watch};
use crate::exit;
use crate::logging;
use crate::observer::Observer;
use crate::scope::owner;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use quorlock::Dialect;

/// The option whose value may be a function.
const CREDENTIALS: &str = "credentials";

/// The native part of `quorlock.Client`.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Client {
    pub(crate) client: quorlock::Client,
    pub(crate) observer: Observer,
}

#[pymethods]
impl Client {
    #[new]
    fn new(nodes: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = nodes.py();
        let _entered = exit::enter(py);
        let nodes = convert::nodes(nodes)?;
        let function = options.get_item(CREDENTIALS)?.filter(|given| given.is_callable());
        let mut values = values(options)?;
        if function.is_some() {
            values.retain(|(name, _)| name != CREDENTIALS);
        }
        let builder = quorlock::Client::builder().option(Dialect::Python, "nodes", &nodes);
        let mut builder = builder.options(Dialect::Python, values);
        if let Some(function) = function {
            builder = builder.credentials_by_request(credentials::provider(py, function)?);
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
        let _entered = begin(py)?;
        Ok(Pending::of(self.client.doctor()))
    }

    /// Returns the status of a resource as JSON.
    fn status(&self, resource: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let py = resource.py();
        let _entered = begin(py)?;
        Ok(Pending::of(self.client.status(convert::resource(resource)?)))
    }

    /// Starts to adopt a detached lease. The result is a native lease.
    fn adopt(&self, text: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Pending> {
        let py = text.py();
        let _entered = begin(py)?;
        // The core refuses an empty text like any other that is none.
        let adoption = self.client.adopt(&text.extract::<String>().unwrap_or_default());
        let adoption = adoption.options(Dialect::Python, values(options)?);
        Ok(Pending::of(adoption.acquire_as(Some(owner(py)?))))
    }

    /// Returns a candidate for the leader of a resource.
    fn elect(
        &self,
        resource: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Election> {
        let py = resource.py();
        let _entered = exit::enter(py);
        let election = self.client.elect(convert::resource(resource)?);
        let election = election.options(Dialect::Python, values(options)?);
        Ok(Election(election.checked().map_err(|e| error(py, &e))?))
    }

    /// Returns an observer of the leader of a resource.
    fn watch(&self, resource: &Bound<'_, PyAny>) -> PyResult<Watch> {
        let py = resource.py();
        let _entered = exit::enter(py);
        let watch = self.client.watch(convert::resource(resource)?);
        Ok(Watch(watch.checked().map_err(|e| error(py, &e))?))
    }

    /// Releases a resource on behalf of its holder. Returns the outcome at each node.
    fn force_release(&self, resource: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let py = resource.py();
        let _entered = begin(py)?;
        Ok(Pending::of(self.client.force_release_holder(convert::resource(resource)?)))
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
    /// At the start of an acquire, `observe` is called with the resources and returns a context manager.
    /// Entering the context manager returns a function, which is called with the lease. The context manager
    /// is exited when the acquire ends.
    fn observe(&self, py: Python<'_>, observe: Option<Py<PyAny>>) {
        let _entered = exit::enter(py);
        drop(self.observer.replace(observe));
    }

    fn close(&self) -> Pending {
        Pending::of(self.client.close())
    }
}
