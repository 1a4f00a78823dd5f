//! One token of a client of the model: its claim, and what the client waits for.

use super::settings::{NODES, Token};
use crate::node::readers::LockMode;
use crate::{Answer, Claim, Extension, Moment, NodeSet, Origin, Quorum, Term, Vote};

/// A token, its claim, and the history of both.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Owned {
    pub(super) token: Token,
    /// The token that an adopter or an upgrade takes over.
    pub(super) giver: Option<Token>,
    pub(super) mode: LockMode,
    pub(super) claim: Claim<Token>,
    /// When the round began.
    pub(super) began: Moment,
    pub(super) decided: Option<Decided>,
    /// The vote of each node; `None` while the vote is pending.
    pub(super) votes: [Option<Vote>; NODES],
    /// For each node, whether its vote is still pending after the node's deadline.
    pub(super) late: [bool; NODES],
    /// The state of RAISE on each node.
    pub(super) raises: [Raise; NODES],
    pub(super) extending: Option<Extending>,
    /// The number of answers to HEAL that are pending on each node.
    pub(super) healing: [u8; NODES],
    /// The number of answers to HEAL that are pending after their deadline.
    pub(super) healing_late: [u8; NODES],
    /// Nodes whose answer to GIVE BACK is pending, if this is an upgrade.
    pub(super) giving_back: NodeSet,
    /// Nodes whose answer to RELEASE is pending, if the lease was released.
    pub(super) releasing: NodeSet,
    /// The tokens of all upgrades of the lease that have begun. If a node stores such a token, the token keeps other
    /// clients out on behalf of the lease.
    pub(super) upgrades: Vec<Token>,
    /// The newest token when the lease was won. Rounds that begin later have larger tokens.
    pub(super) last_token: Token,
    /// Whether another client has won a conflicting round while this lease was valid. Counts only rounds that began
    /// after this lease was won.
    pub(super) is_overtaken: bool,
    /// Whether the lease was invalid in an earlier state.
    pub(super) was_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Decided {
    Won,
    /// The round of an upgrade was won, but the shared lease had ended.
    Refused,
    Lost,
    Abandoned,
}

/// The state of a RAISE on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Raise {
    Unasked,
    Awaited,
    Answered { stored: bool },
}

/// An extension and the answers that it has received.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Extending {
    pub(super) number: u8,
    pub(super) extension: Extension,
    pub(super) is_confirmed: bool,
    /// Whether another client had won the resource before the extension was sent.
    pub(super) is_overtaken: bool,
    /// The answer of each node; `None` while the answer is pending.
    pub(super) answers: [Option<Answer>; NODES],
}

impl Owned {
    /// A token whose round begins now.
    pub(super) fn new(
        token: Token,
        giver: Option<Token>,
        mode: LockMode,
        (quorum, origin, now, term): (Quorum, Origin, Moment, Term),
    ) -> Self {
        Self {
            token,
            giver,
            mode,
            claim: Claim::new(token, quorum, origin, now, term, None),
            began: now,
            decided: None,
            votes: [None; NODES],
            late: [false; NODES],
            raises: [Raise::Unasked; NODES],
            extending: None,
            healing: [0; NODES],
            healing_late: [0; NODES],
            giving_back: NodeSet::EMPTY,
            releasing: NodeSet::EMPTY,
            upgrades: Vec::new(),
            last_token: 0,
            is_overtaken: false,
            was_over: false,
        }
    }

    /// Whether the client holds the lease, valid or not.
    pub(super) fn is_held(&self) -> bool {
        self.decided == Some(Decided::Won) && !self.claim.lease().is_released()
    }

    /// Whether the lease was released, but RELEASE has not been sent yet, or not all nodes have answered RELEASE.
    pub(super) fn is_releasing(&self) -> bool {
        self.decided == Some(Decided::Won)
            && self.claim.lease().is_released()
            && !self.claim.is_over()
    }

    /// Whether the round is decided and did not become a lease.
    pub(super) fn is_undone(&self) -> bool {
        self.decided.is_some_and(|decided| decided != Decided::Won)
    }

    /// Whether each node has voted or missed its deadline. From then on, nodes that lack the key can be repaired.
    pub(super) fn is_complete(&self) -> bool {
        self.votes.iter().all(Option::is_some)
    }

    /// Whether a vote can still change anything.
    pub(super) fn is_voting(&self) -> bool {
        self.decided.is_none() || !self.is_complete() || self.late.contains(&true)
    }

    /// Whether HEAL is under way to a node.
    pub(super) fn is_healing(&self, node: usize) -> bool {
        self.healing[node] + self.healing_late[node] > 0
    }

    /// Whether HEAL is under way to any node.
    pub(super) fn is_healing_any(&self) -> bool {
        (0..NODES).any(|node| self.is_healing(node))
    }

    /// Whether an answer, other than one to EXTEND, can still change anything.
    pub(super) fn is_pending(&self) -> bool {
        self.is_voting()
            || self.is_healing_any()
            || !self.giving_back.is_empty()
            || self.is_releasing()
    }

    /// Whether this is an undone upgrade of the lease with this token.
    pub(super) fn is_undone_upgrade_of(&self, token: Token) -> bool {
        self.claim.origin() == Origin::Upgraded && self.is_undone() && self.giver == Some(token)
    }
}
