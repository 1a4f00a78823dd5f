//! The core's events for Python's `logging`.
//!
//! They come in on threads that must not take the GIL, so a Python thread hands them on
//! (`quorlock._logging.hand_on`). How much is heard is looked up where the GIL is held anyway: when a client is made, and when a lock is acquired,
//! but then not each time.

use crate::calls::Kind;
use crate::exit;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use quorlock::{Detail, Listener, PerProcess, Record, TARGETS};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So often the levels are looked up at most.
const INTERVAL: Duration = Duration::from_millis(100);

static LOGGING: PerProcess<Logging> = PerProcess::new();

struct Logging {
    listener: Arc<Listener>,
    looked: Mutex<Option<Instant>>,
    has_thread: AtomicBool,
}

impl Logging {
    fn start() -> Self {
        let wake = || {
            Kind::Logging.put("", |py| {
                let hand_on = py.import("quorlock._logging")?.getattr("hand_on")?;
                Ok((hand_on.unbind(), PyTuple::empty(py).unbind()))
            });
            true
        };
        Self {
            listener: Listener::new(wake),
            looked: Mutex::default(),
            has_thread: AtomicBool::new(false),
        }
    }

    fn is_due(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_due = looked.is_none_or(|last| now.duration_since(last) >= INTERVAL);
        if is_due {
            *looked = Some(now);
        }
        is_due
    }
}

/// For what may be followed by events: looks up how much is to be heard, unless that was done a moment
/// ago, and makes sure that a thread hands events on if the program uses `logging`.
pub(crate) fn look(py: Python<'_>) -> PyResult<()> {
    let logging = LOGGING.get_or_init(Logging::start);
    if !logging.has_thread.load(Ordering::Relaxed) && py_uses_logging(py)? {
        // Without a thread there is nobody to tell; the next acquire tries again.
        let has_thread = Kind::Logging.start(py).is_ok();
        logging.has_thread.store(has_thread, Ordering::Relaxed);
    }
    if logging.is_due() { look_now(py) } else { Ok(()) }
}

fn py_uses_logging(py: Python<'_>) -> PyResult<bool> {
    py.import("quorlock._logging")?.call_method0("is_used")?.extract()
}

/// Looks up how much is to be heard.
pub(crate) fn look_now(py: Python<'_>) -> PyResult<()> {
    let module = py.import("quorlock._logging")?;
    let levels: [u8; TARGETS.len()] = module.call_method1("levels", (TARGETS,))?.extract()?;
    LOGGING.get_or_init(Logging::start).listener.listen(levels);
    Ok(())
}

/// Hands on what there is.
pub(crate) fn log(py: Python<'_>) -> PyResult<()> {
    py.import("quorlock._logging")?.call_method0("hand_on")?;
    Ok(())
}

/// Takes what there is to log: the arguments of `quorlock._logging.log`.
#[pyfunction]
pub(crate) fn records(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyTuple>>> {
    let _entered = exit::enter(py);
    let records = LOGGING.get().map(|logging| logging.listener.take()).unwrap_or_default();
    if !records.is_empty() {
        // What is logged is a good reason to look what else is to be.
        look_now(py)?;
    }
    records.iter().map(|record| arguments(py, record)).collect()
}

fn arguments<'py>(py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyTuple>> {
    let fields = PyDict::new(py);
    for (name, detail) in &record.fields {
        fields.set_item(name, value(py, detail)?)?;
    }
    let Record { level, target, name, text, time, .. } = record;
    (level, target, name, text, time, fields).into_pyobject(py)
}

fn value<'py>(py: Python<'py>, detail: &Detail) -> PyResult<Bound<'py, PyAny>> {
    match detail {
        Detail::Text(text) => text.into_bound_py_any(py),
        Detail::Whole(number) => number.into_bound_py_any(py),
        Detail::Number(number) => number.into_bound_py_any(py),
        Detail::Flag(flag) => flag.into_bound_py_any(py),
        _ => Ok(py.None().into_bound(py)),
    }
}
