//! The lock protocol: quorum, validity, fencing, waiting.
//!
//! This crate makes every decision of the protocol. It performs no IO, reads no clock and draws no random numbers: the
//! caller passes in events, the current time and random values, and carries out the returned actions. The driver (the
//! module `lock` of the crate `quorlock`), the simulation and the model checker all run this code. So what the
//! simulation and the model checker show is true of the shipped code.
//!
//! - [`Claim`] combines a round, its lease and its footprint. It decides which keys to delete, when, and on which
//!   nodes.
//! - [`Round`] is one attempt to win a majority. It receives votes. It returns the decision, the nodes to send RAISE
//!   to, and the nodes to send UNDO to.
//! - [`Lease`] is created from a won round. It decides how long the lease is valid, and how an extension or a release
//!   ends.
//! - [`Footprint`] records which nodes may hold the keys of a lease, now or later.
//! - [`Upkeep`] decides when to renew a lease.
//! - [`Guard`] decides whether to count the votes of a node that may have restarted.
//! - [`AdoptionTally`] decides whether a lease that its holder detached can still be adopted.
//! - [`next_leader`] decides which leader an observer of an election may report.
//! - [`Waiting`] decides when to try again after a lost round, and when to give up.
//! - [`NodeClocks`] estimates the time from the nodes' clocks, for fence proposals and waiters' tickets.
//! - [`Line`] orders the waiters of one client. [`Calls`] collects the notifications that a waiter gets from nodes.
//!   Neither type can grant a lock.
//! - [`Slots`] decides which permits of a semaphore a client tries to acquire.
//! - [`node`] is the node's side: what a node stores for a resource and how it answers requests.
//!
//! The algorithm is Redlock, from the page "Distributed Locks with Redis" of the Redis documentation. This
//! crate adds what that page leaves open: fencing tokens, unknown votes, late votes.

mod claim;
mod clocks;
mod fence;
mod footprint;
mod guard;
mod leader;
mod lease;
mod line;
#[cfg(test)]
mod model;
pub mod node;
mod quorum;
mod renewal;
mod round;
mod slots;
mod tally;
mod term;
#[cfg(test)]
mod tests;
mod transfer;
mod turns;
mod waiting;

pub use claim::{Claim, Commands, Obstacle, Origin, StoredToken, Unresumable};
pub use clocks::NodeClocks;
pub use fence::{FENCE_LIMIT, FENCE_MEMORY, FENCE_WINDOW, fence_memory, next_fence};
pub use footprint::Footprint;
pub use guard::Guard;
pub use leader::{is_adopted, next_leader};
pub use lease::{Ended, Extended, Extension, Lease, Release};
pub use line::Line;
pub use quorum::{MAX_NODES, NodeSet, Quorum};
pub use renewal::Upkeep;
pub use round::{Actions, Event, Loss, Outcome, Round, Vote};
pub use slots::{Slots, promising};
pub use tally::{Answer, Healed, Healing};
pub use term::{Keep, Moment, Term};
pub use transfer::{AdoptionTally, NotGiven, Untransferable};
pub use turns::{Calls, LONGEST_CALL, Turns};
pub use waiting::{Next, RetryDelay, Waiting};
