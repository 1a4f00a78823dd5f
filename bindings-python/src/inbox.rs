//! Results for event loops.
//!
//! The thread that drives quorlock's runtime never takes the GIL: it would wait for Python code while
//! leases have to be looked after. It puts results into the event loop's inbox, and rings once for all
//! that are there. An event loop that watches sockets is woken by one; for others (that of Windows)
//! a thread of its own rings, which does take the GIL.

use crate::thread::{self, Gate};
use pyo3::prelude::*;
use quorlock::PerProcess;
#[cfg(unix)]
use std::io::{Read, Write};
#[cfg(unix)]
use std::os::fd::{AsRawFd, RawFd};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Something for an event loop: a result for an `asyncio.Future`, or for a function. It is empty when it was
/// taken or is not wanted any more: then nothing here refers to the future, which may have a lease that is
/// released when nothing does.
pub(crate) struct Letter(Mutex<Option<Content>>);

struct Content {
    target: Py<PyAny>,
    /// `None` before there is a result.
    finish: Option<Finish>,
}

/// What an event loop gets: the future or function, and the value or else the exception.
type Opened = (Py<PyAny>, Py<PyAny>, Py<PyAny>);

impl Letter {
    pub(crate) fn to(target: Py<PyAny>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Content { target, finish: None }))))
    }

    fn write(&self, finish: Finish) {
        if let Some(content) = &mut *lock(&self.0) {
            content.finish = Some(finish);
        }
    }

    /// Drops what is in it.
    pub(crate) fn discard(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<Content> {
        lock(&self.0).take()
    }

    fn open(&self, py: Python<'_>) -> Option<Opened> {
        let Content { target, finish } = self.take()?;
        Some(match finish?(py) {
            Ok(value) => (target, value, py.None()),
            Err(error) => (target, py.None(), error.into_value(py).into_any()),
        })
    }
}

/// One event loop's inbox.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Inbox {
    shared: Arc<Shared>,
    /// Readable when there is something.
    #[cfg(unix)]
    ear: Option<UnixStream>,
}

/// The part that is kept by operations under way.
pub(crate) struct Shared {
    letters: Mutex<Vec<Arc<Letter>>>,
    /// Whether the event loop was told, and has not looked since.
    has_rung: AtomicBool,
    bell: Bell,
}

enum Bell {
    #[cfg(unix)]
    Socket(UnixStream),
    /// Called on a thread of its own.
    Function(Py<PyAny>),
}

/// The inboxes whose functions are to be called.
static RINGER: PerProcess<Sender<Arc<Shared>>> = PerProcess::new();

#[pymethods]
impl Inbox {
    /// Rings by `bell`, if it is given, else by a socket.
    #[new]
    fn new(bell: Option<Py<PyAny>>) -> PyResult<Self> {
        #[cfg(unix)]
        let (bell, ear) = match bell {
            Some(function) => (Bell::Function(function), None),
            None => {
                let (ear, socket) = UnixStream::pair()?;
                ear.set_nonblocking(true)?;
                socket.set_nonblocking(true)?;
                (Bell::Socket(socket), Some(ear))
            }
        };
        #[cfg(not(unix))]
        let bell = Bell::Function(bell.unwrap_or_else(|| Python::attach(|py| py.None())));
        let (letters, has_rung) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self {
            shared: Arc::new(Shared { letters, has_rung, bell }),
            #[cfg(unix)]
            ear,
        })
    }

    /// The socket to be watched.
    #[cfg(unix)]
    fn fileno(&self) -> Option<RawFd> {
        self.ear.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Takes out what has come in, and begins to ring again.
    fn take(&self, py: Python<'_>) -> Vec<Opened> {
        #[cfg(unix)]
        if let Some(mut ear) = self.ear.as_ref() {
            // It rings once at a time, so this is all. An error means that it has not rung.
            let _ = ear.read(&mut [0; 8]);
        }
        self.shared.has_rung.store(false, Ordering::SeqCst);
        let letters = std::mem::take(&mut *lock(&self.shared.letters));
        letters.iter().filter_map(|letter| letter.open(py)).collect()
    }
}

impl Inbox {
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

impl Shared {
    /// Puts a result in.
    pub(crate) fn put(
        self: &Arc<Self>,
        letter: &Arc<Letter>,
        finish: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) {
        letter.write(Box::new(finish));
        lock(&self.letters).push(Arc::clone(letter));
        if self.has_rung.swap(true, Ordering::SeqCst) {
            return;
        }
        match &self.bell {
            // An error means that the event loop is gone, or has been told enough.
            #[cfg(unix)]
            Bell::Socket(socket) => drop((&*socket).write(&[0])),
            Bell::Function(_) => {
                let ringer = RINGER.get_or_init(|| thread::start("quorlock-python", ring_all));
                // The thread ends with the process only.
                let _ = ringer.send(Arc::clone(self));
            }
        }
    }
}

fn ring_all(receiver: &Receiver<Arc<Shared>>, gate: &Gate) {
    while let Ok(inbox) = receiver.recv() {
        gate.call(|py| match &inbox.bell {
            // An error means that the event loop is closed, and waits for nothing.
            Bell::Function(function) => drop(function.call0(py)),
            #[cfg(unix)]
            Bell::Socket(_) => {}
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
