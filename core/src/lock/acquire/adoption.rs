//! The part of an acquire that is specific to adoptions: tracks whether an adopter can still win the detached lease.
//!
//! Only `acquire.rs` and `report.rs` call this module. The rounds of an adoption run in `claim/round.rs`, which sends
//! TRANSFER instead of ACQUIRE. The protocol decides when no adopter can win the lease any more.

use crate::lock::claim::handover::Giver;
use crate::wire::answer::Answered;
use crate::wire::reply::{Elsewhere, Holder, Reply};
use quorlock_protocol::{AdoptionTally, NotGiven, Quorum, Untransferable};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The lease that an acquire tries to adopt, and the result of the rounds so far: whether an adopter can still win.
pub(super) struct AdoptionState {
    pub(super) giver: Giver,
    protocol: AdoptionTally<Holder>,
}

impl AdoptionState {
    pub(super) fn new(giver: Giver, quorum: Quorum) -> Box<Self> {
        let silent = quorum.nodes() - giver.voters.len();
        // Another acquire of the same adoption knows nothing of the rounds of this one.
        let giver = Giver { is_over: Arc::default(), ..giver };
        Box::new(Self { giver, protocol: AdoptionTally::new(quorum, silent) })
    }

    /// Records the answers of a lost round. Returns why no further round can win; `None` if a further round may win.
    pub(super) fn lost(&mut self, answers: &[Option<Answered>]) -> Option<Untransferable> {
        self.protocol.lost(answers.iter().flatten().filter_map(not_given).collect())
    }

    /// Records that this acquire has won the lease, or that no adopter can win it any more.
    pub(super) fn end(&self) {
        self.giver.is_over.store(true, Ordering::Release);
    }

    /// Whether another client held the keys on a majority of the nodes in the last round.
    pub(super) fn is_taken(&self) -> bool {
        self.protocol.is_taken()
    }
}

/// Returns what a node that refused TRANSFER stores instead of the giver's token; `None` for any other answer.
pub(super) fn not_given(answered: &Answered) -> Option<NotGiven<Holder>> {
    let Ok(Reply::NotTransferred(Elsewhere { holder, .. })) = answered else { return None };
    Some(match holder {
        Holder::Nobody => NotGiven::Missing,
        Holder::Token(token) if token.is_marker() => NotGiven::Readers,
        holder => NotGiven::Token(holder.clone()),
    })
}
