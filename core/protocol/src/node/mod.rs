//! The node's side: what a node stores for each resource and how it answers each request.
//!
//! Servers do the same in Lua scripts; a test of the crate `quorlock` (`testing/scripts/comparison.rs`) compares both
//! implementations. In-memory nodes, the simulation and the model checker run this code. This code performs no IO: the
//! caller passes in the node's clocks and delivers notifications.

pub mod entry;
pub mod permits;
pub mod queue;
pub mod readers;
pub mod record;
pub mod sharing;
