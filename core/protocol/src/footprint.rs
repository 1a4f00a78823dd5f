//! The footprint of one token: the keys that requests with this token have left on the nodes, or may yet leave there.
//!
//! The footprint records which nodes may hold the token's keys, and when the last key has expired. It also records
//! which nodes may still set the keys, because a request is unanswered. [`Claim`](crate::Claim) reports each request
//! and each answer to the footprint. The claim asks the footprint on which nodes to release the token, and which nodes
//! must not vote on an adoption.

use crate::quorum::{NodeSet, Quorum};
use crate::round::Round;
use crate::term::Moment;

/// The nodes that a token's requests have reached, or may still reach.
///
/// `S` identifies an upgrade of the lease by the upgrade's token and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint<S> {
    /// The nodes that may hold the key, now or later, because of the round.
    round_holders: NodeSet,
    /// The nodes that have granted the round.
    granted: NodeSet,
    /// The nodes that have not answered the request of the round, and may still set the key.
    unanswered: NodeSet,
    /// The nodes that have answered a HEAL. These nodes may also hold the key.
    healed: NodeSet,
    /// The open requests that were sent after the round, each with the node that may still apply the request.
    open: Vec<(Sent<S>, usize)>,
    gone_by: Moment,
}

/// A request that sets keys, other than the ACQUIRE or TRANSFER of the round.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent<S> {
    Heal,
    /// GIVE BACK of an upgrade that failed.
    GiveBack(S),
}

impl<S: Clone + PartialEq> Footprint<S> {
    /// Creates the footprint of a round whose keys will all have expired by `gone_by`.
    pub fn new(round: &Round, gone_by: Moment) -> Self {
        let mut footprint = Self::with(NodeSet::EMPTY, NodeSet::EMPTY, gone_by);
        footprint.counted_votes(round);
        footprint
    }

    /// Creates the footprint of a lease that another process has acquired. The nodes in `holders` may hold the lease's
    /// key, and the nodes in `unanswered` may still set that key.
    pub fn with(holders: NodeSet, unanswered: NodeSet, gone_by: Moment) -> Self {
        Self {
            round_holders: holders,
            granted: NodeSet::EMPTY,
            unanswered,
            healed: NodeSet::EMPTY,
            open: Vec::new(),
            gone_by,
        }
    }

    /// Records the votes that the round has received so far.
    pub fn counted_votes(&mut self, round: &Round) {
        self.round_holders = round.holders();
        self.granted = round.granted();
        self.unanswered = round.unanswered();
    }

    /// Records that a request may set keys that will all have expired by `gone_by`.
    pub fn set_keys_until(&mut self, gone_by: Moment) {
        self.gone_by = self.gone_by.max(gone_by);
    }

    /// Records that HEAL is about to be sent to a node.
    pub fn sends_heal(&mut self, node: usize) {
        self.open.push((Sent::Heal, node));
    }

    /// Records that a node has answered a HEAL.
    pub fn answered_heal(&mut self, node: usize) {
        self.healed.insert(node);
        self.close(&(Sent::Heal, node));
    }

    /// Records that a HEAL was not sent to a node, and will not be sent.
    pub fn did_not_send_heal(&mut self, node: usize) {
        self.close(&(Sent::Heal, node));
    }

    /// Records that GIVE BACK of a failed upgrade is sent to `nodes`.
    pub fn sent_give_back(&mut self, upgrade: &S, nodes: NodeSet) {
        self.open.extend(nodes.iter().map(|node| (Sent::GiveBack(upgrade.clone()), node)));
    }

    /// Records that a node has answered a GIVE BACK of this upgrade.
    pub fn answered_give_back(&mut self, upgrade: &S, node: usize) {
        self.close(&(Sent::GiveBack(upgrade.clone()), node));
    }

    /// Removes one of the open requests that equal `request`. It does not matter which one.
    fn close(&mut self, request: &(Sent<S>, usize)) {
        if let Some(position) = self.open.iter().position(|open| open == request) {
            self.open.remove(position);
        }
    }

    /// The nodes that may still apply an open request for which `matches` returns `true`.
    fn may_apply(&self, matches: impl Fn(&Sent<S>) -> bool) -> NodeSet {
        self.open.iter().filter(|(sent, _)| matches(sent)).map(|(_, node)| *node).collect()
    }

    /// The nodes that may still apply GIVE BACK of a failed upgrade.
    pub fn giving_back(&self) -> NodeSet {
        self.may_apply(|sent| matches!(sent, Sent::GiveBack(_)))
    }

    /// The nodes that may still set the key. These nodes must not vote on an adoption: after such a node has
    /// transferred the key to an adopter, the key of this lease could come back on the node.
    pub fn silent(&self) -> NodeSet {
        self.unanswered.with(self.may_apply(|_| true))
    }

    /// The nodes that may hold the key. Repeat RELEASE on each of these nodes until the node answers.
    pub fn holders(&self) -> NodeSet {
        self.round_holders.with(self.healed).with(self.may_apply(|sent| *sent == Sent::Heal))
    }

    /// The nodes that may still hold the key of the giver. The giver is the lease from which this lease was adopted or
    /// upgraded. On a node that has granted this lease, the key of this lease has replaced the giver's key.
    pub fn may_hold_giver(&self, quorum: Quorum) -> NodeSet {
        quorum.all().without(self.granted)
    }

    /// Removes and returns the open GIVE BACKs: each failed upgrade, with a node that may still apply its GIVE BACK. On
    /// that node, release the token of the upgrade first, and then the token of the lease.
    pub fn take_upgrades(&mut self) -> Vec<(S, usize)> {
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
impl<S: Clone> Footprint<S> {
    /// What a node has not answered yet: whether the request of the round is open, how many HEALs are open, and the
    /// failed upgrades whose GIVE BACK is open.
    pub(crate) fn open(&self, node: usize) -> (bool, usize, Vec<S>) {
        let open = || self.open.iter().filter(|(_, other)| *other == node);
        let heals = open().filter(|(sent, _)| matches!(sent, Sent::Heal)).count();
        let upgrade = |(sent, _): &(Sent<S>, usize)| match sent {
            Sent::Heal => None,
            Sent::GiveBack(upgrade) => Some(upgrade.clone()),
        };
        (self.unanswered.contains(node), heals, open().filter_map(upgrade).collect())
    }
}
