//! The simulated network: a connection keeps the order of what is sent on it, and delays it.

use super::node::Node;
use super::process::Process;
use super::world::World;
use crate::answer::{Answered, Failure};
use crate::asking::Sink;
use crate::error::NodeOutcome;
use crate::request::{Request, Subject};
use crate::wire::Sight;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The way between a process and a node, in both directions.
pub(super) struct Link {
    pub(super) up: watch::Sender<bool>,
    pub(super) down: watch::Sender<bool>,
    /// The shortest and the longest delay of a message, in milliseconds.
    delay: (AtomicU64, AtomicU64),
    connections: Mutex<Vec<Weak<Shared>>>,
    pub(super) loses_calls: AtomicBool,
}

/// One end of a connection; it is closed when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Connection(Arc<End>);

struct End {
    up: mpsc::UnboundedSender<Message>,
    link: Arc<Link>,
    process: Weak<Process>,
    shared: Arc<Shared>,
}

/// What both ends know.
struct Shared {
    /// It is for calls only.
    is_ear: bool,
    /// The client hears nothing on it any more, and knows.
    broken: CancellationToken,
    /// What was sent on it is lost, too.
    is_lost: AtomicBool,
    /// The client does not use it any more.
    is_abandoned: AtomicBool,
}

struct Message {
    due: Instant,
    body: Body,
}

enum Body {
    Ask(Request, oneshot::Sender<Answered>),
    Look(oneshot::Sender<Sight>),
    Listen(String, Hear, oneshot::Sender<()>),
}

type Hear = Arc<dyn Fn(u64, &str) + Send + Sync>;

/// A reply on its way to the client.
struct Reply {
    due: Instant,
    deliver: Box<dyn FnOnce() + Send>,
}

impl Link {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            up: watch::Sender::new(true),
            down: watch::Sender::new(true),
            delay: (AtomicU64::new(0), AtomicU64::new(2)),
            connections: Mutex::default(),
            loses_calls: AtomicBool::new(false),
        })
    }

    pub(super) fn set_delay(&self, milliseconds: Range<u64>) {
        self.delay.0.store(milliseconds.start, Ordering::Relaxed);
        self.delay.1.store(milliseconds.end, Ordering::Relaxed);
    }

    fn delay(&self) -> Range<u64> {
        self.delay.0.load(Ordering::Relaxed)..self.delay.1.load(Ordering::Relaxed)
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process hears calls on it.
    pub(super) fn is_listening(&self) -> bool {
        let connections = self.connections();
        let mut open = connections.iter().filter_map(Weak::upgrade);
        open.any(|shared| shared.is_ear && !shared.is_abandoned.load(Ordering::Relaxed))
    }

    /// Breaks all connections. What was sent on them is lost, or else comes late.
    pub(super) fn cut(&self, is_lost: bool) {
        for shared in self.connections().drain(..).filter_map(|shared| shared.upgrade()) {
            shared.is_lost.fetch_or(is_lost, Ordering::Relaxed);
            shared.broken.cancel();
        }
    }

    /// The process is gone.
    pub(super) fn abandon(&self) {
        for shared in self.connections().drain(..).filter_map(|shared| shared.upgrade()) {
            shared.is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}

/// Connects the process that runs to a node of its world, by its number.
pub(crate) async fn connect(
    name: &str,
    is_ear: bool,
    on_broken: impl Fn() + Send + Sync + 'static,
) -> Result<Connection, Failure> {
    let process = super::process().expect("it is one that runs");
    process.connect(name, is_ear, on_broken).await
}

impl Process {
    async fn connect(
        self: Arc<Self>,
        name: &str,
        is_ear: bool,
        on_broken: impl Fn() + Send + Sync + 'static,
    ) -> Result<Connection, Failure> {
        let number: usize = name.parse().expect("nodes have numbers for names");
        let (node, link) = (Arc::clone(&self.world.nodes[number]), Arc::clone(&self.links[number]));
        self.travel(&link).await;
        open(&link.up).await;
        node.runs().await;
        if !node.is_up() {
            return Err(Failure::unreachable("connection refused"));
        }
        self.travel(&link).await;
        open(&link.down).await;
        let shared = Arc::new(Shared {
            is_ear,
            broken: CancellationToken::new(),
            is_lost: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        });
        // One that it replaces may stand for as long as the process waits for answers on it.
        let mut connections = link.connections();
        connections.retain(|shared| shared.strong_count() > 0);
        connections.push(Arc::downgrade(&shared));
        drop(connections);
        let broken = shared.broken.clone();
        drop(self.spawn(async move {
            broken.cancelled().await;
            on_broken();
        }));
        let (up, messages) = mpsc::unbounded_channel();
        let (down, replies) = mpsc::unbounded_channel();
        let (world, process) = (Arc::clone(&self.world), Arc::downgrade(&self));
        let serving = serve(node, Arc::clone(&link), Arc::clone(&shared), world, messages, down);
        tokio::spawn(serving);
        tokio::spawn(deliver(Arc::clone(&link), Arc::clone(&shared), replies));
        Ok(Connection(Arc::new(End { up, link, process, shared })))
    }

    async fn travel(&self, link: &Link) {
        sleep(Duration::from_millis(self.world.random(link.delay()))).await;
    }
}

/// Waits until what travels this way arrives.
async fn open(way: &watch::Sender<bool>) {
    // It fails if nobody can open it any more, which ends the simulation.
    let _ = way.subscribe().wait_for(|is_open| *is_open).await;
}

/// Lets the messages of one connection arrive at the node, in order.
async fn serve(
    node: Arc<Node>,
    link: Arc<Link>,
    shared: Arc<Shared>,
    world: Arc<World>,
    mut messages: mpsc::UnboundedReceiver<Message>,
    down: mpsc::UnboundedSender<Reply>,
) {
    let started = node.started();
    while let Some(Message { due, body }) = messages.recv().await {
        sleep_until(due).await;
        open(&link.up).await;
        node.runs().await;
        if !node.is_up() || node.started() != started || shared.is_lost.load(Ordering::Relaxed) {
            // The client is told of it, if it can be reached.
            open(&link.down).await;
            shared.broken.cancel();
            return;
        }
        let is_late = shared.broken.is_cancelled();
        let deliver: Box<dyn FnOnce() + Send> = match body {
            Body::Ask(request, reply) => {
                if is_late {
                    world.came_late(&request);
                }
                let answered = node.answer(&request);
                world.trace(|| trace(&node, &world, &request, &answered, is_late));
                Box::new(move || drop(reply.send(answered)))
            }
            Body::Look(reply) => {
                let sight = node.sight();
                Box::new(move || drop(reply.send(sight)))
            }
            Body::Listen(channel, hear, reply) => {
                let calls = Calls {
                    hear,
                    link: Arc::clone(&link),
                    shared: Arc::clone(&shared),
                    world: Arc::clone(&world),
                    down: down.clone(),
                };
                node.listen(&channel, Box::new(move |number, lock| calls.send(number, lock)));
                Box::new(move || {
                    let _ = reply.send(());
                })
            }
        };
        let due = Instant::now() + Duration::from_millis(world.random(link.delay()));
        // An error means that nobody waits for it.
        let _ = down.send(Reply { due, deliver });
    }
}

/// A node's way to a process that listens.
struct Calls {
    hear: Hear,
    link: Arc<Link>,
    shared: Arc<Shared>,
    world: Arc<World>,
    down: mpsc::UnboundedSender<Reply>,
}

impl Calls {
    /// `false` if the connection is closed, as far as the node knows.
    fn send(&self, number: u64, lock: &str) -> bool {
        if self.shared.broken.is_cancelled() || self.shared.is_abandoned.load(Ordering::Relaxed) {
            return false;
        }
        if self.link.loses_calls.load(Ordering::Relaxed) {
            return true;
        }
        let delay = self.world.random(self.link.delay());
        let due = Instant::now() + Duration::from_millis(delay);
        let (hear, lock) = (Arc::clone(&self.hear), lock.to_owned());
        self.down.send(Reply { due, deliver: Box::new(move || hear(number, &lock)) }).is_ok()
    }
}

/// A line of the history.
fn trace(
    node: &Node,
    world: &World,
    request: &Request,
    answered: &Answered,
    is_late: bool,
) -> String {
    let (what, tokens) = match request {
        Request::Acquire { subject, .. } => ("ACQUIRE", vec![subject]),
        Request::Raise { subject, .. } => ("RAISE", vec![subject]),
        Request::Release { subject, ticket: None, .. } => ("RELEASE", vec![subject]),
        Request::Release { subject, .. } => ("RELEASE and wait", vec![subject]),
        Request::Extend(locks) => ("EXTEND", locks.iter().map(|(subject, _)| subject).collect()),
        Request::Heal(locks) => ("HEAL", locks.iter().map(|(subject, ..)| subject).collect()),
        Request::Look(_) => ("LOOK", Vec::new()),
        Request::Inspect(_) => ("INSPECT", Vec::new()),
        Request::Forget(_) => ("FORGET", Vec::new()),
    };
    let about = |subject: &&Arc<Subject>| {
        let token = &subject.token;
        let locks: Vec<_> = subject.keys.iter().map(|keys| &*keys.lock).collect();
        let token = token.get(..6).unwrap_or_default();
        format!(" {} {token} of {}", locks.join(" "), world.maker(&subject.token))
    };
    let about: String = tokens.iter().map(about).collect();
    let late = if is_late { ", late" } else { "" };
    let answered = match answered {
        Ok(reply) => format!("{reply:?}"),
        Err(failure) => failure.detail.clone(),
    };
    format!("node {} gets {what}{about}{late}: {answered}", node.number)
}

/// Lets the replies on one connection arrive at the client, in order.
async fn deliver(
    link: Arc<Link>,
    shared: Arc<Shared>,
    mut replies: mpsc::UnboundedReceiver<Reply>,
) {
    while let Some(Reply { due, deliver }) = replies.recv().await {
        sleep_until(due).await;
        open(&link.down).await;
        if !shared.broken.is_cancelled() {
            deliver();
        }
    }
}

impl Connection {
    /// Sends a request; its answer goes to `sink`.
    pub(crate) fn ask(&self, request: &Request, sink: Sink) {
        let (reply, answered) = oneshot::channel();
        self.send(Body::Ask(request.clone(), reply));
        let Some(process) = self.0.process.upgrade() else { return };
        let shared = Arc::clone(&self.0.shared);
        drop(process.spawn(async move {
            tokio::select! {
                biased;
                Ok(answered) = answered => sink.answer(answered),
                () = shared.broken.cancelled() => sink.answer(Err(disconnected(true))),
            }
        }));
    }

    pub(crate) async fn look(&self) -> Result<Sight, Failure> {
        let (reply, sight) = oneshot::channel();
        self.send(Body::Look(reply));
        tokio::select! {
            biased;
            Ok(sight) = sight => Ok(sight),
            () = self.0.shared.broken.cancelled() => Err(disconnected(false)),
        }
    }

    /// Hears the calls on a channel, until it is dropped.
    pub(crate) async fn listen(
        &self,
        channel: &str,
        hear: impl Fn(u64, &str) + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        let (reply, done) = oneshot::channel();
        self.send(Body::Listen(channel.to_owned(), Arc::new(hear), reply));
        tokio::select! {
            biased;
            Ok(()) = done => Ok(()),
            () = self.0.shared.broken.cancelled() => Err(disconnected(false)),
        }
    }

    fn send(&self, body: Body) {
        let Some(process) = self.0.process.upgrade() else { return };
        if self.0.shared.broken.is_cancelled() {
            return;
        }
        let delay = Duration::from_millis(process.world.random(self.0.link.delay()));
        let due = Instant::now() + process.lead() + delay;
        // An error means that the connection is broken, which `broken` tells.
        let _ = self.0.up.send(Message { due, body });
        process.has_sent();
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.is_abandoned.store(true, Ordering::Relaxed);
    }
}

fn disconnected(sent: bool) -> Failure {
    let outcome = if sent { NodeOutcome::Disconnected } else { NodeOutcome::Unreachable };
    Failure { outcome, detail: "the connection broke".to_owned(), sent }
}
