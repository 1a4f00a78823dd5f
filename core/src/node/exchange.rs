//! Requests in flight: for each request, the connection on which it was sent, and its outcome.
//!
//! A request that may create keys matters even after its deadline, because the node may still apply
//! the request. So the connection on which the request was sent stays open until the answer arrives,
//! even if the node uses another connection meanwhile.
//!
//! This module owns the table of requests in flight. It accesses nodes and connections only through
//! the traits [`Peer`] and [`Route`]. While the table is locked, this module must not send a request,
//! wake a task or drop a connection. `fanout.rs` calls this module.

use crate::error::NodeOutcome;
use crate::transport::connection::{BatchOf, Packed, RawReply, Receive};
use crate::transport::handshake::failure;
use crate::wire::answer::{Answered, Failure, implies_new_memory};
use crate::wire::batch::{self, Batch, Batchable};
use crate::wire::commands::By;
use crate::wire::request::Request;
use futures_util::future::BoxFuture;
use quorlock_protocol::Moment;
use redis::{RedisError, Value};
use std::cell::OnceCell;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The maximum number of times that one request is sent again because a server redirects it, does not know its script,
/// or did not run it as part of a batch. Without this limit, two servers could redirect a request to each other
/// forever, or a server could answer forever that it does not know the script.
const MAX_HOPS: u8 = 8;

/// The part of a node that this module uses.
pub(crate) trait Peer: Send + Sync {
    /// The node's position in the client's list, from 0.
    fn position(&self) -> usize;

    /// Sends a request immediately if the node is connected and no request waits ahead of it.
    /// Otherwise returns a future that sends the request; the caller must run this future.
    fn send(
        self: Arc<Self>,
        packed_request: &PackedRequest,
        sink: ReplySink,
    ) -> Option<BoxFuture<'static, ()>>;

    /// Processes the outcome of a request. Returns the answer; an answer that must not count is marked as
    /// `Reply::Uncounted`.
    fn answered(self: Arc<Self>, done: Done<'_>) -> Answered;

    /// Whether the node now sends its requests on this connection.
    fn uses(&self, route: &Weak<dyn Route>) -> bool;

    /// Sends a request again, on the node's next connection. `broken`: the connection on which the request
    /// was sent before. Must be called on the runtime.
    fn send_again(
        self: Arc<Self>,
        broken: Option<Weak<dyn Route>>,
        request: Arc<Request>,
        sink: ReplySink,
    );
}

/// The outcome of a request, which [`Peer::answered`] processes.
pub(crate) struct Done<'a> {
    pub(crate) request: &'a Request,
    /// The start of the operation that the request belongs to.
    pub(crate) began: Moment,
    /// The latency of the answer; `None` if there is no answer, or if the request was not sent.
    pub(crate) took: Option<Duration>,
    /// The time limit for the answer.
    pub(crate) patience: Duration,
    /// The connection that the request was sent on.
    pub(crate) route: Option<&'a Weak<dyn Route>>,
    pub(crate) answered: Answered,
}

/// The part of a connection that this module uses.
pub(crate) trait Route: Send + Sync {
    /// Handles an error of the server: sends the request again if the server redirects it or does not know its script,
    /// and otherwise answers the sink.
    fn refused(self: Arc<Self>, request: &Arc<Request>, error: &RedisError, sink: ReplySink);

    /// Sends a request alone, because the server did not run it as part of a batch. `refusal`: the server's error if
    /// the server refused the whole batch. Only one request of the batch gets this error, so that the connection reacts
    /// to the error once.
    fn send_alone(
        self: Arc<Self>,
        request: &Arc<Request>,
        refusal: Option<RedisError>,
        sink: ReplySink,
    );
}

/// A request that is sent to several nodes and serialized only once.
pub(crate) struct PackedRequest {
    pub(crate) request: Arc<Request>,
    /// Whether the request is an EXTEND of the renewer, which goes ahead of requests that wait for room on a connection.
    /// It may overtake any of them, as if they were delayed.
    pub(crate) is_renewal: bool,
    packed: OnceCell<Vec<u8>>,
}

impl From<Arc<Request>> for PackedRequest {
    fn from(request: Arc<Request>) -> Self {
        Self { request, is_renewal: false, packed: OnceCell::new() }
    }
}

impl From<Request> for PackedRequest {
    fn from(request: Request) -> Self {
        Arc::new(request).into()
    }
}

impl PackedRequest {
    pub(crate) fn renewal(request: Request) -> Self {
        Self { is_renewal: true, ..Self::from(request) }
    }

    /// Returns the same request, to be serialized when it is sent.
    pub(crate) fn again(&self) -> Self {
        let request = Arc::clone(&self.request);
        Self { request, is_renewal: self.is_renewal, packed: OnceCell::new() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.packed.get_or_init(|| self.request.command(By::Hash).get_packed_command())
    }
}

/// The table of the requests of one fan-out, with the state of each request.
pub(crate) struct InFlight {
    patience: Duration,
    requests: Mutex<RequestsInFlight>,
}

#[derive(Default)]
struct RequestsInFlight {
    entries: Vec<RequestInFlight>,
    waker: Option<Waker>,
}

struct RequestInFlight {
    node: Arc<dyn Peer>,
    request: Arc<Request>,
    /// The connection that the request was sent on. The reference is weak to avoid a cycle: until the answer
    /// arrives, the connection owns the sink, and the sink owns this table.
    route: Option<Weak<dyn Route>>,
    /// A strong reference to the connection, if the request may create keys and is not answered yet. The connection
    /// also refers to this request, so this is a cycle of references. Dropping the fan-out breaks the cycle.
    kept: Option<Arc<dyn Route>>,
    was_sent: bool,
    /// `false` after the request was sent a second time: its order relative to later requests is then unknown.
    in_order: bool,
    /// Whether the request was sent a second time although the node may have applied the first copy.
    is_repeated: bool,
    /// Whether the request's sink still exists, so that an answer can arrive.
    has_sink: bool,
    state: RequestState,
}

impl RequestInFlight {
    /// Whether the fan-out still waits for the answer.
    fn is_open(&self) -> bool {
        matches!(self.state, RequestState::Open)
    }

    /// Whether the node may still apply the request and answer it.
    fn may_come_late(&self) -> bool {
        self.was_sent && self.has_sink && self.request.creates()
    }
}

enum RequestState {
    Open,
    Answered(Answered),
    /// The connection was replaced because no answers arrived on it. The node may still apply the
    /// request.
    GivenUp,
    /// The deadline has passed, but the node may still apply the request. Holds the late answer;
    /// `None` until it arrives.
    Late(Option<Answered>),
    /// The answer was taken, or the deadline has passed and no late answer is awaited.
    Closed,
}

/// A request that was answered, that was given up, or whose deadline has passed. In the last case,
/// `answered` is `None`.
pub(crate) struct Finished {
    pub(crate) node: Arc<dyn Peer>,
    pub(crate) request: Arc<Request>,
    pub(crate) route: Option<Weak<dyn Route>>,
    pub(crate) was_sent: bool,
    pub(crate) in_order: bool,
    pub(crate) is_repeated: bool,
    pub(crate) answered: Option<Answered>,
}

impl InFlight {
    pub(crate) fn of(nodes: usize, patience: Duration) -> Self {
        let requests = RequestsInFlight { entries: Vec::with_capacity(nodes), waker: None };
        Self { patience, requests: Mutex::new(requests) }
    }

    fn lock(&self) -> MutexGuard<'_, RequestsInFlight> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request that is to be sent to `node`. Returns the sink for its answer.
    pub(crate) fn add(self: &Arc<Self>, node: Arc<dyn Peer>, request: Arc<Request>) -> ReplySink {
        let entries = &mut self.lock().entries;
        entries.push(RequestInFlight {
            node,
            request,
            route: None,
            kept: None,
            was_sent: false,
            in_order: true,
            is_repeated: false,
            has_sink: true,
            state: RequestState::Open,
        });
        let entry = entries.len() - 1;
        ReplySink { in_flight: Arc::clone(self), entry, hops: 0, has_answered: false }
    }

    /// Returns the next request that was answered or given up; `None` if there is none and no request is open.
    pub(crate) fn take_answered(&self, waker: &Waker) -> Poll<Option<Finished>> {
        let mut in_flight = self.lock();
        let is_over =
            |state: &_| matches!(state, RequestState::Answered(_) | RequestState::GivenUp);
        if let Some(taken) = in_flight.take(is_over) {
            return Poll::Ready(Some(taken));
        }
        if !in_flight.entries.iter().any(RequestInFlight::is_open) {
            return Poll::Ready(None);
        }
        in_flight.wake_later(waker);
        Poll::Pending
    }

    pub(crate) fn take_unanswered(&self) -> Option<Finished> {
        self.lock().take(|state| matches!(state, RequestState::Open))
    }

    /// Whether [`InFlight::take_late`] may still return an answer. Only requests that may create keys have late
    /// answers.
    pub(crate) fn has_late(&self) -> bool {
        self.lock().entries.iter().any(|entry| matches!(entry.state, RequestState::Late(_)))
    }

    /// Returns the next answer that arrived after the deadline of its request; `None` if there is none and no
    /// late answer is awaited.
    pub(crate) fn take_late(&self, waker: &Waker) -> Poll<Option<(usize, Answered)>> {
        let mut in_flight = self.lock();
        let mut is_awaited = false;
        for entry in &mut in_flight.entries {
            let RequestState::Late(answered) = &mut entry.state else { continue };
            let Some(answered) = answered.take() else {
                is_awaited = true;
                continue;
            };
            entry.state = RequestState::Closed;
            return Poll::Ready(Some((entry.node.position(), answered)));
        }
        if !is_awaited {
            return Poll::Ready(None);
        }
        in_flight.wake_later(waker);
        Poll::Pending
    }

    pub(crate) fn clear(&self) {
        let entries = mem::take(&mut *self.lock());
        // Dropping the entries may close connections, so the table must not be locked here.
        drop(entries);
    }
}

impl RequestsInFlight {
    fn take(&mut self, which: impl Fn(&RequestState) -> bool) -> Option<Finished> {
        let entry = self.entries.iter_mut().find(|entry| which(&entry.state))?;
        let answered = match mem::replace(&mut entry.state, RequestState::Closed) {
            RequestState::Answered(answered) => Some(answered),
            RequestState::Open if entry.may_come_late() => {
                entry.state = RequestState::Late(None);
                None
            }
            RequestState::GivenUp => {
                let is_late = entry.may_come_late();
                entry.state = if is_late { RequestState::Late(None) } else { RequestState::Closed };
                Some(Err(Failure::silent()))
            }
            RequestState::Open | RequestState::Late(_) | RequestState::Closed => None,
        };
        Some(Finished {
            node: Arc::clone(&entry.node),
            request: Arc::clone(&entry.request),
            route: entry.route.take(),
            was_sent: entry.was_sent,
            in_order: entry.in_order,
            is_repeated: entry.is_repeated,
            answered,
        })
    }

    fn wake_later(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            unknown => *unknown = Some(waker.clone()),
        }
    }
}

/// Receives the answer to one request. If the sink is dropped without an answer, no answer will arrive.
pub(crate) struct ReplySink {
    in_flight: Arc<InFlight>,
    entry: usize,
    /// The number of times the request was redirected, or was sent again with the source of its script or alone.
    hops: u8,
    has_answered: bool,
}

impl ReplySink {
    /// Assigns the request to another node, which must have the same position.
    pub(crate) fn set_node(&self, node: Arc<dyn Peer>) {
        if let Some(entry) = self.in_flight.lock().entries.get_mut(self.entry) {
            entry.node = node;
        }
    }

    /// Called when the connection was replaced. If the request may create keys, gives up the request, but keeps its
    /// entry, because a late answer may still arrive. Then returns `Some`, with a waker that the caller must wake, if
    /// there is one.
    ///
    /// If the request creates no keys, returns `None`, and the caller must make the request fail.
    pub(crate) fn give_up(&self) -> Option<Option<Waker>> {
        let mut in_flight = self.in_flight.lock();
        let entry = in_flight.entries.get_mut(self.entry).filter(|entry| entry.request.creates());
        let entry = entry?;
        if !entry.is_open() {
            return Some(None);
        }
        entry.state = RequestState::GivenUp;
        Some(in_flight.waker.take())
    }

    /// Handles a connection that ended before the answer arrived. If the request may be repeated and was not
    /// repeated before, sends it again on the node's next connection. Otherwise, answers with `failure`.
    pub(crate) fn lost(self, failure: Failure) {
        let again = {
            let mut in_flight = self.in_flight.lock();
            let entry = in_flight.entries.get_mut(self.entry);
            let entry = entry.filter(|entry| {
                entry.is_open() && !entry.is_repeated && entry.request.may_be_repeated()
            });
            entry.map(|entry| {
                entry.is_repeated = true;
                (Arc::clone(&entry.node), entry.route.take(), entry.request.again())
            })
        };
        match again {
            Some((node, broken, request)) => node.send_again(broken, request, self),
            None => self.answer(Err(failure)),
        }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.in_flight.patience
    }

    /// Counts a redirection, an answer that the script is unknown, or a batch that did not run the request. Returns
    /// `false` if the count is greater than `MAX_HOPS`.
    pub(crate) fn hop(&mut self) -> bool {
        self.hops += 1;
        self.hops <= MAX_HOPS
    }

    /// Marks the request as sent on this connection. Must be called right before the request is
    /// sent. Returns whether the fan-out still waits for the answer. If the fan-out does not wait,
    /// the request must not be sent: its UNDO may have been sent already.
    #[must_use]
    pub(crate) fn mark_sent(&self, route: Arc<dyn Route>) -> bool {
        let mut in_flight = self.in_flight.lock();
        let entry = in_flight.entries.get_mut(self.entry).filter(|entry| entry.is_open());
        let Some(entry) = entry else { return false };
        // If the request is sent a second time, the node may process the second copy after requests that were
        // sent later than the first copy. So the order is unknown.
        entry.in_order &= !entry.was_sent;
        (entry.route, entry.was_sent) = (Some(Arc::downgrade(&route)), true);
        entry.kept = entry.request.creates().then_some(route);
        true
    }

    /// Reverts [`ReplySink::mark_sent`], because there was no room on the connection.
    pub(crate) fn mark_unsent(&self) {
        if let Some(entry) = self.in_flight.lock().entries.get_mut(self.entry) {
            (entry.route, entry.was_sent, entry.kept) = (None, false, None);
        }
    }

    /// Returns the connection on which the request was sent, and the request. Returns `None` if the fan-out does not
    /// wait for the answer any more, or if the connection is gone.
    fn open_request(&self) -> Option<(Arc<dyn Route>, Arc<Request>)> {
        let in_flight = self.in_flight.lock();
        let entry = in_flight.entries.get(self.entry).filter(|entry| entry.is_open())?;
        Some((entry.route.as_ref()?.upgrade()?, Arc::clone(&entry.request)))
    }

    /// Sends the request alone, because the server did not run it as part of a batch, and returns `None`. If the
    /// fan-out does not wait for the answer any more, returns the command for the caller to send, or `None` if the
    /// request may create keys: its UNDO may have been sent already.
    pub(crate) fn send_alone(
        self,
        request: &Arc<Request>,
        refusal: Option<RedisError>,
    ) -> Option<Vec<u8>> {
        if let Some((route, request)) = self.open_request() {
            route.send_alone(&request, refusal, self);
            return None;
        }
        self.lost(Failure::not_done());
        let is_needed = !request.creates();
        is_needed.then(|| request.again().command(By::Hash).get_packed_command())
    }

    /// Delivers the answer of an in-memory or simulated node, or handles the end of the connection to that
    /// node.
    pub(crate) fn take(self, answered: Answered) {
        match answered {
            Err(failure) if failure.outcome == NodeOutcome::Disconnected => self.lost(failure),
            answered => self.answer(answered),
        }
    }

    pub(crate) fn answer(self, answered: Answered) {
        self.answer_to(|_| answered);
    }

    /// Delivers the answer that `answered` returns for the request, unless nobody waits for an answer.
    fn answer_to(mut self, answered: impl FnOnce(&Request) -> Answered) {
        self.has_answered = true;
        let (kept, waker) = {
            let mut in_flight = self.in_flight.lock();
            // If the entry is missing, the fan-out was dropped and no one waits for the answer.
            let Some(entry) = in_flight.entries.get_mut(self.entry) else { return };
            match &mut entry.state {
                RequestState::Open => {
                    entry.state = RequestState::Answered(answered(&entry.request))
                }
                RequestState::Late(late) => *late = Some(answered(&entry.request)),
                // The answer arrived before the fan-out noticed that the request was given up, so use the answer.
                RequestState::GivenUp => {
                    entry.state = RequestState::Answered(answered(&entry.request));
                }
                RequestState::Answered(_) | RequestState::Closed => return,
            }
            (entry.kept.take(), in_flight.waker.take())
        };
        // Dropping this reference may close the connection, so the table must not be locked here.
        drop(kept);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for ReplySink {
    fn drop(&mut self) {
        if self.has_answered {
            return;
        }
        // The sink was dropped without an answer, so no answer will arrive.
        let (kept, waker) = {
            let mut in_flight = self.in_flight.lock();
            let Some(entry) = in_flight.entries.get_mut(self.entry) else { return };
            entry.has_sink = false;
            if !matches!(entry.state, RequestState::Late(_)) {
                return;
            }
            entry.state = RequestState::Closed;
            (entry.kept.take(), in_flight.waker.take())
        };
        drop(kept);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Receive for ReplySink {
    type Request = Batchable;

    /// Delivers the server's reply, or passes an error to the connection, which may send the request again.
    fn receive(self, reply: RawReply) {
        match reply.and_then(Value::extract_error) {
            Ok(value) => {
                self.answer_to(|request| request.understand(&value).ok_or_else(Failure::nonsense))
            }
            Err(error) => match self.open_request() {
                Some((route, request)) => route.refused(&request, &error, self),
                // The request is not open any more: the fan-out has stopped waiting for it, or the connection is gone.
                None if error.is_io_error() => self.lost(failure(&error, true)),
                None => self.answer(Err(failure(&error, true))),
            },
        }
    }

    fn receive_batch(batch: BatchOf<Self>, reply: RawReply) -> Vec<Vec<u8>> {
        let answer_all = |batch: BatchOf<Self>, answer: &dyn Fn(Self)| {
            batch.into_iter().filter_map(|(_, sink)| sink).for_each(answer);
            Vec::new()
        };
        let (mut refusal, replies) = match reply {
            // The connection has ended, so each request of the batch fails or is sent again.
            Err(error) => return answer_all(batch, &|sink| sink.receive(Err(error.clone()))),
            Ok(Value::ServerError(error)) => {
                let error = RedisError::from(error);
                // The server's memory is being replaced, so the server would refuse each request. Answer all requests
                // with this error, so that the restart guard starts again.
                if implies_new_memory(failure(&error, true).outcome) {
                    return answer_all(batch, &|sink| sink.receive(Err(error.clone())));
                }
                (Some(error), vec![None; batch.len()])
            }
            Ok(reply) => match batch::replies(reply, batch.len()) {
                Some(replies) => (None, replies),
                None => return answer_all(batch, &|sink| sink.answer(Err(Failure::nonsense()))),
            },
        };
        let mut next = Vec::new();
        for ((request, sink), reply) in batch.into_iter().zip(replies) {
            match (sink, reply) {
                (Some(sink), Some(reply)) if !request.has_to_queue(&reply) => {
                    sink.receive(Ok(reply))
                }
                (Some(sink), _) => next.extend(sink.send_alone(request.request(), refusal.take())),
                (None, _) => {}
            }
        }
        next
    }

    fn pack(requests: Vec<(Batchable, Self)>) -> Vec<Packed<Self>> {
        let packed =
            |batch: Batch<Self>| (batch.command(By::Hash).get_packed_command(), batch.into_items());
        Batch::plan(requests).into_iter().map(packed).collect()
    }
}
