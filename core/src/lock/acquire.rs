//! One acquire: runs rounds until a round is won or the caller must get an error, and answers the caller exactly once.
//!
//! [`Acquire::run`] runs the acquire. `contention.rs` contains the steps of waiting, `adoption.rs` the part that is
//! specific to adoptions, and `report.rs` the errors. The protocol decides who wins a round and when the next round
//! begins, so no rule of the lock belongs here. `client/lock.rs` starts acquires.

mod adoption;
mod contention;
mod duplicates;
mod report;
mod trace;

use crate::config::mode::Modes;
use crate::config::options::Options;
use crate::config::resources::Resources;
use crate::error::{Error, ErrorCode};
use crate::lock::acquire::duplicates::find_duplicate;
use crate::lock::acquire::trace::AcquireTrace;
use crate::lock::claim::handover::Giver;
use crate::lock::claim::held::{Fate, Grant};
use crate::lock::claim::round::{RoundOptions, RunningRound};
use crate::lock::driver::Driver;
use crate::lock::lease::Lease;
use crate::lock::lease::owner::Owner;
use crate::lock::renewer::Renewer;
use crate::lock::waiting::permits::PermitChoice;
use crate::lock::waiting::waiters::Place;
use crate::runtime::clock;
use crate::runtime::timer::timeout;
use crate::wire::keys::Keys;
use crate::wire::request::Subject;
use adoption::AdoptionState;
use quorlock_protocol::{
    Calls, Event, Loss, Moment, Next, NodeSet, Outcome, Term, Untransferable, Waiting,
};
use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio_util::sync::DropGuard;

/// The options and the progress of one acquire. [`Acquire::run`] runs the acquire and consumes this value.
pub(crate) struct Acquire {
    driver: Arc<Driver>,
    renewer: Arc<Renewer>,
    resources: Resources,
    modes: Modes,
    keys: Arc<[Keys]>,
    /// The state of an adoption; `None` for an acquire that does not adopt a lease.
    adoption: Option<Box<AdoptionState>>,
    /// Chooses the permits for each round, whose keys then replace `keys`. `None` for locks and for adoptions.
    permits: Option<Box<PermitChoice>>,
    term: Term,
    /// The holder name of the lease; empty if the lease has no name.
    holder: Arc<str>,
    wait: Option<Duration>,
    max_hold: Option<Duration>,
    auto_extend: bool,
    heartbeat_timeout: Option<Duration>,
    keep: Option<Duration>,
    arrived: Moment,
    waiting: Waiting,
    calls: Calls,
    /// The place in the client's local queue. `None` for an adoption, for a single try (if `wait` is zero), and after
    /// the acquire has left the queue.
    place: Option<Place>,
    /// The nodes whose queues contain this acquire, as far as it knows. It joins the queues of the other nodes.
    joined: NodeSet,
    /// The nodes whose queues may contain this acquire. It leaves all of these queues when it ends without a lease.
    may_be_queued: NodeSet,
    queue_subject: Option<Arc<Subject>>,
    node_timeout: Duration,
    trace: AcquireTrace,
    owner: Option<Owner>,
    /// The blocks that the caller is in.
    pub(crate) blocks: Vec<NonZeroU64>,
    /// The error that the acquire returns instead of waiting; `None` if the acquire may wait.
    mistake: Option<Error>,
    /// Cancels, when dropped, the pending warning that the caller waits for its own lease. `None` if no warning is
    /// pending.
    reentrant_warning: Option<DropGuard>,
}

/// The caller of an acquire, who waits for the result.
pub(crate) enum Caller {
    /// Gets an error if others hold the lock until `wait` ends.
    Acquire(oneshot::Sender<crate::error::Result<Lease>>),
    /// Gets `None` if others hold the lock until `wait` ends.
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
        // Sending fails if the caller is gone. The lease is then dropped, and thereby released.
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
        let driver = &renewer.driver;
        let now = clock::now();
        // Adopters do not queue, because waiting behind others does not help: either the nodes still hold the detached
        // lease, or nobody can adopt it any more.
        let may_wait = giver.is_none() && options.wait.is_none_or(|wait| !wait.is_zero());
        // A semaphore has one local queue for each limit, because waiters with different limits wait for different
        // slots. The key of slot 0 identifies this queue.
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
            heartbeat_timeout: options.heartbeat_timeout,
            keep: options.keep,
            arrived: now,
            waiting: Waiting::new(now, options.wait, options.connect_timeout, options.retry_delay),
            calls: Calls::new(driver.quorum, now, driver.turns()),
            place: may_wait.then(|| driver.waiters.join(&awaited, now)),
            joined: NodeSet::EMPTY,
            may_be_queued: NodeSet::EMPTY,
            queue_subject: None,
            node_timeout: options.node_timeout(options.lease_ttl()),
            trace: AcquireTrace::begin(driver, resources, &options.mode, now),
            driver: Arc::clone(driver),
            renewer: Arc::clone(renewer),
            owner,
            blocks: Vec::new(),
            mistake: None,
            reentrant_warning: None,
            keys,
        }
    }

    /// Runs rounds until a round is won, the acquire fails, or the acquire is stopped. Answers the caller, then
    /// finishes the last round.
    ///
    /// The acquire fails if `wait` is over, if an outage (too few nodes can vote) has lasted for `connect_timeout`, or
    /// if another error occurs. The acquire is stopped when the client is closed or the caller drops its `Pending`.
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
                Ok(Outcome::Won { fence, .. }) => {
                    return self.win(caller, round, fence).await;
                }
                Ok(Outcome::Lost(loss)) => loss,
                Err(end) => return self.abandon(caller, round, end).await,
            };
            self.trace.lose_round(loss);
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
                self.end(caller, NoLease::Failed(error));
                return round.finish().await;
            }
            if self.waiting.repeats(round.could_win_again())
                || self.may_try_other_permits(&round, loss)
            {
                driver.detach(async move { round.finish().await });
                // Lets the tasks that undo this round run first, so that each connection sends the UNDO before the next
                // ACQUIRE. Otherwise, a node could still hold the token of this round, and refuse the next ACQUIRE.
                yield_now().await;
                continue;
            }
            let next = self.after_loss(&round, loss);
            if let Some(mistake) = self.mistake.take() {
                self.end(caller, NoLease::Failed(mistake));
                return round.finish().await;
            }
            let Next::TryAt(moment) = next else {
                return self.give_up(caller, round, loss).await;
            };
            driver.detach(async move { round.finish().await });
            let pause = self.pause(moment);
            if let Err(end) = unless_stopped(&driver, &mut caller, pause).await {
                return self.end(caller, end);
            }
        }
    }

    /// Waits for this acquire's turn in the local queue. Fails if the acquire must end before its turn.
    async fn wait_for_turn(&mut self, caller: &mut Caller) -> Result<(), NoLease> {
        let driver = Arc::clone(&self.driver);
        let error = unless_stopped(&driver, caller, self.wait_in_local_queue()).await?;
        error.map_or(Ok(()), |error| Err(NoLease::Failed(error)))
    }

    /// Waits until enough nodes are connected, then starts a round: sends ACQUIRE or, for an adoption, TRANSFER.
    async fn start_round(&mut self, caller: &mut Caller) -> Result<RunningRound, NoLease> {
        unless_stopped(&self.driver, caller, self.driver.ready())
            .await?
            .map_err(NoLease::Failed)?;
        if let Some(place) = &mut self.place {
            place.subscribe_if_connected();
            place.begin_round();
        }
        self.choose_permits();
        let queue_entry = self.queue_entry();
        if let Some(entry) = &queue_entry {
            self.has_joined(entry.nodes);
        }
        let options = RoundOptions {
            keys: &self.keys,
            giver: self.adoption.as_ref().map(|adoption| &adoption.giver),
            upgraded: None,
            term: self.term,
            max_hold: self.max_hold,
            node_timeout: self.node_timeout,
            turns: self.calls.begin(clock::now()),
            queue_entry,
            holder: &self.holder,
        };
        let round = RunningRound::start(&self.driver, options).map_err(NoLease::Failed)?;
        self.trace.begin_round();
        if round.subject().waiter.is_some() {
            self.queue_subject = Some(Arc::clone(round.subject()));
        }
        Ok(round)
    }

    /// Waits for the votes that were still missing when the round was lost, but at most for the longest retry delay.
    /// With these votes, an error can report which nodes are up, and the grants of this round are undone before the
    /// next round.
    async fn collect_votes_in_outage(
        &self,
        caller: &mut Caller,
        round: &mut RunningRound,
    ) -> Result<(), NoLease> {
        let limit = self.node_timeout.min(self.driver.options.retry_delay.longest);
        let votes = timeout(limit, round.collect_remaining_votes());
        // Nodes that do not answer within the limit are reported as pending.
        unless_stopped(&self.driver, caller, votes).await.map(drop)
    }

    /// Returns an error if this acquire is an adoption that no further round can win, and `None` otherwise.
    ///
    /// First waits for the votes that were still missing when the round was lost, because these votes may show that no
    /// round can win any more. If too few nodes could vote on the adoption, returns `None` without waiting.
    async fn untransferable_error(
        &mut self,
        caller: &mut Caller,
        round: &mut RunningRound,
        loss: Loss,
    ) -> Result<Option<Error>, NoLease> {
        let Some(adoption) = self.adoption.as_mut().filter(|_| loss != Loss::NoQuorum) else {
            return Ok(None);
        };
        let votes = timeout(self.node_timeout, round.collect_remaining_votes());
        unless_stopped(&self.driver, caller, votes).await.map(drop)?;
        let why = adoption.lost(&round.answers);
        if why.is_some_and(|why| why != Untransferable::Unclear) {
            adoption.end();
            round.release_given_back();
        }
        Ok(why.map(|why| self.lost_to_others(why, &round.answers)))
    }

    fn is_taken(&self) -> bool {
        self.adoption.as_ref().is_some_and(|adoption| adoption.is_taken())
    }

    /// Hands the lease of a won round to the caller. If the caller must not get the lease, drops the lease, which
    /// releases it, and answers with an error.
    async fn win(mut self, mut caller: Caller, round: RunningRound, fence: u64) {
        self.adoption.iter().for_each(|adoption| adoption.end());
        // Lets the other waiters in the local queue proceed. This acquire leaves the nodes' queues later, when the
        // lease is released.
        if let Some(place) = self.place.take() {
            place.win();
        }
        let permits = match &mut self.permits {
            Some(permits) => permits.win(),
            None => self.driver.semaphores.reserve(round.subject()),
        };
        let grant = Grant {
            resources: self.resources.clone(),
            modes: self.modes.clone(),
            permits: permits.map(Box::new),
            subject: Arc::clone(round.subject()),
            fence,
            term: self.term,
            sent: round.sent,
            max_hold: self.max_hold,
            auto_extend: self.auto_extend,
            heartbeat_timeout: self.heartbeat_timeout,
            keep: self.keep,
            owner: self.owner,
            fate: Fate::default(),
        };
        let (mut round, held) = round.hold(grant);
        let lease = Lease::new(&self.renewer, held);
        let verified = self.verify(&mut caller, &mut round).await;
        match verified.and_then(|()| self.check_validity(&lease, &round)) {
            Ok(()) => {
                self.trace.win(fence, lease.holder());
                caller.answer(Ok(lease));
            }
            Err(end) => {
                drop(lease);
                self.answer_end(caller, end);
            }
        }
        round.finish().await;
    }

    /// Checks that the caller may get the lease: no two nodes are duplicates, the client is open, and the caller still
    /// waits.
    async fn verify(&self, caller: &mut Caller, round: &mut RunningRound) -> Result<(), NoLease> {
        if self.driver.identities.needs_proof() {
            unless_stopped(&self.driver, caller, round.collect_remaining_votes()).await?;
            round.mark_distinct();
        }
        if let Some(error) = self.duplicate_error(round.duplicate()).await {
            return Err(NoLease::Failed(error));
        }
        // `Client::close` may have run before this lease was added to the renewer. In that case, `close` has not
        // released this lease, so the caller must not get it.
        if self.driver.closing.is_cancelled() { Err(NoLease::Closed) } else { Ok(()) }
    }

    /// Fails if the lease has ended while it was verified.
    fn check_validity(&self, lease: &Lease, round: &RunningRound) -> Result<(), NoLease> {
        if lease.is_valid() {
            return Ok(());
        }
        let resources = &self.resources;
        let message = format!("the lease of {resources} ended before the acquire could return it");
        let error = Error::new(ErrorCode::NoQuorum, message);
        Err(NoLease::Failed(error.with_nodes(self.driver.reports(&round.answers))))
    }

    /// Ends an acquire that was stopped during a round, and undoes the round's grants.
    async fn abandon(mut self, caller: Caller, mut round: RunningRound, end: NoLease) {
        // Drop the place before an UNDO is sent: while the place exists, an UNDO keeps the waiter in the queue.
        self.place = None;
        round.handle(Event::Abandon);
        self.end(caller, end);
        round.finish().await;
    }

    /// Ends the acquire with the error for its last round. Called when `wait` is over, or when an outage has lasted for
    /// `connect_timeout`.
    async fn give_up(mut self, caller: Caller, mut round: RunningRound, loss: Loss) {
        round.take_ready_answers();
        if loss != Loss::NoQuorum && self.is_taken() {
            round.release_given_back();
        }
        let error = self.loss_error(loss, &round.answers);
        self.end(caller, NoLease::Failed(error));
        round.finish().await;
    }

    /// Returns the error for duplicate nodes; `None` if no duplicates are known. `duplicate` is the result of
    /// [`RunningRound::duplicate`]. If `duplicate` is `Some`, first searches for the other node that is the same
    /// server.
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

    /// Ends the acquire without a lease: answers the caller, then leaves the local queue and the nodes' queues.
    fn end(&mut self, caller: Caller, end: NoLease) {
        self.answer_end(caller, end);
        self.leave_node_queues();
    }

    fn answer_end(&mut self, caller: Caller, end: NoLease) {
        self.reentrant_warning = None;
        match end {
            NoLease::Failed(error) => {
                let error = error.about(&self.resources);
                self.trace.fail(Some(&error));
                caller.answer(Err(error));
            }
            NoLease::Closed => {
                self.trace.fail(None);
                caller.answer(Err(Error::closed().about(&self.resources)));
            }
            NoLease::Cancelled => self.trace.fail(None),
        }
    }
}

/// Why an acquire ends without a lease.
enum NoLease {
    Failed(Error),
    Closed,
    /// The caller dropped its [`Pending`](crate::Pending), so there is nobody to answer.
    Cancelled,
}

/// Runs `work`, and returns its result. Fails if the acquire is stopped before `work` is done.
async fn unless_stopped<T>(
    driver: &Driver,
    caller: &mut Caller,
    work: impl Future<Output = T>,
) -> Result<T, NoLease> {
    tokio::select! {
        biased;
        () = caller.gone() => Err(NoLease::Cancelled),
        () = driver.closing.cancelled() => Err(NoLease::Closed),
        done = work => Ok(done),
    }
}
