//! The core's events for Python's `logging`.
//!
//! They come in on threads that must not take the GIL, so a thread of its own hands them on. How much is
//! heard is looked up where the GIL is held anyway: when a client is made, and when a lock is acquired,
//! but then not each time.

use crate::thread::{self, Gate};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quorlock::{Detail, Listener, PerProcess, Record, TARGETS};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So often the levels are looked up at most.
const INTERVAL: Duration = Duration::from_millis(100);

static LOGGING: PerProcess<Logging> = PerProcess::new();

struct Logging {
    listener: Arc<Listener>,
    looked: Mutex<Option<Instant>>,
}

impl Logging {
    fn start() -> Self {
        // Started with the first record.
        static HANDING_ON: PerProcess<Sender<()>> = PerProcess::new();
        let wake = || {
            let sender = HANDING_ON.get_or_init(|| thread::start("quorlock-logging", hand_on));
            // The thread ends with the process only.
            let _ = sender.send(());
        };
        Self { listener: Listener::new(wake), looked: Mutex::default() }
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

/// Looks up how much is to be heard, unless that was done a moment ago.
pub(crate) fn look(py: Python<'_>) -> PyResult<()> {
    let logging = LOGGING.get_or_init(Logging::start);
    if logging.is_due() { look_now(py) } else { Ok(()) }
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
    let records = LOGGING.get().map(|logging| logging.listener.take()).unwrap_or_default();
    if records.is_empty() {
        return Ok(());
    }
    let module = py.import("quorlock._logging")?;
    for record in records {
        let fields = PyDict::new(py);
        for (name, detail) in &record.fields {
            fields.set_item(name, value(py, detail)?)?;
        }
        let Record { level, target, name, text, time, .. } = &*record;
        module.call_method1("log", (level, target, name, text, time, fields))?;
    }
    // What is logged is a good reason to look what else is to be.
    look_now(py)
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

fn hand_on(receiver: &Receiver<()>, gate: &Gate) {
    while let Ok(()) = receiver.recv() {
        gate.call(|py| {
            if let Err(error) = log(py) {
                error.write_unraisable(py, None);
            }
        });
    }
}
