//! Fencing tokens: numbers that grow with every lease of a resource.
//!
//! A node keeps the last fence it gave out. An ACQUIRE carries a *proposal*, the same for all
//! nodes: the client's wall clock in microseconds. Each node answers with the larger of the
//! proposal and its last fence plus one, so that in the normal case all answers are equal and a
//! majority already stores the number. Where they differ, the largest is written back to a
//! majority (RAISE) before the lease is handed out, so that any later winner meets it.
//! Nothing depends on the clock being right: it only makes a node that lost its counter answer
//! with a larger number, not a smaller one.

use super::{NodeSet, Quorum};

/// Fences stay below this: 2^53, the largest range in which every language's numbers are exact.
/// The wall clock in microseconds reaches it in the year 2255.
pub const FENCE_LIMIT: u64 = 1 << 53;

/// A node does not follow a proposal that is further ahead of its own clock than this (60 s, in
/// microseconds), so that one client with a broken clock cannot use up the numbers.
pub const MAX_CLOCK_LEAD_MICROS: u64 = 60_000_000;

/// The fence a node gives out: `max(last + 1, proposal)`, or `last + 1` where the proposal is more
/// than [`MAX_CLOCK_LEAD_MICROS`] ahead of `node_clock` (microseconds since the Unix epoch).
///
/// The ACQUIRE script computes the same on a server. `None` if the numbers are used up.
pub fn next_fence(last: u64, proposal: u64, node_clock: u64) -> Option<u64> {
    let trusted = proposal <= node_clock.saturating_add(MAX_CLOCK_LEAD_MICROS);
    let next = last.saturating_add(1);
    let fence = if trusted { proposal.max(next) } else { next };
    (fence < FENCE_LIMIT).then_some(fence)
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
