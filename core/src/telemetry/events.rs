//! Every `tracing` event and span of quorlock, with its level, target, name and fields. No other
//! module uses `tracing` to report anything.
//!
//! Names, targets and fields are part of the public interface. None of them contains a password or a token: anyone who
//! has a token can release the lock. A node is named by its address. In an event about a lease, the field `holder` is
//! the name of the lease's holder. In an event about an acquire that waits or fails, the field is the name of the
//! holder that blocks the acquire. An event about an acquire has the field `mode` if the acquire locks at least one
//! resource in shared mode.
//!
//! Waiting is not an error, so contention is reported at DEBUG at most. The exception is a thread or task that waits
//! for a lock that it holds itself: this is reported at WARN.

use crate::config::mode::{Mode, Modes};
use crate::config::quoted::shortened;
use crate::config::resources::Resources;
use crate::error::duration::HumanDuration;
use crate::error::printable::printable;
use crate::error::{Error, ErrorCode, NodeOutcome};
use crate::runtime::panics;
use quorlock_protocol::{Extended, Loss};
use std::fmt;
use std::time::Duration;
use tracing::{Level, Span, field, info_span};

/// Emits a `tracing` event, and catches a panic of the subscriber.
macro_rules! event {
    ($($given:tt)*) => {{
        panics::contain(|| tracing::event!($($given)*));
    }};
}

pub(crate) const NODE: &str = "quorlock::node";
pub(crate) const LEASE: &str = "quorlock::lease";
pub(crate) const ACQUIRE: &str = "quorlock::acquire";
pub(crate) const ELECTION: &str = "quorlock::election";
pub(crate) const WAITING: &str = "quorlock::waiting";

/// Displays the names of resources unquoted, shortened and separated by commas.
struct Names<'a>(&'a Resources);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, resource) in self.0.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}{}", printable(&shortened(resource)))?;
        }
        Ok(())
    }
}

/// Displays the mode of each resource, in the order of the resources, or only `shared` if all resources are shared.
struct ModeNames<'a>(&'a Resources, &'a Modes);

impl fmt::Display for ModeNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(resources, modes) = self;
        if modes.shared_positions(resources).len() == resources.len() {
            return f.write_str(Mode::Shared.as_str());
        }
        for (index, resource) in resources.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}{}", modes.of(resource).as_str())?;
        }
        Ok(())
    }
}

/// The value of the field `mode`. The field is absent if all resources are exclusive.
fn shared<'a>(
    resources: &'a Resources,
    modes: &'a Modes,
) -> Option<field::DisplayValue<ModeNames<'a>>> {
    modes.has_shared(resources).then(|| field::display(ModeNames(resources, modes)))
}

/// The span of an acquire. Catches panics of the subscriber.
pub(crate) struct AcquireSpan(Span);

impl AcquireSpan {
    pub(crate) fn none() -> Self {
        Self(Span::none())
    }

    fn record(&self, fields: impl FnOnce(&Span)) {
        panics::contain(|| fields(&self.0));
    }

    /// Runs `work` in the span. If the subscriber panics, `work` might not run.
    pub(crate) fn within(&self, work: impl FnOnce()) {
        panics::contain(|| self.0.in_scope(work));
    }
}

impl Drop for AcquireSpan {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        panics::contain(|| drop(span));
    }
}

/// The value of the field `holder`. The field is absent if the holder has no name.
fn named(holder: &str) -> Option<&str> {
    Some(holder).filter(|name| !name.is_empty())
}

/// Opens the span of an acquire, as a child of the caller's span. The span lasts until the acquire ends.
pub(crate) fn acquiring(resources: &Resources, modes: &Modes) -> AcquireSpan {
    let span = panics::contain(|| {
        info_span!(
            target: ACQUIRE,
            "quorlock.acquire",
            resource = %Names(resources),
            mode = shared(resources, modes),
            outcome = field::Empty,
            fence = field::Empty,
            rounds = field::Empty,
        )
    });
    AcquireSpan(span.unwrap_or_else(Span::none))
}

pub(crate) fn acquired(
    span: &AcquireSpan,
    (resources, modes): (&Resources, &Modes),
    (fence, holder): (u64, &str),
    rounds: u64,
    took: Duration,
) {
    span.record(|span| {
        span.record("outcome", "won").record("fence", fence).record("rounds", rounds);
    });
    span.within(|| {
        event!(
            name: "lease.acquired", target: LEASE, Level::DEBUG,
            resource = %Names(resources), mode = shared(resources, modes), fence, holder = named(holder), rounds,
            seconds = took.as_secs_f64(), "lease acquired"
        );
    });
}

/// Reports that an acquire ended without a lease. `error` is the error of the acquire; `None` if the caller cancelled
/// the acquire.
pub(crate) fn not_acquired(
    span: &AcquireSpan,
    (resources, modes): (&Resources, &Modes),
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
            resource = %Names(resources), mode = shared(resources, modes), outcome,
            holder = error.and_then(Error::holder), rounds, seconds = took.as_secs_f64(), "not acquired"
        );
    });
}

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

/// Reports that an acquire starts to wait for other holders or waiters. `holder` is the holder's name, if it is known.
pub(crate) fn waits(resources: &Resources, modes: &Modes, holder: Option<&str>) {
    event!(
        name: "waiting.begun", target: WAITING, Level::DEBUG,
        resource = %Names(resources), mode = shared(resources, modes), holder, "waiting for others"
    );
}

/// Reports that a thread or task waits for a resource that it holds itself. `fence` is the fence of the lease that the
/// thread or task already holds.
pub(crate) fn reentrant(resources: &Resources, fence: u64) {
    event!(
        name: "acquire.reentrant", target: ACQUIRE, Level::WARN,
        resource = %Names(resources), fence,
        "waiting for a lock that the same thread or task acquired before: it may wait for itself"
    );
}

/// Reports that a node has notified a waiter.
pub(crate) fn called(resources: &Resources, node: &str) {
    event!(
        name: "waiting.called", target: WAITING, Level::TRACE,
        resource = %Names(resources), node, "waiter called by a node"
    );
}

/// Reports that a lease was extended, or that an attempt to extend it failed. `trouble` says whether the previous
/// attempt failed.
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
        // The event `lease.lost` reports the loss, so emit no event here.
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

/// Reports that a request to repair a lease is about to be sent to a node that lacks the key.
pub(crate) fn healing(resources: &Resources, fence: u64, node: &str) {
    event!(
        name: "lease.healed", target: LEASE, Level::DEBUG,
        resource = %Names(resources), fence, node, "key set again on a node that lacked it"
    );
}

/// Reports that a lease ended before its holder released it: the lease was lost, or its client was closed.
pub(crate) fn lost(resources: &Resources, (fence, holder): (u64, &str), error: &Error) {
    let outcome = error.reason();
    match outcome {
        Some("closed") => event!(
            name: "lease.lost", target: LEASE, Level::INFO,
            resource = %Names(resources), fence, holder = named(holder), outcome, "lease ended with its client"
        ),
        _ => event!(
            name: "lease.lost", target: LEASE, Level::WARN,
            resource = %Names(resources), fence, holder = named(holder), outcome, detail = %error, "lease lost"
        ),
    }
}

/// Reports that half of the heartbeat timeout has passed since the last heartbeat of a lease.
pub(crate) fn silent(resources: &Resources, (fence, holder): (u64, &str), timeout: Duration) {
    event!(
        name: "lease.silent", target: LEASE, Level::WARN,
        resource = %Names(resources), fence, holder = named(holder),
        seconds = timeout.as_secs_f64(),
        "no heartbeat for half of the timeout: the lease is not renewed if there is none for the whole timeout"
    );
}

/// Reports that the holder of a valid lease dropped the lease without releasing it.
pub(crate) fn dropped(resources: &Resources, fence: u64, holder: &str) {
    event!(
        name: "lease.dropped", target: LEASE, Level::WARN,
        resource = %Names(resources), fence, holder = named(holder),
        "lease dropped without being released: its key stays on the nodes until it expires"
    );
}

/// Reports that another client uses a larger limit for a semaphore than this client does.
pub(crate) fn limits_differ(resources: &Resources, limit: u32, known: u32) {
    event!(
        name: "semaphore.limits_differ", target: LEASE, Level::WARN,
        resource = %Names(resources), limit, other_limit = known,
        "another client has a larger limit for this semaphore: up to that many permits can be held"
    );
}

pub(crate) fn detached(resources: &Resources, (fence, holder): (u64, &str)) {
    event!(
        name: "lease.detached", target: LEASE, Level::DEBUG,
        resource = %Names(resources), fence, holder = named(holder), "lease detached"
    );
}

/// Reports that a candidate was elected. `is_successor` is `true` if the previous leader handed its lease over to the
/// candidate.
pub(crate) fn elected(resources: &Resources, (fence, holder): (u64, &str), is_successor: bool) {
    let outcome = if is_successor { "handed_over" } else { "acquired" };
    event!(
        name: "election.elected", target: ELECTION, Level::INFO,
        resource = %Names(resources), fence, holder = named(holder), outcome, "elected"
    );
}

/// Reports that a candidate cannot be elected because too few nodes can vote. `trouble` is `false` for the first report
/// since the candidate began to acquire the lock, and `true` for each later report.
pub(crate) fn no_election(resources: &Resources, error: &Error, trouble: bool) {
    if trouble {
        event!(
            name: "election.failed", target: ELECTION, Level::DEBUG,
            resource = %Names(resources), detail = %error, "no election yet"
        );
    } else {
        event!(
            name: "election.failed", target: ELECTION, Level::WARN,
            resource = %Names(resources), detail = %error, "no election: the candidate tries again"
        );
    }
}

/// Reports how the handover of a leader's lease to a successor ended. `taken` is `true` if the successor has adopted
/// the lease.
pub(crate) fn handed_over(
    resources: &Resources,
    (fence, holder): (u64, &str),
    successor: &str,
    taken: bool,
) {
    if taken {
        event!(
            name: "election.handed_over", target: ELECTION, Level::INFO,
            resource = %Names(resources), fence, holder = named(holder), successor, "lease handed over"
        );
    } else {
        event!(
            name: "election.not_handed_over", target: ELECTION, Level::WARN,
            resource = %Names(resources), fence, holder = named(holder), successor,
            "the successor did not adopt the lease in time"
        );
    }
}

/// Reports that a lease was released while it was valid. `confirmed` is `true` if a majority of the nodes has confirmed
/// the release.
pub(crate) fn released(resources: &Resources, (fence, holder): (u64, &str), confirmed: bool) {
    event!(
        name: "lease.released", target: LEASE, Level::DEBUG,
        resource = %Names(resources), fence, holder = named(holder), confirmed, "lease released"
    );
}

/// Reports that a node is connected, for the first time or after its connection broke.
pub(crate) fn connected(node: &str) {
    event!(name: "node.connected", target: NODE, Level::DEBUG, node, "node connected");
}

/// Reports that a connection broke, or was replaced because the node did not answer. If reconnecting succeeds
/// immediately, no event `node.down` follows.
pub(crate) fn disconnected(node: &str) {
    event!(name: "node.disconnected", target: NODE, Level::DEBUG, node, "node disconnected");
}

/// Reports, once per outage, that a node is unreachable or has stopped answering.
pub(crate) fn down(node: &str, outcome: NodeOutcome, detail: &str) {
    let outcome = outcome.as_str();
    event!(name: "node.down", target: NODE, Level::WARN, node, outcome, detail, "node down");
}

/// Reports that a node that was down is connected again.
pub(crate) fn up(node: &str, down: Duration) {
    event!(
        name: "node.up", target: NODE, Level::INFO,
        node, seconds = down.as_secs_f64(), "node up again"
    );
}

/// Reports that a node may have restarted, so its votes do not count for a while.
pub(crate) fn guarded(node: &str, left: Duration) {
    event!(
        name: "node.guarded", target: NODE, Level::WARN,
        node, seconds = left.as_secs_f64(), detail = %HumanDuration(left),
        "node may have restarted, and has no vote for a while"
    );
}

/// Reports that the votes of a guarded node count again.
pub(crate) fn counts(node: &str) {
    event!(name: "node.counts", target: NODE, Level::INFO, node, "node has a vote again");
}

/// Reports that a node answers requests for its vote with errors. Called at most once a minute per node.
pub(crate) fn refused(node: &str, outcome: NodeOutcome, detail: &str) {
    let outcome = outcome.as_str();
    event!(name: "node.refused", target: NODE, Level::WARN, node, outcome, detail, "node refuses");
}

pub(crate) fn duplicate(node: &str, other: &str) {
    event!(
        name: "node.duplicate", target: NODE, Level::ERROR,
        node, other, "node is the same server as another one, and has no vote"
    );
}
