//! The lock itself: quorum, validity, fencing, waiting.
//!
//! Everything here is pure. There is no IO, no clock and no randomness: the caller passes in what
//! happened and what time it is, and is told what to do. The driver, the simulation and the model
//! checker run this same code, so what they show holds for the lock that is shipped.
//!
//! - [`Round`] is one attempt to win a majority: votes in; a fence round, undos and a decision out.
//! - [`Lease`] is what a won round leaves behind: its validity, its extension and its release.
//! - [`Upkeep`] says when a lease is to be extended.
//! - [`Guard`] says whether a node that may have restarted counts.
//! - [`Waiting`] says when to try again after a lost round, and when to give up.
//! - [`NodeClocks`] is the time by the nodes' clocks, for fence proposals and tickets.
//! - [`Line`] and [`Calls`] say whose turn it is. They grant nothing.
//!
//! The algorithm is the one of the "Distributed Locks with Redis" page of the Redis documentation
//! (Redlock), completed where that page is silent: fencing tokens, unknown votes, late votes.

mod clocks;
mod fence;
mod guard;
mod lease;
mod line;
#[cfg(test)]
mod model;
pub mod node;
mod quorum;
mod renewal;
mod round;
mod tally;
mod term;
#[cfg(test)]
mod tests;
mod turns;
mod waiting;

pub use clocks::NodeClocks;
pub use fence::{FENCE_LIMIT, FENCE_MEMORY, FENCE_WINDOW, fence_memory, next_fence};
pub use guard::Guard;
pub use lease::{Ended, Extended, Extension, Lease, Release};
pub use line::Line;
pub use quorum::{MAX_NODES, NodeSet, Quorum};
pub use renewal::Upkeep;
pub use round::{Actions, Event, Loss, Outcome, Round, Vote};
pub use tally::{Answer, Healed};
pub use term::{Moment, Term};
pub use turns::{Calls, LONGEST_CALL, Turns};
pub use waiting::{Next, RetryDelay, Waiting};
