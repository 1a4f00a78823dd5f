//! The native part of `quorlock.Lock`, with its `with` block.
//!
//! `with` is native because a signal, such as Ctrl-C, may raise an exception between any two steps of
//! Python code: also on entry, when the lock is held already, and at the beginning of the exit. Here
//! exceptions come up only where they are asked for.

use crate::Lease;
use crate::completion::Pending;
use crate::convert::{error, values};
use crate::exit;
use crate::logging;
use crate::observer::Observer;
use crate::waiting::wait_here;
use once_cell::race::OnceBox;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use quorlock::{Dialect, Owner};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[pyclass(frozen, subclass, module = "quorlock._quorlock")]
pub(crate) struct Lock {
    lock: quorlock::Lock,
    observer: Observer,
    /// The blocks that are entered and not left. The lock object may be shared, so there may be
    /// several.
    open: Mutex<Vec<Block>>,
}

/// A block: the `quorlock._scope.Scope` that Python has of it, and the lease that it holds.
struct Block {
    scope: Py<PyAny>,
    lease: Py<Lease>,
}

#[pymethods]
impl Lock {
    #[new]
    fn new(
        client: &crate::Client,
        resources: &Bound<'_, PyTuple>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let _entered = exit::enter(resources.py());
        // What is not a string gets the same error as an empty one.
        let names = resources.iter().map(|name| name.extract::<String>().unwrap_or_default());
        let mut lock = client.client.lock(names.collect::<Vec<_>>());
        for (name, value) in values(options)? {
            lock = lock.option(Dialect::Python, &name, &value);
        }
        let lock = lock.checked().map_err(|e| error(resources.py(), &e))?;
        Ok(Self { lock, observer: client.observer.clone(), open: Mutex::default() })
    }

    #[getter]
    fn _resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.lock.resources())
    }

    #[getter]
    fn _observer(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.observer.get(py)
    }

    fn _acquire(&self, py: Python<'_>) -> PyResult<Pending> {
        let _entered = exit::enter(py);
        logging::look(py)?;
        Ok(Pending::of(self.lock.acquire_as(Some(owner(py)?)), |py, acquired| {
            let lease = acquired.map_err(|e| error(py, &e))?;
            Ok(Py::new(py, Lease(lease))?.into_any())
        }))
    }

    fn _locked(&self, py: Python<'_>) -> PyResult<Pending> {
        let _entered = exit::enter(py);
        logging::look(py)?;
        Ok(Pending::of(self.lock.locked(), |py, locked| {
            let locked = locked.map_err(|e| error(py, &e))?;
            Ok(locked.into_pyobject(py)?.to_owned().into_any().unbind())
        }))
    }

    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _entered = exit::enter(py);
        let acquire = |py| {
            let lease = wait_here(py, self._acquire(py)?, None)?;
            let lease =
                lease.ok_or_else(|| PyRuntimeError::new_err("the acquire has no result"))?;
            Ok(lease.cast_bound::<Lease>(py)?.clone().unbind())
        };
        let lease = self.observer.observed(py, |py| self._resources(py), acquire)?;
        // The last Python code. An interrupt there leaves nothing to hold the lease.
        let scope =
            python(py, &SCOPE, "Scope").and_then(|scope| scope.call1((lease.clone_ref(py),)));
        let scope = scope.inspect_err(|_| drop(lease.get().0.release()))?;
        self._enter(scope.clone(), lease)?;
        scope.getattr("lease")
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _entered = exit::enter(py);
        // Kept until the release has begun: its scope has a `quorlock.Lease`, which must not be collected
        // while the lease is valid.
        let block = self.leave(py)?;
        let lease = block.lease.get();
        wait_here(py, lease.release(), None)?;
        let lease = &lease.0;
        match lease.loss() {
            Some(loss) if raised.is_none() => Err(error(py, &loss)),
            _ => Ok(()),
        }
    }

    /// Begins a block.
    fn _enter(&self, scope: Bound<'_, PyAny>, lease: Py<Lease>) -> PyResult<()> {
        let py = scope.py();
        let _entered = exit::enter(py);
        let entered = entered(py)?.into_iter().chain([scope.clone()]);
        set_entered(py, entered.collect())?;
        self.open().push(Block { scope: scope.unbind(), lease });
        Ok(())
    }

    /// Ends the block that is being left, and returns its scope.
    fn _leave(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let _entered = exit::enter(py);
        Ok(self.leave(py)?.scope)
    }
}

impl Lock {
    fn open(&self) -> MutexGuard<'_, Vec<Block>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, py: Python<'_>) -> PyResult<Block> {
        let entered = entered(py)?;
        let block = {
            let mut open = self.open();
            let own = |scope: &Bound<'_, PyAny>| open.iter().position(|b| b.scope.is(scope));
            // A generator may be left in another context than it was entered in; a single open
            // block is the one that is being left all the same.
            match entered.iter().rev().find_map(own) {
                Some(index) => open.remove(index),
                None if open.len() == 1 => open.remove(0),
                None => {
                    return Err(PyRuntimeError::new_err(
                        "this block was entered in another thread or task, and the lock is \
                         shared: make a lock for each block",
                    ));
                }
            }
        };
        let others = entered.into_iter().filter(|scope| !block.scope.is(scope));
        set_entered(py, others.collect())?;
        Ok(block)
    }
}

// Nobody waits for another thread to fill these: in a forked child that thread would be gone, and the child
// would wait for ever. PyO3's own cells, also those of `intern!`, let go of the GIL before they are filled.
static SCOPE: OnceBox<Py<PyAny>> = OnceBox::new();
static ENTERED: OnceBox<Py<PyAny>> = OnceBox::new();
static OWNER: OnceBox<Py<PyAny>> = OnceBox::new();

fn python<'py>(
    py: Python<'py>,
    cell: &'static OnceBox<Py<PyAny>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    let import = || Ok::<_, PyErr>(Box::new(py.import("quorlock._scope")?.getattr(name)?.unbind()));
    Ok(cell.get_or_try_init(import)?.bind(py))
}

/// The asyncio task or thread that acquires.
fn owner(py: Python<'_>) -> PyResult<Owner> {
    Ok(Owner::Foreign(python(py, &OWNER, "owner")?.call0()?.extract()?))
}

/// The blocks that this thread or task is in, innermost last.
fn entered(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    python(py, &ENTERED, "entered")?.call_method0("get")?.extract()
}

fn set_entered(py: Python<'_>, scopes: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
    let scopes = PyTuple::new(py, scopes)?;
    python(py, &ENTERED, "entered")?.call_method1("set", (scopes,))?;
    Ok(())
}
