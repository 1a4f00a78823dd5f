//! Identifies the thread or task that acquires a lock, so that a caller that waits for its own lease can be
//! warned.
//!
//! No rule of the lock depends on the owner: quorlock locks are not re-entrant, and any thread or task may use a lease.
//! `client/lock.rs` and the bindings create an [`Owner`]; an acquire compares it with the owners of the client's
//! leases.

use std::thread::{self, ThreadId};
use tokio::task;

/// The thread or task that calls an acquire. Used only to detect a caller that waits for its own lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A tokio task.
    Task(task::Id),
    /// An operating-system thread, outside of any tokio task.
    Thread(ThreadId),
    /// A thread or task of another language. The number must be unique among the threads and tasks that run at the same
    /// time.
    Foreign(u64),
}

impl Owner {
    /// Returns the current tokio task or, outside of a task, the current thread.
    pub fn current() -> Self {
        task::try_id().map_or_else(|| Self::Thread(thread::current().id()), Self::Task)
    }
}
