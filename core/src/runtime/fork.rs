//! Processes that fork.
//!
//! A forked child has a copy of its parent's memory, but none of its threads: a runtime that it
//! inherited does nothing, a mutex that another thread held is locked for ever, and to drop either
//! can hang the child or disturb the parent, with whom it shares the sockets. So the child leaves
//! everything that belongs to a process where it is, and makes its own when it needs one.

use once_cell::race::OnceBox;
use once_cell::sync::OnceCell;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many forks lie between the first process that used quorlock and this one, at least.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Begins to count forks. To be called before anything that belongs to a process is made.
#[cfg(unix)]
pub(crate) fn watch() {
    use std::sync::atomic::AtomicBool;
    static WATCHING: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        // Nothing but atomics is safe here.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    if !WATCHING.load(Ordering::Acquire) {
        // Two threads may both do this, and forks then count twice, which is no harm.
        #[expect(unsafe_code, reason = "there is no safe form of pthread_atfork")]
        // SAFETY: the handler is a function of this library, which is never unloaded, and only
        // touches an atomic.
        let registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(registered, 0, "pthread_atfork fails only for want of memory");
        WATCHING.store(true, Ordering::Release);
    }
}

#[cfg(not(unix))]
pub(crate) fn watch() {}

fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// A value that each process makes for itself, when it first needs it.
#[derive(Debug, Default)]
pub struct PerProcess<T> {
    generation: u64,
    cell: OnceCell<T>,
    /// That of a child, of its child, and so on: each sees those of its ancestors before its own.
    next: OnceBox<PerProcess<T>>,
}

impl<T> PerProcess<T> {
    /// No process has a value yet.
    pub const fn new() -> Self {
        Self::of(0)
    }

    const fn of(generation: u64) -> Self {
        Self { generation, cell: OnceCell::new(), next: OnceBox::new() }
    }

    fn cell(&self) -> &OnceCell<T> {
        let generation = generation();
        let mut own = self;
        while own.generation != generation {
            own = own.next.get_or_init(|| Box::new(Self::of(generation)));
        }
        &own.cell
    }

    /// This process's value, if it has made one.
    pub fn get(&self) -> Option<&T> {
        self.cell().get()
    }

    /// This process's value; `make` makes it.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.cell().get_or_init(make)
    }

    /// This process's value; `make` makes it, or fails to.
    ///
    /// # Errors
    ///
    /// The error of `make`.
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        self.cell().get_or_try_init(make)
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if self.generation != generation() {
            mem::forget(self.cell.take());
        }
    }
}

/// A value that belongs to the process that made it, and is dropped only there.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    generation: u64,
    /// `None` only while it is being dropped.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { generation: generation(), value: Some(value) }
    }

    /// Whether this is a copy in a forked child.
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != generation()
    }

    /// The value, in the process that made it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| !self.is_inherited())
    }

    /// The value to be changed, in the process that made it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        let inherited = self.is_inherited();
        self.value.as_mut().filter(|_| !inherited)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_inherited() {
            mem::forget(self.value.take());
        }
    }
}
