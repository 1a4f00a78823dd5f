//! Locks over a set of nodes: acquiring, waiting, renewing, repairing and releasing.
//!
//! This module connects the rules of the lock, which are in the crate `quorlock-protocol`, to the
//! nodes of `node/`. It decides nothing itself: the protocol counts votes, sets validity ends and
//! picks the time of the next try. The code here sends requests, passes the answers to the protocol
//! and carries out what the protocol returns. It does not know about sockets, Redis commands or
//! configuration formats. `client/` is its only caller outside of tests.
//!
//! Files in reading order:
//!
//! - [`driver`]: the nodes and background tasks of one client, shared by everything below.
//! - [`acquire`] and `acquire/contention.rs`: one acquire from call to lease, and its waiting.
//! - [`round`]: one round of ACQUIRE, with its fence round, late votes and undo.
//! - [`waiters`] and [`subscriber`]: the local queue, and the notifications from the nodes' queues.
//! - [`held`], with `held/extension.rs` and `held/ending.rs`: the state of a lease that is held.
//! - [`renewer`] and [`extend`]: automatic and manual extension.
//! - [`repair`] and [`heal`]: restoring keys on nodes that lack them.
//! - [`detach`] and [`handover`]: giving a lease up for an adopter. An adoption is an acquire:
//!   `acquire/adoption.rs`.
//! - [`downgrade`] and [`upgrade`]: changing the mode of a lease.
//! - [`succession`]: the messages of elections, and the hand-over to a successor by name.
//! - [`lease`]: the public handle of a lease.
//! - [`locked`], [`duplicates`], [`trace`], [`watcher`], [`owner`]: helpers of the above.
//! - `steps`, in unit tests only: reports what clients decide, for the trace checker.

pub(crate) mod acquire;
pub(crate) mod detach;
pub(crate) mod downgrade;
pub(crate) mod driver;
pub(crate) mod duplicates;
pub(crate) mod extend;
pub(crate) mod handover;
pub(crate) mod heal;
pub(crate) mod held;
pub(crate) mod lease;
pub(crate) mod locked;
pub(crate) mod owner;
pub(crate) mod permits;
pub(crate) mod renewer;
pub(crate) mod repair;
pub(crate) mod round;
#[cfg(test)]
pub(crate) mod steps;
pub(crate) mod subscriber;
pub(crate) mod succession;
pub(crate) mod trace;
pub(crate) mod upgrade;
pub(crate) mod waiters;
pub(crate) mod watcher;
