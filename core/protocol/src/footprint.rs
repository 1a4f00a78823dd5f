//! The footprint of one token: the keys that its requests have left on the nodes, or may yet leave there.
//!
//! Records which nodes may hold the token's keys, which nodes may still set the keys because a request is unanswered,
//! and when the last key has expired. [`Claim`](crate::Claim) reports each request and each answer to the footprint. It
//! asks the footprint on which nodes to release the token, and which nodes may not vote on an adoption.

use crate::quorum::{NodeSet, Quorum};
use crate::round::Round;
use crate::term::Moment;

/// The nodes that a token's requests have reached, or may still reach.
///
/// `U` identifies an upgrade of the lease, and contains what GIVE BACK and RELEASE of that upgrade must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint<U> {
    /// The nodes that may hold the key, now or later, because of the round.
    round_holders: NodeSet,
    /// The nodes that have not answered the request of the round, and may still set the key.
    unanswered: NodeSet,
    /// The nodes to which HEAL was sent. They may hold the key, too.
    healed: NodeSet,
    /// The requests after the round that a node may still apply, each with that node.
    open: Vec<(Sent<U>, usize)>,
    gone_by: Moment,
}

/// A request that sets keys, other than the ACQUIRE or TRANSFER of the round.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent<U> {
    Heal,
    /// GIVE BACK of an upgrade that failed.
    GiveBack(U),
}

impl<U: Clone + PartialEq> Footprint<U> {
    /// Creates the footprint of a round whose last key has expired at `gone_by`.
    pub fn new(round: &Round, gone_by: Moment) -> Self {
        Self::with(round.holders(), round.unanswered(), gone_by)
    }

    /// Creates the footprint of a lease that another process has acquired. The nodes in `holders` may hold the lease's
    /// key, and the nodes in `unanswered` may still set it.
    pub fn with(holders: NodeSet, unanswered: NodeSet, gone_by: Moment) -> Self {
        Self {
            round_holders: holders,
            unanswered,
            healed: NodeSet::EMPTY,
            open: Vec::new(),
            gone_by,
        }
    }

    /// Records the votes that the round has received so far.
    pub fn counted_votes(&mut self, round: &Round) {
        self.round_holders = round.holders();
        self.unanswered = round.unanswered();
    }

    /// Records that a request may set keys, and that these keys have expired by `gone_by`.
    pub fn set_keys_until(&mut self, gone_by: Moment) {
        self.gone_by = self.gone_by.max(gone_by);
    }

    /// Records that HEAL is sent to a node.
    pub fn sent_heal(&mut self, node: usize) {
        self.healed.insert(node);
        self.open.push((Sent::Heal, node));
    }

    /// Records that a HEAL to a node is no longer open: the node has answered it, or can no longer apply it.
    pub fn answered_heal(&mut self, node: usize) {
        self.answered(&(Sent::Heal, node));
    }

    /// Records that GIVE BACK of a failed upgrade is sent to `nodes`.
    pub fn sent_give_back(&mut self, upgrade: &U, nodes: NodeSet) {
        self.open.extend(nodes.iter().map(|node| (Sent::GiveBack(upgrade.clone()), node)));
    }

    /// Records that a node has answered a GIVE BACK of this upgrade.
    pub fn answered_give_back(&mut self, upgrade: &U, node: usize) {
        self.answered(&(Sent::GiveBack(upgrade.clone()), node));
    }

    /// Removes one of the open requests that equal `request`. It does not matter which one.
    fn answered(&mut self, request: &(Sent<U>, usize)) {
        if let Some(position) = self.open.iter().position(|open| open == request) {
            self.open.remove(position);
        }
    }

    /// Whether any node may still apply GIVE BACK of a failed upgrade.
    pub fn gives_back(&self) -> bool {
        self.open.iter().any(|(sent, _)| matches!(sent, Sent::GiveBack(_)))
    }

    /// The nodes that may still set the key. They may not vote on an adoption: the key of this lease could come back on
    /// such a node after the node has transferred the key to the adopter.
    pub fn silent(&self) -> NodeSet {
        self.unanswered.iter().chain(self.open.iter().map(|(_, node)| *node)).collect()
    }

    /// The nodes that may hold the key. Repeat RELEASE on each of them until the node answers.
    pub fn holders(&self) -> NodeSet {
        self.round_holders.iter().chain(self.healed.iter()).collect()
    }

    /// The nodes that may still hold the key of the giver. The giver is the lease that this lease was adopted from, or
    /// that it has upgraded. On a node that has granted this lease, the key of this lease has replaced the giver's key.
    pub fn may_hold_giver(&self, quorum: Quorum) -> NodeSet {
        let is_taken =
            |node: &usize| self.round_holders.contains(*node) && !self.unanswered.contains(*node);
        quorum.all().iter().filter(|node| !is_taken(node)).collect()
    }

    /// Removes and returns the open GIVE BACKs: each failed upgrade, with a node that may still apply its GIVE BACK. On
    /// that node, release the token of the upgrade first, and then the token of the lease.
    pub fn take_upgrades(&mut self) -> Vec<(U, usize)> {
        let mut upgrades = Vec::new();
        for (sent, node) in core::mem::take(&mut self.open) {
            match sent {
                Sent::Heal => self.open.push((sent, node)),
                Sent::GiveBack(upgrade) => upgrades.push((upgrade, node)),
            }
        }
        upgrades
    }

    /// The moment by which the last key has expired on every node, even if no RELEASE reaches the nodes.
    pub fn gone_by(&self) -> Moment {
        self.gone_by
    }
}

#[cfg(test)]
impl<U: Clone> Footprint<U> {
    /// What a node has not answered yet: whether the request of the round is open, how many HEALs are open, and the
    /// failed upgrades whose GIVE BACK is open.
    pub(crate) fn open(&self, node: usize) -> (bool, usize, Vec<U>) {
        let open = || self.open.iter().filter(|(_, other)| *other == node);
        let heals = open().filter(|(sent, _)| matches!(sent, Sent::Heal)).count();
        let upgrade = |(sent, _): &(Sent<U>, usize)| match sent {
            Sent::Heal => None,
            Sent::GiveBack(upgrade) => Some(upgrade.clone()),
        };
        (self.unanswered.contains(node), heals, open().filter_map(upgrade).collect())
    }
}
