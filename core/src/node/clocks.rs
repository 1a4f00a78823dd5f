//! The nodes' clocks as last read, shared by all tasks of a client. Connections and rounds record
//! what the clocks show; fence proposals and tickets are derived from these records.

use crate::runtime::clock;
use quorlock_protocol::{Moment, NodeClocks};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Clocks(Mutex<NodeClocks>);

impl Clocks {
    /// Creates the record for `nodes` nodes. No clock has been read yet.
    pub(crate) fn new(nodes: usize) -> Self {
        Self(Mutex::new(NodeClocks::new(nodes)))
    }

    fn lock(&self) -> MutexGuard<'_, NodeClocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a node's clock has just shown `micros` microseconds since the Unix epoch.
    pub(crate) fn saw(&self, node: usize, micros: u64) {
        self.lock().saw(clock::now(), node, micros);
    }

    /// Returns the nodes' time at `moment`, in microseconds since the Unix epoch; `None` until a
    /// clock has been read.
    pub(crate) fn at(&self, moment: Moment) -> Option<u64> {
        self.lock().at(moment)
    }

    /// Returns the fence to propose in a round that begins at `moment`; 0 until a clock has been
    /// read. Nodes ignore a proposal of 0 and use their own clocks; the round then raises all
    /// fences to the largest.
    pub(crate) fn proposal(&self, moment: Moment) -> u64 {
        self.at(moment).unwrap_or(0)
    }
}
