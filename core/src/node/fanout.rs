//! A fan-out: one request to each of several nodes, with one deadline for all answers.
//!
//! `lock` and `client` start fan-outs and count the answers. `exchange.rs` tracks the requests;
//! this module adds the deadline.

use crate::node::exchange::{Done, Finished, InFlight, PackedRequest, Peer};
use crate::runtime::clock;
use crate::runtime::deadline::{Alarm, Deadlines};
use crate::wire::answer::{Answered, Failure};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorlock_protocol::Moment;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Requests in flight with one deadline for all. Dropping the fan-out discards all answers, and
/// cancels requests that could not be sent yet.
///
/// [`FanOut::next`] returns the answer to each request, or a failure if the deadline has passed.
/// After the deadline, [`FanOut::late`] returns late answers to requests that may create keys.
pub(crate) struct FanOut {
    began: Moment,
    sent: Moment,
    patience: Duration,
    alarm: Alarm,
    in_flight: Arc<InFlight>,
    /// The requests that wait for a connection. To save an allocation, this is `None` until a request
    /// has to wait.
    unsent: Option<FuturesUnordered<BoxFuture<'static, ()>>>,
}

/// The outcome of a request: its answer, or its failure. Known at the deadline at the latest.
pub(crate) struct Received {
    /// The node's position in the client's list, from 0.
    pub(crate) node: usize,
    pub(crate) answered: Answered,
    /// Whether the node processed this request before every later request with the same token. `false` if the
    /// order is unknown: the request was sent twice or not answered, or the node now uses another connection.
    pub(crate) in_order: bool,
    /// Whether the request was sent a second time although the node may have applied the first copy.
    pub(crate) is_repeated: bool,
}

impl FanOut {
    /// Starts a fan-out to up to `nodes` nodes. All answers are due within `patience` from now.
    /// `began` is the start of the operation that the requests belong to.
    pub(crate) fn new(
        deadlines: &Arc<Deadlines>,
        began: Moment,
        patience: Duration,
        nodes: usize,
    ) -> Self {
        let sent = clock::now();
        Self {
            began,
            sent,
            patience,
            alarm: deadlines.alarm(sent.plus(patience)),
            in_flight: Arc::new(InFlight::of(nodes, patience)),
            unsent: None,
        }
    }

    /// Sends a request to a node. If the request has to wait, [`FanOut::received`] sends it later.
    pub(crate) fn send<P: Peer + 'static>(
        &mut self,
        node: &Arc<P>,
        packed_request: &PackedRequest,
    ) {
        let peer: Arc<dyn Peer> = Arc::<P>::clone(node);
        let sink = self.in_flight.add(Arc::clone(&peer), Arc::clone(&packed_request.request));
        if let Some(sending) = peer.send(packed_request, sink) {
            self.unsent.get_or_insert_default().push(sending);
        }
    }

    /// Waits for the next answer. Returns the node's position and the answer; `None` when all answers
    /// have been returned.
    pub(crate) async fn next(&mut self) -> Option<(usize, Answered)> {
        self.received().await.map(|received| (received.node, received.answered))
    }

    /// Waits for an answer as [`FanOut::next`] does. Also returns whether the node processed the request in
    /// order, and whether the request was repeated.
    pub(crate) async fn received(&mut self) -> Option<Received> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Whether [`FanOut::late`] may still return an answer. Only requests that may create keys have late answers.
    pub(crate) fn has_late(&self) -> bool {
        self.in_flight.has_late()
    }

    /// Waits for a late answer to a request that may create keys, or for the failure of its
    /// connection. Returns `None` when no late answer can arrive any more. Has no deadline.
    pub(crate) async fn late(&mut self) -> Option<(usize, Answered)> {
        poll_fn(|context| self.in_flight.take_late(context.waker())).await
    }

    /// Gives up the requests that still wait for a connection. After the deadline, each of them counts as
    /// unanswered.
    pub(crate) fn cancel_unsent(&mut self) {
        self.unsent = None;
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Received>> {
        // Requests must not be sent after the deadline, even if this future is polled late.
        if self.unsent.is_some() && clock::now() >= self.sent.plus(self.patience) {
            self.cancel_unsent();
        }
        if let Some(unsent) = &mut self.unsent {
            while let Poll::Ready(Some(())) = unsent.poll_next_unpin(context) {}
        }
        let taken = match self.in_flight.take_answered(context.waker()) {
            Poll::Ready(Some(taken)) => taken,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending if Pin::new(&mut self.alarm).poll(context).is_pending() => {
                return Poll::Pending;
            }
            Poll::Pending => {
                self.cancel_unsent();
                match self.in_flight.take_unanswered() {
                    Some(taken) => taken,
                    // The last answer has arrived in the meantime, so take it.
                    None => return self.poll_next(context),
                }
            }
        };
        let Finished { node, request, route, was_sent, in_order, is_repeated, answered } = taken;
        let in_order =
            in_order && answered.is_some() && route.as_ref().is_some_and(|route| node.uses(route));
        // If the request had to wait for its connection, `took` includes the wait.
        let took = (was_sent && answered.is_some()).then(|| clock::now().since(self.sent));
        let answered =
            answered.unwrap_or_else(|| Err(Failure::timeout("no answer", self.patience, was_sent)));
        let began = self.began;
        let route = route.as_ref();
        let position = node.position();
        let patience = self.patience;
        let done = Done { request: &request, began, took, patience, route, answered };
        let answered = node.answered(done);
        Poll::Ready(Some(Received { node: position, answered, in_order, is_repeated }))
    }
}

impl Drop for FanOut {
    fn drop(&mut self) {
        // Breaks a reference cycle: the sinks of late requests keep the table alive, the table keeps the
        // connections of these requests open, and the connections own the sinks.
        self.in_flight.clear();
    }
}

#[cfg(test)]
mod tests;
