//! Nodes' answers to EXTEND, RELEASE and HEAL, and the tally of the answers to one request.

use crate::quorum::{NodeSet, Quorum};

/// A node's answer to EXTEND or RELEASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The node held this lease's token and applied the request.
    Yes,
    /// The node does not hold this lease's token.
    No,
    /// No usable answer within the node's deadline, or an answer that does not count.
    Unknown,
}

impl Answer {
    /// Converts an answer for which a missing key shows no loss: `No` becomes `Unknown`. For example, an earlier copy of
    /// the same RELEASE may have deleted the key.
    pub fn without_no(self) -> Self {
        if self == Self::No { Self::Unknown } else { self }
    }
}

/// A node's answer to HEAL, which repairs a lost key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Healed {
    /// The node holds another token. The node changed nothing.
    Held,
    /// The node holds the key now and has granted no larger fence than the lease's own.
    Clean,
    /// The node holds the key now, but has granted a larger fence than the lease's own. So the node may have granted
    /// the resource to another client since the lease was won, and that client may have won a majority.
    Passed,
}

/// What has become of a HEAL to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Healing {
    /// The HEAL was not sent, and will not be sent.
    Unsent,
    /// The node has not answered, and may still apply the HEAL.
    Open,
    /// The node has answered. `None` if the answer does not count: it came after the deadline, or was an error.
    Answered(Option<Healed>),
}

/// The answers to one request, by node.
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
