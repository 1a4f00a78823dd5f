//! The queue of results for one event loop (asyncio, trio) or hub (gevent, eventlet).
//!
//! The thread that drives quorlock's runtime must never take the GIL: it would wait for Python code while
//! leases need renewal. It puts results into the inbox of the event loop and wakes the loop up once for all
//! of them: through a socket if the loop can watch one, else through a function that a Python thread calls.
//!
//! An event loop owns its inbox. When the loop is closed or collected, the inbox is dropped: operations in
//! progress are cancelled, and results that were not taken are dropped, which releases their leases.
//! `completion` fills inboxes; `_asyncio.py`, `_trio.py` and `_hubs.py` create and empty them.

use crate::calls::Kind;
use crate::exit;
use crate::mutex;
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
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// A result for one future or callback of an event loop.
pub(crate) trait Letter: Send + Sync {
    /// Returns the future or callback, and the callback's argument; `None` if the result is no longer
    /// needed.
    fn open(&self, py: Python<'_>) -> Option<PyResult<(Py<PyAny>, Py<PyAny>)>>;
}

/// An operation that is cancelled when its event loop ends.
pub(crate) trait Cancel: Send + Sync {
    fn cancel(&self);
}

/// The inbox of one event loop.
#[pyclass(frozen, weakref, module = "quorlock._quorlock")]
pub(crate) struct Inbox {
    shared: Arc<Shared>,
    /// The socket that becomes readable when a wake-up is sent. `None` if the loop is woken up by a function.
    #[cfg(unix)]
    receiver: Option<UnixStream>,
    /// Empty in a forked child, which must not use the mutexes: a thread of the parent may have held them
    /// during the fork, and nothing unlocks them in the child.
    home: PerProcess<()>,
}

/// The part of an inbox that is shared with operations in progress.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Whether the event loop was woken up and has not called [`Inbox::take`] since.
    is_notified: AtomicBool,
    wake_up: WakeUp,
}

#[derive(Default)]
struct State {
    letters: Vec<Arc<dyn Letter>>,
    /// Operations in progress.
    operations: HashMap<u64, Weak<dyn Cancel>>,
    last: u64,
    is_closed: bool,
}

/// How an event loop is woken up.
enum WakeUp {
    #[cfg(unix)]
    Socket(UnixStream),
    /// A function that a Python thread calls.
    Function(Py<PyAny>),
}

#[pymethods]
impl Inbox {
    /// Creates an inbox that wakes up its event loop by calling `wake_up` on another thread, or through a
    /// socket if `wake_up` is `None`.
    ///
    /// Raises `NotImplementedError` if `wake_up` is `None` and the system has no Unix sockets. Raises
    /// `RuntimeError` if `wake_up` is given and no thread can be started.
    #[new]
    fn new(py: Python<'_>, wake_up: Option<Py<PyAny>>) -> PyResult<Self> {
        let _entered = exit::enter(py);
        let home = PerProcess::new();
        home.get_or_init(|| ());
        let shared = |wake_up| {
            Arc::new(Shared {
                state: Mutex::default(),
                is_notified: AtomicBool::new(false),
                wake_up,
            })
        };
        if let Some(wake_up) = wake_up {
            Kind::Loops.start(py)?;
            let shared = shared(WakeUp::Function(wake_up));
            return Ok(Self {
                shared,
                #[cfg(unix)]
                receiver: None,
                home,
            });
        }
        #[cfg(unix)]
        {
            let (receiver, sender) = UnixStream::pair()?;
            receiver.set_nonblocking(true)?;
            sender.set_nonblocking(true)?;
            Ok(Self { shared: shared(WakeUp::Socket(sender)), receiver: Some(receiver), home })
        }
        #[cfg(not(unix))]
        Err(pyo3::exceptions::PyNotImplementedError::new_err("there are no Unix sockets"))
    }

    /// The file descriptor to watch for reading; `None` if the loop is woken up by a function.
    fn fileno(&self) -> Option<i32> {
        #[cfg(unix)]
        return self.receiver.as_ref().map(AsRawFd::as_raw_fd);
        #[cfg(not(unix))]
        None
    }

    /// Removes and returns all results. The next result wakes up the loop again. Raises what a signal handler raises
    /// meanwhile; all results then stay, and the loop is woken up again.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let _entered = exit::enter(py);
        #[cfg(unix)]
        if let Some(mut receiver) = self.receiver.as_ref() {
            // At most one wake-up is pending, so this reads all of it. An error means that no wake-up is
            // pending.
            let _ = receiver.read(&mut [0; 8]);
        }
        self.shared.is_notified.store(false, Ordering::SeqCst);
        let letters = std::mem::take(&mut self.shared.state().letters);
        let opened = letters.iter().filter_map(|letter| letter.open(py));
        let results: PyResult<Vec<_>> = opened.map(|opened| opened?.into_pyobject(py)).collect();
        if results.is_err() {
            self.shared.state().letters.splice(..0, letters);
            self.shared.notify();
        }
        results
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
        mutex::lock(&self.state)
    }

    /// Registers an operation to be cancelled when the inbox is dropped. Returns the number to remove it
    /// with; `None` if the inbox was already dropped.
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

    /// Unregisters an operation.
    pub(crate) fn remove(&self, number: u64) {
        self.state().operations.remove(&number);
    }

    /// Adds a result and wakes up the event loop. Never blocks, and does not need the GIL.
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
        if refused.is_none() {
            self.notify();
        }
    }

    /// Wakes up the event loop, unless it was woken up and has not taken the results since.
    fn notify(self: &Arc<Self>) {
        if self.is_notified.swap(true, Ordering::SeqCst) {
            return;
        }
        match &self.wake_up {
            // An error means that the event loop is gone, or that wake-ups are waiting in the socket.
            #[cfg(unix)]
            WakeUp::Socket(sender) => drop((&*sender).write(&[0])),
            WakeUp::Function(_) => {
                let inbox = Arc::clone(self);
                Kind::Loops.put("", move |py| inbox.wake_up_call(py));
            }
        }
    }

    /// Returns the call that wakes up the event loop.
    fn wake_up_call(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, Py<PyTuple>)> {
        let function = match &self.wake_up {
            WakeUp::Function(function) => function.clone_ref(py),
            #[cfg(unix)]
            WakeUp::Socket(_) => unreachable!("a socket needs no call"),
        };
        Ok((function, PyTuple::empty(py).unbind()))
    }
}
