//! One round of an acquire on the wire.

use crate::answer::{Answered, is_counted, vote};
use crate::asking::{Asking, Parcel};
use crate::clock;
use crate::driver::Driver;
use crate::error::Result;
use crate::heal::spread;
use crate::held::Held;
use crate::protocol::{Actions, Event, Loss, Moment, NodeSet, Outcome, Round, Term, Turns};
use crate::request::{Keys, Refusal, Reply, Request, Subject, Ticket};
use crate::token;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What a round is for.
pub(crate) struct Aim<'a> {
    pub(crate) keys: &'a Arc<[Keys]>,
    pub(crate) term: Term,
    pub(crate) node_timeout: Duration,
    pub(crate) turns: Turns,
    /// The waiter, if it listens for calls.
    pub(crate) queued: Option<Queued>,
}

/// Where a waiter stands in the nodes' queues if the round is lost.
pub(crate) struct Queued {
    pub(crate) waiter: Arc<str>,
    pub(crate) ticket: Ticket,
    /// On these nodes.
    pub(crate) nodes: NodeSet,
    /// Gone when it does not wait any more.
    pub(crate) waits: Weak<()>,
}

/// A round on the wire.
pub(crate) struct Running {
    driver: Arc<Driver>,
    pub(crate) subject: Arc<Subject>,
    term: Term,
    node_timeout: Duration,
    queued: Option<Queued>,
    pub(crate) sent: Moment,
    round: Round,
    pub(crate) answers: Vec<Option<Answered>>,
    votes: Asking,
    raises: FuturesUnordered<BoxFuture<'static, (usize, Answered)>>,
}

impl Running {
    /// Sends ACQUIRE to all nodes.
    pub(crate) fn start(driver: &Arc<Driver>, aim: Aim<'_>) -> Result<Self> {
        let Aim { keys, term, node_timeout, turns, queued } = aim;
        let driver = Arc::clone(driver);
        let waiter = queued.as_ref().map(|queued| Arc::clone(&queued.waiter));
        let subject = Arc::new(Subject { keys: Arc::clone(keys), token: token::token()?, waiter });
        let sent = clock::now();
        // After `sent`: a node that counts from a moment on is met by later proposals only.
        let proposal = clock::wall_clock_micros();
        // An answer after the end of the validity would be of no use.
        let node_timeout = node_timeout.min(term.end(sent).since(sent));
        let acquire = |ticket| {
            let (subject, ttl) = (Arc::clone(&subject), term.ttl);
            Parcel::from(Request::Acquire { subject, ttl, proposal, ticket, turns })
        };
        let mut votes = driver.ask(sent, node_timeout);
        let everywhere = acquire(None);
        for node in &driver.nodes {
            match ticket(queued.as_ref(), node.position()) {
                None => votes.ask(node, &everywhere),
                ticket => votes.ask(node, &acquire(ticket)),
            }
        }
        Ok(Self {
            votes,
            raises: FuturesUnordered::new(),
            answers: vec![None; driver.nodes.len()],
            round: Round::new(driver.quorum, sent, term),
            term,
            node_timeout,
            queued,
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

    /// What those nodes told that refused.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = Refusal> {
        self.answers.iter().flatten().filter_map(|answered| match answered {
            Ok(Reply::Held(refusal)) => Some(*refusal),
            _ => None,
        })
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
                if let Ok(Reply::Held(Refusal { clock, .. })) = answered {
                    self.driver.waiters.saw_clock(node, clock);
                }
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
            let raise = |node| {
                let call = self.driver.call(node, request.clone(), sent, patience);
                async move { (node, call.await) }.boxed()
            };
            self.raises.extend(nodes.iter().map(raise));
        }
        self.undo(actions.undo);
        actions.outcome
    }

    /// Takes this round's token back from nodes that may have it. An UNDO is sent when the node
    /// has voted or its deadline has passed, so it is behind the ACQUIRE on their connection.
    fn undo(&self, nodes: NodeSet) {
        let horizon = self.term.gone(clock::now());
        for node in nodes.iter() {
            let (subject, turns) = (Arc::clone(&self.subject), self.driver.turns());
            let ticket = ticket(self.queued.as_ref(), node);
            let request = Request::Release { subject, ticket, turns };
            self.driver.deliver(node, request, self.node_timeout, horizon);
        }
    }
}

fn ticket(queued: Option<&Queued>, node: usize) -> Option<Ticket> {
    let stays = |queued: &&Queued| queued.nodes.contains(node) && queued.waits.strong_count() > 0;
    queued.filter(stays).map(|queued| queued.ticket)
}
