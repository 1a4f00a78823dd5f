//! Acquiring: runs the protocol's rounds on the client's nodes.

use crate::command::answer::Answered;
use crate::command::keys::Keys;
use crate::command::reply::Reply;
use crate::command::request::{Request, Subject};
use crate::config::options::Options;
use crate::config::resources::Resources;
use crate::error::duration::HumanDuration;
use crate::error::{Error, ErrorCode, Result};
use crate::lock::driver::Driver;
use crate::lock::duplicates::find_duplicate;
use crate::lock::held::{Held, Won};
use crate::lock::lease::Lease;
use crate::lock::owner::Owner;
use crate::lock::renewer::Renewer;
use crate::lock::round::{RoundOptions, RunningRound};
use crate::lock::subscriber::Notification;
use crate::lock::trace::AcquireTrace;
use crate::lock::waiters::{Place, Queued, RoundReport};
use crate::runtime::clock;
use crate::runtime::random;
use crate::runtime::timer::sleep;
use crate::telemetry::events;
use quorlock_protocol::{Calls, Event, Loss, Moment, Next, NodeSet, Outcome, Term, Waiting};
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// When a queue could not be joined, for want of a connection, it is tried again after this.
const JOIN_AGAIN: Duration = Duration::from_millis(100);

/// How long a thread or task waits for a lock that it holds itself before that is published.
const REENTRANT_AFTER: Duration = Duration::from_secs(1);

/// One caller's acquire.
pub(crate) struct Acquire {
    driver: Arc<Driver>,
    renewer: Arc<Renewer>,
    resources: Resources,
    keys: Arc<[Keys]>,
    term: Term,
    wait: Option<Duration>,
    max_hold: Option<Duration>,
    auto_extend: bool,
    arrived: Moment,
    waiting: Waiting,
    calls: Calls,
    /// In its client's line; `None` for a single try, which waits for nobody.
    place: Option<Place>,
    /// The nodes in whose queues it may be, and what it is there.
    joined: NodeSet,
    queued: Option<Arc<Subject>>,
    node_timeout: Duration,
    trace: AcquireTrace,
    owner: Option<Owner>,
    /// Ends what waits to warn that the owner waits for itself.
    reentrant: Option<DropGuard>,
}

type Caller = oneshot::Sender<Result<Lease>>;

impl Acquire {
    pub(crate) fn new(
        renewer: &Arc<Renewer>,
        resources: &Resources,
        keys: Arc<[Keys]>,
        options: &Options,
        owner: Option<Owner>,
    ) -> Self {
        let driver = renewer.driver();
        let now = clock::now();
        let waits = options.wait.is_none_or(|wait| !wait.is_zero());
        Self {
            resources: resources.clone(),
            term: options.term(options.ttl),
            wait: options.wait,
            max_hold: options.max_hold,
            auto_extend: options.auto_extend,
            arrived: now,
            waiting: Waiting::new(now, options.wait, options.connect_timeout, options.retry_delay),
            calls: Calls::new(driver.quorum, now, driver.turns()),
            place: waits.then(|| driver.waiters.join(&keys, now)),
            joined: NodeSet::EMPTY,
            queued: None,
            node_timeout: options.node_timeout(options.ttl),
            trace: AcquireTrace::begin(driver, resources, now),
            driver: Arc::clone(driver),
            renewer: Arc::clone(renewer),
            owner,
            reentrant: None,
            keys,
        }
    }

    /// Runs rounds until one is won, the wait is over, the client is closed, or the caller is gone.
    pub(crate) async fn run(mut self, mut caller: Caller) {
        let driver = Arc::clone(&self.driver);
        match unless_stopped(&driver, &mut caller, self.turn()).await {
            Ok(None) => {}
            Ok(Some(error)) => return self.refuse(caller, error),
            Err(stop) => return self.stop(caller, stop),
        }
        loop {
            match unless_stopped(&driver, &mut caller, driver.ready()).await {
                Ok(Ok(())) => {}
                Ok(Err(mistake)) => {
                    self.leave();
                    return self.fail(caller, mistake);
                }
                Err(stop) => {
                    self.leave();
                    return self.stop(caller, stop);
                }
            }
            let mut round = match self.begin() {
                Ok(round) => round,
                Err(error) => return self.refuse(caller, error),
            };
            let outcome = match unless_stopped(&driver, &mut caller, round.decide()).await {
                Ok(outcome) => outcome,
                Err(stop) => {
                    // What is taken back from now on leaves no place in a queue.
                    self.place = None;
                    round.handle(Event::Abandon);
                    self.stop(caller, stop);
                    return self.finish(round).await;
                }
            };
            let loss = match outcome {
                Outcome::Won { fence, end } => {
                    // The next one's turn. Where this one is still in a queue, its release ends that.
                    self.place = None;
                    let won = Won {
                        resources: self.resources.clone(),
                        subject: Arc::clone(&round.subject),
                        fence,
                        term: self.term,
                        sent: round.sent,
                        end,
                        max_hold: self.max_hold,
                        auto_extend: self.auto_extend,
                        owner: self.owner,
                    };
                    let held = Held::new(&driver, won, round.granted(), round.holders());
                    let lease = Lease::new(&self.renewer, Arc::clone(&held));
                    if driver.identities.needs_proof() {
                        let complete = round.complete();
                        if let Err(stop) = unless_stopped(&driver, &mut caller, complete).await {
                            drop(lease);
                            self.stop(caller, stop);
                            return round.finish(Some(held)).await;
                        }
                        round.prove();
                    }
                    if let Some(mistake) = self.mistake(round.duplicate(), &round.subject).await {
                        drop(lease);
                        self.fail(caller, mistake);
                        return round.finish(Some(held)).await;
                    }
                    // A client that was closed meanwhile may have missed the new lease. Dropping it
                    // releases it; so does a caller that has gone.
                    if driver.closing.is_cancelled() {
                        drop(lease);
                        self.stop(caller, Stop::Closing);
                    } else {
                        self.trace.win(fence);
                        answer(caller, Ok(lease));
                    }
                    return round.finish(Some(held)).await;
                }
                Outcome::Lost(loss) => loss,
            };
            if let Some(mistake) = self.mistake(round.duplicate(), &round.subject).await {
                self.fail(caller, mistake);
                return self.finish(round).await;
            }
            match self.lost(&round, loss) {
                Next::GiveUp => {
                    round.catch_up();
                    let error = self.error(loss, &round.answers);
                    self.refuse(caller, error);
                    return self.finish(round).await;
                }
                Next::TryAt(moment) => {
                    let leftover = async move { round.finish(None).await };
                    driver.detach(leftover);
                    let pause = self.pause(moment);
                    if let Err(stop) = unless_stopped(&driver, &mut caller, pause).await {
                        self.leave();
                        return self.stop(caller, stop);
                    }
                }
            }
        }
    }

    /// Waits in the client's line; returns why it was in vain.
    async fn turn(&mut self) -> Option<Error> {
        if self.place.as_ref()?.stood_behind() {
            self.begin_to_wait();
        }
        let end = self.wait.map(|wait| self.arrived.plus(wait));
        let retry_delay = self.driver.options.retry_delay.longest;
        let place = self.place.as_mut()?;
        let wait = async {
            match end {
                Some(end) => {
                    sleep(end.since(clock::now())).await;
                    // Older report may be of a holder that is gone, or of nodes that are down since. The timer
                    // may be late: it stands still while the machine is suspended.
                    clock::now().minus(retry_delay).max(self.arrived)
                }
                None => std::future::pending().await,
            }
        };
        let has_hope = tokio::select! {
            biased;
            has_hope = place.is_first() => Some(has_hope),
            since = wait => place.is_informed(since).await,
        };
        let RoundReport { answers, outage, .. } = place.report();
        match (has_hope, outage) {
            (Some(true), outage) => {
                if let Some(since) = outage {
                    self.waiting.met_outage(since.max(self.arrived));
                }
                None
            }
            (None, None) => Some(self.error(Loss::Contended { free_in: None }, &answers)),
            (Some(false), _) | (None, Some(_)) => Some(self.error(Loss::NoQuorum, &answers)),
        }
    }

    /// Others have it, or are before it in the line.
    fn begin_to_wait(&mut self) {
        if !self.trace.wait() || self.owner.is_none() {
            return;
        }
        // Its owner waits from now on, so it acquires nothing else meanwhile.
        let own = self.renewer.find(&self.keys, |held| held.won.owner == self.owner);
        let Some(held) = own else { return };
        let waiting = CancellationToken::new();
        self.reentrant = Some(waiting.clone().drop_guard());
        let resources = self.resources.clone();
        let warn = waiting.run_until_cancelled_owned(async move {
            sleep(REENTRANT_AFTER).await;
            if held.is_valid(clock::now()) {
                events::reentrant(&resources, held.won.fence);
            }
        });
        self.driver.detach(async move {
            warn.await;
        });
    }

    fn begin(&mut self) -> Result<RunningRound> {
        let queued = self.place.as_mut().and_then(|place| {
            place.listen_with_others();
            place.queued()
        });
        self.joined = queued.as_ref().map_or(self.joined, |queued| queued.nodes);
        let options = RoundOptions {
            keys: &self.keys,
            term: self.term,
            node_timeout: self.node_timeout,
            turns: self.calls.begin(clock::now()),
            queued,
        };
        let round = RunningRound::start(&self.driver, options)?;
        self.trace.begin_round();
        if round.subject.waiter.is_some() {
            self.queued = Some(Arc::clone(&round.subject));
        }
        Ok(round)
    }

    /// What follows a round that was lost.
    fn lost(&mut self, round: &RunningRound, loss: Loss) -> Next {
        // It joined with its request, except where that failed.
        let failed = |answer: &Option<Answered>| matches!(answer, Some(Err(_)));
        let nodes = 0..round.answers.len();
        nodes.filter(|node| failed(&round.answers[*node])).for_each(|node| {
            self.joined.remove(node);
        });
        // Where others are said to be before it by some nodes only, they may be gone.
        self.waiting.stands_behind(round.refusals().filter_map(|refusal| refusal.rank).min());
        self.trace.lose_round(loss);
        let next = self.waiting.after(clock::now(), round.sent, loss, random::random());
        if let (Next::TryAt(_), Loss::Contended { .. }) = (next, loss) {
            self.begin_to_wait();
        }
        if let Some(place) = &mut self.place {
            let outage = self.waiting.outage();
            let at = Some(clock::now());
            place.publish(RoundReport { answers: round.answers.clone().into(), outage, at });
            match (next, loss) {
                (Next::TryAt(_), Loss::Contended { .. }) => place.listen(),
                (Next::GiveUp, Loss::NoQuorum) => {
                    let patience = self.driver.options.connect_timeout;
                    place.give_up_with_others(clock::now().minus(patience));
                }
                _ => {}
            }
        }
        next
    }

    /// Waits until it is time for another round: at `next`, or earlier if the nodes call.
    async fn pause(&mut self, mut next: Moment) {
        loop {
            self.join_queues();
            let left = next.since(clock::now());
            let Some(place) = &mut self.place else { return sleep(left).await };
            let hurry = place.hurry();
            let notification = tokio::select! {
                biased;
                notification = place.notification() => notification,
                () = hurry.notified() => return,
                () = sleep(left) => return,
            };
            match notification {
                Notification::Unqueued(node) => self.joined.remove(node),
                Notification::Free { node, lock } => {
                    self.trace.called(self.driver.nodes[node].address());
                    let resource = self.keys.iter().position(|keys| keys.lock == lock);
                    let (now, random) = (clock::now(), random::random());
                    let Some(resource) = resource else { continue };
                    let delay = self.driver.options.retry_delay;
                    next = self.calls.add(now, node, resource, next, delay, random);
                    if next <= now {
                        return;
                    }
                }
            }
        }
    }

    /// Joins the queues of those nodes that it has begun to listen to. A node where the resource is
    /// free by now calls at once.
    fn join_queues(&mut self) {
        let Some(queued) = self.place.as_ref().and_then(Place::queued) else { return };
        let Queued { waiter, ticket, nodes, waits } = queued;
        if nodes == self.joined {
            return;
        }
        if self.queued.is_none() {
            // There is nothing to release; but the token must be nobody's.
            let Ok(token) = random::token() else { return };
            let keys = Arc::clone(&self.keys);
            self.queued = Some(Arc::new(Subject { keys, token, waiter: Some(waiter) }));
        }
        let Some(subject) = &self.queued else { return };
        let Some(sender) = self.place.as_ref().and_then(Place::sender) else { return };
        for node in nodes.iter().filter(|node| !self.joined.contains(*node)) {
            let (subject, turns) = (Arc::clone(subject), self.driver.turns());
            let leave = Request::release(&subject, turns);
            let request = Request::Release { subject, ticket: Some(ticket), turns };
            let join = self.driver.call(node, request, clock::now(), self.node_timeout);
            let (again, closing) = (sender.clone(), self.driver.closing.clone());
            let (target, patience) = (Arc::clone(&self.driver.nodes[node]), self.node_timeout);
            let waits = Weak::clone(&waits);
            let join = async move {
                if join.await.is_err() {
                    closing.run_until_cancelled(sleep(JOIN_AGAIN)).await;
                    // An error means that nobody waits any more.
                    let _ = again.send(Notification::Unqueued(node));
                } else if waits.strong_count() == 0 {
                    // The node may have been asked to let it join again, after it had left.
                    let horizon = clock::now().plus(turns.memory);
                    target.deliver(leave, patience, horizon, &closing).await;
                }
            };
            self.driver.detach(join);
        }
        self.joined = nodes;
    }

    /// Leaves the nodes' queues, in vain.
    fn leave(&mut self) {
        self.place = None;
        let Some(queued) = &self.queued else { return };
        let horizon = clock::now().plus(self.driver.turns().memory);
        for node in std::mem::take(&mut self.joined).iter() {
            let request = Request::release(queued, self.driver.turns());
            self.driver.deliver(node, request, self.node_timeout, horizon);
        }
    }

    /// Sees the last round to its end, which was in vain.
    async fn finish(mut self, round: RunningRound) {
        self.leave();
        round.finish(None).await;
    }

    /// The mistake in the list of nodes that this round revealed, or that was found meanwhile.
    async fn mistake(&self, duplicate: Option<usize>, subject: &Arc<Subject>) -> Option<Error> {
        if let Some(node) = duplicate {
            let subject = Arc::clone(subject);
            let exposed = find_duplicate(&self.driver, node, subject, self.term, self.node_timeout);
            if let Err(error) = exposed.await {
                return Some(error);
            }
        }
        self.driver.identities.mistake()
    }

    fn fail(&mut self, caller: Caller, error: Error) {
        self.refuse(caller, error.about(&self.resources));
    }

    /// Ends in this error.
    fn refuse(&mut self, caller: Caller, error: Error) {
        self.reentrant = None;
        self.trace.fail(Some(&error));
        answer(caller, Err(error));
    }

    /// Ends because nobody waits for it any more.
    fn stop(&mut self, caller: Caller, stop: Stop) {
        self.trace.fail(None);
        stop.tell(caller, &self.resources);
    }

    fn error(&self, loss: Loss, answers: &[Option<Answered>]) -> Error {
        if loss == Loss::NoQuorum {
            return self.driver.no_quorum(&self.resources, answers);
        }
        let granted = |answer: &&Answered| matches!(answer, Ok(Reply::Granted { .. }));
        let granted = answers.iter().flatten().filter(granted).count();
        let waited = self.wait.filter(|wait| !wait.is_zero());
        let held = match (self.renewer.find(&self.keys, |_| true), waited) {
            (Some(own), waited) => {
                let dropped =
                    if own.is_dropped() { ", dropped without being released" } else { "" };
                let after = waited
                    .map_or_else(String::new, |wait| format!(" after {}", HumanDuration(wait)));
                let fence = own.won.fence;
                format!("is held by another lease of this client (fence {fence}{dropped}){after}")
            }
            (None, Some(wait)) => {
                format!("was held by others for the whole wait of {}", HumanDuration(wait))
            }
            (None, None) => "is held by others".to_owned(),
        };
        let (nodes, needed) = (self.driver.quorum.nodes(), self.driver.quorum.size());
        let message = format!(
            "{} {held}: {granted} of {nodes} nodes granted it, {needed} are needed",
            self.resources
        );
        Error::new(ErrorCode::Timeout, message)
            .about(&self.resources)
            .with_nodes(self.driver.reports(answers))
    }
}

fn answer(caller: Caller, result: Result<Lease>) {
    // An error means that nobody waits any more; dropping the result is all there is to do.
    let _ = caller.send(result);
}

/// Why an acquire stops before it is decided.
enum Stop {
    /// The caller dropped its [`Pending`](crate::Pending).
    Cancelled,
    Closing,
}

impl Stop {
    fn tell(self, caller: Caller, resources: &Resources) {
        if let Self::Closing = self {
            answer(caller, Err(Error::closed().about(resources)));
        }
    }
}

async fn unless_stopped<T>(
    driver: &Driver,
    caller: &mut Caller,
    work: impl Future<Output = T>,
) -> std::result::Result<T, Stop> {
    tokio::select! {
        biased;
        () = caller.closed() => Err(Stop::Cancelled),
        () = driver.closing.cancelled() => Err(Stop::Closing),
        done = work => Ok(done),
    }
}
