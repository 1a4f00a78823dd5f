//! The state of a node's connection, and the handling of errors on it.
//!
//! `connect.rs`, `frozen.rs` and `routing.rs` change the state; `mod.rs` sends requests on the
//! connection. If a server of a cluster redirects a request, the [`Masters`] that owns the
//! connection sends the request to the right server. `routing.rs` implements this trait.

use super::map::Map;
use crate::node::connection::NodeConnection;
use crate::node::exchange::{Peer, ReplySink, Route};
use crate::telemetry::stats::NodeState;
use crate::transport::cluster::Redirect;
use crate::wire::answer::Failure;
use crate::wire::request::Request;
use quorlock_protocol::Moment;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

#[derive(Debug)]
pub(super) enum LinkState<N> {
    /// The node was not used yet, so there is no connection.
    Idle,
    /// Connecting, and no attempt has failed so far: requests wait.
    Connecting,
    Up(Arc<Link>),
    /// The node is a cluster: requests are routed to its masters, each of which has its own connection.
    Routed(Arc<Map<N>>),
    /// Not connected: the last attempt to connect failed, or the node gave up its last connection.
    /// Another attempt follows in the background. Requests fail at once.
    Down(Failure),
    Closed,
}

/// The part of a cluster that the connections to its masters use.
pub(super) trait Masters: Send + Sync {
    /// Sends a redirected request to the right server. Returns the sink if that server is not
    /// known.
    fn redirect(&self, to: Redirect, request: &Arc<Request>, sink: ReplySink) -> Option<ReplySink>;
}

/// An open connection of a node, and the time and latency of its last answer.
pub(crate) struct Link {
    pub(crate) connection: NodeConnection,
    /// Distinguishes this connection from earlier and later ones.
    pub(super) id: Arc<()>,
    pub(super) since: Moment,
    pub(super) timeouts: AtomicU32,
    /// Whether a task is already checking if this connection is stuck, or opening another connection to replace it.
    pub(super) is_doubted: AtomicBool,
    /// When a caller last took an answer that had arrived in time, in nanoseconds since the origin of the
    /// clock.
    heard: AtomicU64,
    /// The latency of the answer at `heard`, in nanoseconds.
    latency: AtomicU64,
    /// The cluster that the server belongs to; `None` if the node is not a cluster.
    pub(super) owner: Option<Weak<dyn Masters>>,
}

/// A record of the answers on a connection so far. Each further answer changes the record. So if a later
/// record is equal to an earlier one, no answer arrived meanwhile.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Heard {
    /// When a caller last took an answer that had arrived in time; before the first answer, when the
    /// connection was opened.
    pub(super) at: Moment,
    /// A number that changes with each answer that arrives, even if no caller waits for the answer any more.
    received: u64,
}

impl Link {
    /// Creates the link for a connection that was opened at `since`. `latency`: the duration of the first
    /// exchange on the connection.
    pub(super) fn new(
        connection: NodeConnection,
        id: Arc<()>,
        since: Moment,
        latency: Duration,
        owner: Option<Weak<dyn Masters>>,
    ) -> Self {
        let link = Self {
            connection,
            id,
            since,
            timeouts: AtomicU32::new(0),
            is_doubted: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            latency: AtomicU64::new(0),
            owner,
        };
        link.answered(since, latency);
        link
    }

    pub(super) fn answered(&self, now: Moment, latency: Duration) {
        self.timeouts.store(0, Ordering::Relaxed);
        self.heard.store(nanos(now.since(ORIGIN)), Ordering::Relaxed);
        self.latency.store(nanos(latency), Ordering::Relaxed);
    }

    pub(super) fn heard(&self) -> Heard {
        let at = Moment::from_origin(Duration::from_nanos(self.heard.load(Ordering::Relaxed)));
        Heard { at, received: self.connection.received() }
    }

    pub(super) fn latency(&self) -> Duration {
        Duration::from_nanos(self.latency.load(Ordering::Relaxed))
    }
}

const ORIGIN: Moment = Moment::from_origin(Duration::ZERO);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Route for Link {
    fn refused(self: Arc<Self>, request: &Arc<Request>, error: &RedisError, mut sink: ReplySink) {
        let is_unknown = error.kind() == ErrorKind::Server(ServerErrorKind::NoScript);
        let unsent = match Redirect::of(error) {
            // The server does not know the script, so send its source. The server may then process this request after
            // later requests; `mark_sent` records that the order is unknown. `hop` limits how often the source is sent
            // to a server that never knows the script.
            _ if is_unknown && sink.hop() && sink.mark_sent(Arc::<Self>::clone(&self)) => {
                self.connection.send_source(request, sink).err()
            }
            // While a slot is being migrated (ASK), the keys of one lock may be on two servers. So
            // during a migration, requests that may create keys are not redirected: they fail.
            Some(redirect) if redirect.has_moved() || !request.creates() => {
                match self.owner.as_ref().and_then(Weak::upgrade) {
                    Some(cluster) if sink.hop() => cluster.redirect(redirect, request, sink),
                    _ => Some(sink),
                }
            }
            _ => Some(sink),
        };
        match unsent {
            Some(sink) if error.is_io_error() => sink.lost(self.connection.failure(error)),
            Some(sink) => sink.answer(Err(self.connection.failure(error))),
            None => {}
        }
    }

    fn send_alone(
        self: Arc<Self>,
        request: &Arc<Request>,
        refusal: Option<RedisError>,
        mut sink: ReplySink,
    ) {
        let unsent = if sink.hop() && sink.mark_sent(Arc::<Self>::clone(&self)) {
            self.connection.send_alone(request, refusal, sink).err()
        } else {
            Some(sink)
        };
        if let Some(sink) = unsent {
            sink.answer(Err(Failure::not_done()));
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}

impl<N: Peer> LinkState<N> {
    /// Whether requests can be sent.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Up(_) | Self::Routed(_))
    }

    pub(super) fn is(&self, link: &Link) -> bool {
        self.has(&link.id)
    }

    pub(super) fn state(&self) -> NodeState {
        match self {
            Self::Idle => NodeState::Idle,
            Self::Connecting => NodeState::Connecting,
            Self::Up(_) | Self::Routed(_) => NodeState::Up,
            Self::Down(_) => NodeState::Down,
            Self::Closed => NodeState::Closed,
        }
    }

    pub(super) fn link(&self) -> Option<Arc<Link>> {
        match self {
            Self::Up(link) => Some(Arc::clone(link)),
            _ => None,
        }
    }

    pub(super) fn has(&self, id: &Arc<()>) -> bool {
        matches!(self, Self::Up(current) if Arc::ptr_eq(&current.id, id))
    }
}
