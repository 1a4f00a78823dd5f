//! When to renew a lease (`auto_extend`).
//!
//! This module only decides the moments. The driver's renewer (`lock/renewer.rs` of the crate `quorlock`) sends the
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
/// A renewal is due when a third of the ttl has passed since the last confirmed renewal. So during a time `t`, a lease
/// is renewed at most `t / (ttl / 3)` times. The driver waits for the answers to a renewal until the next renewal would
/// be due. If no majority can answer, the driver retries earlier: a twelfth of the ttl after the renewal began. So
/// during an outage, the driver tries up to four times as often, but cannot send most of these requests.
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

    /// Returns the pause between two successive requests, if `requests` requests are due together. `ttl` is the
    /// shortest ttl of their leases. If the driver sent all requests at once, every acquire would have to wait until
    /// the nodes have processed them. With the pause, the last request is at most half a tick late.
    pub fn pause(ttl: Duration, requests: u32) -> Duration {
        (ttl / (2 * TICKS_PER_TTL) / requests.max(1)).min(LONGEST_PAUSE)
    }

    /// Records that the renewal sent at `sent` ended [undecided](crate::Extended::Undecided). The next renewal is due
    /// no earlier than a twelfth of the ttl after `sent`.
    pub fn undecided(&mut self, sent: Moment) {
        self.not_before = sent.plus(self.term.ttl / 12);
    }
}
