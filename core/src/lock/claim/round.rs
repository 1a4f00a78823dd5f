//! One round of an acquire or upgrade: sends ACQUIRE or TRANSFER, then RAISE if needed.
//!
//! This code turns the nodes' answers into events. The protocol's `Claim` counts the votes and decides whether the
//! round is won; `claim.rs` sends the requests that delete keys. Every round must be finished with
//! [`RunningRound::finish`], because a lost round must not leave a key on a node that can be reached. `acquire.rs` and
//! `upgrade.rs` are the only callers.

use crate::error::Result;
use crate::lock::claim::extend::repair;
use crate::lock::claim::handover::Giver;
use crate::lock::claim::held::{Grant, HeldLease};
use crate::lock::claim::{Claim, Cleanup, Commands, ticket};
use crate::lock::driver::Driver;
use crate::lock::waiting::subscriber::Notification;
use crate::lock::waiting::waiters::QueueEntry;
use crate::node::exchange::{PackedRequest, Peer};
use crate::node::fanout::{FanOut, Received};
use crate::runtime::clock;
use crate::wire::answer::{Answered, Failure, is_counted, vote};
use crate::wire::keys::Keys;
use crate::wire::reply::{Elsewhere, Refusal, Reply};
use crate::wire::request::{Request, Subject};
use crate::wire::token::Token;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorlock_protocol::{Event, Loss, Moment, NodeSet, Origin, Outcome, Term, Turns, Vote};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) struct RoundOptions<'a> {
    pub(crate) keys: &'a Arc<[Keys]>,
    /// The lease that the round takes over with TRANSFER; `None` for a round that sends ACQUIRE.
    pub(crate) giver: Option<&'a Giver>,
    /// The lease that the round upgrades; `None` for a round that is not an upgrade.
    pub(crate) upgraded: Option<Arc<HeldLease>>,
    pub(crate) term: Term,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) node_timeout: Duration,
    pub(crate) turns: Turns,
    /// The waiter's entry for the queues of the nodes that refuse; `None` if no waiter starts the round, or if the
    /// waiter has no entry.
    pub(crate) queue_entry: Option<QueueEntry>,
    /// The holder name for the token; empty if the lease has no name.
    pub(crate) holder: &'a str,
}

/// A round whose requests were sent. Owns the claim until the round is won, and stores the answers.
pub(crate) struct RunningRound {
    driver: Arc<Driver>,
    cleanup: Cleanup,
    pub(crate) sent: Moment,
    owner: Claimant<Arc<HeldLease>>,
    upgraded: Option<Arc<HeldLease>>,
    /// For an adoption: see [`Giver::is_over`].
    is_giver_over: Option<Arc<AtomicBool>>,
    pub(crate) answers: Vec<Option<Answered>>,
    votes: FanOut,
    raises: Option<FuturesUnordered<BoxFuture<'static, (usize, Answered)>>>,
}

/// The owner of a round's claim: the round itself or, after the round is won, the lease `L`.
enum Claimant<L> {
    Round(Claim),
    Lease(L),
}

impl RunningRound {
    /// Sends ACQUIRE with a fresh token to all nodes. If there is a giver, sends TRANSFER instead, to the nodes that
    /// may vote. Fails only if no random token can be generated.
    pub(crate) fn start(driver: &Arc<Driver>, options: RoundOptions<'_>) -> Result<Self> {
        let RoundOptions { keys, giver, upgraded, term, node_timeout, turns, queue_entry, .. } =
            options;
        let driver = Arc::clone(driver);
        // An upgraded reader may still be in the queue of a node that refused the reader's ACQUIRE. Use the reader's
        // name, so that a RELEASE of this round's token also removes the reader from that queue.
        let reader = upgraded.as_ref().and_then(|held| held.subject().waiter.clone());
        let waiter = queue_entry.as_ref().map(|entry| Arc::clone(&entry.waiter)).or(reader);
        let token = Token::new(options.holder)?;
        let subject = Subject::new(Arc::clone(keys), token, waiter);
        let subject =
            Arc::new(Subject { giver: giver.map(|giver| giver.given.clone()), ..subject });
        let sent = clock::now();
        // The proposal must be computed after `sent`. A restarted node's votes count only in rounds that are sent after
        // the end of the node's guard, and the fence proposals of these rounds must be later than that end.
        let proposal = driver.clocks.proposal(clock::now());
        // A vote after the validity end is of no use, so do not wait longer.
        let node_timeout = node_timeout.min(term.end(sent).since(sent));
        let acquire = |ticket| {
            let subject = Arc::clone(&subject);
            let ttl = term.ttl;
            PackedRequest::from(match giver {
                None => Request::Acquire { subject, ttl, proposal, ticket, turns },
                Some(_) => Request::Transfer { subject, ttl, proposal },
            })
        };
        let origin = match (giver, &upgraded) {
            (None, _) => Origin::Acquired,
            (Some(_), None) => Origin::Adopted,
            (Some(_), Some(_)) => Origin::Upgraded,
        };
        let limit = options.max_hold.map(|max_hold| sent.plus(max_hold));
        let mut claim = Claim::new(Arc::clone(&subject), driver.quorum, origin, sent, term, limit);
        if let Some(held) = &upgraded {
            claim.takes_keys_until(held.gone_by());
        }
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
            owner: Claimant::Round(claim),
            cleanup: Cleanup {
                subject,
                term,
                node_timeout,
                queue_entry,
                upgraded: upgraded.as_ref().map(|held| held.subject()),
            },
            upgraded,
            is_giver_over: giver.map(|giver| Arc::clone(&giver.is_over)),
            sent,
            driver,
        };
        if let Some(giver) = giver {
            running.leave_out(giver);
        }
        Ok(running)
    }

    /// Records a refusal for each node that must not vote on the adoption.
    fn leave_out(&mut self, giver: &Giver) {
        for node in self.driver.quorum.all().without(giver.voters).iter() {
            let failure = Failure::unreachable(
                "it had not answered all requests for the lease when that was detached",
            );
            self.answers[node] = Some(Err(failure));
            // The decision can be ignored here: if too few nodes may vote, `decide` returns `NoQuorum` at the end of
            // the fan-out.
            let _ = self.handle(Event::Vote { node, vote: Vote::Refused, in_order: true });
        }
    }

    /// Runs the round until it is won or lost. Cancel-safe: a later call continues the round.
    pub(crate) async fn decide(&mut self) -> Outcome {
        while let Some(event) = self.next_event().await {
            if let Some(outcome) = self.handle(event) {
                return outcome;
            }
        }
        // Reached only if `leave_out` has left too few nodes that may vote. Any other round is decided by its last vote
        // or timeout at the latest.
        Outcome::Lost(Loss::NoQuorum)
    }

    /// Creates the lease of a won round. Grants that arrive from now on count for the lease.
    pub(crate) fn hold(self, grant: Grant) -> (Self, Arc<HeldLease>) {
        let held = match self.owner {
            Claimant::Round(claim) => HeldLease::new(&self.driver, grant, claim),
            Claimant::Lease(held) => held,
        };
        (Self { owner: Claimant::Lease(Arc::clone(&held)), upgraded: None, ..self }, held)
    }

    /// The keys and the token that the requests of this round name.
    pub(crate) fn subject(&self) -> &Arc<Subject> {
        &self.cleanup.subject
    }

    /// Whether the round was lost because connections turned out to be closed, and another round could win at once.
    pub(crate) fn could_win_again(&self) -> bool {
        let is_lost = |node: &usize| matches!(&self.answers[*node], Some(Err(failure)) if failure.is_lost_connection());
        let Claimant::Round(claim) = &self.owner else { return false };
        let lost = (0..self.answers.len()).filter(is_lost).collect();
        claim.round().is_some_and(|round| round.could_win_again(lost))
    }

    /// Handles the votes that arrive after the decision. A grant counts for the lease while the lease is held, and is
    /// undone otherwise. A background task handles the votes that miss their deadline. Finally repairs the lease, if
    /// there is one.
    pub(crate) async fn finish(mut self) {
        let lease = match &self.owner {
            Claimant::Lease(held) => Some(Arc::clone(held)),
            Claimant::Round(_) => None,
        };
        if lease.is_none() {
            self.handle(Event::Abandon);
        }
        let leaves = lease.is_some() && self.subject().permit().is_some();
        for node in (0..self.answers.len()).filter(|_| leaves) {
            self.leave_if_refused(node);
        }
        while let Some(event) = self.next_event().await {
            if let Event::Vote { node, .. } = event {
                if leaves {
                    self.leave_if_refused(node);
                }
                if let (None, Some(answered)) = (&lease, &self.answers[node]) {
                    pass_on_offer(&self.cleanup, node, answered);
                }
            }
            if lease.as_ref().is_some_and(|lease| lease.is_released()) {
                self.cancel_unsent();
            }
            self.handle(event);
        }
        let driver = Arc::clone(&self.driver);
        if self.votes.has_late() {
            driver.detach(self.collect_late_votes());
        }
        if let Some(lease) = lease {
            repair(&driver, lease).await;
        }
    }

    /// Cancels the requests that still wait for a connection, so that later requests need not wait behind them.
    pub(crate) fn cancel_unsent(&mut self) {
        self.votes.cancel_unsent();
    }

    /// If a node refused the permits of this won round, leaves the queue of that node. Otherwise, waiters for other
    /// slots would wait behind this waiter until the end of its lease. A waiter for a lock leaves the queue only when
    /// the lease is released.
    fn leave_if_refused(&self, node: usize) {
        if let Some(answered) = &self.answers[node] {
            leave_if_joined_late(&self.cleanup, &self.driver, node, answered);
        }
    }

    /// Handles the votes that arrive after their deadline. Ends when no vote can arrive any more, or when the client is
    /// closed or dropped.
    ///
    /// A frozen node may never answer, so the task holds only weak references to the driver and the leases.
    fn collect_late_votes(self) -> impl Future<Output = ()> + Send + use<> {
        let Self { driver, cleanup, owner, upgraded, is_giver_over, mut votes, .. } = self;
        let stop_late = driver.stop_late.clone();
        let driver = Arc::downgrade(&driver);
        let mut owner = match owner {
            Claimant::Round(claim) => Claimant::Round(claim),
            Claimant::Lease(held) => Claimant::Lease(forget(&held)),
        };
        let upgraded = upgraded.map(|held| forget(&held));
        async move {
            while let Some(Some((node, answered))) =
                stop_late.run_until_cancelled(votes.late()).await
            {
                let Some(driver) = driver.upgrade() else { return };
                let event = Event::Late { node, vote: vote(&answered) };
                match &mut owner {
                    Claimant::Round(claim) => {
                        let held = upgraded.as_ref().and_then(|(held, _)| held.upgrade());
                        // The fate must be read after `Weak::upgrade` has returned `None`. In the other order, the
                        // lease could be deleted and dropped between the two reads. This code would then miss the
                        // deletion, and could give keys back to a deleted lease.
                        let is_deleted = held.is_none()
                            && upgraded.as_ref().is_some_and(|(_, grant)| grant.fate.is_deleted());
                        let is_over = is_deleted || is_set(is_giver_over.as_deref());
                        let _ = handle(claim, &driver, &cleanup, (held.as_ref(), is_over), event);
                    }
                    Claimant::Lease((held, grant)) => match held.upgrade() {
                        Some(held) => held.handle(event),
                        None if grant.fate.is_elsewhere() => {}
                        None => release_forgotten(&driver, &cleanup, event),
                    },
                }
                leave_if_joined_late(&cleanup, &driver, node, &answered);
                pass_on_offer(&cleanup, node, &answered);
            }
        }
    }

    /// Waits for the votes that the decision did not need. If the round was won, the grants among these votes count for
    /// the lease.
    pub(crate) async fn collect_remaining_votes(&mut self) {
        while let Some(event) = self.next_event().await {
            self.handle(event);
        }
    }

    /// Releases the giver's keys that GIVE BACK of this lost round has restored or may still restore. Called when no
    /// adopter can win the lease any more. Without this release, a node that receives the GIVE BACK after the winner's
    /// requests would keep the keys for the rest of `within`.
    pub(crate) fn release_given_back(&mut self) {
        if let Claimant::Round(claim) = &mut self.owner {
            self.cleanup.run(&self.driver, claim.gone_by(), claim.end_giver());
        }
    }

    /// Ends the shared lease because this round of its upgrade was won, and returns `true`. If the shared lease had
    /// ended before, gives back the keys of the upgrade and returns `false`.
    pub(crate) fn end_upgraded(&mut self) -> bool {
        let (Claimant::Round(claim), Some(upgraded)) = (&mut self.owner, &self.upgraded) else {
            return false;
        };
        let Err(commands) = upgraded.end_for_upgrade(claim) else { return true };
        let _ = carry_out(claim, &self.driver, &self.cleanup, Some(upgraded), commands);
        false
    }

    /// Returns a duplicate node and the round's subject; `None` if no answer shows a duplicate. A node that held this
    /// round's token before it received the ACQUIRE is the same server as another node.
    pub(crate) fn duplicate(&self) -> Option<(usize, Arc<Subject>)> {
        let is_duplicate = |answer: &Option<Answered>| matches!(answer, Some(Ok(Reply::Own)));
        let node = self.answers.iter().position(is_duplicate)?;
        Some((node, Arc::clone(self.subject())))
    }

    /// Records that the nodes whose votes count are different servers.
    pub(crate) fn mark_distinct(&self) {
        for (node, answer) in self.answers.iter().enumerate() {
            if answer.as_ref().is_some_and(is_counted) {
                self.driver.identities.proven(node);
            }
        }
    }

    /// Handles the answers that have already arrived, so that an error can report them.
    pub(crate) fn take_ready_answers(&mut self) {
        while let Some(Some(event)) = self.next_event().now_or_never() {
            self.handle(event);
        }
    }

    /// Waits for an answer, and stores it. Returns the event; `None` if every node has already answered or timed out.
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
                    leave_if_joined_late(&self.cleanup, &self.driver, node, &answered);
                }
                self.answers[node] = Some(answered);
                Some(Event::Vote { node, vote, in_order })
            }
            else => None,
        }
    }

    /// Passes one event to the claim and carries out its commands. Returns the decision if the event leads to one.
    pub(crate) fn handle(&mut self, event: Event) -> Option<Outcome> {
        let commands = match &mut self.owner {
            // The round is won, so no decision and no RAISE can follow.
            Claimant::Lease(held) => {
                held.handle(event);
                return None;
            }
            Claimant::Round(claim) => {
                let giver = (self.upgraded.as_ref(), is_set(self.is_giver_over.as_deref()));
                handle(claim, &self.driver, &self.cleanup, giver, event)
            }
        };
        if let Some((nodes, fence)) = commands.raise {
            self.raise(nodes, fence);
        }
        commands.outcome
    }

    fn raise(&mut self, nodes: NodeSet, fence: u64) {
        let subject = Arc::clone(self.subject());
        let Cleanup { term, node_timeout, .. } = self.cleanup;
        let request = Request::Raise { subject, ttl: term.ttl, fence };
        let raise = |node: usize| {
            let call = self.driver.nodes[node].call(request.clone(), self.sent, node_timeout);
            async move { (node, call.await) }.boxed()
        };
        self.raises.get_or_insert_default().extend(nodes.iter().map(raise));
    }
}

fn is_set(flag: Option<&AtomicBool>) -> bool {
    flag.is_some_and(|flag| flag.load(Ordering::Acquire))
}

/// Passes one event to the claim of a round. Carries out the claim's commands that delete keys or give keys back, and
/// returns the other commands. `upgraded` is the lease that the round upgrades. `is_over`: whether it is known already
/// that nobody can use the giver's lease any more.
fn handle(
    claim: &mut Claim,
    driver: &Driver,
    cleanup: &Cleanup,
    (upgraded, is_over): (Option<&Arc<HeldLease>>, bool),
    event: Event,
) -> Commands {
    if is_over || upgraded.is_some_and(|upgraded| upgraded.is_deleted()) {
        cleanup.run(driver, claim.gone_by(), claim.end_giver());
    }
    let commands = claim.handle(clock::now(), event);
    carry_out(claim, driver, cleanup, upgraded, commands)
}

/// Carries out the commands that delete keys or give keys back. Returns the other commands.
fn carry_out(
    claim: &Claim,
    driver: &Driver,
    cleanup: &Cleanup,
    upgraded: Option<&Arc<HeldLease>>,
    mut commands: Commands,
) -> Commands {
    let gone_by = claim.gone_by();
    if let Some(upgraded) = upgraded {
        // The upgraded lease sends GIVE BACK itself, because the renewal of that lease waits for the answers.
        let nodes = std::mem::take(&mut commands.give_back);
        upgraded.give_back(&cleanup.subject, nodes, gone_by);
    }
    let rest = Commands { raise: commands.raise, outcome: commands.outcome, ..Commands::default() };
    cleanup.run(driver, gone_by, commands);
    rest
}

/// Returns a weak reference to a lease, and the lease's grant. After the lease is dropped, the grant's `fate` says what
/// has become of the lease.
fn forget(held: &Arc<HeldLease>) -> (Weak<HeldLease>, Arc<Grant>) {
    (Arc::downgrade(held), Arc::clone(&held.grant))
}

/// Handles a late vote for a lease whose [`HeldLease`] is gone: releases the token if the node may have granted it.
fn release_forgotten(driver: &Driver, cleanup: &Cleanup, event: Event) {
    if let Event::Late { node, vote } = event
        && Claim::must_release_forgotten(vote)
    {
        cleanup.release(driver, cleanup.term.gone(clock::now()), node);
    }
}

/// Tells the waiter which slots a node has offered in a refusal that arrived after the decision.
fn pass_on_offer(cleanup: &Cleanup, node: usize, answered: &Answered) {
    if let (Ok(Reply::Held(refusal)), Some(entry)) = (answered, &cleanup.queue_entry)
        && !refusal.permits.slots.is_empty()
    {
        let slots = refusal.permits.slots.clone();
        // Sending fails if the acquire has ended.
        let _ = entry.sender.try_send(Notification::Offered { node, slots });
    }
}

/// Handles the answer of a node that may have processed the ACQUIRE after later requests. If the node has refused the
/// ACQUIRE, the node may have put the waiter back into a queue that the waiter had left. In this case, sends the
/// request to leave the queue again.
fn leave_if_joined_late(cleanup: &Cleanup, driver: &Driver, node: usize, answered: &Answered) {
    let Cleanup { subject, node_timeout, queue_entry, .. } = cleanup;
    if !has_refused(answered) || !queue_entry.as_ref().is_some_and(QueueEntry::has_left) {
        return;
    }
    // The RELEASE has a fresh token, so that it deletes no key: the round's lease may be held, and HEAL may have set
    // the lease's key on this node since.
    let Ok(token) = Token::new("") else { return };
    let subject = Subject::new(Arc::clone(&subject.keys), token, subject.waiter.clone());
    let request = Request::leave(&Arc::new(subject), driver.turns());
    driver.deliver(node, [request], *node_timeout, clock::now().plus(driver.turns().memory));
}

/// Whether the node has refused because others hold the resource, so that the waiter may be in the node's queue. A
/// guarded node also queues the waiter, although the node's vote does not count.
fn has_refused(answered: &Answered) -> bool {
    match answered {
        Ok(Reply::Uncounted(reply, _)) => matches!(**reply, Reply::Held(_)),
        answered => matches!(answered, Ok(Reply::Held(_))),
    }
}
