//! Results for event loops and hubs.
//!
//! The thread that drives quorlock's runtime never takes the GIL: it would wait for Python code while
//! leases have to be looked after. It puts results into the event loop's inbox, and wakes the loop once for all
//! that are there: by a socket if the loop can watch one, else by a function that a Python thread calls.
//!
//! An inbox belongs to its event loop. When the loop is closed or collected, the inbox is dropped: operations
//! that are under way are cancelled, and results that nobody took are dropped, which releases leases.

use crate::calls::Kind;
use crate::exit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use quorlock::PerProcess;
use std::collections::HashMap;
#[cfg(unix)]
use std::io::{Read, Write};
#[cfg(unix)]
use std::os::fd::AsRawFd;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A result for one future or function of an event loop.
pub(crate) trait Letter: Send + Sync {
    /// The future or function, and what the function is called with. `None` if nobody wants it any more.
    fn open(&self, py: Python<'_>) -> Option<PyResult<(Py<PyAny>, Py<PyAny>)>>;
}

/// An operation that ends with its event loop.
pub(crate) trait Cancel: Send + Sync {
    fn cancel(&self);
}

/// One event loop's inbox.
#[pyclass(frozen, weakref, module = "quorlock._quorlock")]
pub(crate) struct Inbox {
    shared: Arc<Shared>,
    /// Readable when there is something.
    #[cfg(unix)]
    ear: Option<UnixStream>,
    /// Empty in a forked child, where another thread may have held the locks.
    home: PerProcess<()>,
}

/// The part that operations under way keep.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Whether the event loop was woken, and has not looked since.
    has_rung: AtomicBool,
    bell: Bell,
}

#[derive(Default)]
struct State {
    letters: Vec<Arc<dyn Letter>>,
    /// Operations under way.
    operations: HashMap<u64, Weak<dyn Cancel>>,
    last: u64,
    is_closed: bool,
}

enum Bell {
    #[cfg(unix)]
    Socket(UnixStream),
    /// Called by a Python thread.
    Function(Py<PyAny>),
}

#[pymethods]
impl Inbox {
    /// Wakes its event loop by calling `bell` on another thread, or by a socket if there is none.
    ///
    /// Fails without `bell` where there are no such sockets, and with it if no thread can be started.
    #[new]
    fn new(py: Python<'_>, bell: Option<Py<PyAny>>) -> PyResult<Self> {
        let _entered = exit::enter(py);
        let home = PerProcess::new();
        home.get_or_init(|| ());
        let shared = |bell| {
            let (state, has_rung) = (Mutex::default(), AtomicBool::new(false));
            Arc::new(Shared { state, has_rung, bell })
        };
        if let Some(bell) = bell {
            Kind::Loops.start(py)?;
            let shared = shared(Bell::Function(bell));
            return Ok(Self {
                shared,
                #[cfg(unix)]
                ear: None,
                home,
            });
        }
        #[cfg(unix)]
        {
            let (ear, socket) = UnixStream::pair()?;
            ear.set_nonblocking(true)?;
            socket.set_nonblocking(true)?;
            Ok(Self { shared: shared(Bell::Socket(socket)), ear: Some(ear), home })
        }
        #[cfg(not(unix))]
        Err(pyo3::exceptions::PyNotImplementedError::new_err("there are no Unix sockets"))
    }

    /// The socket to be watched, if there is one. Python has file descriptors of this type everywhere.
    fn fileno(&self) -> Option<i32> {
        #[cfg(unix)]
        return self.ear.as_ref().map(AsRawFd::as_raw_fd);
        #[cfg(not(unix))]
        None
    }

    /// Takes out what has come in, and begins to ring again.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let _entered = exit::enter(py);
        #[cfg(unix)]
        if let Some(mut ear) = self.ear.as_ref() {
            // It rings once at a time, so this is all. An error means that it has not rung.
            let _ = ear.read(&mut [0; 8]);
        }
        self.shared.has_rung.store(false, Ordering::SeqCst);
        let letters = std::mem::take(&mut self.shared.state().letters);
        let opened = letters.iter().filter_map(|letter| letter.open(py));
        opened.map(|opened| opened?.into_pyobject(py)).collect()
    }
}

impl Inbox {
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if self.home.get().is_none() {
            return;
        }
        let (letters, operations) = {
            let mut state = self.shared.state();
            state.is_closed = true;
            (std::mem::take(&mut state.letters), std::mem::take(&mut state.operations))
        };
        drop(letters);
        for operation in operations.into_values().filter_map(|operation| operation.upgrade()) {
            operation.cancel();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an operation, which is cancelled with the inbox; `None` if that is closed already.
    pub(crate) fn add(&self, operation: Weak<dyn Cancel>) -> Option<u64> {
        let mut state = self.state();
        if state.is_closed {
            return None;
        }
        state.last += 1;
        let number = state.last;
        state.operations.insert(number, operation);
        Some(number)
    }

    /// Forgets an operation.
    pub(crate) fn remove(&self, number: u64) {
        self.state().operations.remove(&number);
    }

    /// Puts a result in. Does not block.
    pub(crate) fn put(self: &Arc<Self>, letter: Arc<dyn Letter>) {
        let refused = {
            let mut state = self.state();
            if state.is_closed {
                Some(letter)
            } else {
                state.letters.push(letter);
                None
            }
        };
        if refused.is_some() || self.has_rung.swap(true, Ordering::SeqCst) {
            return;
        }
        match &self.bell {
            // An error means that the event loop is gone, or has been woken often enough.
            #[cfg(unix)]
            Bell::Socket(socket) => drop((&*socket).write(&[0])),
            Bell::Function(_) => {
                let inbox = Arc::clone(self);
                Kind::Loops.put("", move |py| inbox.ring(py));
            }
        }
    }

    /// The call that wakes the event loop.
    fn ring(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, Py<PyTuple>)> {
        let function = match &self.bell {
            Bell::Function(function) => function.clone_ref(py),
            #[cfg(unix)]
            Bell::Socket(_) => unreachable!("it rings by itself"),
        };
        Ok((function, PyTuple::empty(py).unbind()))
    }
}
