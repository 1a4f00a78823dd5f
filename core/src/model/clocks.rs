//! Clocks that run at different rates.

use super::world::NODES;

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
