//! Keeps other threads out of this crate while the interpreter finalizes.
//!
//! Before Python 3.14, a thread that takes the GIL during finalization is ended by `pthread_exit`, which
//! unwinds its stack. Rust aborts the process when the unwinding reaches a Rust frame. So once finalization
//! may have begun, no thread may take the GIL with a frame of this crate on its stack:
//!
//! - Every native function that waits, or that may run Python code, holds an [`Entered`] guard. It gives
//!   the guard up while it waits without the GIL ([`detach`]).
//! - After the last exit handler, [`end`] waits until no other thread holds a guard. A thread that requests a guard
//!   after that is parked forever, without the GIL.
//!
//! The thread that runs the exit handlers also finalizes the interpreter. It is never parked, so finalizers can
//! acquire and release. When no Python code can run any more, all leases are released. All other modules of this
//! crate call this one; it depends on none of them.

use pyo3::ffi;
use pyo3::prelude::*;
use quorlock::PerProcess;
use std::cell::Cell;
use std::mem;
use std::panic;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The maximum time that the exit handler waits for other threads to leave this crate. They run only short
/// code there: they convert values and call observers of acquires.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum time that the release of all leases takes at the end of the process.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

static EXIT: PerProcess<Exit> = PerProcess::new();

thread_local! {
    /// The number of nested [`Entered`] guards that this thread holds.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

#[derive(Default)]
struct Exit {
    /// The number of threads that hold an [`Entered`] guard.
    inside: AtomicUsize,
    is_over: AtomicBool,
    /// The thread that finalizes the interpreter, once it has begun. Set before `is_over`.
    finalizing: OnceLock<ThreadId>,
}

impl Exit {
    fn of_process() -> &'static Self {
        EXIT.get_or_init(Self::default)
    }

    /// Counts this thread as inside this crate. Returns false, without counting it, if it must be parked.
    fn try_enter(&self) -> bool {
        // Count first, then check: either `end` sees the count, or this thread sees `is_over`.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let is_admitted = !self.is_over.load(Ordering::SeqCst)
            || self.finalizing.get() == Some(&thread::current().id());
        if !is_admitted {
            self.leave();
        }
        is_admitted
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A guard that native functions hold if they wait or may run Python code.
pub(crate) struct Entered(&'static Exit);

/// Returns a guard. Parks this thread forever if another thread is finalizing the interpreter.
pub(crate) fn enter(py: Python<'_>) -> Entered {
    let exit = Exit::of_process();
    if DEPTH.get() == 0 && !exit.try_enter() {
        py.detach(park);
    }
    DEPTH.set(DEPTH.get() + 1);
    Entered(exit)
}

impl Drop for Entered {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            self.0.leave();
        }
    }
}

fn park() {
    loop {
        thread::park();
    }
}

/// Suspends the [`Entered`] guards of this thread until this value is dropped.
struct Outside {
    exit: &'static Exit,
    depth: usize,
}

impl Outside {
    fn new() -> Self {
        let exit = Exit::of_process();
        let depth = DEPTH.replace(0);
        if depth > 0 {
            exit.leave();
        }
        Self { exit, depth }
    }
}

impl Outside {
    /// Makes the guards count again. Returns false if this thread must be parked.
    fn rejoin(&mut self) -> bool {
        let depth = mem::take(&mut self.depth);
        // The depth is not 0 if another greenlet of this thread holds a guard.
        let is_admitted = depth == 0 || DEPTH.get() > 0 || self.exit.try_enter();
        DEPTH.set(DEPTH.get() + depth);
        is_admitted
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if !self.rejoin() {
            park();
        }
    }
}

/// Runs `work` without the GIL.
pub(crate) fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    // The guard must enclose `py.detach`, so that this thread counts as inside before it takes the GIL back.
    let _entered = enter(py);
    py.detach(|| {
        let _outside = Outside::new();
        work()
    })
}

/// Calls a Python function that may switch to other greenlets. They run on the same thread while
/// this one waits, so the guards of this greenlet must not count during the call.
pub(crate) fn switch<'py>(
    py: Python<'py>,
    call: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut outside = Outside::new();
    let result = call();
    // This thread has the GIL here, and must not keep it while it is parked.
    if !outside.rejoin() {
        py.detach(park);
    }
    result
}

/// Registers the release of all leases for the end of the finalization, after all Python code. Does nothing if the
/// interpreter has no room for it: the leases expire then.
pub(crate) fn release_after_finalization() {
    extern "C" fn release() {
        // Unwinding into the interpreter would abort the process.
        let _ = panic::catch_unwind(|| quorlock::release_all(RELEASE_TIMEOUT));
    }
    #[expect(unsafe_code, reason = "PyO3 has no safe form of it")]
    // SAFETY: The interpreter is initialized, and `release` uses no Python object.
    unsafe {
        ffi::Py_AtExit(Some(release))
    };
}

/// Returns whether other threads are kept out: only the finalizing one calls this crate, for finalizers.
pub(crate) fn is_over() -> bool {
    Exit::of_process().is_over.load(Ordering::SeqCst)
}

/// Waits until no other thread is inside this crate, and keeps threads out from then on.
///
/// Called when all exit handlers of Python have run. After this returns, no other thread takes the GIL with a frame
/// of this crate on its stack.
pub(crate) fn end(py: Python<'_>) {
    let exit = Exit::of_process();
    let _ = exit.finalizing.set(thread::current().id());
    exit.is_over.store(true, Ordering::SeqCst);
    let own = usize::from(DEPTH.get() > 0);
    py.detach(|| {
        wait_until(LEAVE_TIMEOUT, || exit.inside.load(Ordering::SeqCst) <= own);
    });
}

/// Polls a condition until it is met, for at most `timeout`.
pub(crate) fn wait_until(timeout: Duration, is_met: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_met() && began.elapsed() < timeout {
        thread::sleep(Duration::from_millis(1));
    }
}
