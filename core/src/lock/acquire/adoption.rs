//! What an acquire needs to adopt a lease that its giver has detached: when no adopter can win it any more, and why.
//!
//! Only `acquire.rs` calls this. The round sends TRANSFER instead of ACQUIRE (`lock/round.rs`); the protocol
//! decides when the lease is lost.

use crate::command::answer::Answered;
use crate::command::reply::{Elsewhere, Holder, Reply};
use crate::lock::handover::Giver;
use quorlock_protocol::{AdoptionTally, Quorum, Untransferable};

/// The state of an adoption.
pub(super) struct AdoptionState {
    pub(super) giver: Giver,
    protocol: AdoptionTally<Holder>,
}

impl AdoptionState {
    pub(super) fn new(giver: Giver, quorum: Quorum) -> Box<Self> {
        let silent = quorum.nodes() - giver.voters.len();
        Box::new(Self { giver, protocol: AdoptionTally::new(quorum, silent) })
    }

    /// Records the answers to a lost round. Returns why another round is of no use; `None` if it may win.
    pub(super) fn lost(&mut self, answers: &[Option<Answered>]) -> Option<Untransferable> {
        self.protocol.lost(answers.iter().flatten().filter_map(other_holder).collect())
    }

    /// Whether another adopter held a majority in the last round.
    pub(super) fn is_taken(&self) -> bool {
        self.protocol.is_taken()
    }
}

/// Returns why a lease cannot be adopted any more, for an error.
pub(super) fn reason(why: Untransferable, answers: &[Option<Answered>]) -> String {
    match why {
        Untransferable::Gone => {
            "it has expired, was released, was adopted and has ended since, or too many nodes have lost it".to_owned()
        }
        Untransferable::Taken => {
            let holder = holder_name(answers);
            let (who, have) = holder.as_deref().map_or(("others", "have"), |name| (name, "has"));
            format!("{who} {have} adopted it, or acquired the lock after it ended")
        }
    }
}

/// Returns what a node that refused has instead of the giver's token: `Some(None)` if a key is missing.
fn other_holder(answered: &Answered) -> Option<Option<Holder>> {
    match answered {
        Ok(Reply::NotTransferred(Elsewhere { holder: Holder::Nobody, .. })) => Some(None),
        Ok(Reply::NotTransferred(Elsewhere { holder, .. })) => Some(Some(holder.clone())),
        _ => None,
    }
}

/// Returns the name of the holder that most of the refusing nodes have; `None` if it has none.
fn holder_name(answers: &[Option<Answered>]) -> Option<String> {
    let holders: Vec<_> = answers.iter().flatten().filter_map(other_holder).flatten().collect();
    let count = |holder: &Holder| holders.iter().filter(|other| *other == holder).count();
    match holders.iter().max_by_key(|holder| count(holder))? {
        Holder::Token(token) => token.holder().map(str::to_owned),
        Holder::Nobody | Holder::Other => None,
    }
}
