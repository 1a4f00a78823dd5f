//! Hand-over: whether an adopter can still win a lease that its holder has detached.
//!
//! An adopter's [`Round`](crate::Round) sends TRANSFER instead of ACQUIRE. Adopters that try at the same time may each
//! win a minority. Each of them then gives its grants back (GIVE BACK) and tries again, so a lost round alone does not
//! mean that the lease is lost. The driver (`lock/acquire/adoption.rs` of the crate `quorlock`) calls this module
//! after each lost round.

use crate::quorum::Quorum;

/// After this many rounds in which a majority had another token, the lease counts as lost, even if the tokens differ.
/// On a resource whose holders change quickly, an adopter may never see the same token twice. It is very unlikely that
/// this many adopters each had a majority and all gave up.
const MOST_MAJORITIES: usize = 5;

/// Why an adopter cannot win a lease any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untransferable {
    /// Too many nodes do not have the key, or must not vote: the lease was released, has expired, or was forgotten.
    Gone,
    /// A majority has the same other token: another client has adopted the lease, or acquired the lock after it.
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
    /// The number of rounds in which a majority had another token.
    majorities: usize,
}

impl<T: PartialEq> AdoptionTally<T> {
    /// Creates the state before the first round. `silent` is the number of nodes that must not vote, because a request
    /// of the giver may still be under way to them.
    pub fn new(quorum: Quorum, silent: usize) -> Self {
        Self { quorum, silent, majority: None, majorities: 0 }
    }

    /// Records a lost round in which a majority voted, and returns why it is useless to try again; `None` if another
    /// round may win.
    ///
    /// `refusals` are the counted refusals: the token that a node has instead of the giver's, or `None` if a key is
    /// missing there. A missing key does not come back. But the giver's token may replace another token again: the
    /// adopter with that token may be giving up at this moment, even if it has a majority. So a majority counts only if
    /// it has the same token in two successive rounds, or after `MOST_MAJORITIES` rounds in which some token had one.
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

    /// Whether, in the last round, a majority had the same token, other than the giver's.
    pub fn is_taken(&self) -> bool {
        self.majority.is_some()
    }
}
