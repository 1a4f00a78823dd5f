//! What is told by `tracing`: every event and span, with its level, target, name and fields, here once.
//!
//! Names, targets and fields are part of the interface. Tokens are in none of them (whoever has one can
//! release the lock), nor are passwords: a node is named by its address.
//!
//! Waiting is no error: what others' locks cause is told at DEBUG at most. A thread or task that waits for
//! itself gets a warning.

use crate::config::resources::Resources;
use crate::error::duration::HumanDuration;
use crate::error::{Error, ErrorCode, NodeOutcome};
use crate::runtime::panics;
use quorlock_protocol::{Ended, Extended, Loss};
use std::fmt;
use std::time::Duration;
use tracing::{Level, Span, field, info_span};

/// An event of `tracing`, for a subscriber that may panic.
macro_rules! event {
    ($($given:tt)*) => {{
        panics::contain(|| tracing::event!($($given)*));
    }};
}

pub(crate) const NODE: &str = "quorlock::node";
pub(crate) const LEASE: &str = "quorlock::lease";
pub(crate) const ACQUIRE: &str = "quorlock::acquire";
pub(crate) const WAITING: &str = "quorlock::waiting";

/// The names of resources, as they are: with commas between several.
struct Names<'a>(&'a Resources);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, resource) in self.0.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}{resource}")?;
        }
        Ok(())
    }
}

/// The span of an acquire, for a subscriber that may panic.
pub(crate) struct Scope(Span);

impl Scope {
    pub(crate) fn none() -> Self {
        Self(Span::none())
    }

    fn record(&self, fields: impl FnOnce(&Span)) {
        panics::contain(|| fields(&self.0));
    }

    /// Does something in the span. Nothing is done if the subscriber panics.
    pub(crate) fn within(&self, work: impl FnOnce()) {
        panics::contain(|| self.0.in_scope(work));
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        panics::contain(|| drop(span));
    }
}

/// From the acquire's beginning to its end, in the caller's span.
pub(crate) fn acquiring(resources: &Resources) -> Scope {
    let span = panics::contain(|| {
        info_span!(
            target: ACQUIRE,
            "quorlock.acquire",
            resource = %Names(resources),
            outcome = field::Empty,
            fence = field::Empty,
            rounds = field::Empty,
        )
    });
    Scope(span.unwrap_or_else(Span::none))
}

/// An acquire has won.
pub(crate) fn acquired(
    span: &Scope,
    resources: &Resources,
    fence: u64,
    rounds: u64,
    took: Duration,
) {
    span.record(|span| {
        span.record("outcome", "won").record("fence", fence).record("rounds", rounds);
    });
    span.within(|| {
        event!(
            name: "lease.acquired", target: LEASE, Level::DEBUG,
            resource = %Names(resources), fence, rounds, seconds = took.as_secs_f64(),
            "lease acquired"
        );
    });
}

/// An acquire has ended in an error, which its caller gets; `None` if the caller has gone.
pub(crate) fn not_acquired(
    span: &Scope,
    resources: &Resources,
    error: Option<&Error>,
    rounds: u64,
    took: Duration,
) {
    let outcome = match error.map(Error::code) {
        Some(ErrorCode::Timeout) => "timeout",
        Some(ErrorCode::NoQuorum) => "no_quorum",
        _ => "cancelled",
    };
    span.record(|span| {
        span.record("outcome", outcome).record("rounds", rounds);
    });
    span.within(|| {
        event!(
            name: "acquire.failed", target: ACQUIRE, Level::DEBUG,
            resource = %Names(resources), outcome, rounds, seconds = took.as_secs_f64(),
            "not acquired"
        );
    });
}

/// A round of an acquire was lost.
pub(crate) fn round_lost(resources: &Resources, loss: Loss) {
    let outcome = match loss {
        Loss::Contended { .. } => "held",
        Loss::NoQuorum => "no_quorum",
    };
    event!(
        name: "acquire.round_lost", target: ACQUIRE, Level::TRACE,
        resource = %Names(resources), outcome, "round lost"
    );
}

/// An acquire waits for others.
pub(crate) fn waits(resources: &Resources) {
    event!(
        name: "waiting.begun", target: WAITING, Level::DEBUG,
        resource = %Names(resources), "waiting for others"
    );
}

/// A thread or task waits for a resource that it holds itself, by a lease with this fence.
pub(crate) fn reentrant(resources: &Resources, fence: u64) {
    event!(
        name: "acquire.reentrant", target: ACQUIRE, Level::WARN,
        resource = %Names(resources), fence,
        "waiting for a lock that the same thread or task acquired before: it may wait for itself"
    );
}

/// A node has called a waiter.
pub(crate) fn called(resources: &Resources, node: &str) {
    event!(
        name: "waiting.called", target: WAITING, Level::TRACE,
        resource = %Names(resources), node, "waiter called by a node"
    );
}

/// The automatic or manual extension of a lease was decided; `trouble` if the one before failed, too.
pub(crate) fn extended(
    resources: &Resources,
    fence: u64,
    extended: Extended,
    took: Duration,
    trouble: bool,
) {
    match extended {
        Extended::Confirmed => event!(
            name: "lease.extended", target: LEASE, Level::DEBUG,
            resource = %Names(resources), fence, seconds = took.as_secs_f64(), "lease extended"
        ),
        // That is told as its loss.
        Extended::Lost => {}
        Extended::Undecided if trouble => event!(
            name: "lease.extension_failed", target: LEASE, Level::DEBUG,
            resource = %Names(resources), fence, "extension failed again"
        ),
        Extended::Undecided => event!(
            name: "lease.extension_failed", target: LEASE, Level::INFO,
            resource = %Names(resources), fence,
            "extension failed, and is tried again until the lease ends"
        ),
    }
}

/// A node that had lost the key of a lease gets it back.
pub(crate) fn healing(resources: &Resources, fence: u64, node: &str) {
    event!(
        name: "lease.healed", target: LEASE, Level::DEBUG,
        resource = %Names(resources), fence, node, "key set again on a node that lacked it"
    );
}

/// A lease is over that was not released.
pub(crate) fn lost(resources: &Resources, fence: u64, ended: Ended, error: &Error) {
    let outcome = match ended {
        Ended::Expired => "expired",
        Ended::AtLimit => "max_hold",
        Ended::Taken => "taken",
        Ended::ClientClosed => "closed",
        Ended::Released => "released",
    };
    match ended {
        Ended::ClientClosed | Ended::Released => event!(
            name: "lease.lost", target: LEASE, Level::INFO,
            resource = %Names(resources), fence, outcome, "lease ended with its client"
        ),
        _ => event!(
            name: "lease.lost", target: LEASE, Level::WARN,
            resource = %Names(resources), fence, outcome, detail = %error, "lease lost"
        ),
    }
}

/// A lease was valid when its holder dropped it without releasing it.
pub(crate) fn dropped(resources: &Resources, fence: u64) {
    event!(
        name: "lease.dropped", target: LEASE, Level::WARN,
        resource = %Names(resources), fence,
        "lease dropped without being released: its key stays on the nodes until it expires"
    );
}

/// A lease was valid until it was released; a majority has confirmed it, or not.
pub(crate) fn released(resources: &Resources, fence: u64, confirmed: bool) {
    event!(
        name: "lease.released", target: LEASE, Level::DEBUG,
        resource = %Names(resources), fence, confirmed, "lease released"
    );
}

/// A node is connected for the first time, or again after a connection that broke.
pub(crate) fn connected(node: &str) {
    event!(name: "node.connected", target: NODE, Level::DEBUG, node, "node connected");
}

/// A connection broke. If it can be made again at once, that is all.
pub(crate) fn disconnected(node: &str) {
    event!(name: "node.disconnected", target: NODE, Level::DEBUG, node, "node disconnected");
}

/// A node cannot be reached, or does not answer any more: told once, until it is up again.
pub(crate) fn down(node: &str, outcome: NodeOutcome, detail: &str) {
    let outcome = outcome.as_str();
    event!(name: "node.down", target: NODE, Level::WARN, node, outcome, detail, "node down");
}

/// A node that was down is connected again.
pub(crate) fn up(node: &str, down: Duration) {
    event!(
        name: "node.up", target: NODE, Level::INFO,
        node, seconds = down.as_secs_f64(), "node up again"
    );
}

/// A node may have restarted: its votes do not count for a while.
pub(crate) fn guarded(node: &str, left: Duration) {
    event!(
        name: "node.guarded", target: NODE, Level::WARN,
        node, seconds = left.as_secs_f64(), detail = %HumanDuration(left),
        "node may have restarted, and has no vote for a while"
    );
}

/// A node's votes count again.
pub(crate) fn counts(node: &str) {
    event!(name: "node.counts", target: NODE, Level::INFO, node, "node has a vote again");
}

/// A node answers with errors: told at most once a minute.
pub(crate) fn refused(node: &str, outcome: NodeOutcome, detail: &str) {
    let outcome = outcome.as_str();
    event!(name: "node.refused", target: NODE, Level::WARN, node, outcome, detail, "node refuses");
}

/// A node is the same server as another one.
pub(crate) fn duplicate(node: &str, other: &str) {
    event!(
        name: "node.duplicate", target: NODE, Level::ERROR,
        node, other, "node is the same server as another one, and has no vote"
    );
}
