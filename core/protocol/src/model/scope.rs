//! The bounds of one search.

use super::settings::{Claim, Faults, NODES, Rates};
use super::world::World;

/// An event that a search must reach: its description and whether it has happened in a state.
pub(super) type Happens = (&'static str, fn(&Scope, &World) -> bool);

/// The bounds of one search.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) name: &'static str,
    /// How many rounds each client may begin.
    pub(super) rounds: &'static [u8],
    /// How often the first client may extend its leases.
    pub(super) extensions: u8,
    /// How often each client may repair its leases, not counting repairs after an extension.
    pub(super) repairs: u8,
    /// Whether leases are released. If not, they expire.
    pub(super) releases: bool,
    /// How many ticks pass; the ttl is three ticks.
    pub(super) ticks: u8,
    pub(super) faults: Faults,
    /// Whether the restart guard is on.
    pub(super) guard: bool,
    /// The rates of the clients' and the nodes' clocks; the search tries each element.
    pub(super) clocks: &'static [Rates],
    /// How far each client's proposals are ahead of the true time, in microseconds.
    pub(super) wall_clocks: [i64; 3],
    /// The microseconds that pass on wall clocks in a tick.
    pub(super) wall_tick: u64,
    /// How far each node's wall clock is ahead of the true time, in microseconds.
    pub(super) node_clocks: [i64; NODES],
    /// How far each node's counter is ahead of its wall clock, in microseconds; 0 for no counter.
    pub(super) counters: [u64; NODES],
    pub(super) claim: Claim,
    pub(super) happens: Vec<Happens>,
}

impl Scope {
    /// Whether nodes may lose their memory.
    pub(super) fn memory_is_lost(&self) -> bool {
        self.faults.memory_losses > 0
    }
}
