//! The bounds of one search.

use super::action::Action;
use super::settings::{Check, Faults, NODES, Rates};
use super::world::World;
use crate::Term;

/// An event that a search must reach: its description, and a function that says whether it has happened in a state.
pub(super) type Happens = (&'static str, fn(&Scope, &World) -> bool);

/// The bounds of one search.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) name: &'static str,
    /// The steps that are taken before the search begins.
    pub(super) begins: &'static [Action],
    /// The number of rounds that each client may begin.
    pub(super) rounds: &'static [u8],
    /// The number of times that the first client may extend its leases.
    pub(super) extensions: u8,
    /// The term of an extension.
    pub(super) extension: Term,
    /// The number of times that the first client may downgrade or upgrade its lease.
    pub(super) changes: u8,
    /// The number of times that each client may repair its leases, not counting repairs after an extension.
    pub(super) repairs: u8,
    /// Whether leases are released. If not, they expire.
    pub(super) releases: bool,
    /// Whether leases are detached and adopted.
    pub(super) hand_over: bool,
    /// The clients that lock in shared mode. All others lock exclusively.
    pub(super) readers: &'static [usize],
    /// The maximum number of ticks that pass; the ttl is three ticks.
    pub(super) ticks: u8,
    pub(super) faults: Faults,
    /// Whether the restart guard is on.
    pub(super) guard: bool,
    /// The combinations of clock rates of the clients and of the nodes that the search tries.
    pub(super) clocks: &'static [Rates],
    /// The error of each client's proposals, in microseconds; positive if they are ahead of the true time.
    pub(super) wall_clocks: [i64; 3],
    /// The microseconds that pass on wall clocks in a tick.
    pub(super) wall_tick: u64,
    /// The error of each node's wall clock, in microseconds; positive if it is ahead of the true time.
    pub(super) node_clocks: [i64; NODES],
    /// The microseconds by which each node's initial fence counter is ahead of its wall clock; 0 if the node has no
    /// counter.
    pub(super) counters: [u64; NODES],
    pub(super) check: Check,
    pub(super) happens: Vec<Happens>,
}

impl Scope {
    /// Whether nodes may lose their memory.
    pub(super) fn memory_is_lost(&self) -> bool {
        self.faults.memory_losses > 0
    }
}
