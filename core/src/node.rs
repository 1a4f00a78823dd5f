//! One node of the quorum: its connection, and requests with a deadline.
//!
//! A node owns at most one connection. While there is none, requests fail at once and one
//! background task reconnects; a connection whose peer stopped answering is replaced.

use crate::clock;
use crate::endpoint::{Endpoint, Target};
use crate::error::{NodeOutcome, NodeReport};
use crate::memory::MemoryNode;
use crate::protocol::{Answer, Moment, Vote};
use crate::request::{Reply, Request};
use crate::script::{self, By};
use futures_util::future::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionInfo, ErrorKind, PushInfo, PushKind, RedisError,
    ServerErrorKind, Value,
};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Requests in flight to one node; further ones wait in order, within their own deadlines.
const QUEUE: usize = 1024;
/// After so many timeouts in a row the peer is taken for stuck, and the connection is replaced.
const STUCK_AFTER: u32 = 3;
/// The pause between attempts to connect grows from the first to the second of these.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) outcome: NodeOutcome,
    pub(crate) detail: String,
    /// Whether the node may have received the request.
    pub(crate) sent: bool,
}

pub(crate) type Answered = Result<Reply, Failure>;

impl Failure {
    fn unreachable(detail: impl Into<String>) -> Self {
        Self { outcome: NodeOutcome::Unreachable, detail: detail.into(), sent: false }
    }

    /// A failure of the way to the node, not an answer of the node.
    fn is_transport(&self) -> bool {
        self.outcome != NodeOutcome::Refused
    }
}

/// What an answer to ACQUIRE means to the protocol.
pub(crate) fn vote(answered: &Answered) -> Vote {
    match answered {
        Ok(reply) => reply.vote(),
        Err(Failure { outcome: NodeOutcome::Refused, .. }) => Vote::Refused,
        Err(failure) if failure.sent => Vote::Unknown,
        Err(_) => Vote::Refused,
    }
}

/// What an answer to any other request means to the protocol.
pub(crate) fn answer(answered: &Answered) -> Answer {
    match answered {
        Ok(Reply::Yes) => Answer::Yes,
        Ok(Reply::No) => Answer::No,
        Ok(Reply::Granted(_) | Reply::Held(_) | Reply::Extended(_)) | Err(_) => Answer::Unknown,
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    endpoint: Endpoint,
    connect_timeout: Duration,
    queue: Semaphore,
    /// Held while a request is put on the wire, so that requests reach the node in the order in
    /// which they were made, also if they had to wait for the connection: an EXTEND or RELEASE
    /// that overtook the ACQUIRE would be refused.
    turn: Mutex<()>,
    slot: watch::Sender<Slot>,
}

#[derive(Clone, Debug)]
enum Slot {
    /// Nothing was asked of the node yet.
    Idle,
    /// Connecting, with a chance of success: requests wait for it.
    Connecting,
    Up(Link),
    /// The last attempt failed, another one is made in the background: requests fail at once.
    Down(Failure),
    /// The client is closed.
    Closed,
}

#[derive(Clone, Debug)]
struct Link {
    wire: Wire,
    /// Tells this connection from those before and after it.
    id: Arc<()>,
    since: Moment,
    timeouts: Arc<AtomicU32>,
}

#[derive(Clone)]
enum Wire {
    Redis(MultiplexedConnection),
    Memory(Arc<MemoryNode>),
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Redis(_) => "Redis",
            Self::Memory(_) => "Memory",
        })
    }
}

impl Node {
    pub(crate) fn new(endpoint: Endpoint, connect_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            endpoint,
            connect_timeout,
            queue: Semaphore::new(QUEUE),
            turn: Mutex::new(()),
            slot: watch::Sender::new(Slot::Idle),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.endpoint.address
    }

    /// This node's part in an error.
    pub(crate) fn report(&self, answered: Option<&Answered>) -> NodeReport {
        let (outcome, detail) = match answered {
            None => (NodeOutcome::Pending, String::new()),
            Some(Ok(Reply::Granted(_))) => (NodeOutcome::Granted, String::new()),
            Some(Ok(Reply::Held(expires_in))) => (
                NodeOutcome::Held,
                match expires_in {
                    Some(left) => format!("expires in {} ms", left.as_millis()),
                    None => "never expires".to_owned(),
                },
            ),
            Some(Ok(Reply::Yes | Reply::Extended(_))) => (NodeOutcome::Confirmed, String::new()),
            Some(Ok(Reply::No)) => (NodeOutcome::Missing, String::new()),
            Some(Err(failure)) => (failure.outcome, failure.detail.clone()),
        };
        NodeReport { address: self.address().to_owned(), outcome, detail }
    }

    /// Starts the first connection, if nobody has. Returns whether the node can be asked now;
    /// `None` while it is connecting.
    pub(crate) fn poke(self: &Arc<Self>) -> Option<bool> {
        if matches!(*self.slot.borrow(), Slot::Idle) {
            self.leave(|slot| matches!(slot, Slot::Idle), Slot::Connecting);
        }
        match *self.slot.borrow() {
            Slot::Idle | Slot::Connecting => None,
            Slot::Up(_) => Some(true),
            Slot::Down(_) | Slot::Closed => Some(false),
        }
    }

    /// Waits until the node is connected, or is known to be down. Returns which.
    pub(crate) async fn settled(self: &Arc<Self>) -> bool {
        self.poke();
        let mut slot = self.slot.subscribe();
        let settled = slot.wait_for(|slot| !matches!(slot, Slot::Idle | Slot::Connecting)).await;
        settled.is_ok_and(|slot| matches!(*slot, Slot::Up(_)))
    }

    /// Sends one request and waits for its answer, for at most `patience`.
    pub(crate) async fn call(self: &Arc<Self>, request: &Request, patience: Duration) -> Answered {
        let mut used = None;
        match timeout(patience, self.attempt(request, &mut used)).await {
            Ok(answered) => answered,
            Err(_) => {
                let sent = used.is_some();
                if let Some(link) = used {
                    self.timed_out(&link);
                }
                let detail = format!("no answer within {} ms", patience.as_millis());
                Err(Failure { outcome: NodeOutcome::Timeout, detail, sent })
            }
        }
    }

    /// Sends a request again and again until the node has answered it, or until `horizon`, when
    /// it is pointless; once more and no longer when `closing` is cancelled. For requests that may
    /// be repeated: RELEASE and UNDO.
    pub(crate) async fn deliver(
        self: &Arc<Self>,
        request: &Request,
        patience: Duration,
        horizon: Moment,
        closing: &CancellationToken,
    ) {
        let (mut delay, longest) = RECONNECT_DELAY;
        loop {
            if self.call(request, patience).await.is_ok() {
                return;
            }
            let left = horizon.since(clock::now());
            if left.is_zero() || closing.is_cancelled() {
                return;
            }
            let connected = async {
                sleep(delay).await;
                let mut slot = self.slot.subscribe();
                let _ = slot.wait_for(|slot| matches!(slot, Slot::Up(_))).await;
            };
            let _ = timeout(left, closing.run_until_cancelled(connected)).await;
            delay = (delay * 2).min(longest);
        }
    }

    /// Drops the connection; the node is not used again.
    pub(crate) fn close(&self) {
        self.slot.send_replace(Slot::Closed);
    }

    async fn attempt(self: &Arc<Self>, request: &Request, used: &mut Option<Link>) -> Answered {
        let Ok(_place) = self.queue.acquire().await else {
            return Err(Failure::unreachable("the client is closed"));
        };
        let turn = self.turn.lock().await;
        self.settled().await;
        let link = match &*self.slot.borrow() {
            Slot::Up(link) => link.clone(),
            Slot::Down(failure) => return Err(failure.clone()),
            Slot::Closed => return Err(Failure::unreachable("the client is closed")),
            Slot::Idle | Slot::Connecting => return Err(Failure::unreachable("connecting")),
        };
        *used = Some(link.clone());
        let mut wire = link.wire.clone();
        let mut asking = pin!(wire.ask(request));
        // The first poll hands the request over to the connection.
        let handed_over = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
        drop(turn);
        let answered = match handed_over {
            Poll::Ready(answered) => answered,
            Poll::Pending => asking.await,
        };
        match &answered {
            Err(failure) if failure.is_transport() => self.broken(&link),
            _ => link.timeouts.store(0, Ordering::Relaxed),
        }
        answered
    }

    fn timed_out(self: &Arc<Self>, link: &Link) {
        let timeouts = link.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        let age = clock::now().since(link.since);
        // The age keeps a node that is merely slower than the deadline from being reconnected to
        // all the time.
        if timeouts >= STUCK_AFTER && age >= self.connect_timeout {
            let detail = format!("no answer to {timeouts} requests in a row");
            let failure = Failure { outcome: NodeOutcome::Timeout, detail, sent: false };
            self.leave(|slot| slot.is(link), Slot::Down(failure));
        }
    }

    fn broken(self: &Arc<Self>, link: &Link) {
        self.leave(|slot| slot.is(link), Slot::Connecting);
    }

    /// Goes from the state that `from` tells to `to`, and reconnects in the background. Does
    /// nothing in any other state, so that only one task at a time is connecting.
    fn leave(self: &Arc<Self>, from: impl Fn(&Slot) -> bool, to: Slot) {
        let left = self.slot.send_if_modified(|slot| {
            let leaves = from(slot);
            if leaves {
                *slot = to;
            }
            leaves
        });
        if left {
            tokio::spawn(Arc::clone(self).connect());
        }
    }

    async fn connect(self: Arc<Self>) {
        // The task must not keep a node alive that nobody uses any more.
        let node = Arc::downgrade(&self);
        drop(self);
        let (mut delay, longest) = RECONNECT_DELAY;
        while let Some(node) = node.upgrade() {
            let opened = timeout(node.connect_timeout, node.open()).await;
            let slot = match opened {
                Ok(Ok(link)) => Slot::Up(link),
                Ok(Err(failure)) => Slot::Down(failure),
                Err(_) => {
                    let limit = node.connect_timeout.as_millis();
                    let detail = format!("no connection within {limit} ms");
                    Slot::Down(Failure { outcome: NodeOutcome::Timeout, detail, sent: false })
                }
            };
            let done = matches!(slot, Slot::Up(_));
            let open = node.slot.send_if_modified(|current| {
                let open = !matches!(current, Slot::Closed);
                if open {
                    *current = slot;
                }
                open
            });
            if done || !open {
                return;
            }
            drop(node);
            sleep(delay.mul_f64(jitter())).await;
            delay = (delay * 2).min(longest);
        }
    }

    async fn open(self: &Arc<Self>) -> Result<Link, Failure> {
        let id = Arc::new(());
        let wire = match &self.endpoint.target {
            Target::Memory(name) => Wire::Memory(MemoryNode::named(name)),
            Target::Redis(info) => Wire::Redis(self.open_redis(info, &id).await?),
        };
        Ok(Link { wire, id, since: clock::now(), timeouts: Arc::default() })
    }

    async fn open_redis(
        self: &Arc<Self>,
        info: &ConnectionInfo,
        id: &Arc<()>,
    ) -> Result<MultiplexedConnection, Failure> {
        let node = Arc::downgrade(self);
        let link = Arc::downgrade(id);
        let on_push = move |push: PushInfo| -> Result<(), ()> {
            if push.kind == PushKind::Disconnection
                && let (Some(node), Some(link)) = (node.upgrade(), link.upgrade())
            {
                node.leave(|slot| slot.has(&link), Slot::Connecting);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(on_push);
        let client = redis::Client::open(info.clone()).map_err(|error| failure(&error, false))?;
        // Boxed: the future is large, and this is not the hot path.
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .boxed()
            .await
            .map_err(|error| failure(&error, false))?;
        // So that none is missing later, which would cost a round trip, and the order of requests.
        // A node that does not permit it gets them by EVAL.
        for source in script::sources() {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(source).to_owned();
            let loaded = connection.send_packed_command(&load).boxed().await;
            loaded.map_err(|error| failure(&error, false))?;
        }
        Ok(connection)
    }
}

impl Slot {
    fn is(&self, link: &Link) -> bool {
        self.has(&link.id)
    }

    fn has(&self, id: &Arc<()>) -> bool {
        matches!(self, Self::Up(current) if Arc::ptr_eq(&current.id, id))
    }
}

impl Wire {
    async fn ask(&mut self, request: &Request) -> Answered {
        let connection = match self {
            Self::Redis(connection) => connection,
            Self::Memory(node) => {
                return node.answer(request).map_err(|detail| Failure {
                    outcome: NodeOutcome::Refused,
                    detail: detail.to_owned(),
                    sent: true,
                });
            }
        };
        let mut value = ask_redis(connection, request, By::Hash).await;
        if let Err(error) = &value
            && error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        {
            value = ask_redis(connection, request, By::Source).await;
        }
        let value = value.map_err(|error| failure(&error, true))?;
        request.understand(&value).ok_or_else(|| Failure {
            outcome: NodeOutcome::Disconnected,
            detail: "the answer makes no sense".to_owned(),
            sent: true,
        })
    }
}

async fn ask_redis(
    connection: &mut MultiplexedConnection,
    request: &Request,
    by: By,
) -> Result<Value, RedisError> {
    connection.send_packed_command(&request.command(by)).await?.extract_error()
}

/// `sent`: whether a request was under way when the connection failed.
fn failure(error: &RedisError, sent: bool) -> Failure {
    // A server's error has a code; what fails on the way to it has none.
    let refused = error.code().is_some()
        || matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::RESP3NotSupported);
    let outcome = match (refused, sent) {
        (true, _) => NodeOutcome::Refused,
        (false, true) => NodeOutcome::Disconnected,
        (false, false) => NodeOutcome::Unreachable,
    };
    let detail = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    };
    Failure { outcome, detail, sent }
}

/// A factor between a half and one, so that clients do not reconnect in step.
fn jitter() -> f64 {
    0.5 + 0.5 * f64::from(crate::token::random()) / f64::from(u32::MAX)
}
