//! Locks over a set of nodes: acquiring, waiting, renewing, repairing and releasing.
//!
//! This module connects the rules of the lock, which are in the crate `quorlock-protocol`, to the nodes of `node/`. It
//! decides nothing itself: the protocol counts votes, sets validity ends and picks the time of the next try. The code
//! here sends requests, passes the answers to the protocol and carries out what the protocol returns. This module does
//! not know about sockets, Redis commands or configuration formats. `client/` is its only caller outside of tests.
//!
//! The modules, in reading order:
//!
//! - [`driver`]: the nodes and background tasks of one client, shared by all modules below.
//! - [`acquire`]: one acquire, from the call to the lease, and the messages of its errors.
//! - [`waiting`]: the local queue, the notifications from the nodes' queues, and the choice of permits.
//! - [`claim`]: the requests for one token, from its first ACQUIRE to its last RELEASE.
//! - [`renewer`]: automatic extension of all leases of a client.
//! - [`lease`]: the public handle of a lease.
//! - [`election`]: the messages of elections, and the hand-over of a lease to a named successor.
//! - [`locked`]: asks the nodes whether a lock is held.
//! - `steps`, in unit tests only: reports each step of a claim, for the trace checker.

pub(crate) mod acquire;
pub(crate) mod claim;
pub(crate) mod driver;
pub(crate) mod election;
pub(crate) mod lease;
pub(crate) mod locked;
pub(crate) mod renewer;
#[cfg(test)]
pub(crate) mod steps;
pub(crate) mod waiting;
