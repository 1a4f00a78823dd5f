//! Fencing tokens: numbers that grow with every lease of a resource.
//!
//! A node keeps a counter per resource: the last fence that it granted. An ACQUIRE carries a *proposal*, which is the
//! same for all nodes: the median of the nodes' clocks as the client last read them, in microseconds. A node grants the
//! larger of two numbers: its counter plus one, and a *floor*. The floor is the proposal if the proposal is within
//! [`FENCE_WINDOW`] of the node's own clock, else the node's own clock.
//!
//! Normally all nodes grant the same fence, so a majority already stores that fence. If the fences differ, the client
//! stores the largest fence on a majority (RAISE) before it returns the lease. Majorities overlap, so every later
//! winner gets a larger fence from a node that stores this fence.
//!
//! Clients' clocks are not used, so a client whose clock is far ahead cannot exhaust the fences. A node forgets a
//! counter only long after its own clock has passed the time that the counter represents ([`fence_memory`]). Every
//! later floor is then larger than the counter, so forgetting is safe. Fences can repeat or decrease in only two cases,
//! which the user documentation also names:
//!
//! - A node's clock is set back by more than [`FENCE_MEMORY`] − 2 × [`FENCE_WINDOW`]. (The forgotten fence may have
//!   been one window ahead of the clock, and the next floor may be one window behind the clock.)
//! - A majority loses its counters, and the restart guard is off or not longer than twice [`FENCE_WINDOW`] plus twice
//!   the largest error of a node's wall clock. (A fence is at most one window ahead of the clock of the node that
//!   granted the fence. A later floor is at most one window behind the clock of its node.)
//!
//! [`Round`](crate::Round) calls `settle`. The node's side calls [`next_fence`] and [`fence_memory`]; on a server, the
//! ACQUIRE scripts compute the same.

use crate::quorum::{NodeSet, Quorum};
use core::time::Duration;

/// Exclusive upper limit of fences: 2^53. Every language's number type represents integers below this limit exactly.
/// The wall clock in microseconds reaches it in the year 2255.
pub const FENCE_LIMIT: u64 = 1 << 53;

/// The largest difference between a proposal and a node's own clock, in either direction, at which the node
/// uses the proposal as the floor.
pub const FENCE_WINDOW: Duration = Duration::from_secs(2);

/// The time for which a node keeps its fence counter, in addition to the ttl of the last lease.
pub const FENCE_MEMORY: Duration = Duration::from_secs(60);

/// Returns the fence that a node grants: larger than `last` and below [`FENCE_LIMIT`]. `None` if the fence would reach
/// that limit; the node must then refuse the request.
///
/// `last` is the node's counter, 0 if it has none. `proposal` and `node_clock` are microseconds since
/// the Unix epoch. The ACQUIRE script computes the same on a server.
pub fn next_fence(last: u64, proposal: u64, node_clock: u64) -> Option<u64> {
    let is_near = u128::from(proposal.abs_diff(node_clock)) <= FENCE_WINDOW.as_micros();
    let floor = if is_near { proposal } else { node_clock };
    let fence = floor.max(last.saturating_add(1));
    (fence < FENCE_LIMIT).then_some(fence)
}

/// Returns the time for which a node keeps the counter `fence`, from the moment at which the node stores the counter
/// for a lease of `ttl`. The time is `ttl` + [`FENCE_MEMORY`]. If the counter is more than [`FENCE_WINDOW`] ahead of
/// the node's clock, that lead is added.
///
/// `fence` and `node_clock` are in microseconds. The scripts compute the same on a server.
pub fn fence_memory(fence: u64, ttl: Duration, node_clock: u64) -> Duration {
    let lead = Duration::from_micros(fence.saturating_sub(node_clock));
    let lead = if lead > FENCE_WINDOW { lead } else { Duration::ZERO };
    ttl.saturating_add(FENCE_MEMORY).saturating_add(lead)
}

/// The fence of a round that a majority granted. Tells whether a majority already stores this fence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Settlement {
    /// A majority already stores the fence.
    Stored(u64),
    /// The counted nodes must first store this fence (RAISE).
    Raise(u64),
}

/// Returns the largest fence in `grants` and whether a majority stores it. `grants` yields each counted node with the
/// fence that the node granted.
pub(super) fn settle(
    quorum: Quorum,
    grants: impl Iterator<Item = (usize, u64)> + Clone,
) -> Settlement {
    let largest = grants.clone().map(|(_, fence)| fence).max().unwrap_or(0);
    let storing: NodeSet =
        grants.filter(|(_, fence)| *fence == largest).map(|(node, _)| node).collect();
    if storing.len() >= quorum.size() {
        Settlement::Stored(largest)
    } else {
        Settlement::Raise(largest)
    }
}
