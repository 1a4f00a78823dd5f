//! Acquiring: runs the protocol's rounds on the client's nodes.

use crate::answer::Answered;
use crate::clock;
use crate::driver::Driver;
use crate::engine::Engine;
use crate::error::{Error, ErrorCode, Result};
use crate::held::{Held, Won};
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::options::{Human, Options};
use crate::protocol::{Event, Loss, Next, Outcome, Term, Waiting};
use crate::request::{Keys, Reply, Subject};
use crate::round::Running;
use crate::timer::sleep;
use crate::token;
use crate::twins::expose;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// One caller's acquire.
pub(crate) struct Acquire {
    driver: Arc<Driver>,
    keeper: Arc<Keeper>,
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
    pub(crate) fn new(engine: &Engine, resource: &str, keys: Arc<Keys>, options: &Options) -> Self {
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
            driver: Arc::clone(&engine.driver),
            keeper: Arc::clone(&engine.keeper),
        }
    }

    /// Runs rounds until one is won, the wait is over, the client is closed, or the caller is gone.
    pub(crate) async fn run(mut self, mut caller: Caller) {
        let driver = Arc::clone(&self.driver);
        loop {
            match unless_stopped(&driver, &mut caller, driver.ready()).await {
                Ok(Ok(())) => {}
                Ok(Err(mistake)) => return self.fail(caller, mistake),
                Err(stop) => return stop.tell(caller, &self.resource),
            }
            let mut round = match Running::start(&driver, &self.keys, self.term, self.node_timeout)
            {
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
                    let held = Held::new(&driver, won, round.holders());
                    let lease = Lease::new(&self.keeper, Arc::clone(&held));
                    if driver.identities.needs_proof() {
                        let complete = round.complete();
                        if let Err(stop) = unless_stopped(&driver, &mut caller, complete).await {
                            drop(lease);
                            stop.tell(caller, &self.resource);
                            return round.finish(Some(held)).await;
                        }
                        round.prove();
                    }
                    if let Some(mistake) = self.mistake(round.twin(), &round.subject).await {
                        drop(lease);
                        self.fail(caller, mistake);
                        return round.finish(Some(held)).await;
                    }
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
            if let Some(mistake) = self.mistake(round.twin(), &round.subject).await {
                self.fail(caller, mistake);
                return round.finish(None).await;
            }
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

    /// The mistake in the list of nodes that this round revealed, or that was found meanwhile.
    async fn mistake(&self, twin: Option<usize>, subject: &Arc<Subject>) -> Option<Error> {
        if let Some(node) = twin {
            let subject = Arc::clone(subject);
            let exposed = expose(&self.driver, node, subject, self.term, self.node_timeout);
            if let Err(error) = exposed.await {
                return Some(error);
            }
        }
        self.driver.identities.mistake()
    }

    fn fail(&self, caller: Caller, error: Error) {
        answer(caller, Err(error.with_resource(&self.resource)));
    }

    fn error(&self, loss: Loss, answers: &[Option<Answered>]) -> Error {
        if loss == Loss::NoQuorum {
            return self.driver.no_quorum(&self.resource, answers);
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
