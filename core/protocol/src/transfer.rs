//! Hand-over: whether an adopter can still win a lease that its holder has detached.
//!
//! An adopter's [`Round`](crate::Round) sends TRANSFER instead of ACQUIRE. Adopters that try at the same time may each
//! win a minority. Each adopter then gives its grants back (GIVE BACK) and tries again. So an adopter that loses a
//! round may still win the lease. The driver (`lock/acquire/adoption.rs` of the crate `quorlock`) calls this module
//! after each lost round.

use crate::quorum::Quorum;

/// The lease counts as taken after this many rounds in which a majority had the same token, other than the giver's. The
/// token may differ from round to round: if the holders of a resource change quickly, an adopter may never see the same
/// token twice.
///
/// In theory, each of these tokens could belong to another adopter that had a majority but gave its grants back. It is
/// very unlikely that this happens in this many rounds.
const MOST_MAJORITIES: usize = 5;

/// What a node that refused TRANSFER has instead of the giver's token. `T` is the type of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotGiven<T> {
    /// A key is missing.
    Missing,
    /// A key has another token.
    Token(T),
    /// Readers hold a resource without the giver. One of them may be another adopter, but the node does not say which.
    Readers,
}

/// Why an adopter cannot win a lease any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untransferable {
    /// Too many nodes do not have the key, or must not vote: the lease was released, has expired, or was forgotten by
    /// nodes.
    Gone,
    /// A majority of the nodes stores one token, and it is not the giver's: another client has adopted the lease, or
    /// has acquired the lock after the lease ended.
    Taken,
    /// On a majority, readers hold a resource without the giver: the lease has ended, or one of these readers has
    /// adopted the lease.
    ///
    /// Unlike the other cases, this one is not certain: several adopters may have had a node each in every round. So
    /// this adopter gives up, but must not delete the keys that it gave back: other adopters may still win the lease.
    Unclear,
}

/// What an adopter's lost rounds show about its chance to win the lease. `T` is the type of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct AdoptionTally<T> {
    quorum: Quorum,
    /// The number of nodes that must not vote.
    silent: usize,
    /// The token, other than the giver's, that a majority had in the last round; `None` if no majority had such a
    /// token.
    majority: Option<T>,
    /// The number of rounds in which a majority had the same token, other than the giver's.
    majorities: usize,
    /// The number of rounds in which a majority may have had the same token. This is uncertain if readers held the
    /// resource, because readers show no token.
    unclear: usize,
}

impl<T: PartialEq> AdoptionTally<T> {
    /// Creates the state before the first round. `silent` is the number of nodes that must not vote, because a request
    /// of the giver may still be under way to them.
    pub fn new(quorum: Quorum, silent: usize) -> Self {
        Self { quorum, silent, majority: None, majorities: 0, unclear: 0 }
    }

    /// Records a lost round in which a majority voted. Returns why the adopter cannot win any more; `None` if another
    /// round may win.
    ///
    /// `refusals` has an entry for each counted refusal.
    ///
    /// A missing key does not come back. But another adopter's token may go away again: that adopter may be giving its
    /// grants back at this moment, even if it has a majority. So one round in which a majority has the same token
    /// proves nothing. The lease counts as taken if a majority has the same token in two successive rounds. It also
    /// counts as taken after `MOST_MAJORITIES` rounds in which a majority had the same token; the token may differ from
    /// round to round. Readers show no token, so two rounds with readers prove nothing.
    pub fn lost(&mut self, refusals: Vec<NotGiven<T>>) -> Option<Untransferable> {
        let (mut missing, mut readers, mut tokens) = (0, 0, Vec::new());
        for refusal in refusals {
            match refusal {
                NotGiven::Missing => missing += 1,
                NotGiven::Readers => readers += 1,
                NotGiven::Token(token) => tokens.push(token),
            }
        }
        if missing + self.silent > self.quorum.tolerated() {
            return Some(Untransferable::Gone);
        }
        let count = |token: &T| tokens.iter().filter(|other| *other == token).count();
        let most = tokens.iter().map(count).max().unwrap_or_default();
        let majority = tokens.iter().position(|token| count(token) >= self.quorum.size());
        let majority = majority.map(|position| tokens.swap_remove(position));
        let is_same = majority.is_some() && majority == self.majority;
        self.majorities += usize::from(majority.is_some());
        self.unclear += usize::from(majority.is_none() && most + readers >= self.quorum.size());
        self.majority = majority;
        let is_taken = is_same || self.majorities >= MOST_MAJORITIES;
        let is_unclear = self.unclear >= MOST_MAJORITIES;
        let taken = is_taken.then_some(Untransferable::Taken);
        taken.or(is_unclear.then_some(Untransferable::Unclear))
    }

    /// Whether a majority had the same token, other than the giver's, in the last round.
    pub fn is_taken(&self) -> bool {
        self.majority.is_some()
    }
}
