//! The end of the interpreter, and the threads that are inside this module then.
//!
//! Before Python 3.14 a thread that takes the GIL while the interpreter finalizes is ended by
//! `pthread_exit`, which unwinds its stack. Rust aborts the process when that reaches one of its frames.
//! So no thread may take the GIL beneath a frame of this module once finalization can have begun:
//!
//! - Every native function that waits, or that may run Python code, holds an [`Entered`]. It gives this up
//!   while it waits without the GIL ([`detach`]).
//! - The exit handler ([`end`]) waits until no other thread holds one. A thread that asks for one after that
//!   is parked, without the GIL, and never comes back.
//!
//! The thread that runs the exit handler is the one that finalizes the interpreter. It is never parked.

use pyo3::prelude::*;
use quorlock::PerProcess;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How long the exit handler waits for other threads to leave this module. What they run there is short:
/// it converts values, and calls observers of acquires.
const PATIENCE: Duration = Duration::from_secs(5);

static EXIT: PerProcess<Exit> = PerProcess::new();

thread_local! {
    /// How many [`Entered`] this thread holds, one within another.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

#[derive(Default)]
struct Exit {
    /// How many threads hold an [`Entered`].
    inside: AtomicUsize,
    is_over: AtomicBool,
    /// The thread that finalizes the interpreter, once it has begun to. Set before `is_over`.
    finalizing: OnceLock<ThreadId>,
}

impl Exit {
    fn of_process() -> &'static Self {
        EXIT.get_or_init(Self::default)
    }

    /// Counts this thread, unless it is to be parked.
    fn come_in(&self) -> bool {
        // Either `end` sees the count, or this sees `is_over`.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let is_welcome = !self.is_over.load(Ordering::SeqCst)
            || self.finalizing.get() == Some(&thread::current().id());
        if !is_welcome {
            self.go_out();
        }
        is_welcome
    }

    fn go_out(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Held by native functions that wait, or that may run Python code.
pub(crate) struct Entered(&'static Exit);

/// Parks this thread for good if the interpreter is about to be finalized by another one.
pub(crate) fn enter(py: Python<'_>) -> Entered {
    let exit = Exit::of_process();
    if DEPTH.get() == 0 && !exit.come_in() {
        py.detach(park);
    }
    DEPTH.set(DEPTH.get() + 1);
    Entered(exit)
}

impl Drop for Entered {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            self.0.go_out();
        }
    }
}

fn park() {
    loop {
        thread::park();
    }
}

/// A thread that has given up its [`Entered`] for a while.
struct Outside {
    exit: &'static Exit,
    depth: usize,
}

impl Outside {
    fn new() -> Self {
        let (exit, depth) = (Exit::of_process(), DEPTH.replace(0));
        if depth > 0 {
            exit.go_out();
        }
        Self { exit, depth }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // Another greenlet of this thread may hold one.
        if self.depth > 0 && DEPTH.get() == 0 && !self.exit.come_in() {
            park();
        }
        DEPTH.set(DEPTH.get() + self.depth);
    }
}

/// Runs `work` without the GIL.
pub(crate) fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    // Counted when it takes the GIL again.
    let _entered = enter(py);
    py.detach(|| {
        let _outside = Outside::new();
        work()
    })
}

/// Calls a Python function that lets other greenlets of this thread run: their stacks replace this one.
pub(crate) fn switch<'py>(
    call: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _outside = Outside::new();
    call()
}

/// The process is about to end, and this thread sees to that.
pub(crate) fn begin() {
    let _ = Exit::of_process().finalizing.set(thread::current().id());
}

/// Whether this is a daemon thread of a process that is about to end: others have ended before.
pub(crate) fn outlives_process() -> bool {
    let finalizing = Exit::of_process().finalizing.get();
    finalizing.is_some_and(|finalizing| *finalizing != thread::current().id())
}

/// For the exit handler: once it returns, no other thread takes the GIL beneath a frame of this module.
pub(crate) fn end(py: Python<'_>) {
    let exit = Exit::of_process();
    begin();
    exit.is_over.store(true, Ordering::SeqCst);
    let own = usize::from(DEPTH.get() > 0);
    py.detach(|| {
        wait_until(PATIENCE, || exit.inside.load(Ordering::SeqCst) <= own);
    });
}

/// Waits for a condition for at most so long.
pub(crate) fn wait_until(patience: Duration, is_met: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_met() && began.elapsed() < patience {
        thread::sleep(Duration::from_millis(1));
    }
}
