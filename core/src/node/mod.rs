//! The nodes: the connection to each node, requests with a deadline, and what the client knows about each node.
//!
//! This module owns each node's connection state, restart guard and identity. It reports how each
//! node answered. It does not count votes or decide about leases: `lock` does that with
//! `quorlock_protocol`. `lock` and `client` call this module.
//!
//! A [`Node`] uses at most one connection at a time. While the node has no connection, one background task
//! connects. During the first attempt of this task, requests wait. After a failed attempt, requests fail at
//! once until the node is connected. If the server stops answering on a connection, the node replaces the
//! connection.
//!
//! Reading order: `fanout.rs` (one request to several nodes), `exchange.rs` (requests in flight),
//! `mod.rs` (one node), `connect.rs` (connecting and checking), `history.rs` (pauses before connecting),
//! `frozen.rs`, `connection.rs`, `link.rs` (the connection state), `map.rs` and `routing.rs` (clusters),
//! `identity.rs` (duplicate nodes), `health.rs` (events), `clocks.rs`, `subscription.rs` (messages from nodes).

pub(crate) mod clocks;
mod connect;
pub(crate) mod connection;
pub(crate) mod exchange;
pub(crate) mod fanout;
mod frozen;
pub(crate) mod health;
mod history;
pub(crate) mod identity;
mod link;
mod map;
mod routing;
pub(crate) mod subscription;

use crate::config::endpoint::{Endpoint, Target};
use crate::config::options::Options;
use crate::error::NodeOutcome;
use crate::node::clocks::Clocks;
use crate::node::exchange::{Done, PackedRequest, Peer, ReplySink, Route};
use crate::node::fanout::FanOut;
use crate::node::health::Health;
use crate::node::identity::Identities;
use crate::runtime;
use crate::runtime::clock;
use crate::runtime::cork;
use crate::runtime::deadline::Deadlines;
use crate::runtime::timer::{sleep, timeout};
use crate::telemetry::stats::{Counters, NodeStats};
use crate::wire::answer::{Answered, Failure, implies_new_memory, outcome};
use crate::wire::reply::Reply;
use crate::wire::request::Request;
use futures_util::future::{BoxFuture, FutureExt};
use history::{History, RECONNECT_DELAY};
use link::{Link, LinkState};
use quorlock_protocol::{Guard, Moment, Term};
use std::future::Future;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How many times each node is checked within the duration of the restart guard. The checks are needed
/// because a proxy may replace the server without breaking the connection.
const CHECKS_PER_GUARD: u32 = 4;
/// The shortest and the longest pause between two checks.
const CHECK_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// A request is sent as part of a batch only if this number of round trips takes less than the request's time limit.
const ROUND_TRIPS: u32 = 4;

#[derive(Debug)]
pub(crate) struct Node {
    endpoint: Endpoint,
    /// The node's position in the client's list, from 0.
    position: usize,
    identities: Arc<Identities>,
    deadlines: Arc<Deadlines>,
    clocks: Arc<Clocks>,
    connect_timeout: Duration,
    /// The longest lease that a restarted node may have forgotten; `None` if the restart guard is
    /// off.
    term: Option<Term>,
    /// The restart guard; `None` if the guard is off, or if the node is a cluster, whose servers have their own guards.
    guard: Option<Mutex<Guard>>,
    check_interval: Duration,
    counters: Arc<Counters>,
    /// The cluster that this server belongs to; `None` if the server is not part of a cluster.
    owner: Option<Weak<Node>>,
    /// For a cluster: notified when its masters may have changed.
    stale: watch::Sender<()>,
    health: Health,
    history: History,
    /// The number of requests that wait because they could not be sent immediately.
    unsent: AtomicUsize,
    /// Held while one of the waiting requests is sent, so that the waiting requests are sent in the order
    /// in which they were made. If a RELEASE overtook its ACQUIRE, the RELEASE would find nothing to
    /// delete.
    turn: tokio::sync::Mutex<()>,
    state: watch::Sender<LinkState<Node>>,
}

/// While this value exists, one request is counted in `Node::unsent`.
struct Unsent(Arc<Node>);

impl Unsent {
    fn of(node: &Arc<Node>) -> Self {
        node.unsent.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(node))
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.0.unsent.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Node {
    pub(crate) fn new(
        endpoint: Endpoint,
        position: usize,
        options: &Options,
        identities: &Arc<Identities>,
        deadlines: &Arc<Deadlines>,
        clocks: &Arc<Clocks>,
    ) -> Arc<Self> {
        // A cluster has no guard, because each of its masters has a guard of its own.
        let guard = options.restart_guard.filter(|_| !endpoint.is_cluster());
        let (often, seldom) = CHECK_INTERVAL;
        Arc::new(Self {
            endpoint,
            position,
            identities: Arc::clone(identities),
            deadlines: Arc::clone(deadlines),
            clocks: Arc::clone(clocks),
            connect_timeout: options.connect_timeout,
            term: options.restart_guard.map(|guard| options.term(guard)),
            guard: guard.map(|guard| Mutex::new(Guard::new(options.term(guard)))),
            check_interval: options
                .restart_guard
                .map_or(seldom, |guard| (guard / CHECKS_PER_GUARD).clamp(often, seldom)),
            counters: Arc::default(),
            owner: None,
            stale: watch::Sender::new(()),
            health: Health::default(),
            history: History::default(),
            unsent: AtomicUsize::new(0),
            turn: tokio::sync::Mutex::new(()),
            state: watch::Sender::new(LinkState::Idle),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.endpoint.address
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.endpoint.target, Target::Memory(_))
    }

    pub(crate) fn stats(&self) -> NodeStats {
        NodeStats {
            address: self.address().to_owned(),
            state: self.state.borrow().state(),
            reconnects: self.counters.reconnects.read(),
            outcomes: self.counters.outcomes(),
            answer_seconds: self.counters.answers.read(),
        }
    }

    /// Starts to connect if the node has not been used yet. Returns whether the node is connected; `None`
    /// while it is connecting.
    pub(crate) fn start_connecting(self: &Arc<Self>) -> Option<bool> {
        if matches!(*self.state.borrow(), LinkState::Idle) {
            self.transition(|state| matches!(state, LinkState::Idle), LinkState::Connecting);
        }
        match *self.state.borrow() {
            LinkState::Idle | LinkState::Connecting => None,
            LinkState::Up(_) | LinkState::Routed(_) => Some(true),
            LinkState::Down(_) | LinkState::Closed => Some(false),
        }
    }

    /// Waits until the node is connected, until an attempt to connect has failed, or until the node is
    /// closed. Returns whether the node is connected.
    pub(crate) async fn settled(self: &Arc<Self>) -> bool {
        self.start_connecting();
        let mut state = self.state.subscribe();
        let settled =
            state.wait_for(|state| !matches!(state, LinkState::Idle | LinkState::Connecting)).await;
        settled.is_ok_and(|state| state.is_open())
    }

    /// Sends one request and waits for its answer, for at most `patience`. `began` is the start of
    /// the operation that the request belongs to. The restart guard decides by `began` whether the
    /// answer counts.
    pub(crate) fn call(
        self: &Arc<Self>,
        request: Request,
        began: Moment,
        patience: Duration,
    ) -> impl Future<Output = Answered> + use<> {
        let mut fan_out = FanOut::new(&self.deadlines, began, patience, 1);
        fan_out.send(self, &PackedRequest::from(request));
        async move {
            let (_, answered) = fan_out.next().await.expect("a request has one answer");
            answered
        }
    }

    /// Sends a request. If the node is down or closed, answers the sink with a failure instead.
    /// Returns the sink if the request has to wait.
    fn put(
        self: &Arc<Self>,
        packed_request: &PackedRequest,
        sink: ReplySink,
    ) -> Result<(), ReplySink> {
        let link = match &*self.state.borrow() {
            LinkState::Up(link) => Arc::clone(link),
            LinkState::Idle | LinkState::Connecting | LinkState::Routed(_) => return Err(sink),
            LinkState::Down(failure) => {
                sink.answer(Err(failure.clone()));
                return Ok(());
            }
            LinkState::Closed => {
                sink.answer(Err(Failure::unreachable("the client is closed")));
                return Ok(());
            }
        };
        if !sink.mark_sent(Arc::<Link>::clone(&link)) {
            return Ok(());
        }
        self.doubt_if_idle(&link);
        // If a batch leaves the request out, there must still be time to send the request alone.
        let trip = cork::longest_wait() + link.latency();
        let may_batch = trip < sink.patience() / ROUND_TRIPS;
        link.connection.send(packed_request, may_batch, sink).inspect_err(ReplySink::mark_unsent)
    }

    /// Returns the current connection if `route` refers to it; else `None`.
    fn link(&self, route: &Weak<dyn Route>) -> Option<Arc<Link>> {
        let link = self.state.borrow().link()?;
        ptr::addr_eq(Arc::as_ptr(&link), route.as_ptr()).then_some(link)
    }

    /// Applies the restart guard to an answer. An error that implies that the node's memory is being replaced
    /// starts the guard again. A vote is marked as uncounted if the guard does not let the node vote yet.
    fn apply_guard(&self, request: &Request, began: Moment, answered: Answered) -> Answered {
        let Some(mut guard) = self.guard() else { return answered };
        if implies_new_memory(outcome(&answered)) {
            guard.doubted(clock::now());
        }
        // An answer that proves that two nodes are one server counts even if the node is guarded.
        let is_duplicate = matches!(answered, Ok(Reply::Own));
        if !request.is_vote() || guard.counts(began) || is_duplicate {
            return answered;
        }
        answered.map(|reply| Reply::Uncounted(Box::new(reply), guard.counts_from()))
    }

    /// Sends a request repeatedly until the node answers without an error. The request must be one that may
    /// be repeated, such as RELEASE or UNDO. Makes the last attempt at `horizon` at the latest, because the
    /// request would have no effect later. After `closing` is cancelled, sends the request at most once more.
    ///
    /// Returns the answer, and whether the node may have applied an earlier copy of the request; `None` if
    /// every attempt failed.
    pub(crate) async fn deliver(
        self: &Arc<Self>,
        request: Request,
        patience: Duration,
        horizon: Moment,
        closing: &CancellationToken,
    ) -> Option<(Answered, bool)> {
        let (mut delay, longest) = RECONNECT_DELAY;
        let mut request = Arc::new(request);
        let mut is_repeated = false;
        loop {
            let mut fan_out = FanOut::new(&self.deadlines, clock::now(), patience, 1);
            fan_out.send(self, &PackedRequest::from(Arc::clone(&request)));
            let received = fan_out.received().await.expect("a request has one answer");
            is_repeated |= received.is_repeated;
            match received.answered {
                Ok(reply) => return Some((Ok(reply), is_repeated)),
                Err(failure) => is_repeated |= failure.sent && failure.is_transport(),
            }
            let left = horizon.since(clock::now());
            if left.is_zero() || closing.is_cancelled() {
                return None;
            }
            let connected = async {
                sleep(delay).await;
                let mut state = self.state.subscribe();
                let _ = state.wait_for(LinkState::is_open).await;
            };
            let _ = timeout(left, closing.run_until_cancelled(connected)).await;
            delay = (delay * 2).min(longest);
            request = request.again();
        }
    }

    /// Closes the connection and never opens another one. For a cluster, closes the connections to all masters.
    pub(crate) fn close(&self) {
        if let Some(map) = self.map() {
            map.nodes().for_each(|node| node.close());
        }
        self.state.send_replace(LinkState::Closed);
    }

    fn guard(&self) -> Option<MutexGuard<'_, Guard>> {
        let guard = self.guard.as_ref();
        guard.map(|guard| guard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Peer for Node {
    fn position(&self) -> usize {
        self.position
    }

    fn send(
        self: Arc<Self>,
        packed_request: &PackedRequest,
        sink: ReplySink,
    ) -> Option<BoxFuture<'static, ()>> {
        if packed_request.request.is_vote()
            && let Err(failure) = self.identities.check(self.position)
        {
            sink.answer(Err(failure));
            return None;
        }
        let may_go = self.unsent.load(Ordering::Acquire) == 0 || packed_request.is_renewal;
        let sink = match self.map() {
            _ if !may_go => sink,
            Some(map) => return map.send(packed_request, sink),
            None => self.put(packed_request, sink).err()?,
        };
        let unsent = Unsent::of(&self);
        let packed_request = packed_request.again();
        let send = async move {
            let node = &unsent.0;
            let turn = node.turn.lock().await;
            let mut sink = sink;
            loop {
                node.settled().await;
                if let Some(map) = node.map() {
                    let sending = map.send(&packed_request, sink);
                    // The next waiting requests may be for other masters. Let them continue while this request
                    // waits for its master's connection.
                    drop(turn);
                    drop(unsent);
                    if let Some(sending) = sending {
                        sending.await;
                    }
                    return;
                }
                match node.put(&packed_request, sink) {
                    Ok(()) => break,
                    Err(again) => sink = again,
                }
                let mut states = node.state.subscribe();
                let full = states.borrow_and_update().link();
                if let Some(link) = full {
                    // The server of a connection that was replaced or closed may never make room.
                    tokio::select! {
                        biased;
                        _ = states.wait_for(|state| !state.is(&link)) => {}
                        () = link.connection.room() => {}
                    }
                }
            }
        };
        Some(send.boxed())
    }

    fn answered(self: Arc<Self>, done: Done<'_>) -> Answered {
        let Done { request, began, took, patience, route, answered } = done;
        if let Some(link) = route.and_then(|route| self.link(route)) {
            match &answered {
                Err(failure) if failure.outcome == NodeOutcome::Timeout => {
                    self.timed_out(&link, patience);
                }
                Err(failure) if implies_new_memory(failure.outcome) => self.demoted(&link),
                Err(failure) if failure.is_nonsense() => self.garbled(&link, failure),
                Err(failure) if failure.is_transport() => self.broken(&link),
                _ => {
                    link.answered(clock::now(), took.unwrap_or_default());
                    self.history.silent.store(0, Ordering::Relaxed);
                }
            }
        }
        if answered.as_ref().is_err_and(Failure::may_have_moved)
            && let Some(cluster) = self.owner.as_ref().and_then(Weak::upgrade)
        {
            cluster.stale.send_replace(());
        }
        let is_lost = answered.as_ref().is_err_and(Failure::is_transport);
        let answered = self.apply_guard(request, began, answered);
        self.counters.count(outcome(&answered));
        if let (Some(took), false) = (took, is_lost) {
            self.counters.answers.add(took);
        }
        if request.is_vote() {
            self.health.voted(self.address(), &answered);
        }
        answered
    }

    fn uses(&self, route: &Weak<dyn Route>) -> bool {
        self.link(route).is_some()
    }

    fn send_again(
        self: Arc<Self>,
        broken: Option<Weak<dyn Route>>,
        request: Arc<Request>,
        sink: ReplySink,
    ) {
        // `on_broken` reports a broken connection before the requests in flight fail. But a request that is sent
        // on an already closed connection fails at once, perhaps before `on_broken` is called. So report the
        // broken connection here.
        if let Some(link) = broken.and_then(|broken| self.link(&broken)) {
            self.broken(&link);
        }
        if let Some(sending) = self.send(&PackedRequest::from(request), sink) {
            runtime::detach_urgent(sending);
        }
    }
}

#[cfg(test)]
mod tests;
