//! Acquiring: runs the protocol's rounds on the client's nodes.

use crate::clock;
use crate::driver::{Call, Driver};
use crate::error::{Error, ErrorCode, NodeReport, Result};
use crate::held::{Held, Won};
use crate::lease::Lease;
use crate::node::{Answered, vote};
use crate::options::{Human, Options};
use crate::protocol::{Actions, Event, Loss, Moment, Next, NodeSet, Outcome, Round, Term, Waiting};
use crate::request::{Keys, Reply, Request, Subject};
use crate::token;
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// One caller's acquire.
pub(crate) struct Acquire {
    driver: Arc<Driver>,
    resource: Arc<str>,
    keys: Arc<Keys>,
    term: Term,
    wait: Option<Duration>,
    max_hold: Option<Duration>,
    auto_extend: bool,
    waiting: Waiting,
    node_timeout: Duration,
}

type Caller = oneshot::Sender<Result<Lease>>;

impl Acquire {
    pub(crate) fn new(
        driver: Arc<Driver>,
        resource: &str,
        keys: Arc<Keys>,
        options: &Options,
    ) -> Self {
        Self {
            resource: resource.into(),
            keys,
            term: options.term(options.ttl),
            wait: options.wait,
            max_hold: options.max_hold,
            auto_extend: options.auto_extend,
            waiting: Waiting::new(
                clock::now(),
                options.wait,
                options.connect_timeout,
                options.retry_delay,
            ),
            node_timeout: options.node_timeout(options.ttl),
            driver,
        }
    }

    /// Runs rounds until one is won, the wait is over, the client is closed, or the caller is gone.
    pub(crate) async fn run(mut self, mut caller: Caller) {
        let driver = Arc::clone(&self.driver);
        loop {
            if let Err(stop) = unless_stopped(&driver, &mut caller, driver.ready()).await {
                return stop.tell(caller, &self.resource);
            }
            let mut round = match Running::start(&self) {
                Ok(round) => round,
                Err(error) => return answer(caller, Err(error)),
            };
            let outcome = match unless_stopped(&driver, &mut caller, round.decide()).await {
                Ok(outcome) => outcome,
                Err(stop) => {
                    round.handle(Event::Abandon);
                    stop.tell(caller, &self.resource);
                    return round.finish(None).await;
                }
            };
            let loss = match outcome {
                Outcome::Won { fence, end } => {
                    let won = Won {
                        resource: Arc::clone(&self.resource),
                        subject: Arc::clone(&round.subject),
                        fence,
                        term: self.term,
                        sent: round.sent,
                        end,
                        max_hold: self.max_hold,
                        auto_extend: self.auto_extend,
                    };
                    let held = Held::new(&driver, won, round.round.holders());
                    let lease = Lease::new(&held);
                    // A client that was closed meanwhile may have missed the new lease. Dropping it
                    // releases it; so does a caller that has gone.
                    if driver.closing.is_cancelled() {
                        drop(lease);
                        Stop::Closing.tell(caller, &self.resource);
                    } else {
                        answer(caller, Ok(lease));
                    }
                    return round.finish(Some(held)).await;
                }
                Outcome::Lost(loss) => loss,
            };
            match self.waiting.after(clock::now(), round.sent, loss, token::random()) {
                Next::GiveUp => {
                    round.catch_up();
                    answer(caller, Err(self.error(loss, &round.answers)));
                    return round.finish(None).await;
                }
                Next::TryAt(moment) => {
                    let leftover = async move { round.finish(None).await };
                    if let Err(error) = driver.spawn(leftover) {
                        return answer(caller, Err(error));
                    }
                    let pause = sleep(moment.since(clock::now()));
                    if let Err(stop) = unless_stopped(&driver, &mut caller, pause).await {
                        return stop.tell(caller, &self.resource);
                    }
                }
            }
        }
    }

    fn error(&self, loss: Loss, answers: &[Option<Answered>]) -> Error {
        if loss == Loss::NoQuorum {
            return no_quorum(&self.driver, &self.resource, answers);
        }
        let granted = |answer: &&Answered| matches!(answer, Ok(Reply::Granted(_)));
        let granted = answers.iter().flatten().filter(granted).count();
        let held = match self.wait {
            Some(wait) if !wait.is_zero() => {
                format!("was held by others for the whole wait of {}", Human(wait))
            }
            _ => "is held by others".to_owned(),
        };
        let (nodes, needed) = (self.driver.quorum.nodes(), self.driver.quorum.size());
        let message = format!(
            "{:?} {held}: {granted} of {nodes} nodes granted it, {needed} are needed",
            &*self.resource
        );
        Error::new(ErrorCode::Timeout, message)
            .with_resource(&self.resource)
            .with_nodes(reports(&self.driver, answers))
    }
}

/// The error for a request that too few nodes answered.
pub(crate) fn no_quorum(driver: &Driver, resource: &str, answers: &[Option<Answered>]) -> Error {
    let answered = answers.iter().flatten().filter(|answer| answer.is_ok()).count();
    let (nodes, needed) = (driver.quorum.nodes(), driver.quorum.size());
    let message = format!(
        "too few nodes could vote on {resource:?} in time: {answered} of {nodes} answered, \
         {needed} are needed"
    );
    Error::new(ErrorCode::NoQuorum, message)
        .with_resource(resource)
        .with_nodes(reports(driver, answers))
}

pub(crate) fn reports(driver: &Driver, answers: &[Option<Answered>]) -> Vec<NodeReport> {
    driver.nodes.iter().zip(answers).map(|(node, answer)| node.report(answer.as_ref())).collect()
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
    fn tell(self, caller: Caller, resource: &str) {
        if let Self::Closing = self {
            answer(caller, Err(Error::closed().with_resource(resource)));
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

/// A round on the wire.
struct Running {
    driver: Arc<Driver>,
    subject: Arc<Subject>,
    term: Term,
    node_timeout: Duration,
    sent: Moment,
    round: Round,
    answers: Vec<Option<Answered>>,
    votes: FuturesUnordered<Call>,
    raises: FuturesUnordered<Call>,
}

impl Running {
    fn start(acquire: &Acquire) -> Result<Self> {
        let driver = Arc::clone(&acquire.driver);
        let subject = Arc::new(Subject { keys: Arc::clone(&acquire.keys), token: token::token()? });
        let proposal = clock::wall_clock_micros();
        let sent = clock::now();
        let ttl = acquire.term.ttl;
        let request = Request::Acquire { subject: Arc::clone(&subject), ttl, proposal };
        // An answer after the end of the validity would be of no use.
        let node_timeout = acquire.node_timeout.min(acquire.term.end(sent).since(sent));
        Ok(Self {
            votes: driver.call_all(&request, node_timeout),
            raises: FuturesUnordered::new(),
            answers: vec![None; driver.nodes.len()],
            round: Round::new(driver.quorum, sent, acquire.term),
            term: acquire.term,
            node_timeout,
            sent,
            subject,
            driver,
        })
    }

    /// Runs the round until it is decided. Can be dropped and called again.
    async fn decide(&mut self) -> Outcome {
        while let Some(event) = self.next_event().await {
            if let Some(outcome) = self.handle(event) {
                return outcome;
            }
        }
        // Every node votes by its deadline, and then the protocol has decided.
        Outcome::Lost(Loss::NoQuorum)
    }

    /// Sees the round to its end after the decision: late votes join `lease` while it is held,
    /// and are undone otherwise.
    async fn finish(mut self, lease: Option<Arc<Held>>) {
        while let Some(event) = self.next_event().await {
            if lease.as_ref().is_none_or(|lease| lease.is_released()) {
                self.handle(Event::Abandon);
            }
            self.handle(event);
            if let Some(lease) = &lease {
                lease.set_holders(self.round.holders());
            }
        }
    }

    /// Takes in the answers that are there already, so that an error names them too.
    fn catch_up(&mut self) {
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

    fn handle(&mut self, event: Event) -> Option<Outcome> {
        let actions = self.round.handle(clock::now(), event);
        self.carry_out(actions)
    }

    fn carry_out(&mut self, actions: Actions) -> Option<Outcome> {
        if let Some((nodes, fence)) = actions.raise {
            let patience = self.node_timeout;
            let (subject, ttl) = (Arc::clone(&self.subject), self.term.ttl);
            let request = Request::Raise { subject, ttl, fence };
            self.raises
                .extend(nodes.iter().map(|node| self.driver.call(node, request.clone(), patience)));
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
