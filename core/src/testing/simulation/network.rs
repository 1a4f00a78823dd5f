//! The simulated network: connections that delay messages and keep their order.

use super::applied;
use super::link::{Link, Shared};
use super::node::Node;
use super::process::{Process, process};
use super::world::World;
use crate::error::NodeOutcome;
use crate::transport::handshake::ServerInfo;
use crate::transport::simulated::{self, CONNECT, OnAnswer, OnMessage, Use};
use crate::wire::answer::{Answered, Failure};
use crate::wire::batch::{Batch, Batchable};
use crate::wire::request::{Request, Subject};
use futures_util::future::{BoxFuture, FutureExt};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The client's end of a connection. Dropping this value closes the connection.
struct Connection {
    up: mpsc::UnboundedSender<Message>,
    link: Arc<Link>,
    process: Weak<Process>,
    shared: Arc<Shared>,
}

struct Message {
    due: Instant,
    body: Body,
    /// Whether the message may become part of a batch.
    may_batch: bool,
}

enum Body {
    /// The answer is `None` if a batch did nothing for the request.
    Ask(Arc<Request>, oneshot::Sender<Option<Answered>>),
    Look(oneshot::Sender<ServerInfo>),
    Listen(String, Hear, Weak<()>, oneshot::Sender<()>),
}

type Hear = Arc<dyn Fn(&str) + Send + Sync>;

/// A reply in flight to the client.
struct Reply {
    due: Instant,
    deliver: Box<dyn FnOnce() + Send>,
}

/// Starts a process that is connected to the nodes of its world by these links.
pub(super) fn start(
    world: &Arc<World>,
    name: String,
    rate: f64,
    wall_clock_error: i64,
    links: Vec<Arc<Link>>,
) -> Arc<Process> {
    CONNECT.get_or_init(|| connect);
    Process::new(world, name, rate, wall_clock_error, links)
}

/// Connects the current process to a node of its world. `name` is the node's number.
fn connect(
    name: String,
    for_what: Use,
    on_broken: Box<dyn Fn() + Send + Sync>,
) -> BoxFuture<'static, Result<Arc<dyn simulated::Connection>, Failure>> {
    let process = process().expect("a simulated process is running");
    let connecting = async move {
        let connection = process.connect(&name, for_what == Use::Notifications, on_broken).await?;
        Ok(Arc::new(connection) as Arc<dyn simulated::Connection>)
    };
    connecting.boxed()
}

impl Process {
    async fn connect(
        self: Arc<Self>,
        name: &str,
        is_subscription: bool,
        on_broken: impl Fn() + Send + Sync + 'static,
    ) -> Result<Connection, Failure> {
        let number: usize = name.parse().expect("a node's name is its number");
        let node = Arc::clone(&self.world.nodes[number]);
        let link = Arc::clone(&self.links[number]);
        self.travel(&link).await;
        open(&link.up).await;
        node.runs().await;
        if !node.is_up() {
            return Err(Failure::unreachable("connection refused"));
        }
        self.travel(&link).await;
        open(&link.down).await;
        let shared = Arc::new(Shared {
            is_subscription,
            broken: CancellationToken::new(),
            is_lost: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        });
        // Keep the other connections in the list: a replaced connection may stay open while the process waits for
        // answers on it.
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
        let world = Arc::clone(&self.world);
        let process = Arc::downgrade(&self);
        let serving = serve(node, Arc::clone(&link), Arc::clone(&shared), world, messages, down);
        tokio::spawn(serving);
        tokio::spawn(deliver(Arc::clone(&link), Arc::clone(&shared), replies));
        Ok(Connection { up, link, process, shared })
    }

    async fn travel(&self, link: &Link) {
        sleep(Duration::from_millis(self.world.random(link.delay()))).await;
    }
}

/// Waits until messages pass in this direction.
async fn open(direction: &watch::Sender<bool>) {
    // The wait fails only if the sender is dropped, at the end of the simulation.
    let _ = direction.subscribe().wait_for(|is_open| *is_open).await;
}

impl Message {
    /// The message as a part of a batch; `None` if it must be delivered alone.
    fn batchable(&self) -> Option<Batchable> {
        match &self.body {
            Body::Ask(request, _) if self.may_batch => Batchable::new(request, false),
            _ => None,
        }
    }
}

/// A message that reaches the node.
struct Arriving {
    message: Message,
    /// Whether the batch of this request does nothing for it. A server leaves out the requests for locks with waiters;
    /// here, chance does.
    is_left_out: bool,
}

/// The messages on their way to a node. Requests that wait may become batches, as on a connection to a server.
struct Batches {
    messages: mpsc::UnboundedReceiver<Message>,
    /// The next batches, whose messages were taken out of `messages`.
    planned: VecDeque<Vec<Arriving>>,
    world: Arc<World>,
}

impl Batches {
    /// Returns the messages that the node processes next, without other messages in between. Returns `None` after the
    /// last message.
    async fn next(&mut self) -> Option<Vec<Arriving>> {
        if let Some(batch) = self.planned.pop_front() {
            return Some(batch);
        }
        let mut waiting = Vec::new();
        let mut single = None;
        let mut next = self.messages.recv().await;
        while let Some(message) = next {
            let Some(batchable) = message.batchable() else {
                single = Some(vec![Arriving { message, is_left_out: false }]);
                break;
            };
            waiting.push((batchable, (waiting.len(), message)));
            let is_written = self.world.chance(25);
            next = if is_written { None } else { self.messages.try_recv().ok() };
        }
        for batch in Batch::plan(waiting) {
            let batch = batch.into_items();
            let is_batch = batch.len() > 1;
            if is_batch {
                self.world.count("batches");
            }
            if !batch.is_sorted_by_key(|(_, (number, _))| *number) {
                self.world.count("batches in which a RELEASE moved ahead of an ACQUIRE");
            }
            let arriving = |(_, (_, message))| {
                let is_left_out = is_batch && self.world.chance(15);
                if is_left_out {
                    self.world.count("requests that a batch left out");
                }
                Arriving { message, is_left_out }
            };
            self.planned.push_back(batch.into_iter().map(arriving).collect());
        }
        self.planned.extend(single);
        self.planned.pop_front()
    }
}

/// Delivers the messages of one connection to the node, in order.
async fn serve(
    node: Arc<Node>,
    link: Arc<Link>,
    shared: Arc<Shared>,
    world: Arc<World>,
    messages: mpsc::UnboundedReceiver<Message>,
    down: mpsc::UnboundedSender<Reply>,
) {
    let started = node.started();
    let mut batches = Batches { messages, planned: VecDeque::new(), world: Arc::clone(&world) };
    while let Some(batch) = batches.next().await {
        for Arriving { message, .. } in &batch {
            sleep_until(message.due).await;
        }
        open(&link.up).await;
        node.runs().await;
        if !node.is_up() || node.started() != started || shared.is_lost.load(Ordering::Relaxed) {
            // The client learns of the broken connection as soon as messages reach the client again.
            open(&link.down).await;
            shared.broken.cancel();
            return;
        }
        let is_late = shared.broken.is_cancelled();
        for Arriving { message, is_left_out } in batch {
            let deliver: Box<dyn FnOnce() + Send> = match message.body {
                Body::Ask(_, reply) if is_left_out => Box::new(move || drop(reply.send(None))),
                Body::Ask(request, reply) => {
                    if is_late {
                        world.came_late(&request);
                    }
                    let before = world.is_recorded().then(|| applied::stored(&node, &request));
                    let answered = node.answer(&request);
                    // An EXTEND or RAISE is recorded even if it changes nothing.
                    let counts = matches!(*request, Request::Extend(_) | Request::Raise { .. });
                    if before
                        .is_some_and(|before| counts || before != applied::stored(&node, &request))
                    {
                        world.record(|| applied::applied(&node, &request, &answered));
                    }
                    world.trace(|| trace(&node, &world, &request, &answered, is_late));
                    Box::new(move || drop(reply.send(Some(answered))))
                }
                Body::Look(reply) => {
                    let info = node.server_info();
                    Box::new(move || drop(reply.send(info)))
                }
                Body::Listen(channel, hear, alive, reply) => {
                    let calls = Calls {
                        hear,
                        alive,
                        link: Arc::clone(&link),
                        shared: Arc::clone(&shared),
                        world: Arc::clone(&world),
                        down: down.clone(),
                    };
                    node.listen(&channel, Box::new(move |message| calls.send(message)));
                    Box::new(move || {
                        let _ = reply.send(());
                    })
                }
            };
            let due = Instant::now() + Duration::from_millis(world.random(link.delay()));
            // An error means that the client no longer waits for replies.
            let _ = down.send(Reply { due, deliver });
        }
    }
}

/// The path of a node's notifications to a subscribed process.
struct Calls {
    hear: Hear,
    alive: Weak<()>,
    link: Arc<Link>,
    shared: Arc<Shared>,
    world: Arc<World>,
    down: mpsc::UnboundedSender<Reply>,
}

impl Calls {
    /// Sends a notification. Returns `false` if, as far as the node knows, the subscription or its connection is
    /// closed.
    fn send(&self, message: &str) -> bool {
        if self.shared.broken.is_cancelled()
            || self.shared.is_abandoned.load(Ordering::Relaxed)
            || self.alive.strong_count() == 0
        {
            return false;
        }
        if self.link.loses_calls.load(Ordering::Relaxed) {
            return true;
        }
        let delay = self.world.random(self.link.delay());
        let due = Instant::now() + Duration::from_millis(delay);
        let hear = Arc::clone(&self.hear);
        let message = message.to_owned();
        self.down.send(Reply { due, deliver: Box::new(move || hear(&message)) }).is_ok()
    }
}

/// Returns the line of the history for one request.
fn trace(
    node: &Node,
    world: &World,
    request: &Request,
    answered: &Answered,
    is_late: bool,
) -> String {
    let (what, tokens) = match request {
        Request::Acquire { subject, .. } => ("ACQUIRE", vec![subject]),
        Request::Transfer { subject, .. } => ("TRANSFER", vec![subject]),
        Request::GiveBack(subject) => ("GIVE BACK", vec![subject]),
        Request::Downgrade { subject, .. } => ("DOWNGRADE", vec![subject]),
        Request::Raise { subject, .. } => ("RAISE", vec![subject]),
        Request::Release { subject, ticket: None, .. } => ("RELEASE", vec![subject]),
        Request::Release { subject, .. } => ("RELEASE and wait", vec![subject]),
        Request::Extend(locks) => ("EXTEND", locks.iter().map(|(subject, _)| subject).collect()),
        Request::Heal(locks) => ("HEAL", locks.iter().map(|(subject, ..)| subject).collect()),
        Request::Exists(_) => ("EXISTS", Vec::new()),
        Request::Inspect(_) | Request::InspectPermits { .. } => ("INSPECT", Vec::new()),
        Request::Forget(_) => ("FORGET", Vec::new()),
        Request::List { .. } => ("LIST", Vec::new()),
        Request::Publish { .. } => ("PUBLISH", Vec::new()),
    };
    let about = |subject: &&Arc<Subject>| {
        let token = &subject.token;
        let locks: Vec<_> = subject.keys.iter().map(|keys| &*keys.lock).collect();
        let token = token.as_str().get(..6).unwrap_or_default();
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

/// Delivers the replies of one connection to the client, in order.
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

impl simulated::Connection for Connection {
    fn ask(&self, request: &Arc<Request>, may_batch: bool, on_answer: OnAnswer) {
        if let (Request::Raise { .. }, Some(process)) = (&**request, self.process.upgrade()) {
            process.world.evidence.raised(process.world.elapsed(), &process.name);
        }
        let (reply, answered) = oneshot::channel();
        self.send(Body::Ask(Arc::clone(request), reply), may_batch);
        let Some(process) = self.process.upgrade() else { return };
        let shared = Arc::clone(&self.shared);
        drop(process.spawn(async move {
            tokio::select! {
                biased;
                Ok(answered) = answered => on_answer(answered),
                () = shared.broken.cancelled() => on_answer(Some(Err(disconnected(true)))),
            }
        }));
    }

    fn fetch_info(&self) -> BoxFuture<'_, Result<ServerInfo, Failure>> {
        let (reply, info) = oneshot::channel();
        self.send(Body::Look(reply), false);
        self.unless_broken(info).boxed()
    }

    fn listen(
        &self,
        channel: String,
        hear: OnMessage,
        alive: Weak<()>,
    ) -> BoxFuture<'_, Result<(), Failure>> {
        let (reply, done) = oneshot::channel();
        self.send(Body::Listen(channel, hear.into(), alive, reply), false);
        self.unless_broken(done).boxed()
    }
}

impl Connection {
    async fn unless_broken<T>(&self, reply: oneshot::Receiver<T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            Ok(reply) = reply => Ok(reply),
            () = self.shared.broken.cancelled() => Err(disconnected(false)),
        }
    }

    fn send(&self, body: Body, may_batch: bool) {
        let Some(process) = self.process.upgrade() else { return };
        if self.shared.broken.is_cancelled() {
            return;
        }
        let delay = Duration::from_millis(process.world.random(self.link.delay()));
        let due = Instant::now() + process.ahead() + delay;
        // An error means that the connection is broken, which `broken` reports.
        let _ = self.up.send(Message { due, body, may_batch });
        process.has_sent();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.is_abandoned.store(true, Ordering::Relaxed);
    }
}

fn disconnected(sent: bool) -> Failure {
    let outcome = if sent { NodeOutcome::Disconnected } else { NodeOutcome::Unreachable };
    Failure { outcome, detail: "the connection broke".to_owned(), sent }
}
