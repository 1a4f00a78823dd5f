//! Answers of nodes to EXTEND, RELEASE and HEAL.

use crate::quorum::{NodeSet, Quorum};

/// What one node answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The node held this lease's token, and did it.
    Yes,
    /// The node does not hold this lease's token.
    No,
    /// No usable answer within the node's deadline, or one that does not count.
    Unknown,
}

/// What one node answered to HEAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Healed {
    /// Another token is there.
    Held,
    /// The key is there now, and the node gave out no fence since the lease's own.
    Clean,
    /// The key is there now, but the node gave out a fence since the lease's own: it has granted the
    /// resource to somebody else in between, who may have won or not.
    Passed,
}

/// Who answered what.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) yes: NodeSet,
    pub(super) no: NodeSet,
    unknown: NodeSet,
}

impl Tally {
    pub(super) fn add(&mut self, node: usize, answer: Answer) {
        match answer {
            Answer::Yes => self.yes.insert(node),
            Answer::No => self.no.insert(node),
            Answer::Unknown => self.unknown.insert(node),
        }
    }

    pub(super) fn is_complete(&self, quorum: Quorum) -> bool {
        self.yes.len() + self.no.len() + self.unknown.len() == quorum.nodes()
    }
}
