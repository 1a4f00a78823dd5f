//! Values that belong to one process, and what happens to them in a forked child.
//!
//! A forked child has a copy of its parent's memory, but only one of its threads: the thread that forked. So an
//! inherited runtime does nothing, and a mutex that another thread held during the fork stays locked forever. If the
//! child drops an inherited value, the child may hang. The drop may also disturb the parent, because both processes
//! share the sockets. So a child never touches or drops values that belong to another process. The child creates its
//! own values when it needs them.
//!
//! This module owns the fork counter and the two wrappers [`PerProcess`] and [`Owned`], which use the counter. Any
//! static or long-lived value that holds threads, mutexes or sockets must be in one of the wrappers.

use once_cell::race::OnceBox;
use once_cell::sync::OnceCell;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that every forked child increments. A value that was created at a smaller count is inherited from a parent
/// process.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Starts counting forks. Must be called before any value that belongs to one process is created.
#[cfg(unix)]
pub(crate) fn watch() {
    use std::sync::atomic::AtomicBool;
    static WATCHING: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        // Only atomics are safe here: another thread may have held any mutex during the fork.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    if !WATCHING.load(Ordering::Acquire) {
        // If two threads get here, each fork is counted twice. This is harmless, because only a change of the count
        // matters.
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

/// A value that each process creates for itself on first use.
#[derive(Debug, Default)]
pub struct PerProcess<T> {
    generation: u64,
    cell: OnceCell<T>,
    /// The entry for the next generation of forked children that used this value. Each process follows this list to the
    /// entry of its own generation.
    next: OnceBox<PerProcess<T>>,
}

impl<T> PerProcess<T> {
    /// Creates an empty `PerProcess`. Each process creates its own value on first use.
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

    /// This process's value, if it has been created.
    pub fn get(&self) -> Option<&T> {
        self.cell().get()
    }

    /// This process's value, created by `make` on first use.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.cell().get_or_init(make)
    }

    /// This process's value. The first successful call creates the value with `make`.
    ///
    /// # Errors
    ///
    /// The error of `make`; the next call tries again.
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

/// A value that belongs to the process that created it. Only that process drops the value.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    generation: u64,
    /// `None` only during the drop.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { generation: generation(), value: Some(value) }
    }

    /// Whether this process inherited the value from a parent process.
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != generation()
    }

    /// The value; `None` in a forked child of the process that created the value.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| !self.is_inherited())
    }

    /// The value, mutably; `None` in a forked child of the process that created the value.
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
