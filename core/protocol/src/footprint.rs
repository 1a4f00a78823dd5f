//! What the requests of one token have left on the nodes, or may yet leave there.
//!
//! Owns which nodes may hold the token's keys, which of them have not answered a request that may still set the keys, and
//! when the last key has expired. It sends nothing: the driver (`lock/held.rs` of the crate `quorlock`) and the model record
//! what they send and what is answered. They ask where to release, and which nodes may not vote on an adoption.

use crate::quorum::{NodeSet, Quorum};
use crate::round::Round;
use crate::term::Moment;

/// The nodes that a token's requests have reached, or may still reach.
///
/// `U` identifies an upgrade of the lease: whatever its GIVE BACK and RELEASE must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint<U> {
    /// The nodes that may hold the key because of the round.
    round_holders: NodeSet,
    /// The nodes that have not answered the round, and may still set the key.
    unanswered: NodeSet,
    /// The nodes that HEAL was sent to. They may hold the key, too.
    healed: NodeSet,
    /// The later requests that a node may still apply, each with the node.
    open: Vec<(Sent<U>, usize)>,
    gone_by: Moment,
}

/// A request that sets keys, other than that of the round.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent<U> {
    Heal,
    /// Of an upgrade that failed.
    GiveBack(U),
}

impl<U: Clone + PartialEq> Footprint<U> {
    /// The footprint of a round. Its last key has expired at `gone_by`.
    pub fn new(round: &Round, gone_by: Moment) -> Self {
        Self::with(round.holders(), round.unanswered(), gone_by)
    }

    /// The footprint of a lease that another process has acquired. `holders` may hold its key, and `unanswered` may still
    /// set it.
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

    /// Records that a request is sent that may set keys which expire at `gone_by`.
    pub fn set_keys_until(&mut self, gone_by: Moment) {
        self.gone_by = self.gone_by.max(gone_by);
    }

    /// Records that HEAL is sent to a node.
    pub fn sent_heal(&mut self, node: usize) {
        self.healed.insert(node);
        self.open.push((Sent::Heal, node));
    }

    /// Records that a node cannot apply one of its HEALs any more.
    pub fn answered_heal(&mut self, node: usize) {
        if let Some(position) = self.open.iter().position(|other| *other == (Sent::Heal, node)) {
            self.open.remove(position);
        }
    }

    /// Records that GIVE BACK of a failed upgrade is sent to `nodes`.
    pub fn sent_give_back(&mut self, upgrade: &U, nodes: NodeSet) {
        self.open.extend(nodes.iter().map(|node| (Sent::GiveBack(upgrade.clone()), node)));
    }

    /// Records that a node has answered GIVE BACK of this upgrade.
    pub fn answered_give_back(&mut self, upgrade: &U, node: usize) {
        let answered = (Sent::GiveBack(upgrade.clone()), node);
        self.open.retain(|other| *other != answered);
    }

    /// The nodes that may still set the key. They may not vote on an adoption: the key could come back after it was
    /// transferred.
    pub fn silent(&self) -> NodeSet {
        self.unanswered.iter().chain(self.open.iter().map(|(_, node)| *node)).collect()
    }

    /// The nodes that may hold the key: repeat RELEASE there until it is answered.
    pub fn holders(&self) -> NodeSet {
        self.round_holders.iter().chain(self.healed.iter()).collect()
    }

    /// The nodes that may still hold the key of the lease that this one was adopted from or has upgraded. An answered grant
    /// has taken its place.
    pub fn may_hold_giver(&self, quorum: Quorum) -> NodeSet {
        let is_taken =
            |node: &usize| self.round_holders.contains(*node) && !self.unanswered.contains(*node);
        quorum.all().iter().filter(|node| !is_taken(node)).collect()
    }

    /// Returns each failed upgrade whose keys a node may still give back, with the node. Release the upgrade there, and
    /// then the lease.
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

    /// When the last key has expired on the nodes, even if no further request reaches them.
    pub fn gone_by(&self) -> Moment {
        self.gone_by
    }
}

#[cfg(test)]
impl<U: Clone> Footprint<U> {
    /// What a node has not answered: whether the round, how many HEALs, and which failed upgrades.
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
