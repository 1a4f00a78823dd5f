//! Which thread or task acquires a lock, so that one that waits for itself is noticed.

use std::thread::{self, ThreadId};
use tokio::task;

/// A thread or task that acquires locks. Only compared; who owns a lease may change afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A task of the tokio runtime.
    Task(task::Id),
    /// A thread outside of tokio's tasks.
    Thread(ThreadId),
    /// A thread or task of another language, by a number that no other one has at the same time.
    Foreign(u64),
}

impl Owner {
    /// The tokio task that runs this, or else this thread.
    pub fn current() -> Self {
        task::try_id().map_or_else(|| Self::Thread(thread::current().id()), Self::Task)
    }
}
