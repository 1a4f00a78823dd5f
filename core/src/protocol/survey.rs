//! Answers of nodes to everything but ACQUIRE, and a look at a key that nobody need hold.

use super::{Loss, NodeSet, Quorum};

/// What one node answered to EXTEND, RELEASE or a look at the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// EXTEND, RELEASE: the node held this lease's token and did it. A look: the key exists.
    Yes,
    /// EXTEND, RELEASE: the node does not hold this lease's token. A look: the key is free.
    No,
    /// No usable answer within the node's deadline, or one that does not count.
    Unknown,
}

/// Who answered what.
#[derive(Clone, Copy, Debug, Default)]
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

/// A look at the key on all nodes, which changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    tally: Tally,
}

impl Survey {
    /// Takes in a node's answer. `Some` once it is decided: `Ok(true)` if somebody holds so many
    /// nodes that no majority is free, `Ok(false)` if a majority is free, `Err` if too few nodes
    /// answered to tell.
    pub fn seen(
        &mut self,
        quorum: Quorum,
        node: usize,
        answer: Answer,
    ) -> Option<Result<bool, Loss>> {
        self.tally.add(node, answer);
        let Tally { yes, no, unknown } = self.tally;
        if no.len() >= quorum.size() {
            return Some(Ok(false));
        }
        if yes.len() > quorum.tolerated() {
            return Some(Ok(true));
        }
        if unknown.len() > quorum.tolerated() {
            return Some(Err(Loss::NoQuorum));
        }
        self.tally.is_complete(quorum).then_some(Ok(true))
    }
}
