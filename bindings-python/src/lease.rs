//! The native part of `quorlock.Lease`.
//!
//! This module owns the conversion of a lease's properties and results, and the `with` statement of a lease.
//! It must not decide whether a lease is valid, which the core does.
//!
//! There are two objects for each lease. [`Lease`] releases the lock if it is dropped. `quorlock.Lease`, a
//! subclass of [`LeaseBlock`], refers to it and abandons it if it is collected. So a lease that the caller
//! never got must be dropped as a [`Lease`].

use crate::completion::{self, Pending};
use crate::convert::{IntoPython, error, given, value, warn_about_unit};
use crate::exit;
use crate::imports::LEASE;
use crate::inbox::Inbox;
use crate::mutex;
use crate::scope;
use crate::waiting;
use pyo3::exceptions::{PyBaseException, PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use quorlock::{Dialect, Mode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The native part of `quorlock.Lease`.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Lease(pub(crate) quorlock::Lease);

#[pymethods]
impl Lease {
    #[getter]
    fn resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.resources())
    }

    #[getter]
    fn resource(&self) -> &str {
        self.0.resource()
    }

    #[getter]
    fn ttl(&self) -> f64 {
        self.0.ttl().as_secs_f64()
    }

    #[getter]
    fn token(&self) -> &str {
        self.0.token()
    }

    #[getter]
    fn holder(&self) -> &str {
        self.0.holder()
    }

    #[getter]
    fn fence(&self, py: Python<'_>) -> PyResult<u64> {
        let _entered = exit::enter(py);
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
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.slots())
    }

    #[getter]
    fn slot(&self, py: Python<'_>) -> PyResult<u32> {
        let _entered = exit::enter(py);
        self.0.only_slot().map_err(|e| error(py, &e))
    }

    #[getter]
    fn mode(&self) -> Option<&'static str> {
        self.0.mode().map(Mode::as_str)
    }

    #[getter]
    fn modes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let modes = PyDict::new(py);
        for (resource, mode) in self.0.modes() {
            modes.set_item(resource, mode.as_str())?;
        }
        Ok(modes)
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
    fn loss<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBaseException>>> {
        let _entered = exit::enter(py);
        let Some(loss) = self.0.loss() else { return Ok(None) };
        match error(py, &loss) {
            loss if loss.is_instance_of::<PyException>(py) => {
                Ok(Some(loss.into_value(py).into_bound(py)))
            }
            raised => Err(raised),
        }
    }

    /// Registers a function that is called when the lease is lost: in the event loop of `inbox`, or
    /// on a Python thread if `inbox` is `None`.
    fn on_lost(&self, py: Python<'_>, inbox: Option<&Inbox>, function: Py<PyAny>) -> PyResult<()> {
        let _entered = exit::enter(py);
        completion::on_lost(py, &self.0, inbox, function)
    }

    /// Adds a note about the loss of the lease, if it was lost, to the error that its block `raised`.
    fn note_loss(&self, raised: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = raised.py();
        let _entered = exit::enter(py);
        let Some(loss) = self.loss(py)? else { return Ok(()) };
        let is_said =
            raised.get_type().is(loss.get_type()) && raised.str()?.as_any().eq(loss.str()?)?;
        if is_said {
            return Ok(());
        }
        match raised.call_method1("add_note", (loss.str()?,)) {
            // An error that takes no note, such as a frozen data class, must not be replaced.
            Err(e) if !e.is_instance_of::<PyException>(py) => Err(e),
            _ => Ok(()),
        }
    }

    fn lost(&self) -> Pending {
        Pending::of(self.0.lost())
    }

    /// Waits until the lease is lost, for at most `timeout` seconds. Returns whether it is lost.
    fn wait_lost(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let _entered = exit::enter(py);
        let timeout = timeout.map(Duration::from_secs_f64);
        let is_lost = waiting::block(py, || self.lost().wait_here(py, timeout))?;
        // In a hub of gevent or eventlet, a short timeout may end before the result of a lost lease arrives.
        is_lost.map_or_else(|| Ok(self.0.loss().is_some()), |is_lost| is_lost.extract(py))
    }

    fn extend(&self, ttl: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let _entered = exit::enter(ttl.py());
        warn_about_unit(ttl)?;
        let ttl = given(ttl);
        Ok(Pending::of(self.0.extend_by(Dialect::Python, ttl.as_ref())))
    }

    fn downgrade(&self, py: Python<'_>) -> Pending {
        let _entered = exit::enter(py);
        Pending::of(self.0.downgrade())
    }

    /// Starts to upgrade the lease. The result is a native lease, or `None` if others read a resource.
    fn try_upgrade(&self, py: Python<'_>) -> Pending {
        let _entered = exit::enter(py);
        Pending::of(self.0.try_upgrade_as())
    }

    /// Starts to detach the lease. The result is a [`Detached`].
    fn detach(&self, within: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let _entered = exit::enter(within.py());
        let within = given(within);
        Ok(Pending::of(self.0.detach_by(Dialect::Python, within.as_ref())))
    }

    /// Starts to hand the lease over. The result is whether the successor is the leader.
    fn hand_over(
        &self,
        successor: &Bound<'_, PyAny>,
        within: &Bound<'_, PyAny>,
    ) -> PyResult<Pending> {
        let _entered = exit::enter(within.py());
        let within = given(within);
        let handing = self.0.hand_over_by(Dialect::Python, &value(successor), within.as_ref());
        Ok(Pending::of(handing))
    }

    /// Starts a release. `keep` is one value, which overrides the option of the lock, or nothing. It is variadic
    /// because `None` is not "nothing": the core checks it as a value.
    #[pyo3(signature = (*keep))]
    fn release(&self, keep: &Bound<'_, PyTuple>) -> PyResult<Pending> {
        let py = keep.py();
        let _entered = exit::enter(py);
        let keep = keep.iter().next().map(|keep| value(&keep));
        let released = self.0.release_by(Dialect::Python, keep.as_ref());
        released.map(Pending::of).map_err(|e| error(py, &e))
    }
}

impl IntoPython for quorlock::Lease {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Lease(self))?.into_any())
    }
}

impl Lease {
    /// Releases a lease that its caller never got.
    pub(crate) fn undo(&self) {
        // Fails only if the time is invalid.
        let _ = self.0.release_and_keep(Duration::ZERO);
    }

    /// Releases the lease at the end of a block and waits for the nodes. Returns the error if the lease was
    /// lost, unless the block `raised` an error of its own.
    pub(crate) fn leave(&self, py: Python<'_>, raised: &Bound<'_, PyAny>) -> PyResult<()> {
        Pending::of(self.0.release()).wait_here(py, None)?;
        if !raised.is_none() {
            return self.note_loss(raised);
        }
        self.0.loss().map_or(Ok(()), |loss| Err(error(py, &loss)))
    }
}

/// A lease that was detached. If it is collected before its text was taken, the lock is released.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Detached(Mutex<Option<quorlock::Detached>>);

impl IntoPython for quorlock::Detached {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Detached(Mutex::new(Some(self))))?.into_any())
    }
}

#[pymethods]
impl Detached {
    /// Returns the text, the first time.
    fn take(&self) -> Option<String> {
        mutex::lock(&self.0).take().map(quorlock::Detached::into_text)
    }
}

/// The base class of `quorlock.Lease`: its `with` statement.
#[pyclass(frozen, subclass, module = "quorlock._quorlock")]
pub(crate) struct LeaseBlock {
    native: Py<Lease>,
    /// Set when a block that releases the lease is entered: one of the lease, or of the lock. It stays set, because
    /// the lease is not valid after the block.
    is_in_block: AtomicBool,
}

#[pymethods]
impl LeaseBlock {
    #[new]
    fn new(native: Py<Lease>) -> Self {
        Self { native, is_in_block: AtomicBool::new(false) }
    }

    #[getter]
    fn _native<'py>(&self, py: Python<'py>) -> &Bound<'py, Lease> {
        self.native.bind(py)
    }

    /// Records that the lease is in a block. Raises `RuntimeError` if it is in one already: the end of the inner
    /// block would release the lock, and the outer one would run on without it.
    pub(crate) fn _begin_block(slf: &Bound<'_, Self>) -> PyResult<()> {
        let _entered = exit::enter(slf.py());
        if !slf.get().is_in_block.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let shown = slf.repr()?;
        Err(PyRuntimeError::new_err(format!(
            "{shown} is already in a `with` or `async with` block, which releases it at its end"
        )))
    }

    /// Undoes `_begin_block`, for a block that cannot be entered.
    fn _end_block(&self) {
        self.is_in_block.store(false, Ordering::Relaxed);
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let _entered = exit::enter(slf.py());
        let native = slf.get().native.bind(slf.py()).get();
        native.check(slf.py())?;
        // The end of the block waits for the nodes. A warning there could be an exception that hides the body's.
        waiting::block(slf.py(), || Ok(()))?;
        let scope = scope::of(slf.py(), &slf)?;
        Self::_begin_block(&slf)?;
        Self::_enter(&slf, &scope)?;
        Ok(slf)
    }

    fn __exit__(
        slf: &Bound<'_, Self>,
        _kind: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _entered = exit::enter(slf.py());
        Self::_leave(slf)?;
        slf.get().native.get().leave(slf.py(), raised)
    }

    /// Opens the block after `_begin_block`; `_leave` closes it.
    fn _enter(slf: &Bound<'_, Self>, scope: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.setattr("_scope", scope)?;
        scope::enter(scope, slf.get().lease())
    }

    /// Closes the block, and returns its scope.
    fn _leave<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let scope = slf.getattr("_scope")?;
        slf.delattr("_scope")?;
        scope::leave(&scope)?;
        Ok(scope)
    }

    /// Abandons a lease that is garbage-collected: renewal stops, the keys stay until they expire.
    ///
    /// Runs no Python code, except to warn about a lease that was never released: the interpreter ignores what is
    /// raised in `__del__`, so the exception of a signal handler, such as that of Ctrl-C, would be lost. At
    /// interpreter exit, when the module that refers to a lease is cleared, the lease is released soon after.
    fn __del__(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.get().native.get().0.abandon() && !exit::is_over() {
            let _entered = exit::enter(slf.py());
            slf.call_method0("_warn_dropped")?;
        }
        Ok(())
    }
}

impl LeaseBlock {
    pub(crate) fn lease(&self) -> &quorlock::Lease {
        &self.native.get().0
    }
}

/// Returns a `quorlock.Lease` of `native`. Runs no Python code, so no signal handler can raise here.
pub(crate) fn wrap<'py>(py: Python<'py>, native: &Py<Lease>) -> PyResult<Bound<'py, PyAny>> {
    LEASE.get(py)?.call1((native.clone_ref(py),))
}
