//! The sizes, times and faults that searches choose from.

use crate::Term;
use std::time::Duration;

/// Enough for majorities that overlap in a single node.
pub(super) const NODES: usize = 3;

/// The time to live: three ticks, one of which is for clocks.
pub(super) const TERM: Term = Term { ttl: Duration::from_secs(3), drift_factor: 1.0 / 3.0 };

/// The wall clock of the nodes at the beginning, in microseconds.
pub(super) const EPOCH: u64 = 1_000_000_000_000;

/// How far the wall clocks go in a tick, in microseconds, so that nodes follow any proposal.
pub(super) const SHORT_TICK: u64 = 500_000;
/// The same, so that a counter is forgotten after two ticks, while a lock may still be held. In truth no
/// lock outlives its counter, which is easier to get right.
pub(super) const LONG_TICK: u64 = 35_000_000;

/// What is claimed beside what always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// At most one lease is valid, and each has a larger fence than all before.
    Exclusion,
    /// No two leases have the same fence, however wrong clocks are.
    Uniqueness,
    /// Where nodes forget without a guard: a lease that somebody else took over is not confirmed again.
    Truth,
}

/// How often each of these may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    /// A client gives up on a request.
    pub(super) timeouts: u8,
    /// A connection breaks. What was sent on it is lost, or delivered later.
    pub(super) breaks: u8,
    /// A node restarts and remembers everything.
    pub(super) restarts: u8,
    /// A node restarts empty.
    pub(super) memory_losses: u8,
    /// A client ends without a word.
    pub(super) crashes: u8,
    /// A caller goes away before its acquire is decided.
    pub(super) cancels: u8,
    /// A node does not grant what is free, whatever its queue is: lost, stale or forged.
    pub(super) refusals: u8,
    /// A node does not know the script of an ACQUIRE or a HEAL, and is sent the request again.
    pub(super) unknowns: u8,
    /// A client replaces a connection that it takes for stuck, but which still stands.
    pub(super) replacements: u8,
}

/// The milliseconds that pass in a tick by each client's clock and by each node's.
pub(super) type Rates = ([u64; 3], [u64; NODES]);

const ORDINARY: u64 = 1000;
/// As much faster as the drift factor allows. A lease that was asked for at tick t is valid by an
/// ordinary clock until tick t + 2, which is when a node with this clock expires the key.
const FAST: u64 = 1500;

/// All nodes forget as early as they may.
pub(super) const NODES_FAST: &[Rates] = &[([ORDINARY; 3], [FAST; NODES])];

/// That, no difference, one fast node, one fast client, and both.
pub(super) const ALL_CLOCKS: &[Rates] = &[
    ([ORDINARY; 3], [FAST; NODES]),
    ([ORDINARY; 3], [ORDINARY; NODES]),
    ([ORDINARY; 3], [FAST, ORDINARY, ORDINARY]),
    ([FAST, ORDINARY, ORDINARY], [ORDINARY; NODES]),
    ([FAST, ORDINARY, ORDINARY], [ORDINARY, FAST, FAST]),
];

/// Far beyond what the drift factor allows: keys last for less than a tick.
pub(super) const BROKEN_CLOCKS: &[Rates] = &[([ORDINARY; 3], [5 * FAST; NODES])];
