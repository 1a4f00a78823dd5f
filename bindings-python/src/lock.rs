//! The native parts of `quorlock.Lock` and `quorlock.Semaphore`, including their `with` blocks.
//!
//! `with` is native because a signal such as Ctrl-C may raise an exception between any two steps of Python
//! code: also on entry when the lock is already held, and at the beginning of the exit. In native code,
//! exceptions occur only where it checks for signals or runs Python code.
//!
//! This module owns the list of open blocks of a lock or semaphore. It must not decide about leases, which the core
//! does. `_lock.py` and `_semaphore.py` subclass [`Lock`] and [`Semaphore`], and add the `_async` forms and the
//! decorators.

use crate::client::Client;
use crate::completion::{Pending, begin};
use crate::convert::{self, error, value, values};
use crate::exit;
use crate::imports::{CONTEXTLIB, FRAME};
use crate::lease::{Lease, LeaseBlock, wrap};
use crate::mutex;
use crate::observer::Observer;
use crate::scope::{self, blocks, owner};
use crate::waiting;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use quorlock::{Dialect, Owner};
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard};

/// The base class of [`Lock`] and [`Semaphore`].
#[pyclass(frozen, subclass, module = "quorlock._quorlock")]
pub(crate) struct Acquirable {
    source: Source,
    observer: Observer,
    /// The blocks that were entered and not yet left. There may be several: threads and tasks may share
    /// the object.
    open: Mutex<Vec<Block>>,
}

/// Where the leases come from.
#[derive(Clone)]
enum Source {
    Lock(quorlock::Lock),
    Semaphore(quorlock::Semaphore),
}

impl Source {
    /// Sets options. An invalid one is reported by the acquire.
    fn with_options(self, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options = values(options)?;
        Ok(match self {
            Self::Lock(lock) => Self::Lock(lock.options(Dialect::Python, options)),
            Self::Semaphore(semaphore) => {
                Self::Semaphore(semaphore.options(Dialect::Python, options))
            }
        })
    }

    /// Sets the blocks that the caller is in. Those of a semaphore do not matter: all of its leases are exclusive.
    fn within(self, blocks: Vec<NonZeroU64>) -> Self {
        match self {
            Self::Lock(lock) => Self::Lock(lock.within(blocks)),
            semaphore @ Self::Semaphore(_) => semaphore,
        }
    }

    fn resources(&self) -> Vec<&str> {
        match self {
            Self::Lock(lock) => lock.resources().iter().map(String::as_str).collect(),
            Self::Semaphore(semaphore) => vec![semaphore.resource()],
        }
    }

    fn acquire(&self, owner: Owner) -> quorlock::Pending<quorlock::Result<quorlock::Lease>> {
        match self {
            Self::Lock(lock) => lock.acquire_as(Some(owner)),
            Self::Semaphore(semaphore) => semaphore.acquire_as(Some(owner)),
        }
    }

    fn try_acquire(
        &self,
        owner: Owner,
    ) -> quorlock::Pending<quorlock::Result<Option<quorlock::Lease>>> {
        match self {
            Self::Lock(lock) => lock.try_acquire_as(Some(owner)),
            Self::Semaphore(semaphore) => semaphore.try_acquire_as(Some(owner)),
        }
    }
}

/// A `with` block: its `quorlock._scope.Scope`, and the lease that it holds.
struct Block {
    scope: Py<PyAny>,
    lease: Py<Lease>,
    entry: Entry,
}

/// What entered a block. The reference prevents that something else gets the same identity.
struct Entry {
    /// The call: a `with` statement leaves its block in the same call. Or the callbacks of an `ExitStack` or
    /// `AsyncExitStack`: the stack leaves what it has entered, in any thread and task. If the callbacks are moved to
    /// another stack with `pop_all`, that one does.
    object: Py<PyAny>,
    is_stack: bool,
}

impl Entry {
    /// Returns what enters or leaves a block with this call.
    fn of(frame: &Bound<'_, PyAny>) -> PyResult<Self> {
        // Before Python 3.13, a dict with all local variables stays in a call whose first argument was read. So this
        // must not read that of every caller.
        if frame.getattr("f_globals")?.is(CONTEXTLIB.get(frame.py())?)
            && let Ok(callbacks) = object_of(frame)?.getattr("_exit_callbacks")
        {
            return Ok(Self { object: callbacks.unbind(), is_stack: true });
        }
        Ok(Self { object: frame.clone().unbind(), is_stack: false })
    }
}

#[pymethods]
impl Acquirable {
    /// The resources, in the order in which they were given.
    #[getter]
    fn _resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.source.resources())
    }

    #[getter]
    fn _observer(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.observer.get(py)
    }

    /// Starts an acquire. `options` override those of the lock. The result is a native lease.
    fn _acquire(&self, options: &Bound<'_, PyDict>) -> PyResult<Pending> {
        let py = options.py();
        let _entered = begin(py)?;
        let owner = owner(py)?;
        let blocks = blocks(py, owner)?;
        if options.is_empty() && blocks.is_empty() {
            return Ok(Pending::of(self.source.acquire(owner)));
        }
        let source = self.source.clone().within(blocks);
        let source = if options.is_empty() { source } else { source.with_options(options)? };
        Ok(Pending::of(source.acquire(owner)))
    }

    /// Starts a try. The result is a native lease, or `None`.
    fn _try_acquire(&self, py: Python<'_>) -> PyResult<Pending> {
        let _entered = begin(py)?;
        Ok(Pending::of(self.source.try_acquire(owner(py)?)))
    }

    /// Acquires. `options` override those of the lock. Returns a `quorlock.Lease`.
    fn _hold<'py>(&self, options: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let py = options.py();
        let _entered = exit::enter(py);
        deliver(py, &self.held(py, |_| self._acquire(options))?.ok_or_else(no_lease)?)
    }

    /// Tries once to acquire. Returns a `quorlock.Lease` or `None`.
    fn _try_hold<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let _entered = exit::enter(py);
        let native = self.held(py, |py| self._try_acquire(py))?;
        native.map(|native| deliver(py, &native)).transpose()
    }

    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _entered = exit::enter(py);
        let options = PyDict::new(py);
        let native = self.held(py, |_| self._acquire(&options))?.ok_or_else(no_lease)?;
        let lease = wrap(py, &native)?;
        // The last Python code of the entry. If a signal handler raises here, nothing else owns the
        // lease, so release it.
        let scope = scope::of(py, &lease);
        let scope = scope.inspect_err(|_| native.get().undo())?;
        self.enter(scope, native, 0)?;
        Ok(lease)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _entered = exit::enter(py);
        // `block` must live until the release has begun: its scope refers to a `quorlock.Lease`, whose
        // collection while the lease is valid would be reported as a dropped lease.
        let block = self.leave(py, 0)?;
        block.lease.get().leave(py, raised)
    }

    /// Opens a block for the caller of `__aenter__`. `_leave` closes it.
    fn _enter(&self, scope: Bound<'_, PyAny>, lease: Py<Lease>) -> PyResult<()> {
        let _entered = exit::enter(scope.py());
        self.enter(scope, lease, 1)
    }

    /// Closes the block that the caller of `__aexit__` leaves, and returns its scope.
    fn _leave(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let _entered = exit::enter(py);
        Ok(self.leave(py, 1)?.scope)
    }

    /// Reports the open blocks to the garbage collector, so that an object that only its own blocks refer to, such as
    /// through an `ExitStack`, is collected with its leases.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The thread that holds this mutex refers to this object, so it is not garbage.
        let Ok(open) = self.open.try_lock() else { return Ok(()) };
        for Block { scope, lease, entry } in &*open {
            visit.call(scope)?;
            visit.call(lease)?;
            visit.call(&entry.object)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let open = std::mem::take(&mut *self.open());
        Python::attach(|py| {
            // The entries may have the last references to objects with finalizers in Python.
            let _entered = exit::enter(py);
            drop(open);
        });
    }
}

impl Acquirable {
    fn enter(&self, scope: Bound<'_, PyAny>, lease: Py<Lease>, depth: u32) -> PyResult<()> {
        let entry = Entry::of(&FRAME.get(scope.py())?.call1((depth,))?)?;
        LeaseBlock::_begin_block(scope::lease(&scope)?.cast()?)?;
        scope::enter(&scope, &lease.get().0)?;
        self.open().push(Block { scope: scope.unbind(), lease, entry });
        Ok(())
    }

    fn new(client: &Client, source: Source) -> Self {
        Self { source, observer: client.observer.clone(), open: Mutex::default() }
    }

    /// Waits for an acquire that `start` starts, within the observer's context manager.
    fn held<'py>(
        &self,
        py: Python<'py>,
        start: impl FnOnce(Python<'py>) -> PyResult<Pending>,
    ) -> PyResult<Option<Py<Lease>>> {
        let acquire = |py| match start(py)?.wait_here(py, None)? {
            Some(lease) => Ok(lease.extract::<Option<Py<Lease>>>(py)?),
            None => Err(no_lease()),
        };
        let hold = || self.observer.observed(py, |py| self._resources(py), acquire);
        waiting::block(py, hold)
    }

    fn open(&self) -> MutexGuard<'_, Vec<Block>> {
        mutex::lock(&self.open)
    }

    /// Removes the block that the call at this depth leaves. Fails if it is not clear which one that is.
    fn leave(&self, py: Python<'_>, depth: u32) -> PyResult<Block> {
        let frame = FRAME.get(py)?.call1((depth,))?;
        let entry = Entry::of(&frame)?;
        let block = match self.remove(|block| block.entry.object.is(&entry.object)) {
            None => match self.left_by(&frame)? {
                Some(scope) => self.remove(|block| block.scope.is(&scope)),
                None => None,
            },
            entered_here => entered_here,
        };
        let Some(block) = block else {
            return Err(PyRuntimeError::new_err(match self.open().is_empty() {
                true => "no block of this lock is open",
                false => {
                    "it is not clear which block of this lock is left here: leave a block where it \
                     was entered, or keep the lease: `lease = lock.acquire()`, then `lease.release()`"
                }
            }));
        };
        scope::leave(block.scope.bind(py))?;
        Ok(block)
    }

    /// Removes the innermost of the open blocks that fulfil a condition.
    fn remove(&self, is_left: impl Fn(&Block) -> bool) -> Option<Block> {
        let mut open = self.open();
        open.iter().rposition(is_left).map(|index| open.remove(index))
    }

    /// Returns the scope of the block to leave for a call that entered none itself.
    ///
    /// Only blocks that calls have entered in this context qualify. Another thread or task may still work in its block,
    /// while this one only cleans up after an entry that failed. Of these blocks:
    ///
    /// - the innermost that a method of the same object entered
    /// - or else the only one, if no method entered it
    /// - or else the innermost, if methods of one object entered all of them, and the leaving call is not of another
    ///   object of its class: such an object does not leave the block.
    ///
    /// `None` if none of this applies.
    fn left_by<'py>(&self, frame: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = frame.py();
        let clone = |Block { scope, entry, .. }: &Block| {
            (!entry.is_stack).then(|| (scope.clone_ref(py), entry.object.clone_ref(py)))
        };
        let open: Vec<_> = self.open().iter().rev().filter_map(clone).collect();
        let leaving = object_of(frame)?;
        let mut own = Vec::new();
        for (scope, entering) in open {
            let scope = scope.into_bound(py);
            if scope::is_of_context(&scope)? {
                own.push((scope, object_of(entering.bind(py))?));
            }
        }
        let is_same = |object: &Bound<'_, PyAny>| !leaving.is_none() && object.is(&leaving);
        if let Some(index) = own.iter().position(|(_, object)| is_same(object)) {
            return Ok(Some(own.swap_remove(index).0));
        }
        let is_only = matches!(&*own, [(_, object)] if object.is_none());
        let has_one_owner = own
            .iter()
            .all(|(_, object)| object.is(&own[0].1) && !object.get_type().is(leaving.get_type()));
        Ok(own.into_iter().next().filter(|_| is_only || has_one_owner).map(|(scope, _)| scope))
    }
}

/// The packages whose methods call functions of others: event loops and executors.
const CALLERS: [&str; 2] = ["asyncio", "concurrent"];

/// Returns the object whose method a call is; `None` if it is no method, or one of [`CALLERS`].
fn object_of<'py>(frame: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let none = || frame.py().None().into_bound(frame.py());
    let code = frame.getattr("f_code")?;
    if code.getattr("co_argcount")?.extract::<u32>()? == 0 {
        return Ok(none());
    }
    let name = code.getattr("co_varnames")?.get_item(0)?;
    let module = frame.getattr("f_globals")?.call_method1("get", ("__name__", ""))?;
    let package = module.str()?.to_string();
    let is_caller = CALLERS.iter().any(|caller| package.split('.').next() == Some(caller));
    if is_caller || !["self", "cls"].contains(&&*name.str()?.to_string()) {
        return Ok(none());
    }
    frame.getattr("f_locals")?.call_method1("get", (name,))
}

/// The native part of `quorlock.Lock`.
#[pyclass(frozen, subclass, extends = Acquirable, module = "quorlock._quorlock")]
pub(crate) struct Lock(quorlock::Lock);

#[pymethods]
impl Lock {
    #[new]
    fn new(
        client: &Client,
        resources: &Bound<'_, PyTuple>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let py = resources.py();
        let _entered = exit::enter(py);
        let lock = client.client.lock(convert::resources(resources)?);
        let lock = lock.options(Dialect::Python, values(options)?);
        let lock = lock.checked().map_err(|e| error(py, &e))?;
        let base = Acquirable::new(client, Source::Lock(lock.clone()));
        Ok(PyClassInitializer::from(base).add_subclass(Self(lock)))
    }

    fn _locked(&self, py: Python<'_>) -> PyResult<Pending> {
        let _entered = begin(py)?;
        Ok(Pending::of(self.0.locked()))
    }
}

/// The native part of `quorlock.Semaphore`.
#[pyclass(frozen, subclass, extends = Acquirable, module = "quorlock._quorlock")]
pub(crate) struct Semaphore(quorlock::Semaphore);

#[pymethods]
impl Semaphore {
    #[new]
    fn new(
        client: &Client,
        resource: &Bound<'_, PyAny>,
        limit: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let py = resource.py();
        let _entered = exit::enter(py);
        let resource = convert::resource(resource)?;
        let semaphore = client.client.semaphore_as(Dialect::Python, resource, &value(limit));
        let semaphore = semaphore.options(Dialect::Python, values(options)?);
        let semaphore = semaphore.checked().map_err(|e| error(py, &e))?;
        let base = Acquirable::new(client, Source::Semaphore(semaphore.clone()));
        Ok(PyClassInitializer::from(base).add_subclass(Self(semaphore)))
    }

    #[getter]
    fn _resource(&self) -> &str {
        self.0.resource()
    }

    #[getter]
    fn _limit(&self) -> u32 {
        self.0.limit()
    }

    #[getter]
    fn _permits(&self) -> u32 {
        self.0.permits_wanted()
    }

    /// Starts a query of the status. The result is JSON.
    fn _status(&self, py: Python<'_>) -> PyResult<Pending> {
        let _entered = begin(py)?;
        Ok(Pending::of(self.0.status()))
    }
}

/// Returns a new lease as a `quorlock.Lease` to the caller.
///
/// Signals that arrived during the acquire are handled here. In the caller's code, an exception of a signal
/// handler could discard the lease before it is assigned, and a discarded lease is not released.
fn deliver<'py>(py: Python<'py>, native: &Py<Lease>) -> PyResult<Bound<'py, PyAny>> {
    let lease = wrap(py, native)?;
    py.check_signals().inspect_err(|_| native.get().undo())?;
    Ok(lease)
}

fn no_lease() -> PyErr {
    PyRuntimeError::new_err("the acquire has no result")
}
