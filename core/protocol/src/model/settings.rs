//! The sizes, times, clock rates and faults that searches choose from.

use crate::Term;
use std::time::Duration;

/// A round's token.
pub(super) type Token = u8;

/// Three nodes are enough for majorities that overlap in a single node.
pub(super) const NODES: usize = 3;

/// The time to live: three ticks, one of which is the allowance for drift.
pub(super) const TERM: Term = Term { ttl: Duration::from_secs(3), drift_factor: 1.0 / 3.0 };

/// The term of extensions that make a lease last twice as long as [`TERM`].
pub(super) const LONG_TERM: Term = Term { ttl: Duration::from_secs(6), drift_factor: 1.0 / 3.0 };

/// The initial true time, in microseconds since the Unix epoch.
pub(super) const EPOCH: u64 = 1_000_000_000_000;

/// A short tick of the wall clocks, in microseconds: short enough for nodes to accept every proposal.
pub(super) const SHORT_TICK: u64 = 500_000;
/// A long tick of the wall clocks, in microseconds. A node forgets a counter after two ticks, while a lock may still be
/// held. In reality, no lock outlives its counter, so the model checks a harder case.
pub(super) const LONG_TICK: u64 = 35_000_000;

/// The property that a search checks in addition to those that every search checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// At most one lease is valid at a time, and each lease has a larger fence than all leases before it.
    Exclusion,
    /// No two leases have the same fence, no matter how wrong the clocks are.
    Uniqueness,
    /// No additional property, because leases can overlap if nodes forget without a guard. The property that matters
    /// here is one that every search checks: no extension is confirmed if it was sent after another client had won the
    /// resource.
    Truth,
}

/// The number of times that each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    /// A client gives up on a request.
    pub(super) timeouts: u8,
    /// A connection breaks. The requests sent on it are lost or delivered later.
    pub(super) breaks: u8,
    /// A node restarts and remembers everything.
    pub(super) restarts: u8,
    /// A node restarts empty.
    pub(super) memory_losses: u8,
    /// A client stops without cleaning up.
    pub(super) crashes: u8,
    /// A caller cancels its acquire before it is decided.
    pub(super) cancels: u8,
    /// A node refuses a free resource because of its queue, which may be lost, stale or forged.
    pub(super) refusals: u8,
    /// A node does not know the script of an ACQUIRE or a HEAL; the client sends the request again.
    pub(super) unknowns: u8,
    /// A client replaces a connection that it considers stuck but that is still open.
    pub(super) replacements: u8,
    /// A node is paused after it reads its clock for a request and before it writes.
    pub(super) pauses: u8,
}

/// The milliseconds that pass in a tick, by each client's clock and by each node's clock.
pub(super) type Rates = ([u64; 3], [u64; NODES]);

const ORDINARY: u64 = 1000;
/// The fastest rate that the drift factor allows. A lease requested at tick t is valid by an ordinary clock until tick
/// t + 2. A node whose clock has the rate `FAST` expires the key at the same moment.
const FAST: u64 = 1500;

/// All nodes expire keys as early as the drift factor allows.
pub(super) const NODES_FAST: &[Rates] = &[([ORDINARY; 3], [FAST; NODES])];

/// In this order: all nodes fast; all clocks equal; one fast node; one fast client; one fast client and two
/// fast nodes.
pub(super) const ALL_CLOCKS: &[Rates] = &[
    ([ORDINARY; 3], [FAST; NODES]),
    ([ORDINARY; 3], [ORDINARY; NODES]),
    ([ORDINARY; 3], [FAST, ORDINARY, ORDINARY]),
    ([FAST, ORDINARY, ORDINARY], [ORDINARY; NODES]),
    ([FAST, ORDINARY, ORDINARY], [ORDINARY, FAST, FAST]),
];

/// Nodes' clocks far faster than the drift factor allows: keys expire in less than a tick.
pub(super) const BROKEN_CLOCKS: &[Rates] = &[([ORDINARY; 3], [5 * FAST; NODES])];
