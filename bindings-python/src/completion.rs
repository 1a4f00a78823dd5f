//! Operations under way, and what is called when a lease is lost.

use crate::convert::error;
use crate::inbox::{Inbox, Letter, Shared};
use crate::thread::{self, Gate};
use crate::waiting::wait;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use quorlock::{Error, PerProcess};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// A function to be called with the loss of a lease.
struct Call(Py<PyAny>, Error);

static CALLER: PerProcess<Sender<Call>> = PerProcess::new();

/// An operation under way. It is waited for once: by a thread, or by a future of an event loop.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Pending(Mutex<Option<Box<dyn Operation>>>);

/// A core operation with its conversion to Python, whatever its type.
trait Operation: Send {
    fn wait(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;
    fn complete(self: Box<Self>, inbox: Arc<Shared>, letter: Arc<Letter>) -> quorlock::Operation;
}

struct Typed<T> {
    pending: quorlock::Pending<T>,
    convert: fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
}

impl<T: Send + 'static> Operation for Typed<T> {
    fn wait(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let value = wait(py, self.pending)?;
        (self.convert)(py, value)
    }

    fn complete(self: Box<Self>, inbox: Arc<Shared>, letter: Arc<Letter>) -> quorlock::Operation {
        let Self { pending, convert } = *self;
        pending.on_ready(move |value| inbox.put(&letter, move |py| convert(py, value)))
    }
}

impl Pending {
    pub(crate) fn of<T: Send + 'static>(
        pending: quorlock::Pending<T>,
        convert: fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
    ) -> Self {
        Self(Mutex::new(Some(Box::new(Typed { pending, convert }))))
    }

    fn take(&self) -> PyResult<Box<dyn Operation>> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| PyRuntimeError::new_err("this operation was waited for already"))
    }
}

#[pymethods]
impl Pending {
    /// Waits on this thread.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.take()?.wait(py)
    }

    /// Puts the result for the future into the event loop's inbox, when there is one. Returns what
    /// cancels the operation.
    fn complete(&self, inbox: &Inbox, future: Py<PyAny>) -> PyResult<Completing> {
        let letter = Letter::to(future);
        let operation = self.take()?.complete(inbox.shared(), Arc::clone(&letter));
        Ok(Completing { operation, letter })
    }
}

/// An operation that a future waits for.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Completing {
    operation: quorlock::Operation,
    letter: Arc<Letter>,
}

#[pymethods]
impl Completing {
    /// Cancels the operation if it is not done, and drops its result if nobody has it yet.
    fn cancel(&self) {
        self.operation.cancel();
        self.letter.discard();
    }
}

/// Calls `function` with the loss of `lease`: in the event loop of the inbox, or on a thread where there is
/// none.
pub(crate) fn on_lost(lease: &quorlock::Lease, inbox: Option<&Inbox>, function: Py<PyAny>) {
    match inbox {
        Some(inbox) => {
            let (inbox, letter) = (inbox.shared(), Letter::to(function));
            lease.on_lost(move |loss| {
                inbox.put(&letter, move |py| Ok(error(py, &loss).into_value(py).into_any()));
            });
        }
        None => lease.on_lost(move |loss| {
            let caller = CALLER.get_or_init(|| thread::start("quorlock-lost", call_all));
            // The thread ends with the process only.
            let _ = caller.send(Call(function, loss));
        }),
    }
}

fn call_all(receiver: &Receiver<Call>, gate: &Gate) {
    while let Ok(Call(function, loss)) = receiver.recv() {
        gate.call(|py| {
            let loss = error(py, &loss).into_value(py);
            if let Err(error) = function.call1(py, (loss,)) {
                error.write_unraisable(py, Some(function.bind(py)));
            }
        });
    }
}
