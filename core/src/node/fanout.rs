//! One request to each of several nodes, with one deadline for all answers.

use crate::command::answer::{Answered, Failure};
use crate::node::exchange::{Done, Finished, InFlight, PackedRequest, Peer};
use crate::runtime::clock;
use crate::runtime::deadline::{Alarm, Deadlines};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorlock_protocol::Moment;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Requests under way, with one deadline for all. When it is dropped, nobody waits for the answers, and
/// what could not be sent yet is not sent.
///
/// [`FanOut::next`] returns each request's answer, or that its deadline has passed. After all of these,
/// [`FanOut::late`] returns the answers that requests which may create keys get after their deadline.
pub(crate) struct FanOut {
    began: Moment,
    asked: Moment,
    patience: Duration,
    alarm: Alarm,
    in_flight: Arc<InFlight>,
    /// What waits for a connection.
    unsent: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// What became of a request by its deadline.
pub(crate) struct Received {
    /// The node's position.
    pub(crate) node: usize,
    pub(crate) answered: Answered,
    /// Whether the node processed it before everything that was sent to this node later. Not so if it
    /// was sent a second time, or if the node uses another connection by now.
    pub(crate) in_order: bool,
}

impl FanOut {
    /// Nothing is asked yet; up to so many nodes will be. The requests are part of something begun at
    /// `began`, and are to be answered within `patience` from now.
    pub(crate) fn new(
        deadlines: &Arc<Deadlines>,
        began: Moment,
        patience: Duration,
        nodes: usize,
    ) -> Self {
        let asked = clock::now();
        Self {
            began,
            asked,
            patience,
            alarm: deadlines.alarm(asked.plus(patience)),
            in_flight: Arc::new(InFlight::of(nodes)),
            unsent: FuturesUnordered::new(),
        }
    }

    /// Sends a request to a node: at once, if it is connected.
    pub(crate) fn send<P: Peer + 'static>(
        &mut self,
        node: &Arc<P>,
        packed_request: &PackedRequest,
    ) {
        let peer: Arc<dyn Peer> = Arc::<P>::clone(node);
        let sink = self.in_flight.add(Arc::clone(&peer), Arc::clone(&packed_request.request));
        self.unsent.extend(peer.send(packed_request, sink));
    }

    /// Waits for an answer, with its node's position; `None` if there is none to come.
    pub(crate) async fn next(&mut self) -> Option<(usize, Answered)> {
        self.received().await.map(|received| (received.node, received.answered))
    }

    /// Waits for an answer as [`FanOut::next`] does, and also returns whether it came in order.
    pub(crate) async fn received(&mut self) -> Option<Received> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Whether requests that may create keys were sent, and not answered by their deadline.
    pub(crate) fn has_late(&self) -> bool {
        self.in_flight.has_late()
    }

    /// Waits for the answer to such a request, which is an error if its connection breaks first; `None` if
    /// there is none to come. The wait has no deadline.
    pub(crate) async fn late(&mut self) -> Option<(usize, Answered)> {
        poll_fn(|context| self.in_flight.take_late(context.waker())).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Received>> {
        while let Poll::Ready(Some(())) = self.unsent.poll_next_unpin(context) {}
        let taken = match self.in_flight.take_answered(context.waker()) {
            Poll::Ready(Some(taken)) => taken,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending if Pin::new(&mut self.alarm).poll(context).is_pending() => {
                return Poll::Pending;
            }
            Poll::Pending => {
                // What was not sent by now never will be.
                self.unsent.clear();
                match self.in_flight.take_unanswered() {
                    Some(taken) => taken,
                    // It came in just now.
                    None => return self.poll_next(context),
                }
            }
        };
        let Finished { node, request, route, was_sent, in_order, answered } = taken;
        let in_order =
            in_order && answered.is_some() && route.as_ref().is_some_and(|route| node.uses(route));
        // What had to wait for its connection is counted with that.
        let took = (was_sent && answered.is_some()).then(|| clock::now().since(self.asked));
        let answered =
            answered.unwrap_or_else(|| Err(Failure::timeout("no answer", self.patience, was_sent)));
        let (began, route, position) = (self.began, route.as_ref(), node.position());
        let answered = node.answered(Done { request: &request, began, took, route, answered });
        Poll::Ready(Some(Received { node: position, answered, in_order }))
    }
}

impl Drop for FanOut {
    fn drop(&mut self) {
        // Answers that are still to come keep the in_flight, which keeps the connections they come on.
        self.in_flight.clear();
    }
}

#[cfg(test)]
mod tests;
