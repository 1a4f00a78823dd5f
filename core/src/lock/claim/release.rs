//! Releases a held lease: sends RELEASE to all nodes, and repeats the request on nodes where it fails.
//!
//! `held/ending.rs` starts a release after the lease has ended for its holder. The protocol decides whether a majority
//! confirms the release.

use crate::lock::claim::Commands;
use crate::lock::claim::held::{HeldLease, answer_caller};
use crate::node::fanout::{FanOut, Received};
use crate::runtime::clock;
use crate::runtime::timer::sleep;
use crate::wire::answer::{Answered, answer};
use crate::wire::request::Request;
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorlock_protocol::{Answer, Moment, NodeSet, Release};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A release of which some answers may still be missing. [`RunningRelease::run`] sends RELEASE and consumes this value.
pub(crate) struct RunningRelease {
    pub(crate) held: Arc<HeldLease>,
    pub(crate) release: Release,
    /// Gets the result; `None` after the caller has been answered.
    pub(crate) caller: Option<oneshot::Sender<bool>>,
}

impl RunningRelease {
    /// Waits until no upgrade of the lease is under way. Then sends RELEASE to all nodes, and answers the caller.
    pub(crate) async fn run(mut self) {
        let held = Arc::clone(&self.held);
        held.wait_for_upgrade().await;
        let patience = held.grant.term.patience().max(held.node_timeout());
        let commands = held.state().claim.send_release();
        let request = Request::release(&held.subject(), held.driver.turns());
        let began = clock::now();
        let fan_out = held.driver.broadcast(request.clone(), began, patience);
        // The RELEASE is under way now. On each connection, a later ACQUIRE for the same slots follows this RELEASE, so
        // other rounds may try these slots.
        if let Some(permits) = &held.grant.permits {
            permits.give_back(request.keep().is_none());
        }
        held.clean(Commands { release: NodeSet::EMPTY, ..commands });
        self.collect(fan_out, &request, began.plus(patience)).await;
        let commands = held.state().claim.end_release();
        held.clean(commands);
    }

    /// Records the nodes' answers, and repeats the request on the nodes where it failed. Waits for the first try on
    /// each node. While the release is undecided, also waits for the repetitions, but at most until `deadline`.
    async fn collect(&mut self, mut fan_out: FanOut, request: &Request, deadline: Moment) {
        // The results of the repeated requests, as futures.
        let mut retried = None::<FuturesUnordered<_>>;
        let mut unanswered = NodeSet::EMPTY;
        let mut is_decided = false;
        let mut has_more = true;
        while has_more || !(is_decided || unanswered.is_empty()) {
            tokio::select! {
                biased;
                received = fan_out.received(), if has_more => match received {
                    Some(Received { node, answered: Err(failure), is_repeated, .. }) => {
                        let was_sent = is_repeated || failure.sent;
                        match self.repeat(node, request) {
                            Some(delivered) => {
                                unanswered.insert(node);
                                let retry = async move { (node, was_sent, delivered.await) };
                                retried.get_or_insert_default().push(retry);
                            }
                            None => is_decided |= self.record(node, Answer::Unknown),
                        }
                    }
                    Some(Received { node, answered, is_repeated, .. }) => {
                        is_decided |= self.record(node, once(answer(&answered), is_repeated));
                    }
                    None => has_more = false,
                },
                Some((node, was_sent, delivered)) = async { retried.as_mut()?.next().await } => {
                    let answer = delivered.map(|(answered, is_repeated)| {
                        once(answer(&answered), was_sent || is_repeated)
                    });
                    unanswered.remove(node);
                    is_decided |= self.record(node, answer.unwrap_or(Answer::Unknown));
                }
                () = sleep(deadline.since(clock::now())), if !has_more => break,
            }
        }
        for node in unanswered.iter() {
            self.record(node, Answer::Unknown);
        }
    }

    /// Records a node's answer. Returns whether the answer decides the release. If so, answers the caller.
    fn record(&mut self, node: usize, answer: Answer) -> bool {
        let released = self.held.state().claim.released(&mut self.release, node, answer);
        let Some(released) = released else { return false };
        if self.caller.is_some() {
            self.held.record_release(released);
        }
        answer_caller(&mut self.caller, released);
        true
    }

    /// Repeats the request on a node that did not answer, until the node answers or the lease's keys have expired. The
    /// future returns the answer, and whether the node may have applied an earlier copy of the request. Returns `None`
    /// if the node cannot have a key of the lease.
    fn repeat(
        &self,
        node: usize,
        request: &Request,
    ) -> Option<impl Future<Output = Option<(Answered, bool)>> + Send + use<>> {
        let (holds, gone_by) = {
            let state = self.held.state();
            (state.claim.holders().contains(node), state.claim.gone_by())
        };
        holds.then(|| {
            let driver = &self.held.driver;
            let target = Arc::clone(&driver.nodes[node]);
            let closing = driver.closing.clone();
            let request = request.clone();
            let patience = self.held.node_timeout();
            let (sender, delivered) = oneshot::channel();
            // A separate task, because the repetition goes on after the release is decided.
            driver.detach(async move {
                // Sending fails if nobody waits for the result any more.
                let _ = sender.send(target.deliver(request, patience, gone_by, &closing).await);
            });
            async move { delivered.await.ok().flatten() }
        })
    }
}

/// Converts an answer to RELEASE: if `is_repeated` is true, the answer `No` becomes `Unknown`, because an earlier copy
/// of the request may have deleted the keys.
fn once(answer: Answer, is_repeated: bool) -> Answer {
    if is_repeated { answer.without_no() } else { answer }
}
