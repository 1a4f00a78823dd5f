//! The bounds of one search.

use super::settings::{Claim, Faults, NODES, Rates};
use super::world::World;

/// Something that has to happen in a search, and whether it has in this state.
pub(super) type Happens = (&'static str, fn(&Scope, &World) -> bool);

/// The bounds of one search.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) name: &'static str,
    /// How many rounds each client may begin.
    pub(super) rounds: &'static [u8],
    /// How often the first client may extend its leases.
    pub(super) extensions: u8,
    /// How often each client may repair its leases, beside what extensions heal.
    pub(super) repairs: u8,
    /// Whether leases are released. If not, they end by time.
    pub(super) releases: bool,
    /// How much time passes; the ttl is three ticks.
    pub(super) ticks: u8,
    pub(super) faults: Faults,
    /// Whether the restart guard is on.
    pub(super) guard: bool,
    /// The rates of the clients' clocks and of the nodes'; each of these is searched.
    pub(super) clocks: &'static [Rates],
    /// By how much each client's proposals are ahead of the right time, in microseconds.
    pub(super) wall_clocks: [i64; 3],
    /// How far wall clocks go in a tick, in microseconds.
    pub(super) wall_tick: u64,
    /// By how much each node's wall clock is.
    pub(super) node_clocks: [i64; NODES],
    /// By how much the counters of the nodes are ahead of their clocks; 0 if they have none.
    pub(super) counters: [u64; NODES],
    pub(super) claim: Claim,
    pub(super) happens: Vec<Happens>,
}

impl Scope {
    /// Whether nodes may forget.
    pub(super) fn memory_is_lost(&self) -> bool {
        self.faults.memory_losses > 0
    }
}
