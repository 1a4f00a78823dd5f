//! The node's side: what a node keeps of each resource, and what it does with a request.
//!
//! A server does the same by Lua scripts, which a test of the crate `quorlock` compares with this. In-memory
//! nodes, the simulation and the model checker run this code itself.

pub mod entry;
pub mod queue;
pub mod record;
