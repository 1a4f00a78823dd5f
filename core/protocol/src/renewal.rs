//! When to renew a lease (`auto_extend`).
//!
//! Decides the moments only. The driver's renewer (`lock/renewer.rs` of the crate `quorlock`) sends the
//! extensions.

use crate::lease::Lease;
use crate::term::{Moment, Term};
use core::time::Duration;

/// The moments of renewals are rounded up to multiples of ttl / 32, so that many leases are renewed
/// together.
const TICKS_PER_TTL: u32 = 32;

/// The longest pause between two requests that are due together. A node processes a full request in a
/// fraction of this time, so it remains free for acquires.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// The renewal schedule of one lease.
///
/// A renewal is due when a third of the ttl has passed since the last confirmed one. The driver waits for
/// the answers to a renewal until the next one would be due. Only if no majority can answer, it retries
/// earlier: a twelfth of the ttl after the renewal began. So a lease held for a time `t` is renewed at most
/// `t / (ttl / 3)` times. During an outage it is renewed up to four times as often, but most of those
/// requests cannot be sent.
#[derive(Clone, Copy, Debug)]
pub struct Upkeep {
    term: Term,
    not_before: Moment,
}

impl Upkeep {
    /// Creates the schedule of a lease that was won with this term.
    pub fn new(term: Term) -> Self {
        Self { term, not_before: Moment::from_origin(Duration::ZERO) }
    }

    /// The term to renew with: pass it to [`Lease::extend`].
    pub fn term(&self) -> Term {
        self.term
    }

    /// Returns when to renew `lease` next; `None` if no renewal remains, because the lease is at its
    /// limit or ends before one is due.
    pub fn due(&self, lease: &Lease) -> Option<Moment> {
        // The time from the sending of the last confirmed request to the validity end.
        let validity = self.term.ttl.saturating_sub(self.term.drift());
        let due = lease.end().minus(validity).plus(self.term.ttl / 3);
        let due = due.max(self.not_before).ceil(self.term.ttl / TICKS_PER_TTL);
        (!lease.is_at_limit() && due < lease.end()).then_some(due)
    }

    /// Returns the pause between two of `requests` requests that are due together, for leases of at least this
    /// `ttl`. Sent all at once, they would hold up every acquire for as long as the nodes process them. The
    /// last request is at most half a tick late.
    pub fn pause(ttl: Duration, requests: u32) -> Duration {
        (ttl / (2 * TICKS_PER_TTL) / requests.max(1)).min(LONGEST_PAUSE)
    }

    /// Records that the renewal sent at `sent` ended [undecided](crate::Extended::Undecided). The next
    /// one is due a twelfth of the ttl after it.
    pub fn undecided(&mut self, sent: Moment) {
        self.not_before = sent.plus(self.term.ttl / 12);
    }
}
