//! Fencing tokens: numbers that grow with every lease of a resource.
//!
//! A node keeps a counter per resource: the last fence it gave out. An ACQUIRE carries a *proposal*,
//! the same for all nodes: the median of the nodes' clocks, in microseconds, as the client knows them.
//! A node answers with the larger of its counter plus one and a *floor*: the proposal if that is
//! within [`FENCE_WINDOW`] of the node's own clock, else the node's own clock. In the normal case all
//! answers are equal, so a majority already stores the number. Where they differ, the largest one is
//! written back to a majority (RAISE) before the lease is handed out, so any later winner meets it.
//!
//! No client's clock takes part, so no client can burn the number space. A node forgets a counter
//! only when its own clock has passed it ([`fence_memory`]): every floor after that is larger, so a
//! forgotten counter costs nothing. Two cases remain, and the documentation names them: a node whose
//! clock is set back by more than [`FENCE_MEMORY`] less [`FENCE_WINDOW`], and a majority that loses
//! its counters without the restart guard, or with a guard that is not longer than twice
//! [`FENCE_WINDOW`] plus the difference between the nodes' clocks: a fence is at most one window ahead
//! of the clock of a node that granted it, and a later floor at most one behind.

use crate::quorum::{NodeSet, Quorum};
use core::time::Duration;

/// Fences stay below this: 2^53, the largest range in which every language's numbers are exact.
/// The wall clock in microseconds reaches it in the year 2255.
pub const FENCE_LIMIT: u64 = 1 << 53;

/// A node follows a proposal that differs from its own clock by at most this.
pub const FENCE_WINDOW: Duration = Duration::from_secs(2);

/// How long a node keeps a counter beyond the ttl of the last lease.
pub const FENCE_MEMORY: Duration = Duration::from_secs(60);

/// The fence a node gives out, or `None` if the numbers are used up. `last` is its counter, 0 if it
/// has none; `proposal` and `node_clock` are microseconds since the Unix epoch.
///
/// The ACQUIRE script computes the same on a server.
pub fn next_fence(last: u64, proposal: u64, node_clock: u64) -> Option<u64> {
    let is_near = u128::from(proposal.abs_diff(node_clock)) <= FENCE_WINDOW.as_micros();
    let floor = if is_near { proposal } else { node_clock };
    let fence = floor.max(last.saturating_add(1));
    (fence < FENCE_LIMIT).then_some(fence)
}

/// How long a node keeps a counter that it stores now, for a lease of this ttl. A counter that is
/// further ahead of the node's clock than [`FENCE_WINDOW`] is kept until the clock has passed it.
///
/// The scripts compute the same on a server.
pub fn fence_memory(fence: u64, ttl: Duration, node_clock: u64) -> Duration {
    let lead = Duration::from_micros(fence.saturating_sub(node_clock));
    let lead = if lead > FENCE_WINDOW { lead } else { Duration::ZERO };
    ttl.saturating_add(FENCE_MEMORY).saturating_add(lead)
}

/// The fence of a won round, from the fences of the counted grants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Settlement {
    /// A majority stores it already.
    Stored(u64),
    /// It has to be raised on the counted nodes first.
    Raise(u64),
}

/// `grants` yields each counted node with the fence it granted.
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
