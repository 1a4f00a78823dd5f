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

/// The longest pause between two requests that are due together. A node processes even a request for a full batch of
/// leases in a fraction of this time. In the rest of the pause, the node can process ACQUIREs.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// The renewal schedule of one lease.
///
/// A renewal is due when a third of the ttl has passed since the last confirmed renewal. The driver waits for the
/// answers to a renewal until the next one would be due. Only if no majority can answer does the driver retry earlier:
/// a twelfth of the ttl after the renewal began. So a lease held for a time `t` is renewed at most `t / (ttl / 3)`
/// times. During an outage it is renewed up to four times as often, but most of those requests cannot be sent.
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

    /// Returns when to renew `lease` next; `None` if the lease is at its limit, or ends before the next renewal would
    /// be due.
    pub fn due(&self, lease: &Lease) -> Option<Moment> {
        // The time from the sending of the last confirmed renewal to the validity end.
        let validity = self.term.ttl.saturating_sub(self.term.drift());
        let due = lease.end().minus(validity).plus(self.term.ttl / 3);
        let due = due.max(self.not_before).ceil(self.term.ttl / TICKS_PER_TTL);
        (!lease.is_at_limit() && due < lease.end()).then_some(due)
    }

    /// Returns the pause between two of `requests` requests that are due together, for leases of at least this `ttl`.
    /// If all were sent at once, every acquire would have to wait until the nodes have processed them. With the pause,
    /// the last request is at most half a tick late.
    pub fn pause(ttl: Duration, requests: u32) -> Duration {
        (ttl / (2 * TICKS_PER_TTL) / requests.max(1)).min(LONGEST_PAUSE)
    }

    /// Records that the renewal sent at `sent` ended [undecided](crate::Extended::Undecided). The next renewal is due
    /// no earlier than a twelfth of the ttl after `sent`.
    pub fn undecided(&mut self, sent: Moment) {
        self.not_before = sent.plus(self.term.ttl / 12);
    }
}
