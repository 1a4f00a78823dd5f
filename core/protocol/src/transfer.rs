//! Hand-over: whether an adopter can still win a lease that its holder has given up.
//!
//! An adopter's [`Round`](crate::Round) sends TRANSFER instead of ACQUIRE. Adopters that try at the same time
//! may each win a minority. They give the token back and try again, so a lost round alone does not mean
//! that the lease is lost. The driver (`lock/acquire/adoption.rs` of the crate `quorlock`) calls this after
//! each lost round.

use crate::quorum::Quorum;

/// After so many rounds in which a majority had another token, the lease is lost, even if the tokens differ. On a
/// resource whose holders change quickly, an adopter may never see one of them twice. That so many adopters had a
/// majority and all gave up is not expected.
const MOST_MAJORITIES: usize = 5;

/// Why an adopter cannot win a lease any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untransferable {
    /// Too many nodes do not have the key, or may not vote: the lease was released, has expired, or was forgotten.
    Gone,
    /// A majority has one other token: another client has adopted the lease, or acquired the lock after it.
    Taken,
}

/// An adopter's attempts to win a lease. `T` is the type of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct AdoptionTally<T> {
    quorum: Quorum,
    /// The number of nodes that may not vote.
    silent: usize,
    /// The other token that a majority had in the last round.
    majority: Option<T>,
    /// The number of rounds in which a majority had another token.
    majorities: usize,
}

impl<T: PartialEq> AdoptionTally<T> {
    /// Creates the state before the first round. `silent` is the number of nodes that may not vote, because a request
    /// of the giver may be under way to them.
    pub fn new(quorum: Quorum, silent: usize) -> Self {
        Self { quorum, silent, majority: None, majorities: 0 }
    }

    /// Records a lost round in which a majority voted, and returns why another round is of no use; `None` if it may
    /// win.
    ///
    /// `refusals` are the counted refusals: the token that a node has instead of the giver's, or `None` if a key
    /// is missing there. A missing key does not come back. Another token may: it is that of an adopter that gives
    /// up at this moment, even with a majority. So a majority counts only if it has the same token in two rounds, or
    /// after several rounds with a majority.
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

    /// Whether a majority had one other token in the last round.
    pub fn is_taken(&self) -> bool {
        self.majority.is_some()
    }
}
