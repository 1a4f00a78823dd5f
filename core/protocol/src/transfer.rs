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
/// very unlikely that this happens in so many rounds.
const MOST_MAJORITIES: usize = 5;

/// Why an adopter cannot win a lease any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untransferable {
    /// Too many nodes do not have the key, or must not vote: the lease was released or has expired, or nodes forgot it.
    Gone,
    /// A majority has the same token, other than the giver's: another client has adopted the lease, or has acquired the
    /// lock after the lease ended.
    Taken,
}

/// An adopter's attempts to win a lease. `T` is the type of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct AdoptionTally<T> {
    quorum: Quorum,
    /// The number of nodes that must not vote.
    silent: usize,
    /// The token, other than the giver's, that a majority had in the last round.
    majority: Option<T>,
    /// The number of rounds in which a majority had the same token, other than the giver's.
    majorities: usize,
}

impl<T: PartialEq> AdoptionTally<T> {
    /// Creates the state before the first round. `silent` is the number of nodes that must not vote, because a request
    /// of the giver may still be under way to them.
    pub fn new(quorum: Quorum, silent: usize) -> Self {
        Self { quorum, silent, majority: None, majorities: 0 }
    }

    /// Records a lost round in which a majority voted. Returns why the adopter cannot win any more; `None` if another
    /// round may win.
    ///
    /// `refusals` has an entry for each counted refusal: the token that the node has instead of the giver's, or `None`
    /// if the node lacks a key.
    ///
    /// A missing key does not come back. But another adopter's token may go away again: that adopter may be giving its
    /// grants back at this moment, even if it has a majority. So one round in which a majority has the same token
    /// proves nothing. The lease counts as taken if a majority has the same token in two successive rounds. It also
    /// counts as taken after `MOST_MAJORITIES` rounds in which a majority had the same token; the token may differ from
    /// round to round.
    pub fn lost(&mut self, refusals: Vec<Option<T>>) -> Option<Untransferable> {
        let missing = refusals.iter().filter(|token| token.is_none()).count();
        if missing + self.silent > self.quorum.tolerated() {
            return Some(Untransferable::Gone);
        }
        let mut tokens: Vec<T> = refusals.into_iter().flatten().collect();
        let count = |token: &T| tokens.iter().filter(|other| *other == token).count();
        let majority = tokens.iter().position(|token| count(token) >= self.quorum.size());
        let majority = majority.map(|position| tokens.swap_remove(position));
        let is_same = majority.is_some() && majority == self.majority;
        self.majorities += usize::from(majority.is_some());
        self.majority = majority;
        (is_same || self.majorities >= MOST_MAJORITIES).then_some(Untransferable::Taken)
    }

    /// Whether a majority had the same token, other than the giver's, in the last round.
    pub fn is_taken(&self) -> bool {
        self.majority.is_some()
    }
}
