//! Requests under way to nodes, and the answers to them: what each was sent on, and what became of it.
//!
//! A request that may create keys concerns its sender beyond the deadline: the node may still apply it.
//! So its connection stays open until it is answered, even if the node uses another one by then.
//!
//! Nodes and connections are known by what they do here, [`Peer`] and [`Route`].

use crate::command::answer::{Answered, Failure};
use crate::command::request::Request;
use crate::command::script::By;
use crate::error::NodeOutcome;
use crate::transport::connection::Receive;
use crate::transport::handshake::failure;
use futures_util::future::BoxFuture;
use quorlock_protocol::Moment;
use redis::{RedisError, Value};
use std::cell::OnceCell;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Servers that send a request to one another do so in vain.
const MOST_HOPS: u8 = 8;

/// A node, as the requests under way to it see it.
pub(crate) trait Peer: Send + Sync {
    /// Its position in the client's list.
    fn position(&self) -> usize;

    /// Puts a request on the connection: at once, if the node is connected and nothing waits before it. Else
    /// it returns what has to be run for that.
    fn send(
        self: Arc<Self>,
        packed_request: &PackedRequest,
        sink: ReplySink,
    ) -> Option<BoxFuture<'static, ()>>;

    /// Takes in what became of a request. Returns the answer as it counts.
    fn answered(self: Arc<Self>, done: Done<'_>) -> Answered;

    /// Whether this is the connection that requests are sent on now.
    fn uses(&self, route: &Weak<dyn Route>) -> bool;
}

/// What became of a request.
pub(crate) struct Done<'a> {
    pub(crate) request: &'a Request,
    /// When that which it is a part of began.
    pub(crate) began: Moment,
    /// How long the answer took; `None` if there is none, or if the request waited for its connection.
    pub(crate) took: Option<Duration>,
    /// What it was sent on.
    pub(crate) route: Option<&'a Weak<dyn Route>>,
    pub(crate) answered: Answered,
}

/// A connection, as the requests on it see it.
pub(crate) trait Route: Send + Sync {
    /// Takes in the server's error: sends the request again where the server says, or answers it.
    fn refused(self: Arc<Self>, request: &Arc<Request>, error: &RedisError, sink: ReplySink);
}

/// A request that goes to several nodes, and is packed once for all.
pub(crate) struct PackedRequest {
    pub(crate) request: Arc<Request>,
    packed: OnceCell<Vec<u8>>,
}

impl From<Arc<Request>> for PackedRequest {
    fn from(request: Arc<Request>) -> Self {
        Self { request, packed: OnceCell::new() }
    }
}

impl From<Request> for PackedRequest {
    fn from(request: Request) -> Self {
        Arc::new(request).into()
    }
}

impl PackedRequest {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.packed.get_or_init(|| self.request.command(By::Hash).get_packed_command())
    }
}

/// Where answers come in.
pub(crate) struct InFlight(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    entries: Vec<Entry>,
    waker: Option<Waker>,
}

struct Entry {
    node: Arc<dyn Peer>,
    request: Arc<Request>,
    /// What it was sent on. That keeps the sink, which keeps the in_flight, until it is answered.
    route: Option<Weak<dyn Route>>,
    /// The same, if the request may create keys and is not answered yet. The fan-out ends that cycle
    /// when it is dropped.
    kept: Option<Arc<dyn Route>>,
    was_sent: bool,
    /// Whether it was sent just once.
    in_order: bool,
    /// Whether its sink is there, which an answer can come to.
    has_sink: bool,
    state: RequestState,
}

impl Entry {
    /// Whether somebody waits for the answer.
    fn is_open(&self) -> bool {
        matches!(self.state, RequestState::Open)
    }

    /// Whether the node may still apply it and answer.
    fn may_come_late(&self) -> bool {
        self.was_sent && self.has_sink && self.request.creates()
    }
}

enum RequestState {
    Open,
    Answered(Answered),
    /// Its time was up, but the node may still apply it. The answer, if it has come meanwhile.
    Late(Option<Answered>),
    /// Its answer was taken, or its time was up.
    Closed,
}

/// What there is to know of a request that is over; there is no answer if its time was up.
pub(crate) struct Finished {
    pub(crate) node: Arc<dyn Peer>,
    pub(crate) request: Arc<Request>,
    pub(crate) route: Option<Weak<dyn Route>>,
    pub(crate) was_sent: bool,
    pub(crate) in_order: bool,
    pub(crate) answered: Option<Answered>,
}

impl InFlight {
    pub(crate) fn of(nodes: usize) -> Self {
        Self(Mutex::new(Entries { entries: Vec::with_capacity(nodes), waker: None }))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request to `node`, and returns where its answer goes.
    pub(crate) fn add(self: &Arc<Self>, node: Arc<dyn Peer>, request: Arc<Request>) -> ReplySink {
        let (route, kept, state) = (None, None, RequestState::Open);
        let (was_sent, in_order, has_sink) = (false, true, true);
        let entries = &mut self.lock().entries;
        entries.push(Entry { node, request, route, kept, was_sent, in_order, has_sink, state });
        let entry = entries.len() - 1;
        ReplySink { in_flight: Arc::clone(self), entry, hops: 0, has_answered: false }
    }

    /// Takes one that is answered; `None` if all were taken.
    pub(crate) fn take_answered(&self, waker: &Waker) -> Poll<Option<Finished>> {
        let mut in_flight = self.lock();
        if let Some(taken) = in_flight.take(|state| matches!(state, RequestState::Answered(_))) {
            return Poll::Ready(Some(taken));
        }
        if !in_flight.entries.iter().any(Entry::is_open) {
            return Poll::Ready(None);
        }
        in_flight.wake_later(waker);
        Poll::Pending
    }

    pub(crate) fn take_unanswered(&self) -> Option<Finished> {
        self.lock().take(|state| matches!(state, RequestState::Open))
    }

    /// Whether requests that may create keys were sent, and not answered by their deadline.
    pub(crate) fn has_late(&self) -> bool {
        self.lock().entries.iter().any(|entry| matches!(entry.state, RequestState::Late(_)))
    }

    /// Takes one that was answered after its deadline; `None` if there is none to wait for.
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
        // May close connections, without the lock.
        drop(entries);
    }
}

impl Entries {
    fn take(&mut self, which: impl Fn(&RequestState) -> bool) -> Option<Finished> {
        let entry = self.entries.iter_mut().find(|entry| which(&entry.state))?;
        let answered = match mem::replace(&mut entry.state, RequestState::Closed) {
            RequestState::Answered(answered) => Some(answered),
            RequestState::Open if entry.may_come_late() => {
                entry.state = RequestState::Late(None);
                None
            }
            RequestState::Open | RequestState::Late(_) | RequestState::Closed => None,
        };
        Some(Finished {
            node: Arc::clone(&entry.node),
            request: Arc::clone(&entry.request),
            route: entry.route.take(),
            was_sent: entry.was_sent,
            in_order: entry.in_order,
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

/// Where the answer to one request goes.
pub(crate) struct ReplySink {
    in_flight: Arc<InFlight>,
    entry: usize,
    /// How often it was sent elsewhere.
    hops: u8,
    has_answered: bool,
}

impl ReplySink {
    /// The request goes to this node instead: another one of the same position.
    pub(crate) fn goes_to(&self, node: Arc<dyn Peer>) {
        if let Some(entry) = self.in_flight.lock().entries.get_mut(self.entry) {
            entry.node = node;
        }
    }

    /// The request is sent once more, elsewhere. Fails if that happens too often.
    pub(crate) fn hop(&mut self) -> bool {
        self.hops += 1;
        self.hops <= MOST_HOPS
    }

    /// The request is to be put on this connection now. Returns whether somebody still waits for the answer:
    /// else it is not, since what takes it back may be there already.
    #[must_use]
    pub(crate) fn goes_on(&self, route: Arc<dyn Route>) -> bool {
        let mut in_flight = self.in_flight.lock();
        let entry = in_flight.entries.get_mut(self.entry).filter(|entry| entry.is_open());
        let Some(entry) = entry else { return false };
        // What was sent meanwhile is before it.
        entry.in_order &= !entry.was_sent;
        (entry.route, entry.was_sent) = (Some(Arc::downgrade(&route)), true);
        entry.kept = entry.request.creates().then_some(route);
        true
    }

    /// There was no room for the request on the connection: it was not sent.
    pub(crate) fn comes_back(&self) {
        if let Some(entry) = self.in_flight.lock().entries.get_mut(self.entry) {
            (entry.route, entry.was_sent, entry.kept) = (None, false, None);
        }
    }

    /// What it was sent on, and what was asked, while somebody waits for the answer.
    fn asked(&self) -> Option<(Arc<dyn Route>, Arc<Request>)> {
        let in_flight = self.in_flight.lock();
        let entry = in_flight.entries.get(self.entry).filter(|entry| entry.is_open())?;
        Some((entry.route.as_ref()?.upgrade()?, Arc::clone(&entry.request)))
    }

    pub(crate) fn answer(self, answered: Answered) {
        self.answer_to(|_| answered);
    }

    /// Tells the answer, which may depend on what was asked.
    fn answer_to(mut self, answered: impl FnOnce(&Request) -> Answered) {
        self.has_answered = true;
        let (kept, waker) = {
            let mut in_flight = self.in_flight.lock();
            // Else nobody waits for it any more.
            let Some(entry) = in_flight.entries.get_mut(self.entry) else { return };
            match &mut entry.state {
                RequestState::Open => {
                    entry.state = RequestState::Answered(answered(&entry.request))
                }
                RequestState::Late(late) => *late = Some(answered(&entry.request)),
                RequestState::Answered(_) | RequestState::Closed => return,
            }
            (entry.kept.take(), in_flight.waker.take())
        };
        // May close the connection.
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
        // The request was not sent, or not again: no answer comes.
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
    /// Takes in what a server answered to the request.
    fn receive(self, reply: Result<Value, RedisError>) {
        match reply.and_then(Value::extract_error) {
            Ok(value) => self.answer_to(|request| {
                request.understand(&value).ok_or_else(|| Failure {
                    outcome: NodeOutcome::Disconnected,
                    detail: "the answer makes no sense".to_owned(),
                    sent: true,
                })
            }),
            Err(error) => match self.asked() {
                Some((route, request)) => route.refused(&request, &error, self),
                // The connection is given up already.
                None => self.answer(Err(failure(&error, true))),
            },
        }
    }
}
