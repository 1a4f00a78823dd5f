//! Automatic extension: when a lease is to be extended.

use crate::lease::Lease;
use crate::term::{Moment, Term};
use core::time::Duration;

/// Moments at which leases are extended are rounded up to a multiple of this part of the ttl, so
/// that many leases are extended together.
const TICKS_PER_TTL: u32 = 32;

/// The automatic extension of one lease.
///
/// An extension is due when a third of the ttl has passed since the last one that was confirmed.
/// Its answers are waited for until the next would be due. Only if so many nodes fail that no
/// majority is left, it is tried again earlier, a twelfth of the ttl after it began. So a lease that
/// is held for a time `t` is extended at most `t / (ttl / 3)` times; except in an outage, in which
/// it is at most four times as often, and most of the requests cannot be sent anyway.
#[derive(Clone, Copy, Debug)]
pub struct Upkeep {
    term: Term,
    not_before: Moment,
}

impl Upkeep {
    /// The upkeep of a lease that was won with this term.
    pub fn new(term: Term) -> Self {
        Self { term, not_before: Moment::from_origin(Duration::ZERO) }
    }

    /// What is asked for in an extension.
    pub fn term(&self) -> Term {
        self.term
    }

    /// When the lease is to be extended next; `None` if it can't be any more, because it is at its
    /// limit or would be over by then.
    pub fn due(&self, lease: &Lease) -> Option<Moment> {
        // The end is where the last confirmed extension (or the acquire) was sent, plus this.
        let validity = self.term.ttl.saturating_sub(self.term.drift());
        let due = lease.end().minus(validity).plus(self.term.ttl / 3);
        let due = due.max(self.not_before).ceil(self.term.ttl / TICKS_PER_TTL);
        (!lease.is_at_limit() && due < lease.end()).then_some(due)
    }

    /// An extension that was sent at `sent` was not decided.
    pub fn undecided(&mut self, sent: Moment) {
        self.not_before = sent.plus(self.term.ttl / 12);
    }
}
