//! The nodes' clocks, as all of a client's tasks know them. A connection reads its node's clock when it
//! is opened, and rounds read them from answers; fence proposals and tickets are made of them.

use crate::runtime::clock;
use quorlock_protocol::{Moment, NodeClocks};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Clocks(Mutex<NodeClocks>);

impl Clocks {
    /// The clocks of so many nodes, none of which is read yet.
    pub(crate) fn new(nodes: usize) -> Self {
        Self(Mutex::new(NodeClocks::new(nodes)))
    }

    fn lock(&self) -> MutexGuard<'_, NodeClocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node's clock was read just now, in microseconds since the Unix epoch.
    pub(crate) fn saw(&self, node: usize, micros: u64) {
        self.lock().saw(clock::now(), node, micros);
    }

    /// The time at `moment` by the nodes' clocks; `None` while no clock is read.
    pub(crate) fn at(&self, moment: Moment) -> Option<u64> {
        self.lock().at(moment)
    }

    /// The fence to propose in a round that begins at `moment`. While no clock is read it is 0, which no
    /// node follows: each takes its own clock, and the round raises the fence to the largest.
    pub(crate) fn proposal(&self, moment: Moment) -> u64 {
        self.at(moment).unwrap_or(0)
    }
}
