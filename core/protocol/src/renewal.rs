//! When to renew a lease (`auto_extend`), and when not to, because its holder hangs (`heartbeat_timeout`).
//!
//! This module only decides the moments. The driver's renewer (`lock/renewer.rs` of the crate `quorlock`) sends the
//! extensions, and warns the holder.

use crate::lease::{Ended, Lease};
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
/// be due. If too few nodes can answer to decide a renewal, the driver retries earlier: a twelfth of the ttl after the
/// renewal began. So during an outage, the driver tries up to four times as often, but most of these requests are not
/// sent, because the nodes cannot be reached.
#[derive(Clone, Copy, Debug)]
pub struct Upkeep {
    term: Term,
    not_before: Moment,
    heartbeat: Option<Heartbeat>,
}

/// The heartbeats of a holder. A lease with heartbeats is renewed only while its last heartbeat is younger than
/// `timeout`. So if the holder hangs, the lease ends at most `timeout` and one ttl after the last heartbeat, unless the
/// holder has extended it for longer.
///
/// Missing heartbeats only prevent renewals. So heartbeats cannot make a lease count as valid for too long.
#[derive(Clone, Copy, Debug)]
struct Heartbeat {
    timeout: Duration,
    last: Moment,
    /// Whether the holder has been warned since the last heartbeat.
    is_warned: bool,
    /// Whether renewal has stopped, because the last heartbeat was too old. The next heartbeat resumes renewal.
    has_stopped: bool,
}

impl Upkeep {
    /// Creates the schedule of a lease that was won with this term.
    pub fn new(term: Term) -> Self {
        Self { term, not_before: Moment::from_origin(Duration::ZERO), heartbeat: None }
    }

    /// Returns the schedule with a heartbeat: the lease is renewed only while the last heartbeat is younger than
    /// `timeout`. `now` counts as the first heartbeat.
    pub fn with_heartbeat(self, timeout: Duration, now: Moment) -> Self {
        let heartbeat = Heartbeat { timeout, last: now, is_warned: false, has_stopped: false };
        Self { heartbeat: Some(heartbeat), ..self }
    }

    /// The term to renew with: pass it to [`Lease::extend`].
    pub fn term(&self) -> Term {
        self.term
    }

    /// Returns when to renew `lease` next; `None` if the lease is at its limit, if it ends before the next renewal is
    /// due, or if renewal has stopped because there was no heartbeat.
    pub fn due(&self, lease: &Lease) -> Option<Moment> {
        // The last confirmed renewal was sent this long before the validity end.
        let validity = self.term.ttl.saturating_sub(self.term.drift());
        let due = lease.end().minus(validity).plus(self.term.ttl / 3);
        let due = due.max(self.not_before).ceil(self.term.ttl / TICKS_PER_TTL);
        (!lease.is_at_limit() && !self.has_stopped() && due < lease.end()).then_some(due)
    }

    /// Records a heartbeat of the holder. Returns whether something may now be due earlier than before: a renewal, if
    /// renewal had stopped, or the next warning.
    pub fn beat(&mut self, now: Moment) -> bool {
        let Some(heartbeat) = &mut self.heartbeat else { return false };
        let is_earlier = heartbeat.is_warned || heartbeat.has_stopped;
        *heartbeat = Heartbeat { last: now, is_warned: false, has_stopped: false, ..*heartbeat };
        is_earlier
    }

    /// Returns when half of the timeout has passed since the last heartbeat. Call [`Upkeep::check_heartbeat`] then, and
    /// whenever a renewal is due. `None` if the holder has been warned already, or sends no heartbeats.
    pub fn warning_due(&self) -> Option<Moment> {
        let heartbeat = self.heartbeat.filter(|heartbeat| !heartbeat.is_warned)?;
        Some(heartbeat.last.plus(heartbeat.timeout / 2))
    }

    /// Checks the last heartbeat. Call this when a renewal or a warning is due, before [`Upkeep::due`]: if the last
    /// heartbeat is too old, no renewal is due any more. Returns the timeout if the holder must be warned now; this
    /// happens at most once after each heartbeat.
    pub fn check_heartbeat(&mut self, now: Moment) -> Option<Duration> {
        let heartbeat = self.heartbeat.as_mut()?;
        let silence = now.since(heartbeat.last);
        heartbeat.has_stopped |= silence >= heartbeat.timeout;
        let is_new = !heartbeat.is_warned && silence >= heartbeat.timeout / 2;
        heartbeat.is_warned |= is_new;
        is_new.then_some(heartbeat.timeout)
    }

    /// Whether renewal has stopped because there was no heartbeat.
    fn has_stopped(&self) -> bool {
        self.heartbeat.is_some_and(|heartbeat| heartbeat.has_stopped)
    }

    /// Returns why a lease with this schedule is over: [`Ended::NoHeartbeat`] if it has expired after its renewal
    /// stopped, and `ended` otherwise.
    pub fn reason(&self, ended: Ended) -> Ended {
        if ended == Ended::Expired && self.has_stopped() { Ended::NoHeartbeat } else { ended }
    }

    /// Returns the pause between two successive requests, if `requests` requests are due together. `ttl` is the
    /// shortest ttl of their leases. If the driver sent all requests at once, every acquire would have to wait until
    /// the nodes have processed them. With the pause, the last request is late by at most a 64th of the ttl.
    pub fn pause(ttl: Duration, requests: u32) -> Duration {
        (ttl / (2 * TICKS_PER_TTL) / requests.max(1)).min(LONGEST_PAUSE)
    }

    /// Records that the renewal sent at `sent` ended [undecided](crate::Extended::Undecided). The next renewal is due
    /// no earlier than a twelfth of the ttl after `sent`.
    pub fn undecided(&mut self, sent: Moment) {
        self.not_before = sent.plus(self.term.ttl / 12);
    }
}
