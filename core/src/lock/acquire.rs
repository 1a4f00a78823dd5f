//! One acquire: runs rounds until one is won or the caller must get an error, and answers exactly once.
//!
//! [`Acquire::run`] shows all the steps; `contention.rs` has those of waiting, and `adoption.rs` what differs if the
//! acquire adopts a detached lease. The protocol decides
//! who wins a round and when the next one begins, so no rule of the lock belongs here.
//! `client/lock.rs` starts acquires.

mod adoption;
mod blocker;
mod contention;

use crate::command::answer::Answered;
use crate::command::keys::Keys;
use crate::command::reply::Reply;
use crate::command::request::Subject;
use crate::config::mode::Modes;
use crate::config::options::Options;
use crate::config::resources::Resources;
use crate::error::duration::HumanDuration;
use crate::error::{Error, ErrorCode};
use crate::lock::driver::Driver;
use crate::lock::duplicates::find_duplicate;
use crate::lock::handover::Giver;
use crate::lock::held::{Grant, HeldLease};
use crate::lock::lease::Lease;
use crate::lock::owner::Owner;
use crate::lock::permits::PermitChoice;
use crate::lock::renewer::Renewer;
use crate::lock::round::{RoundOptions, RunningRound};
use crate::lock::trace::AcquireTrace;
use crate::lock::waiters::Place;
use crate::runtime::clock;
use crate::runtime::timer::timeout;
use adoption::{AdoptionState, reason};
use blocker::blocker;
use quorlock_protocol::{
    Calls, Event, Loss, Moment, Next, NodeSet, Outcome, Term, Untransferable, Waiting,
};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio_util::sync::DropGuard;

/// An acquire that is under way.
pub(crate) struct Acquire {
    driver: Arc<Driver>,
    renewer: Arc<Renewer>,
    resources: Resources,
    modes: Modes,
    keys: Arc<[Keys]>,
    /// The lease to adopt; `None` for an acquire of a lock that is free.
    adoption: Option<Box<AdoptionState>>,
    /// Which permits to try; `None` for locks, and for an adoption. It changes `keys` with each round.
    permits: Option<Box<PermitChoice>>,
    term: Term,
    /// The name of the lease; empty for none.
    holder: Arc<str>,
    wait: Option<Duration>,
    max_hold: Option<Duration>,
    auto_extend: bool,
    keep: Option<Duration>,
    arrived: Moment,
    waiting: Waiting,
    calls: Calls,
    /// The place in the local queue; `None` if `wait` is zero, because a single try does not queue, and for an
    /// adoption.
    place: Option<Place>,
    /// The nodes whose queues may contain this acquire.
    joined: NodeSet,
    queue_subject: Option<Arc<Subject>>,
    node_timeout: Duration,
    trace: AcquireTrace,
    owner: Option<Owner>,
    /// Why the acquire must not wait.
    mistake: Option<Error>,
    /// When dropped, cancels the pending warning about a caller that waits for its own lease.
    reentrant_warning: Option<DropGuard>,
}

/// The caller of an acquire, who waits for the result.
pub(crate) enum Caller {
    /// Contention is an error.
    Acquire(oneshot::Sender<crate::error::Result<Lease>>),
    /// Contention is `None`.
    TryAcquire(oneshot::Sender<crate::error::Result<Option<Lease>>>),
}

impl Caller {
    /// Waits until the caller drops its [`Pending`](crate::Pending).
    async fn gone(&mut self) {
        match self {
            Self::Acquire(sender) => sender.closed().await,
            Self::TryAcquire(sender) => sender.closed().await,
        }
    }

    fn answer(self, result: crate::error::Result<Lease>) {
        // Sending fails if the caller is gone. Dropping the lease then releases it.
        match self {
            Self::Acquire(sender) => drop(sender.send(result)),
            Self::TryAcquire(sender) => drop(sender.send(match result {
                Ok(lease) => Ok(Some(lease)),
                Err(error) if error.code() == ErrorCode::Timeout => Ok(None),
                Err(error) => Err(error),
            })),
        }
    }
}

impl Acquire {
    pub(crate) fn new(
        renewer: &Arc<Renewer>,
        resources: &Resources,
        keys: Arc<[Keys]>,
        options: &Options,
        owner: Option<Owner>,
        giver: Option<Giver>,
        permits: Option<(u32, u32)>,
    ) -> Self {
        let driver = renewer.driver();
        let now = clock::now();
        // Adopters do not queue: the lease is there, or it is lost.
        let may_wait = giver.is_none() && options.wait.is_none_or(|wait| !wait.is_zero());
        // Waiters with another limit wait for other slots.
        let awaited = match permits {
            Some((limit, _)) => {
                [Keys::permit(&driver.options.key_prefix, &resources[0], 0, limit)].into()
            }
            None => Arc::clone(&keys),
        };
        Self {
            resources: resources.clone(),
            modes: options.mode.clone(),
            permits: permits.map(|permits| {
                let all = &driver.semaphores;
                let prefix = &driver.options.key_prefix;
                Box::new(PermitChoice::new(all, prefix, resources, permits))
            }),
            adoption: giver.map(|giver| AdoptionState::new(giver, driver.quorum)),
            term: options.term(options.lease_ttl()),
            holder: Arc::clone(options.holder.as_ref().unwrap_or(&driver.process_name)),
            wait: options.wait,
            max_hold: options.max_hold,
            auto_extend: options.auto_extend,
            keep: options.keep,
            arrived: now,
            waiting: Waiting::new(now, options.wait, options.connect_timeout, options.retry_delay),
            calls: Calls::new(driver.quorum, now, driver.turns()),
            place: may_wait.then(|| driver.waiters.join(&awaited, now)),
            joined: NodeSet::EMPTY,
            queue_subject: None,
            node_timeout: options.node_timeout(options.lease_ttl()),
            trace: AcquireTrace::begin(driver, resources, &options.mode, now),
            driver: Arc::clone(driver),
            renewer: Arc::clone(renewer),
            owner,
            mistake: None,
            reentrant_warning: None,
            keys,
        }
    }

    /// Runs rounds until one is won, `wait` is over, too few nodes can vote for too long, or the
    /// acquire is stopped. It is stopped when the client is closed or the caller drops its
    /// `Pending`. Answers the caller, then finishes the last round.
    pub(crate) async fn run(mut self, mut caller: Caller) {
        if let Err(end) = self.wait_for_turn(&mut caller).await {
            return self.end(caller, end);
        }
        let driver = Arc::clone(&self.driver);
        loop {
            let mut round = match self.start_round(&mut caller).await {
                Ok(round) => round,
                Err(end) => return self.end(caller, end),
            };
            let loss = match unless_stopped(&driver, &mut caller, round.decide()).await {
                Ok(Outcome::Won { fence, end }) => {
                    return self.win(caller, round, fence, end).await;
                }
                Ok(Outcome::Lost(loss)) => loss,
                Err(end) => return self.abandon(caller, round, end).await,
            };
            if (loss == Loss::NoQuorum || round.could_win_again())
                && let Err(end) = self.collect_votes_in_outage(&mut caller, &mut round).await
            {
                return self.abandon(caller, round, end).await;
            }
            let error = match self.untransferable_error(&mut caller, &mut round, loss).await {
                Ok(None) => self.duplicate_error(round.duplicate()).await,
                Ok(error) => error,
                Err(end) => return self.abandon(caller, round, end).await,
            };
            if let Some(error) = error {
                self.end(caller, End::Failed(error));
                return round.finish(None).await;
            }
            if self.may_repeat(&round, loss) || self.may_try_other_permits(&round, loss) {
                driver.detach(async move { round.finish(None).await });
                // The tasks that undo the round run first, so that on each connection the next ACQUIRE follows the
                // UNDO. It would find the token of this round otherwise.
                yield_now().await;
                continue;
            }
            let next = self.after_loss(&round, loss);
            if let Some(mistake) = self.mistake.take() {
                self.end(caller, End::Failed(mistake));
                return round.finish(None).await;
            }
            let Next::TryAt(moment) = next else {
                return self.give_up(caller, round, loss).await;
            };
            driver.detach(async move { round.finish(None).await });
            let pause = self.pause(moment);
            if let Err(end) = unless_stopped(&driver, &mut caller, pause).await {
                return self.end(caller, end);
            }
        }
    }

    /// Waits until this acquire is first in the local queue.
    async fn wait_for_turn(&mut self, caller: &mut Caller) -> Result<(), End> {
        let driver = Arc::clone(&self.driver);
        let error = unless_stopped(&driver, caller, self.wait_in_local_queue()).await?;
        error.map_or(Ok(()), |error| Err(End::Failed(error)))
    }

    /// Waits until enough nodes are connected, then sends ACQUIRE to all nodes.
    async fn start_round(&mut self, caller: &mut Caller) -> Result<RunningRound, End> {
        unless_stopped(&self.driver, caller, self.driver.ready()).await?.map_err(End::Failed)?;
        if let Some(place) = &mut self.place {
            place.subscribe_if_connected();
            place.begin_round();
        }
        self.choose_permits();
        let queue_entry = self.queue_entry();
        self.joined = queue_entry.as_ref().map_or(self.joined, |entry| entry.nodes);
        let options = RoundOptions {
            keys: &self.keys,
            giver: self.adoption.as_ref().map(|adoption| &adoption.giver),
            term: self.term,
            node_timeout: self.node_timeout,
            turns: self.calls.begin(clock::now()),
            queue_entry,
            holder: &self.holder,
        };
        let round = RunningRound::start(&self.driver, options).map_err(End::Failed)?;
        self.trace.begin_round();
        if round.subject.waiter.is_some() {
            self.queue_subject = Some(Arc::clone(&round.subject));
        }
        Ok(round)
    }

    /// Waits for the votes that an outage was found without, so that its error reports the nodes
    /// that are up, and so that grants are undone before the round is repeated. Takes no longer than the delay before the next round.
    async fn collect_votes_in_outage(
        &self,
        caller: &mut Caller,
        round: &mut RunningRound,
    ) -> Result<(), End> {
        let limit = self.node_timeout.min(self.driver.options.retry_delay.longest);
        let votes = timeout(limit, round.collect_remaining_votes(None));
        // Nodes that do not answer within the limit are reported as pending.
        unless_stopped(&self.driver, caller, votes).await.map(drop)
    }

    /// Returns the error for a lost round of an adoption if trying again is of no use; `None` for any other
    /// acquire. Waits for the votes that the loss did not need, because they may decide that.
    async fn untransferable_error(
        &mut self,
        caller: &mut Caller,
        round: &mut RunningRound,
        loss: Loss,
    ) -> Result<Option<Error>, End> {
        let Some(adoption) = self.adoption.as_mut().filter(|_| loss != Loss::NoQuorum) else {
            return Ok(None);
        };
        let votes = timeout(self.node_timeout, round.collect_remaining_votes(None));
        unless_stopped(&self.driver, caller, votes).await.map(drop)?;
        let why = adoption.lost(&round.answers);
        if why.is_some() {
            round.release_given_back();
        }
        Ok(why.map(|why| self.lost_to_others(why, &round.answers)))
    }

    /// Whether another adopter had a majority in the last round of this adoption.
    fn is_taken(&self) -> bool {
        self.adoption.as_ref().is_some_and(|adoption| adoption.is_taken())
    }

    fn lost_to_others(&self, why: Untransferable, answers: &[Option<Answered>]) -> Error {
        let resources = &self.resources;
        let why = reason(why, answers);
        let message = format!("the lease of {resources} cannot be adopted any more: {why}");
        Error::new(ErrorCode::LeaseLost, message)
            .about(resources)
            .with_nodes(self.driver.reports(answers))
    }

    /// Hands the lease of a won round to the caller. If the lease must not be used, answers with an error and
    /// drops it, which releases it.
    async fn win(mut self, mut caller: Caller, mut round: RunningRound, fence: u64, end: Moment) {
        // Lets others in the local queue proceed. This acquire leaves the nodes' queues when the lease is
        // released.
        if let Some(place) = self.place.take() {
            place.win();
        }
        let permits = match &mut self.permits {
            Some(permits) => permits.win(),
            None => self.driver.semaphores.reserve(&round.subject),
        };
        let grant = Grant {
            resources: self.resources.clone(),
            modes: self.modes.clone(),
            permits: permits.map(Box::new),
            subject: Arc::clone(&round.subject),
            fence,
            term: self.term,
            sent: round.sent,
            end,
            max_hold: self.max_hold,
            auto_extend: self.auto_extend,
            keep: self.keep,
            is_resumed: false,
            owner: self.owner,
        };
        let held = HeldLease::new(&self.driver, grant, round.votes());
        let lease = Lease::new(&self.renewer, Arc::clone(&held));
        match self.verify(&mut caller, &mut round, &held).await {
            Ok(()) => {
                self.trace.win(fence, lease.holder());
                caller.answer(Ok(lease));
            }
            Err(end) => {
                drop(lease);
                self.answer_end(caller, end);
            }
        }
        round.finish(Some(held)).await;
    }

    /// Checks that the lease may be handed out: no two nodes are duplicates, the client is open,
    /// and the caller still waits.
    async fn verify(
        &self,
        caller: &mut Caller,
        round: &mut RunningRound,
        held: &HeldLease,
    ) -> Result<(), End> {
        if self.driver.identities.needs_proof() {
            unless_stopped(&self.driver, caller, round.collect_remaining_votes(Some(held))).await?;
            round.mark_distinct();
        }
        if let Some(error) = self.duplicate_error(round.duplicate()).await {
            return Err(End::Failed(error));
        }
        // `Client::close` releases the leases it finds. It may have run before this lease was
        // added.
        if self.driver.closing.is_cancelled() { Err(End::Closed) } else { Ok(()) }
    }

    /// Ends a stopped acquire whose round is undecided, and undoes the round's grants.
    async fn abandon(mut self, caller: Caller, mut round: RunningRound, end: End) {
        // Must precede the undo requests: as long as the place exists, they keep the waiter's queue
        // entry.
        self.place = None;
        round.handle(Event::Abandon);
        self.end(caller, end);
        round.finish(None).await;
    }

    /// Ends the acquire with the error for its last round: `wait` is over, or too few nodes can vote.
    async fn give_up(mut self, caller: Caller, mut round: RunningRound, loss: Loss) {
        round.take_ready_answers();
        if loss != Loss::NoQuorum && self.is_taken() {
            round.release_given_back();
        }
        let error = self.loss_error(loss, &round.answers);
        self.end(caller, End::Failed(error));
        round.finish(None).await;
    }

    /// Returns the error for duplicate nodes, if any are known. `duplicate` is a node that answered as a
    /// duplicate in this round, and the round's subject. This method then searches for the other node.
    async fn duplicate_error(&self, duplicate: Option<(usize, Arc<Subject>)>) -> Option<Error> {
        if let Some((node, subject)) = duplicate {
            let timeout = self.node_timeout;
            let found = find_duplicate(&self.driver, node, subject, self.term, timeout).await;
            if let Err(error) = found {
                return Some(error);
            }
        }
        self.driver.identities.mistake()
    }

    /// Ends without a lease: answers the caller, then leaves the local queue and the nodes' queues.
    fn end(&mut self, caller: Caller, end: End) {
        self.answer_end(caller, end);
        self.leave_node_queues();
    }

    fn answer_end(&mut self, caller: Caller, end: End) {
        self.reentrant_warning = None;
        match end {
            End::Failed(error) => {
                let error = error.about(&self.resources);
                self.trace.fail(Some(&error));
                caller.answer(Err(error));
            }
            End::Closed => {
                self.trace.fail(None);
                caller.answer(Err(Error::closed().about(&self.resources)));
            }
            End::Cancelled => self.trace.fail(None),
        }
    }

    /// Returns the error for a lost round. On contention it names the holder, and says whether another lease
    /// of this client holds the resource.
    fn loss_error(&self, loss: Loss, answers: &[Option<Answered>]) -> Error {
        if loss == Loss::NoQuorum {
            return self.driver.no_quorum(&self.resources, answers, self.node_timeout);
        }
        if self.is_taken() {
            return self.lost_to_others(Untransferable::Taken, answers);
        }
        let granted = |answer: &&Answered| matches!(answer, Ok(Reply::Granted { .. }));
        let granted = answers.iter().flatten().filter(granted).count();
        let waited = self.wait.filter(|wait| !wait.is_zero());
        let blocker = blocker(answers);
        if let Some(permits) = &self.permits {
            return Error::new(
                ErrorCode::Timeout,
                permits_message(&self.resources, permits, waited),
            )
            .about(&self.resources)
            .with_nodes(self.driver.reports(answers))
            .with_holder(blocker.map(|blocker| blocker.name.to_owned()));
        }
        let own = self.renewer.find(&self.keys, |_| true);
        let held = match (&own, waited) {
            (Some(own), waited) => {
                let dropped =
                    if own.is_dropped() { ", dropped without being released" } else { "" };
                let after = waited
                    .map_or_else(String::new, |wait| format!(" after {}", HumanDuration(wait)));
                let fence = own.grant.fence;
                format!("is held by another lease of this client (fence {fence}{dropped}){after}")
            }
            (None, Some(wait)) => {
                let now = blocker
                    .as_ref()
                    .map_or_else(String::new, |blocker| format!(", and is now {blocker}"));
                format!("was held by others for the whole wait of {}{now}", HumanDuration(wait))
            }
            (None, None) => match &blocker {
                Some(blocker) => format!("is {blocker}"),
                None => "is held by others".to_owned(),
            },
        };
        let nodes = self.driver.quorum.nodes();
        let needed = self.driver.needed();
        let message =
            format!("{} {held}: {granted} of {nodes} nodes granted it, {needed}", self.resources);
        let own_lease = own.and_then(|_| {
            let behind = self.resources.to_string().len();
            let start = behind + message[behind..].find(OTHER_LEASE)?;
            Some(start..start + OTHER_LEASE.len())
        });
        Error::new(ErrorCode::Timeout, message)
            .about(&self.resources)
            .with_nodes(self.driver.reports(answers))
            .with_holder(blocker.map(|blocker| blocker.name.to_owned()))
            .with_own_lease(own_lease)
    }
}

/// How an error names another lease of the same client that holds the resource.
const OTHER_LEASE: &str = "another lease of this client";

/// The message for permits that were not free in time.
fn permits_message(
    resources: &Resources,
    permits: &PermitChoice,
    waited: Option<Duration>,
) -> String {
    let count = permits.count();
    let limit = permits.limit();
    let wanted = match count {
        1 => format!("no permit of {resources} was free"),
        _ => format!("{count} permits of {resources} were not free"),
    };
    match waited {
        Some(wait) => {
            format!("{wanted} within the wait of {}: its limit is {limit}", HumanDuration(wait))
        }
        None => format!("{wanted}: its limit is {limit}"),
    }
}

/// Why an acquire ends without a lease.
enum End {
    Failed(Error),
    Closed,
    /// The caller dropped its [`Pending`](crate::Pending), so there is nobody to answer.
    Cancelled,
}

/// Runs `work` unless the acquire is stopped first.
async fn unless_stopped<T>(
    driver: &Driver,
    caller: &mut Caller,
    work: impl Future<Output = T>,
) -> Result<T, End> {
    tokio::select! {
        biased;
        () = caller.gone() => Err(End::Cancelled),
        () = driver.closing.cancelled() => Err(End::Closed),
        done = work => Ok(done),
    }
}
