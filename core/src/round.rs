//! One round of an acquire on the wire.

use crate::answer::{Answered, is_counted, vote};
use crate::clock;
use crate::driver::{Call, Driver};
use crate::error::Result;
use crate::heal::spread;
use crate::held::Held;
use crate::protocol::{Actions, Event, Loss, Moment, NodeSet, Outcome, Round, Term};
use crate::request::{Keys, Reply, Request, Subject};
use crate::token;
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use std::time::Duration;

/// A round on the wire.
pub(crate) struct Running {
    driver: Arc<Driver>,
    pub(crate) subject: Arc<Subject>,
    term: Term,
    node_timeout: Duration,
    pub(crate) sent: Moment,
    round: Round,
    pub(crate) answers: Vec<Option<Answered>>,
    votes: FuturesUnordered<Call>,
    raises: FuturesUnordered<Call>,
}

impl Running {
    /// Sends ACQUIRE to all nodes.
    pub(crate) fn start(
        driver: &Arc<Driver>,
        keys: &Arc<Keys>,
        term: Term,
        node_timeout: Duration,
    ) -> Result<Self> {
        let driver = Arc::clone(driver);
        let subject = Arc::new(Subject { keys: Arc::clone(keys), token: token::token()? });
        let sent = clock::now();
        // After `sent`: a node that counts from a moment on is met by later proposals only.
        let proposal = clock::wall_clock_micros();
        let ttl = term.ttl;
        let request = Request::Acquire { subject: Arc::clone(&subject), ttl, proposal };
        // An answer after the end of the validity would be of no use.
        let node_timeout = node_timeout.min(term.end(sent).since(sent));
        Ok(Self {
            votes: driver.call_all(&request, sent, node_timeout),
            raises: FuturesUnordered::new(),
            answers: vec![None; driver.nodes.len()],
            round: Round::new(driver.quorum, sent, term),
            term,
            node_timeout,
            sent,
            subject,
            driver,
        })
    }

    /// Runs the round until it is decided. Can be dropped and called again.
    pub(crate) async fn decide(&mut self) -> Outcome {
        while let Some(event) = self.next_event().await {
            if let Some(outcome) = self.handle(event) {
                return outcome;
            }
        }
        // Every node votes by its deadline, and then the protocol has decided.
        Outcome::Lost(Loss::NoQuorum)
    }

    /// The nodes that have this round's token, or may come to have it.
    pub(crate) fn holders(&self) -> NodeSet {
        self.round.holders()
    }

    /// Sees the round to its end after the decision: late votes join `lease` while it is held,
    /// and are undone otherwise.
    pub(crate) async fn finish(mut self, lease: Option<Arc<Held>>) {
        while let Some(event) = self.next_event().await {
            let is_over = match &lease {
                Some(lease) => lease.was_released().await,
                None => true,
            };
            if is_over {
                self.handle(Event::Abandon);
            }
            self.handle(event);
            if let Some(lease) = &lease {
                lease.set_holders(self.round.holders());
            }
        }
        if let Some(lease) = lease {
            spread(&self.driver, lease, self.round.lacking()).await;
        }
    }

    /// Waits for the answers that the decision did not wait for.
    pub(crate) async fn complete(&mut self) {
        while let Some(event) = self.next_event().await {
            self.handle(event);
        }
    }

    /// The node that answered that it holds this round's token already, if there is one.
    pub(crate) fn twin(&self) -> Option<usize> {
        self.answers.iter().position(|answer| matches!(answer, Some(Ok(Reply::Own))))
    }

    /// Nodes that granted this round's token are different servers.
    pub(crate) fn prove(&self) {
        for (node, answer) in self.answers.iter().enumerate() {
            if answer.as_ref().is_some_and(is_counted) {
                self.driver.identities.proven(node);
            }
        }
    }

    /// Takes in the answers that are there already, so that an error names them too.
    pub(crate) fn catch_up(&mut self) {
        while let Some(Some(event)) = self.next_event().now_or_never() {
            self.handle(event);
        }
    }

    /// Waits for one answer; `None` if there is none to come.
    async fn next_event(&mut self) -> Option<Event> {
        tokio::select! {
            biased;
            Some((node, answered)) = self.raises.next() => {
                Some(Event::Raised { node, stored: matches!(answered, Ok(Reply::Yes)) })
            }
            Some((node, answered)) = self.votes.next() => {
                let vote = vote(&answered);
                self.answers[node] = Some(answered);
                Some(Event::Vote { node, vote })
            }
            else => None,
        }
    }

    /// Takes in one event; returns the decision when it is made.
    pub(crate) fn handle(&mut self, event: Event) -> Option<Outcome> {
        let actions = self.round.handle(clock::now(), event);
        self.carry_out(actions)
    }

    fn carry_out(&mut self, actions: Actions) -> Option<Outcome> {
        if let Some((nodes, fence)) = actions.raise {
            let (sent, patience) = (self.sent, self.node_timeout);
            let (subject, ttl) = (Arc::clone(&self.subject), self.term.ttl);
            let request = Request::Raise { subject, ttl, fence };
            let call = |node| self.driver.call(node, request.clone(), sent, patience);
            self.raises.extend(nodes.iter().map(call));
        }
        self.undo(actions.undo);
        actions.outcome
    }

    /// Takes this round's token back from nodes that may have it. An UNDO is sent when the node
    /// has voted or its deadline has passed, so it is behind the ACQUIRE on their connection.
    fn undo(&self, nodes: NodeSet) {
        let horizon = self.term.gone(clock::now());
        for node in nodes.iter() {
            let request = Request::Release(Arc::clone(&self.subject));
            self.driver.deliver(node, request, self.node_timeout, horizon);
        }
    }
}
