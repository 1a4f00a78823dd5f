//! Core operations as Python objects: [`Pending`] (started), [`Completing`] (awaited by an event loop).
//!
//! This module owns the result of an operation until Python takes it or drops it, and the registration of
//! `on_lost` callbacks. It must not run Python code on the core's threads: results go through `inbox`,
//! callbacks through `inbox` or `calls`. `Client`, `Lock` and `Lease` return [`Pending`].

use crate::calls::Kind;
use crate::convert::{IntoPython, error};
use crate::credentials;
use crate::exit::{self, Entered};
use crate::inbox::{Cancel, Inbox, Letter, Shared};
use crate::logging;
use crate::mutex;
use crate::waiting::{self, hub, wait};
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use quorlock::Error;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Enters this crate, as [`exit::enter`] does, to start an operation of the core. Starts the threads that the operation
/// may need, which call loggers and ask for credentials, and reads the levels of the loggers.
pub(crate) fn begin(py: Python<'_>) -> PyResult<Entered> {
    let entered = exit::enter(py);
    logging::start_thread(py)?;
    logging::read_levels(py)?;
    credentials::start_thread(py)?;
    Ok(entered)
}

/// A started operation. It can be awaited once: by a thread, or by a future of an event loop.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Pending(Mutex<Option<Box<dyn Operation>>>);

/// A core operation of any result type.
trait Operation: Send {
    /// Waits for the result. Returns `None` if there is none within the timeout.
    fn wait(
        self: Box<Self>,
        py: Python<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Py<PyAny>>>;
    fn complete(self: Box<Self>, inbox: &Arc<Shared>, target: Py<PyAny>) -> Completing;
}

impl<T: IntoPython> Operation for quorlock::Pending<T> {
    fn wait(
        self: Box<Self>,
        py: Python<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let Some(value) = wait(py, *self, timeout)? else { return Ok(None) };
        logging::flush(py);
        value.into_python(py).map(Some)
    }

    fn complete(self: Box<Self>, inbox: &Arc<Shared>, target: Py<PyAny>) -> Completing {
        let cell = Arc::new(ResultCell { target, value: Mutex::new(Value::Awaited) });
        let inbox = Arc::clone(inbox);
        let operation = self.on_ready({
            let cell = Arc::clone(&cell);
            let inbox = Arc::clone(&inbox);
            move |value| {
                if cell.fill(value) {
                    inbox.put(cell);
                }
            }
        });
        let under_way: Arc<dyn UnderWay> = Arc::new(Filling { operation, cell });
        let cancel: Arc<dyn Cancel> = Arc::clone(&under_way) as _;
        let weak: Weak<dyn Cancel> = Arc::downgrade(&cancel);
        let number = inbox.add(weak);
        if number.is_none() {
            cancel.cancel();
        }
        Completing { under_way, inbox, number }
    }
}

impl Pending {
    pub(crate) fn of(pending: quorlock::Pending<impl IntoPython>) -> Self {
        Self(Mutex::new(Some(Box::new(pending))))
    }

    fn take(&self) -> PyResult<Box<dyn Operation>> {
        let taken = mutex::lock(&self.0).take();
        taken.ok_or_else(|| PyRuntimeError::new_err("this operation was already awaited"))
    }

    /// Waits for the result. Where greenlets replace threads, only the current greenlet waits, in the hub:
    /// blocking the thread would block all of its greenlets.
    ///
    /// Returns `None` if there is no result within `timeout`.
    pub(crate) fn wait_here(
        self,
        py: Python<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let Some(hub) = hub(py)? else { return self.take()?.wait(py, timeout) };
        let operation = Py::new(py, self)?;
        let seconds = timeout.map(|timeout| timeout.as_secs_f64());
        let completing = exit::switch(py, || hub.call_method1("wait", (operation, seconds)))?;
        // Take the result in native code: in Python code a signal handler could raise first, and the result
        // would be lost.
        let completing = completing.extract::<Option<Py<Completing>>>()?;
        completing.map(|completing| completing.get().take(py)).transpose()
    }
}

#[pymethods]
impl Pending {
    /// Waits for the result: blocks this thread, or only the current greenlet where gevent or eventlet
    /// runs.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let _entered = exit::enter(py);
        let operation = Self(Mutex::new(Some(self.take()?)));
        let done = waiting::block(py, || operation.wait_here(py, None))?;
        done.ok_or_else(|| PyRuntimeError::new_err("the operation has no result"))
    }

    /// Delivers `target` to the inbox of an event loop as soon as there is a result.
    pub(crate) fn complete(&self, inbox: &Inbox, target: Py<PyAny>) -> PyResult<Completing> {
        Ok(self.take()?.complete(&inbox.shared(), target))
    }
}

/// An operation that an event loop awaits.
///
/// If the result is never taken, it is dropped together with this object. If the result is a lease, this
/// releases it.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Completing {
    under_way: Arc<dyn UnderWay>,
    inbox: Arc<Shared>,
    number: Option<u64>,
}

#[pymethods]
impl Completing {
    /// Returns the result, or raises the operation's exception. Can be called once.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let _entered = exit::enter(py);
        self.under_way.take(py)
    }

    /// Cancels the operation if it is not done; drops the result if it was not taken.
    fn cancel(&self) {
        if let Some(number) = self.number {
            self.inbox.remove(number);
        }
        self.under_way.cancel();
    }
}

trait UnderWay: Cancel {
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

struct Filling<T> {
    operation: quorlock::Operation,
    cell: Arc<ResultCell<T>>,
}

impl<T: IntoPython> Cancel for Filling<T> {
    fn cancel(&self) {
        self.operation.cancel();
        drop(self.cell.replace(Value::Unwanted));
    }
}

impl<T: IntoPython> UnderWay for Filling<T> {
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.cell.replace(Value::Unwanted) {
            Value::Ready(value) => {
                logging::flush(py);
                value.into_python(py)
            }
            Value::Awaited | Value::Unwanted => {
                Err(PyRuntimeError::new_err("this operation has no result to take"))
            }
        }
    }
}

/// Holds the result of an operation until it is taken.
struct ResultCell<T> {
    target: Py<PyAny>,
    value: Mutex<Value<T>>,
}

enum Value<T> {
    Awaited,
    Ready(T),
    /// The result was taken, or the operation was cancelled.
    Unwanted,
}

impl<T> ResultCell<T> {
    /// Stores `value` and returns the previous one, which the caller drops without holding the mutex:
    /// dropping it may release a lease.
    fn replace(&self, value: Value<T>) -> Value<T> {
        std::mem::replace(&mut *mutex::lock(&self.value), value)
    }

    /// Stores the result unless the operation was cancelled. Returns whether it was stored.
    fn fill(&self, value: T) -> bool {
        let mut stored = mutex::lock(&self.value);
        let is_wanted = matches!(*stored, Value::Awaited);
        let unwanted = if is_wanted {
            *stored = Value::Ready(value);
            None
        } else {
            Some(value)
        };
        drop(stored);
        drop(unwanted);
        is_wanted
    }
}

impl<T: Send + 'static> Letter for ResultCell<T> {
    fn open(&self, py: Python<'_>) -> Option<PyResult<(Py<PyAny>, Py<PyAny>)>> {
        let value = mutex::lock(&self.value);
        matches!(*value, Value::Ready(_)).then(|| Ok((self.target.clone_ref(py), py.None())))
    }
}

/// Registers `function` to be called with the error when `lease` is lost: in the event loop of `inbox`,
/// or on a Python thread if there is no inbox.
///
/// Returns an error if a thread is needed and cannot be started.
pub(crate) fn on_lost(
    py: Python<'_>,
    lease: &quorlock::Lease,
    inbox: Option<&Inbox>,
    function: Py<PyAny>,
) -> PyResult<()> {
    if let Some(inbox) = inbox {
        let inbox = inbox.shared();
        lease.on_lost(move |loss| inbox.put(Arc::new(Loss { function, loss })));
        return Ok(());
    }
    Kind::Losses.start(py)?;
    let token = lease.token().to_owned();
    lease.on_lost(move |loss| {
        Kind::Losses.put(&token, move |py| {
            let loss = error(py, &loss).into_value(py);
            Ok((function, PyTuple::new(py, [loss])?.unbind()))
        });
    });
    Ok(())
}

/// The loss of a lease, to be delivered to a callback in an event loop.
struct Loss {
    function: Py<PyAny>,
    loss: Error,
}

impl Letter for Loss {
    fn open(&self, py: Python<'_>) -> Option<PyResult<(Py<PyAny>, Py<PyAny>)>> {
        let loss = error(py, &self.loss);
        if !loss.is_instance_of::<PyException>(py) {
            return Some(Err(loss));
        }
        Some(Ok((self.function.clone_ref(py), loss.into_value(py).into_any())))
    }
}
