//! One request to each of several nodes, with one deadline for all answers.

use crate::command::answer::{Answered, Failure};
use crate::node::exchange::{Board, Done, Parcel, Peer, Taken};
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
/// [`Asking::next`] returns each request's answer, or that its deadline has passed. After all of these,
/// [`Asking::late`] returns the answers that requests which may create keys get after their deadline.
pub(crate) struct Asking {
    began: Moment,
    asked: Moment,
    patience: Duration,
    alarm: Alarm,
    board: Arc<Board>,
    /// What waits for a connection.
    unsent: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// What became of a request by its deadline.
pub(crate) struct Told {
    /// The node's position.
    pub(crate) node: usize,
    pub(crate) answered: Answered,
    /// Whether the node processed it before everything that was sent to this node later. Not so if it
    /// was sent a second time, or if the node uses another connection by now.
    pub(crate) in_order: bool,
}

impl Asking {
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
            board: Arc::new(Board::of(nodes)),
            unsent: FuturesUnordered::new(),
        }
    }

    /// Sends a request to a node: at once, if it is connected.
    pub(crate) fn ask<P: Peer + 'static>(&mut self, node: &Arc<P>, parcel: &Parcel) {
        let peer: Arc<dyn Peer> = Arc::<P>::clone(node);
        let sink = self.board.add(Arc::clone(&peer), Arc::clone(&parcel.request));
        self.unsent.extend(peer.send(parcel, sink));
    }

    /// Waits for an answer, with its node's position; `None` if there is none to come.
    pub(crate) async fn next(&mut self) -> Option<(usize, Answered)> {
        self.told().await.map(|told| (told.node, told.answered))
    }

    /// Waits for an answer as [`Asking::next`] does, and also returns whether it came in order.
    pub(crate) async fn told(&mut self) -> Option<Told> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Whether requests that may create keys were sent, and not answered by their deadline.
    pub(crate) fn has_late(&self) -> bool {
        self.board.has_late()
    }

    /// Waits for the answer to such a request, which is an error if its connection breaks first; `None` if
    /// there is none to come. The wait has no deadline.
    pub(crate) async fn late(&mut self) -> Option<(usize, Answered)> {
        poll_fn(|context| self.board.take_late(context.waker())).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Told>> {
        while let Poll::Ready(Some(())) = self.unsent.poll_next_unpin(context) {}
        let taken = match self.board.take_answered(context.waker()) {
            Poll::Ready(Some(taken)) => taken,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending if Pin::new(&mut self.alarm).poll(context).is_pending() => {
                return Poll::Pending;
            }
            Poll::Pending => {
                // What was not sent by now never will be.
                self.unsent.clear();
                match self.board.take_unanswered() {
                    Some(taken) => taken,
                    // It came in just now.
                    None => return self.poll_next(context),
                }
            }
        };
        let Taken { node, request, route, was_sent, in_order, answered } = taken;
        let in_order =
            in_order && answered.is_some() && route.as_ref().is_some_and(|route| node.uses(route));
        // What had to wait for its connection is counted with that.
        let took = (was_sent && answered.is_some()).then(|| clock::now().since(self.asked));
        let answered =
            answered.unwrap_or_else(|| Err(Failure::timeout("no answer", self.patience, was_sent)));
        let (began, route, position) = (self.began, route.as_ref(), node.position());
        let answered = node.answered(Done { request: &request, began, took, route, answered });
        Poll::Ready(Some(Told { node: position, answered, in_order }))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Answers that are still to come keep the board, which keeps the connections they come on.
        self.board.clear();
    }
}

#[cfg(test)]
mod tests;
