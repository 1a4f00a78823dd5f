//! One round of an acquire on the wire.

use crate::command::answer::{Answered, is_counted, vote};
use crate::command::keys::Keys;
use crate::command::reply::{Refusal, Reply};
use crate::command::request::{Request, Subject, Ticket};
use crate::error::Result;
use crate::lock::driver::Driver;
use crate::lock::held::HeldLease;
use crate::lock::repair::repair;
use crate::lock::waiters::QueueEntry;
use crate::node::exchange::{PackedRequest, Peer};
use crate::node::fanout::{FanOut, Received};
use crate::runtime::clock;
use crate::runtime::random;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorlock_protocol::{Actions, Event, Loss, Moment, NodeSet, Outcome, Round, Term, Turns, Vote};
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What a round is for.
pub(crate) struct RoundOptions<'a> {
    pub(crate) keys: &'a Arc<[Keys]>,
    pub(crate) term: Term,
    pub(crate) node_timeout: Duration,
    pub(crate) turns: Turns,
    /// The waiter, if it listens for calls.
    pub(crate) queue_entry: Option<QueueEntry>,
}

/// A round on the wire.
pub(crate) struct RunningRound {
    driver: Arc<Driver>,
    pub(crate) subject: Arc<Subject>,
    undo: Undo,
    pub(crate) sent: Moment,
    round: Round,
    pub(crate) answers: Vec<Option<Answered>>,
    votes: FanOut,
    raises: FuturesUnordered<BoxFuture<'static, (usize, Answered)>>,
}

/// What it takes to undo a round.
struct Undo {
    subject: Arc<Subject>,
    term: Term,
    node_timeout: Duration,
    queue_entry: Option<QueueEntry>,
}

impl RunningRound {
    /// Sends ACQUIRE to all nodes.
    pub(crate) fn start(driver: &Arc<Driver>, options: RoundOptions<'_>) -> Result<Self> {
        let RoundOptions { keys, term, node_timeout, turns, queue_entry } = options;
        let driver = Arc::clone(driver);
        let waiter = queue_entry.as_ref().map(|entry| Arc::clone(&entry.waiter));
        let subject = Arc::new(Subject { keys: Arc::clone(keys), token: random::token()?, waiter });
        let sent = clock::now();
        // After `sent`: a node that counts from a moment on is met by later proposals only.
        let proposal = driver.clocks.proposal(clock::now());
        // An answer after the end of the validity would be of no use.
        let node_timeout = node_timeout.min(term.end(sent).since(sent));
        let acquire = |ticket| {
            let (subject, ttl) = (Arc::clone(&subject), term.ttl);
            PackedRequest::from(Request::Acquire { subject, ttl, proposal, ticket, turns })
        };
        let mut votes = driver.fan_out(sent, node_timeout);
        let everywhere = acquire(None);
        for node in &driver.nodes {
            match ticket(queue_entry.as_ref(), node.position()) {
                None => votes.send(node, &everywhere),
                ticket => votes.send(node, &acquire(ticket)),
            }
        }
        Ok(Self {
            votes,
            raises: FuturesUnordered::new(),
            answers: vec![None; driver.nodes.len()],
            round: Round::new(driver.quorum, sent, term),
            undo: Undo { subject: Arc::clone(&subject), term, node_timeout, queue_entry },
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

    /// The nodes that have granted this round's token so far.
    pub(crate) fn granted(&self) -> NodeSet {
        self.round.granted()
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
    /// and are undone otherwise. For votes after the nodes' deadlines, that goes on in the background.
    pub(crate) async fn finish(mut self, lease: Option<Arc<HeldLease>>) {
        while let Some(event) = self.next_event().await {
            let is_released = match &lease {
                Some(lease) => lease.wait_if_released().await,
                None => true,
            };
            if is_released {
                self.handle(Event::Abandon);
            }
            self.handle(event);
            if let Some(lease) = &lease {
                lease.record_vote(event, self.round.holders());
            }
        }
        let driver = Arc::clone(&self.driver);
        if self.votes.has_late() {
            driver.detach(self.collect_late_votes(lease.clone()));
        }
        if let Some(lease) = lease {
            repair(&driver, lease).await;
        }
    }

    /// Takes in the votes that come after the nodes' deadlines, until there are none to come or the
    /// client is closed or gone. It may wait for ever, for a node that is frozen, and so keeps neither the driver
    /// nor the lease.
    fn collect_late_votes(
        self,
        lease: Option<Arc<HeldLease>>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let Self { driver, undo, mut round, mut votes, .. } = self;
        let stop_late = driver.stop_late.clone();
        let driver = Arc::downgrade(&driver);
        let lease = lease.map(|lease| Arc::downgrade(&lease));
        async move {
            while let Some(Some((node, answered))) =
                stop_late.run_until_cancelled(votes.late()).await
            {
                let held = lease.as_ref().and_then(Weak::upgrade);
                // A lease that is gone was released.
                let is_released = match &held {
                    Some(held) => held.wait_if_released().await,
                    None => true,
                };
                let Some(driver) = driver.upgrade() else { return };
                if is_released {
                    let _ = round.handle(clock::now(), Event::Abandon);
                }
                let vote = vote(&answered);
                let event = Event::Late { node, vote };
                let actions = round.handle(clock::now(), event);
                undo.undo(&driver, actions.undo);
                undo.leave_if_joined_late(&driver, node, vote);
                if let Some(held) = held {
                    held.record_vote(event, round.holders());
                }
            }
        }
    }

    /// Waits for the answers that the decision did not wait for.
    pub(crate) async fn collect_remaining_votes(&mut self) {
        while let Some(event) = self.next_event().await {
            self.handle(event);
        }
    }

    /// The node that answered that it holds this round's token already, if there is one, with the subject
    /// of the round.
    pub(crate) fn duplicate(&self) -> Option<(usize, Arc<Subject>)> {
        let is_duplicate = |answer: &Option<Answered>| matches!(answer, Some(Ok(Reply::Own)));
        let node = self.answers.iter().position(is_duplicate)?;
        Some((node, Arc::clone(&self.subject)))
    }

    /// Nodes that granted this round's token are different servers.
    pub(crate) fn mark_distinct(&self) {
        for (node, answer) in self.answers.iter().enumerate() {
            if answer.as_ref().is_some_and(is_counted) {
                self.driver.identities.proven(node);
            }
        }
    }

    /// Takes in the answers that are there already, so that an error names them too.
    pub(crate) fn take_ready_answers(&mut self) {
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
            Some(Received { node, answered, in_order }) = self.votes.received() => {
                if let Ok(
                    Reply::Held(Refusal { clock, .. }) | Reply::Granted { clock, .. },
                ) = answered
                {
                    self.driver.clocks.saw(node, clock);
                }
                let vote = vote(&answered);
                self.answers[node] = Some(answered);
                if !in_order {
                    self.undo.leave_if_joined_late(&self.driver, node, vote);
                }
                Some(Event::Vote { node, vote, in_order })
            }
            else => None,
        }
    }

    /// Takes in one event; returns the decision when it is made.
    pub(crate) fn handle(&mut self, event: Event) -> Option<Outcome> {
        let actions = self.round.handle(clock::now(), event);
        self.apply(actions)
    }

    fn apply(&mut self, actions: Actions) -> Option<Outcome> {
        if let Some((nodes, fence)) = actions.raise {
            let (sent, patience) = (self.sent, self.undo.node_timeout);
            let (subject, ttl) = (Arc::clone(&self.subject), self.undo.term.ttl);
            let request = Request::Raise { subject, ttl, fence };
            let raise = |node| {
                let call = self.driver.call(node, request.clone(), sent, patience);
                async move { (node, call.await) }.boxed()
            };
            self.raises.extend(nodes.iter().map(raise));
        }
        self.undo.undo(&self.driver, actions.undo);
        actions.outcome
    }
}

impl Undo {
    /// Takes this round's token back from nodes that may have it. An UNDO is sent when the node
    /// has voted or its deadline has passed, so it is behind the ACQUIRE on their connection.
    fn undo(&self, driver: &Driver, nodes: NodeSet) {
        let horizon = self.term.gone(clock::now());
        for node in nodes.iter() {
            let (subject, turns) = (Arc::clone(&self.subject), driver.turns());
            let ticket = ticket(self.queue_entry.as_ref(), node);
            let request = Request::Release { subject, ticket, turns };
            driver.deliver(node, request, self.node_timeout, horizon);
        }
    }

    /// A node has answered an ACQUIRE behind what was sent to it later. If it refused, the waiter joined
    /// its queue, perhaps after it had left.
    fn leave_if_joined_late(&self, driver: &Driver, node: usize, vote: Vote) {
        let is_gone = |entry: &QueueEntry| entry.alive.strong_count() == 0;
        if matches!(vote, Vote::Held { .. }) && self.queue_entry.as_ref().is_some_and(is_gone) {
            self.undo(driver, [node].into_iter().collect());
        }
    }
}

fn ticket(queue_entry: Option<&QueueEntry>, node: usize) -> Option<Ticket> {
    let is_queued =
        |entry: &&QueueEntry| entry.nodes.contains(node) && entry.alive.strong_count() > 0;
    queue_entry.filter(is_queued).map(|entry| entry.ticket)
}
