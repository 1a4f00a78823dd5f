//! Waiting: which waiter of a client tries next, when it tries, and for which permits.
//!
//! - [`waiters`]: the local queue, and a waiter's entry in the nodes' queues.
//! - [`subscriber`]: the notifications from the nodes' queues.
//! - [`permits`]: which permits of a semaphore an acquire tries.

pub(crate) mod permits;
pub(crate) mod subscriber;
pub(crate) mod waiters;
