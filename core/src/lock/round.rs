//! One round of an acquire: sends ACQUIRE, or TRANSFER, and RAISE, counts the votes, and undoes a lost round.
//!
//! The protocol's `Round` decides; this code turns answers into its events and its actions into requests. A
//! lost round leaves no key on a node that can be reached, so every running round must be finished with
//! [`RunningRound::finish`]. `acquire.rs` is the only caller.

use crate::command::answer::{Answered, Failure, is_counted, vote};
use crate::command::keys::Keys;
use crate::command::reply::{Elsewhere, Refusal, Reply};
use crate::command::request::{Request, Subject, Ticket};
use crate::command::token::Token;
use crate::error::Result;
use crate::lock::driver::Driver;
use crate::lock::handover::{Giver, release_giver};
use crate::lock::held::HeldLease;
use crate::lock::repair::repair;
use crate::lock::subscriber::Notification;
use crate::lock::waiters::QueueEntry;
use crate::node::exchange::{PackedRequest, Peer};
use crate::node::fanout::{FanOut, Received};
use crate::runtime::clock;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorlock_protocol::{Actions, Event, Loss, Moment, NodeSet, Outcome, Round, Term, Turns, Vote};
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The settings of a round.
pub(crate) struct RoundOptions<'a> {
    pub(crate) keys: &'a Arc<[Keys]>,
    /// The lease to adopt, with TRANSFER instead of ACQUIRE; `None` for any other round.
    pub(crate) giver: Option<&'a Giver>,
    pub(crate) term: Term,
    pub(crate) node_timeout: Duration,
    pub(crate) turns: Turns,
    /// The waiter's entry for the queues of the nodes that refuse; `None` if the waiter is not registered for
    /// notifications.
    pub(crate) queue_entry: Option<QueueEntry>,
    /// The name in the token; empty for none.
    pub(crate) holder: &'a str,
}

/// A round under way.
pub(crate) struct RunningRound {
    driver: Arc<Driver>,
    pub(crate) subject: Arc<Subject>,
    undo: Undo,
    pub(crate) sent: Moment,
    round: Round,
    pub(crate) answers: Vec<Option<Answered>>,
    votes: FanOut,
    raises: Option<FuturesUnordered<BoxFuture<'static, (usize, Answered)>>>,
}

/// The settings needed to undo a round.
struct Undo {
    subject: Arc<Subject>,
    term: Term,
    node_timeout: Duration,
    queue_entry: Option<QueueEntry>,
}

impl RunningRound {
    /// Sends ACQUIRE with a fresh token to all nodes, or TRANSFER to those that may vote on an adoption. Fails only if
    /// no random token can be generated.
    pub(crate) fn start(driver: &Arc<Driver>, options: RoundOptions<'_>) -> Result<Self> {
        let RoundOptions { keys, giver, term, node_timeout, turns, queue_entry, holder } = options;
        let driver = Arc::clone(driver);
        let waiter = queue_entry.as_ref().map(|entry| Arc::clone(&entry.waiter));
        let token = Token::new(holder)?;
        let subject = Subject::new(Arc::clone(keys), token, waiter);
        let subject =
            Arc::new(Subject { giver: giver.map(|giver| giver.given.clone()), ..subject });
        let sent = clock::now();
        // Must be read after `sent`: votes of a restarted node count in rounds that were sent after
        // a certain moment, and the fence proposals of those rounds must be later than that moment.
        let proposal = driver.clocks.proposal(clock::now());
        // A vote after the validity end is of no use.
        let node_timeout = node_timeout.min(term.end(sent).since(sent));
        let acquire = |ticket| {
            let subject = Arc::clone(&subject);
            let ttl = term.ttl;
            PackedRequest::from(match giver {
                None => Request::Acquire { subject, ttl, proposal, ticket, turns },
                Some(_) => Request::Transfer { subject, ttl, proposal },
            })
        };
        #[cfg(test)]
        crate::lock::steps::began(&subject, sent, term);
        let mut votes = driver.fan_out(sent, node_timeout);
        let everywhere = acquire(None);
        let is_asked = |node: usize| giver.is_none_or(|giver| giver.voters.contains(node));
        for node in driver.nodes.iter().filter(|node| is_asked(node.position())) {
            match ticket(queue_entry.as_ref(), node.position()) {
                None => votes.send(node, &everywhere),
                ticket => votes.send(node, &acquire(ticket)),
            }
        }
        let mut running = Self {
            votes,
            raises: None,
            answers: vec![None; driver.nodes.len()],
            round: Round::new(driver.quorum, sent, term),
            undo: Undo { subject: Arc::clone(&subject), term, node_timeout, queue_entry },
            sent,
            subject,
            driver,
        };
        if let Some(giver) = giver {
            running.leave_out(giver);
        }
        Ok(running)
    }

    /// Records the nodes that may not vote on the adoption.
    fn leave_out(&mut self, giver: &Giver) {
        for node in (0..self.answers.len()).filter(|node| !giver.voters.contains(*node)) {
            let failure = Failure::unreachable(
                "it had not answered all requests for the lease when that was detached",
            );
            self.answers[node] = Some(Err(failure));
            // The fan-out ends without a decision if too few nodes are left.
            let _ = self.handle(Event::Vote { node, vote: Vote::Refused, in_order: true });
        }
    }

    /// Runs the round until it is decided. Cancel-safe: a later call continues.
    pub(crate) async fn decide(&mut self) -> Outcome {
        while let Some(event) = self.next_event().await {
            if let Some(outcome) = self.handle(event) {
                return outcome;
            }
        }
        // A fallback: the last node's vote or timeout decides the round at the latest.
        Outcome::Lost(Loss::NoQuorum)
    }

    /// Whether the round was lost because connections turned out to be closed, and another one could win at once.
    pub(crate) fn could_win_again(&self) -> bool {
        let is_lost = |node: &usize| matches!(&self.answers[*node], Some(Err(failure)) if failure.is_lost_connection());
        self.round.could_win_again((0..self.answers.len()).filter(is_lost).collect())
    }

    /// Returns the votes that have arrived so far.
    pub(crate) fn votes(&self) -> &Round {
        &self.round
    }

    /// Returns the refusals received so far, each with its node.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (usize, &Refusal)> {
        self.answers.iter().enumerate().filter_map(|(node, answered)| match answered {
            Some(Ok(Reply::Held(refusal))) => Some((node, refusal)),
            _ => None,
        })
    }

    /// Handles the votes that arrive after the decision. While `lease` is held, grants join it; otherwise
    /// grants are undone. Votes that miss their deadline are handled in the background. If there is a lease,
    /// also repairs it.
    pub(crate) async fn finish(mut self, lease: Option<Arc<HeldLease>>) {
        let leaves = lease.is_some() && self.subject.permit().is_some();
        for node in (0..self.answers.len()).filter(|_| leaves) {
            self.leave_if_refused(node);
        }
        while let Some(event) = self.next_event().await {
            if let Event::Vote { node, .. } = event {
                if leaves {
                    self.leave_if_refused(node);
                }
                if let (None, Some(answered)) = (&lease, &self.answers[node]) {
                    self.undo.pass_on_offer(node, answered);
                }
            }
            let is_released = match &lease {
                Some(lease) if lease.state().lease.is_released() => {
                    self.cancel_unsent();
                    lease.wait_if_released().await
                }
                Some(_) => false,
                None => true,
            };
            if is_released {
                self.handle(Event::Abandon);
            }
            self.handle(event);
            if let Some(lease) = &lease {
                lease.record_vote(event, &self.round);
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

    /// Gives up the requests that wait for a connection. Later requests to their nodes would wait behind them, even while
    /// nothing polls the round.
    pub(crate) fn cancel_unsent(&mut self) {
        self.votes.cancel_unsent();
    }

    /// Leaves the queue of a node that refused permits, although the round was won: waiters of other slots do not wait
    /// for the end of this lease. A lock's waiter leaves with the release.
    fn leave_if_refused(&self, node: usize) {
        if let Some(answered) = &self.answers[node] {
            self.undo.leave_if_joined_late(&self.driver, node, answered);
        }
    }

    /// Handles the votes that arrive after their deadline, until none is left or the client is closed or
    /// dropped.
    ///
    /// A frozen node may never answer, so the task holds only weak references to the driver and the lease.
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
                // The lease is gone: it was released, or it expired after its handle was dropped.
                let is_released = match &held {
                    Some(held) => held.wait_if_released().await,
                    None => true,
                };
                let Some(driver) = driver.upgrade() else { return };
                if is_released {
                    let _ = round.handle(clock::now(), Event::Abandon);
                    #[cfg(test)]
                    crate::lock::steps::finished(&undo.subject);
                }
                let vote = vote(&answered);
                let event = Event::Late { node, vote };
                let actions = round.handle(clock::now(), event);
                undo.undo(&driver, actions.undo, round.has_won());
                undo.leave_if_joined_late(&driver, node, &answered);
                undo.pass_on_offer(node, &answered);
                if let Some(held) = held {
                    held.record_vote(event, &round);
                }
            }
        }
    }

    /// Waits for the votes that the decision did not need. If the round was won, they join the lease.
    pub(crate) async fn collect_remaining_votes(&mut self, lease: Option<&HeldLease>) {
        while let Some(event) = self.next_event().await {
            self.handle(event);
            if let Some(lease) = lease {
                lease.record_vote(event, &self.round);
            }
        }
    }

    /// Releases what this round of an adoption has given back, or may yet give back. Called when no adopter can win the
    /// lease any more. The keys would otherwise stay for the rest of `within`, if the winner looked at the node before.
    pub(crate) fn release_given_back(&self) {
        let driver = &self.driver;
        let subject = &self.subject;
        let Undo { term, node_timeout, .. } = self.undo;
        let Some((release, gone)) = release_giver(subject, term, driver.turns()) else { return };
        let undo = Request::release(subject, driver.turns());
        for node in self.round.holders().iter() {
            // After the first one, a GIVE BACK that is still under way finds nothing to give back.
            let requests = [undo.clone(), release.clone()];
            driver.deliver_in_turn(node, requests, node_timeout, gone);
        }
    }

    /// Returns a node that already held this round's token before it received the ACQUIRE, and the round's
    /// subject. Such a node is a duplicate of another one.
    pub(crate) fn duplicate(&self) -> Option<(usize, Arc<Subject>)> {
        let is_duplicate = |answer: &Option<Answered>| matches!(answer, Some(Ok(Reply::Own)));
        let node = self.answers.iter().position(is_duplicate)?;
        Some((node, Arc::clone(&self.subject)))
    }

    /// Records that the nodes whose votes count are different servers.
    pub(crate) fn mark_distinct(&self) {
        for (node, answer) in self.answers.iter().enumerate() {
            if answer.as_ref().is_some_and(is_counted) {
                self.driver.identities.proven(node);
            }
        }
    }

    /// Handles the answers that have already arrived, so that an error contains them.
    pub(crate) fn take_ready_answers(&mut self) {
        while let Some(Some(event)) = self.next_event().now_or_never() {
            self.handle(event);
        }
    }

    /// Waits for one answer; `None` once every node has answered or timed out.
    async fn next_event(&mut self) -> Option<Event> {
        tokio::select! {
            biased;
            Some((node, answered)) = async { self.raises.as_mut()?.next().await } => {
                Some(Event::Raised { node, stored: matches!(answered, Ok(Reply::Yes)) })
            }
            Some(Received { node, answered, in_order, .. }) = self.votes.received() => {
                if let Ok(
                    Reply::Held(Refusal { clock, .. })
                    | Reply::NotTransferred(Elsewhere { clock, .. })
                    | Reply::Granted { clock, .. },
                ) = answered
                {
                    self.driver.clocks.saw(node, clock);
                }
                let vote = vote(&answered);
                if !in_order {
                    self.undo.leave_if_joined_late(&self.driver, node, &answered);
                }
                self.answers[node] = Some(answered);
                Some(Event::Vote { node, vote, in_order })
            }
            else => None,
        }
    }

    /// Passes one event to the protocol and carries out its actions. Returns the decision if the
    /// event leads to one.
    pub(crate) fn handle(&mut self, event: Event) -> Option<Outcome> {
        let actions = self.round.handle(clock::now(), event);
        #[cfg(test)]
        crate::lock::steps::handled(&self.subject, event, &actions);
        self.apply(actions)
    }

    fn apply(&mut self, actions: Actions) -> Option<Outcome> {
        if let Some((nodes, fence)) = actions.raise {
            let sent = self.sent;
            let patience = self.undo.node_timeout;
            let subject = Arc::clone(&self.subject);
            let ttl = self.undo.term.ttl;
            let request = Request::Raise { subject, ttl, fence };
            let raise = |node| {
                let call = self.driver.call(node, request.clone(), sent, patience);
                async move { (node, call.await) }.boxed()
            };
            self.raises.get_or_insert_default().extend(nodes.iter().map(raise));
        }
        self.undo.undo(&self.driver, actions.undo, self.round.has_won());
        actions.outcome
    }
}

impl Undo {
    /// Deletes this round's token on nodes that may hold it. The protocol asks for that only after a node has
    /// voted or reached its deadline, so the request follows the ACQUIRE on the connection.
    ///
    /// A lost adoption gives the keys back instead, for other adopters. A lease that was won (`has_won`) and
    /// released gives nothing back.
    fn undo(&self, driver: &Driver, nodes: NodeSet, has_won: bool) {
        let horizon = self.term.gone(clock::now());
        for node in nodes.iter() {
            let subject = Arc::clone(&self.subject);
            let turns = driver.turns();
            let gives_back = subject.giver.is_some() && !has_won;
            let entry = self.queue_entry.clone();
            let request = move || match entry {
                _ if gives_back => Request::GiveBack(subject),
                Some(entry) if has_gone_on(&entry) => {
                    let keys = Arc::clone(&subject.keys);
                    let token = subject.token.clone();
                    Request::release(&Arc::new(Subject::new(keys, token, None)), turns)
                }
                entry => Request::release_queued(&subject, ticket(entry.as_ref(), node), turns),
            };
            driver.deliver_made(node, request, self.node_timeout, horizon);
        }
    }

    /// Tells the waiter which slots a node offered it with a refusal that came after the decision.
    fn pass_on_offer(&self, node: usize, answered: &Answered) {
        if let (Ok(Reply::Held(refusal)), Some(entry)) = (answered, &self.queue_entry)
            && !refusal.permits.slots.is_empty()
        {
            let slots = refusal.permits.slots.clone();
            // Fails if the acquire has ended.
            let _ = entry.sender.try_send(Notification::Offered { node, slots });
        }
    }

    /// Handles the answer of a node that processed its ACQUIRE after later requests. If the node refused, the
    /// ACQUIRE may have put the waiter back into a queue that it had left, so the waiter leaves again.
    fn leave_if_joined_late(&self, driver: &Driver, node: usize, answered: &Answered) {
        let is_gone = |entry: &QueueEntry| entry.alive.strong_count() == 0;
        if !has_refused(answered) || !self.queue_entry.as_ref().is_some_and(is_gone) {
            return;
        }
        // With a fresh token, so that it releases nothing: the round's lease may be held, and HEAL may have
        // set its key on the node since.
        let Ok(token) = Token::new("") else { return };
        let keys = Arc::clone(&self.subject.keys);
        let waiter = self.subject.waiter.clone();
        let subject = Arc::new(Subject::new(keys, token, waiter));
        let horizon = clock::now().plus(driver.turns().memory);
        driver.deliver(
            node,
            Request::release(&subject, driver.turns()),
            self.node_timeout,
            horizon,
        );
    }
}

/// Whether the node has refused because others hold the resource, so the waiter is in its queue. The vote of a guarded node
/// does not count, and does not say that.
fn has_refused(answered: &Answered) -> bool {
    match answered {
        Ok(Reply::Uncounted(reply, _)) => matches!(**reply, Reply::Held(_)),
        answered => matches!(answered, Ok(Reply::Held(_))),
    }
}

/// Whether the waiter has started another round. A node may already have granted that, so the undo of this one must not put
/// the waiter back into the queue.
fn has_gone_on(entry: &QueueEntry) -> bool {
    entry.alive.strong_count() > 0 && entry.round.strong_count() == 0
}

/// Returns the ticket to send to a node; `None` if the waiter does not queue there or has left.
fn ticket(queue_entry: Option<&QueueEntry>, node: usize) -> Option<Ticket> {
    let is_queued =
        |entry: &&QueueEntry| entry.nodes.contains(node) && entry.alive.strong_count() > 0;
    queue_entry.filter(is_queued).map(|entry| entry.ticket)
}
