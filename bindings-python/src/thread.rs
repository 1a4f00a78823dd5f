//! Threads that call into Python, started at first use. They end with the process only.

use pyo3::prelude::*;
use quorlock::PerProcess;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// For so long the end of the process waits for what the program has called there.
const PATIENCE: Duration = Duration::from_secs(1);

static THREADS: PerProcess<Mutex<Vec<Arc<Gate>>>> = PerProcess::new();

/// What the calls of one thread go through.
#[derive(Default)]
pub(crate) struct Gate {
    /// Whether the interpreter is about to end. Locked while the thread has the GIL, or waits for it: a
    /// thread that waits for it when the interpreter ends is ended in a way that Rust cannot bear.
    is_over: Mutex<bool>,
}

impl Gate {
    /// Calls into Python, unless the interpreter is about to end: nobody listens then.
    pub(crate) fn call(&self, work: impl FnOnce(Python<'_>)) {
        let is_over = lock(&self.is_over);
        if !*is_over {
            let _ = Python::try_attach(work);
        }
    }
}

pub(crate) fn start<T: Send + 'static>(name: &str, run: fn(&Receiver<T>, &Gate)) -> Sender<T> {
    let (sender, receiver) = mpsc::channel();
    let gate = Arc::new(Gate::default());
    lock(THREADS.get_or_init(Mutex::default)).push(Arc::clone(&gate));
    // Without the thread there is nobody to tell; there is no better way to fail.
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || run(&receiver, &gate))
        .expect("a thread can be started");
    sender
}

/// For the end of the process: these threads call nothing from then on.
pub(crate) fn end(py: Python<'_>) {
    let Some(gates) = THREADS.get().map(|gates| lock(gates).clone()) else { return };
    py.detach(|| {
        let began = Instant::now();
        for gate in gates {
            while let Err(_busy) = gate.is_over.try_lock().map(|mut is_over| *is_over = true) {
                if began.elapsed() >= PATIENCE {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
