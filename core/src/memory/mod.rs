//! In-memory nodes, for tests that users write and for the simulation.
//!
//! [`entries`] answers the requests as the scripts do; [`node`] has the connections and the faults. The
//! rules by which a node answers are in `quorlock_protocol::node`.

pub(crate) mod entries;
pub(crate) mod node;
