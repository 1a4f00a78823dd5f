//! Results for event loops, and calls of functions.
//!
//! A runtime thread never takes the GIL: it would wait for Python code while leases have to be
//! looked after. Results go to one thread of their own, which takes the GIL once for all results
//! that are there, and wakes each event loop once. Functions that need no event loop are called by
//! another thread, because they may take their time.

use crate::convert::error;
use crate::waiting::wait;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use quorlock::{Error, PerProcess};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Something for an event loop: a result for an `asyncio.Future`, or for a function.
struct Completion {
    event_loop: Py<PyAny>,
    target: Py<PyAny>,
    finish: Finish,
}

/// A function to be called with the loss of a lease.
struct Call(Py<PyAny>, Error);

static COMPLETER: PerProcess<Sender<Completion>> = PerProcess::new();
static CALLER: PerProcess<Sender<Call>> = PerProcess::new();

/// An operation under way. It is waited for once: by a thread, or by a future of an event loop.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Pending(Mutex<Option<Box<dyn Operation>>>);

/// A core operation with its conversion to Python, whatever its type.
trait Operation: Send {
    fn wait(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;
    fn complete(self: Box<Self>, event_loop: Py<PyAny>, future: Py<PyAny>) -> quorlock::Operation;
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

    fn complete(self: Box<Self>, event_loop: Py<PyAny>, future: Py<PyAny>) -> quorlock::Operation {
        let Self { pending, convert } = *self;
        pending.on_ready(move |value| {
            let finish = Box::new(move |py: Python<'_>| convert(py, value));
            complete(Completion { event_loop, target: future, finish });
        })
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

    /// Sets the future's result when there is one. Returns what cancels the operation.
    fn complete(&self, event_loop: Py<PyAny>, future: Py<PyAny>) -> PyResult<Completing> {
        Ok(Completing(self.take()?.complete(event_loop, future)))
    }
}

/// An operation that a future waits for.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Completing(quorlock::Operation);

#[pymethods]
impl Completing {
    fn cancel(&self) {
        self.0.cancel();
    }
}

/// Calls `function` with the loss of `lease`: in the event loop, or on a thread where there is none.
pub(crate) fn on_lost(lease: &quorlock::Lease, event_loop: Option<Py<PyAny>>, function: Py<PyAny>) {
    lease.on_lost(move |loss| match event_loop {
        Some(event_loop) => {
            let finish =
                Box::new(move |py: Python<'_>| Ok(error(py, &loss).into_value(py).into_any()));
            complete(Completion { event_loop, target: function, finish });
        }
        None => {
            let caller = CALLER.get_or_init(|| start("quorlock-lost", call_all));
            // The thread ends with the process only.
            let _ = caller.send(Call(function, loss));
        }
    });
}

fn complete(completion: Completion) {
    let completer = COMPLETER.get_or_init(|| start("quorlock-python", complete_all));
    // The thread ends with the process only.
    let _ = completer.send(completion);
}

fn start<T: Send + 'static>(name: &str, run: fn(&Receiver<T>)) -> Sender<T> {
    let (sender, receiver) = mpsc::channel();
    // Without the thread the futures would wait for ever; there is no better way to fail.
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || run(&receiver))
        .expect("a thread can be started");
    sender
}

fn call_all(receiver: &Receiver<Call>) {
    while let Ok(Call(function, loss)) = receiver.recv() {
        let _ = Python::try_attach(|py| {
            let loss = error(py, &loss).into_value(py);
            if let Err(error) = function.call1(py, (loss,)) {
                error.write_unraisable(py, Some(function.bind(py)));
            }
        });
    }
}

fn complete_all(receiver: &Receiver<Completion>) {
    while let Ok(first) = receiver.recv() {
        let batch: Vec<_> = std::iter::once(first).chain(receiver.try_iter()).collect();
        // No interpreter any more: nobody waits for the results.
        let _ = Python::try_attach(|py| deliver(py, batch));
    }
}

/// Hands each event loop its results with one wake-up.
fn deliver(py: Python<'_>, batch: Vec<Completion>) {
    let mut loops: Vec<(Py<PyAny>, Bound<'_, PyList>)> = Vec::new();
    for Completion { event_loop, target, finish } in batch {
        let (value, error) = match finish(py) {
            Ok(value) => (value, py.None()),
            Err(error) => (py.None(), error.into_value(py).into_any()),
        };
        let index = loops.iter().position(|(known, _)| known.is(&event_loop));
        let index = index.unwrap_or_else(|| {
            loops.push((event_loop, PyList::empty(py)));
            loops.len() - 1
        });
        // Appending to a list fails for want of memory only.
        let _ = loops[index].1.append((target, value, error));
    }
    for (event_loop, results) in loops {
        let called = py
            .import(intern!(py, "quorlock._async"))
            .and_then(|module| module.getattr(intern!(py, "deliver")))
            .and_then(|deliver| {
                let event_loop = event_loop.bind(py);
                event_loop.call_method1(intern!(py, "call_soon_threadsafe"), (deliver, results))
            });
        // A loop that was closed meanwhile waits for nothing; leases that are dropped with the
        // results are released.
        drop(called);
    }
}
