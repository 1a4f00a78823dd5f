//! The client: its nodes, its options, the locks it makes.

use crate::acquire;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::lease::{Lease, Shared};
use crate::node::{Answered, Node, answer};
use crate::options::{self, Dialect, OptionValue, Options};
use crate::protocol::{Moment, Quorum, Survey};
use crate::runtime::{self, Pending};
use crate::script::{Keys, Request, Subject, Verb};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A client of N independent nodes. Cheap to clone; all clones are one client.
///
/// Nothing is connected, and no thread is started, before the first lock.
///
/// ```
/// # async fn run() -> quorlock::Result<()> {
/// use quorlock::Client;
/// use std::time::Duration;
///
/// // In a program: "redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3".
/// let client = Client::builder().nodes(["memory://a", "memory://b", "memory://c"]).build()?;
///
/// let lease = client.lock("orders:42").wait(Duration::from_secs(2)).acquire().await?;
/// assert!(lease.is_valid());
/// println!("write with fence {}", lease.fence());
/// assert!(lease.release().await);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

/// What a client's clones, its leases and its background tasks share.
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) quorum: Quorum,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) closing: CancellationToken,
    tasks: TaskTracker,
    used: AtomicBool,
    /// Leases that are neither released nor dropped, for `close`.
    leases: Mutex<HashMap<u64, Arc<Shared>>>,
    next_lease: AtomicU64,
}

/// Makes a [`Client`].
#[derive(Clone, Debug, Default)]
pub struct ClientBuilder {
    urls: Option<Vec<String>>,
    options: Options,
    /// The first mistake, reported by `build`.
    mistake: Option<Error>,
}

impl ClientBuilder {
    /// The nodes' URLs: `redis://[user:password@]host[:port][/database]`,
    /// `unix:///path[?db=…&user=…&pass=…]`, or `memory://name` for a node in this process, which
    /// is for tests. Without this, they are taken from the environment variable `QUORLOCK_NODES`.
    #[must_use]
    pub fn nodes<I: IntoIterator<Item = S>, S: Into<String>>(mut self, urls: I) -> Self {
        self.urls = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// How long the nodes keep a lock that is not extended: 10 ms to 24 h, 10 s by default.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.duration("ttl", ttl)
    }

    /// How long an acquire waits while others hold the lock: 10 s by default, zero for one try.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.duration("wait", wait)
    }

    /// Acquires wait for ever while others hold the lock.
    #[must_use]
    pub fn wait_forever(self) -> Self {
        self.option(Dialect::Rust, "wait", &OptionValue::Null)
    }

    /// How long one node may take to answer one request: 1 ms to 1 h. By default a twentieth of
    /// the ttl, but at least 10 ms and at most 200 ms.
    #[must_use]
    pub fn node_timeout(self, timeout: Duration) -> Self {
        self.duration("node_timeout", timeout)
    }

    /// How long connecting to a node may take, and for how long an acquire or extension that
    /// meets too few nodes tries again: 1 ms to 1 h, 1 s by default.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.duration("connect_timeout", timeout)
    }

    /// By how much clocks may differ in rate: 0 to 0.5, 0.01 (one per cent) by default.
    #[must_use]
    pub fn drift_factor(self, factor: f64) -> Self {
        self.option(Dialect::Rust, "drift_factor", &OptionValue::Number(factor))
    }

    /// The range of the random delay between two rounds of an acquire: 1 ms to 1 h, 50 ms to
    /// 200 ms by default.
    #[must_use]
    pub fn retry_delay(self, shortest: Duration, longest: Duration) -> Self {
        let pair = OptionValue::Pair(shortest.as_secs_f64(), longest.as_secs_f64());
        self.option(Dialect::Rust, "retry_delay", &pair)
    }

    /// What the keys on the nodes begin with, before the resource: nothing by default.
    #[must_use]
    pub fn key_prefix(self, prefix: impl Into<String>) -> Self {
        self.option(Dialect::Rust, "key_prefix", &OptionValue::Text(prefix.into()))
    }

    /// Sets an option by its name, as a language binding received it.
    #[must_use]
    pub fn option(mut self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        if let Err(error) = self.options.set(dialect, name, value) {
            self.mistake.get_or_insert(error);
        }
        self
    }

    fn duration(self, name: &str, duration: Duration) -> Self {
        self.option(Dialect::Rust, name, &OptionValue::Number(duration.as_secs_f64()))
    }

    /// The client. Does no IO.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for a bad URL, option or node list.
    pub fn build(self) -> Result<Client> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let endpoints = options::endpoints(self.urls.as_deref())?;
        Ok(Client { core: Arc::new(Core::new(self.options, endpoints)) })
    }
}

impl Client {
    /// Begins to make a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The lock on a resource: a recipe that owns nothing. Each acquire makes a lease of its own.
    pub fn lock(&self, resource: impl Into<String>) -> Lock {
        let resource = resource.into();
        let mistake = options::check_resource(&resource).err();
        Lock { core: Arc::clone(&self.core), resource, options: self.core.options.clone(), mistake }
    }

    /// The nodes' addresses: their URLs without user, password and query.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.core.nodes.iter().map(|node| node.address())
    }

    /// Whether [`Client::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.core.closing.is_cancelled()
    }

    /// Closes the client: acquires under way end with [`ErrorCode::Closed`], leases that are still
    /// held are released, and the connections are closed. Waits for the nodes for at most
    /// `connect_timeout`. May be called again.
    ///
    /// [`ErrorCode::Closed`]: crate::ErrorCode::Closed
    pub fn close(&self) -> Pending<()> {
        let core = &self.core;
        core.closing.cancel();
        if !core.used.load(Ordering::Acquire) {
            return Pending::ready(());
        }
        let leases: Vec<_> = core.leases().values().cloned().collect();
        let releases: Vec<_> = leases.iter().map(|lease| lease.release()).collect();
        let (sender, receiver) = oneshot::channel();
        let Ok(handle) = runtime::handle() else { return Pending::ready(()) };
        let core = Arc::clone(core);
        handle.spawn(async move {
            drop(releases);
            core.tasks.close();
            let _ = tokio::time::timeout(core.options.connect_timeout, core.tasks.wait()).await;
            core.nodes.iter().for_each(|node| node.close());
            let _ = sender.send(());
        });
        Pending::new(receiver)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.addresses().collect();
        f.debug_struct("Client").field("nodes", &nodes).finish_non_exhaustive()
    }
}

/// A lock: a resource, and how to acquire it. It owns nothing, so it can be shared and used again.
#[derive(Clone)]
pub struct Lock {
    core: Arc<Core>,
    resource: String,
    options: Options,
    mistake: Option<Error>,
}

impl Lock {
    /// How long the nodes keep this lock if it is not extended: 10 ms to 24 h.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.option(Dialect::Rust, "ttl", &OptionValue::Number(ttl.as_secs_f64()))
    }

    /// How long an acquire waits while others hold the lock; zero for one try.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.option(Dialect::Rust, "wait", &OptionValue::Number(wait.as_secs_f64()))
    }

    /// Acquires wait for ever while others hold the lock.
    #[must_use]
    pub fn wait_forever(self) -> Self {
        self.option(Dialect::Rust, "wait", &OptionValue::Null)
    }

    /// Sets an option by its name, as a language binding received it.
    #[must_use]
    pub fn option(mut self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        if let Err(error) = self.options.set_per_lock(dialect, name, value) {
            self.mistake.get_or_insert(error);
        }
        self
    }

    /// The lock, or the first mistake that was made in describing it.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for an empty resource or a bad option.
    pub fn checked(self) -> Result<Self> {
        self.mistake.clone().map_or(Ok(self), Err)
    }

    /// The resource.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Acquires the lock. The clock of `wait` starts now; dropping the result cancels.
    ///
    /// Contention is waited out for `wait`; then the result is an error with
    /// [`ErrorCode::Timeout`](crate::ErrorCode::Timeout). If too few nodes can vote, and still
    /// cannot after `connect_timeout`, it is one with
    /// [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum).
    pub fn acquire(&self) -> Pending<Result<Lease>> {
        let prepared = self.prepare().map(|keys| {
            acquire::Acquire::new(Arc::clone(&self.core), &self.resource, keys, &self.options)
        });
        let started = prepared.and_then(|acquire| {
            let (sender, receiver) = oneshot::channel();
            self.core.spawn(acquire.run(sender))?;
            Ok(Pending::new(receiver))
        });
        started.unwrap_or_else(|error| Pending::ready(Err(error)))
    }

    /// Whether somebody holds so many nodes that the lock could not be acquired now. It may have
    /// changed by the time this returns.
    ///
    /// The result is an error with [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum) if too few
    /// nodes answer to tell.
    pub fn locked(&self) -> Pending<Result<bool>> {
        let started = self.prepare().and_then(|keys| {
            let (sender, receiver) = oneshot::channel();
            let (core, resource) = (Arc::clone(&self.core), self.resource.clone());
            let patience = self.options.node_timeout(self.options.ttl);
            self.core.spawn(async move {
                let _ = sender.send(core.locked(&resource, keys, patience).await);
            })?;
            Ok(Pending::new(receiver))
        });
        started.unwrap_or_else(|error| Pending::ready(Err(error)))
    }

    fn prepare(&self) -> Result<Arc<Keys>> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.core.closing.is_cancelled() {
            return Err(Error::closed().with_resource(&self.resource));
        }
        Ok(Arc::new(Keys::new(&self.options.key_prefix, &self.resource)))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// A request to one node under way, with the node's position.
pub(crate) type Call = BoxFuture<'static, (usize, Answered)>;

impl Core {
    fn new(options: Options, endpoints: Vec<Endpoint>) -> Self {
        let quorum = Quorum::over(endpoints.len()).expect("the number of nodes was checked");
        let connect_timeout = options.connect_timeout;
        let node = |endpoint| Node::new(endpoint, connect_timeout);
        Self {
            quorum,
            nodes: endpoints.into_iter().map(node).collect(),
            options,
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            used: AtomicBool::new(false),
            leases: Mutex::default(),
            next_lease: AtomicU64::new(0),
        }
    }

    /// Runs a task in the background, which `close` waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        self.used.store(true, Ordering::Release);
        self.tasks.spawn_on(task, runtime::handle()?);
        Ok(())
    }

    /// Waits until a majority is connected, or until every node is connected or known to be down:
    /// for at most `connect_timeout`, and not at all in the normal case.
    pub(crate) async fn ready(&self) {
        let up = |node: &&Arc<Node>| node.poke() == Some(true);
        if self.nodes.iter().filter(up).count() >= self.quorum.size() {
            return;
        }
        let mut settling: FuturesUnordered<_> =
            self.nodes.iter().map(|node| node.settled()).collect();
        let mut up = 0;
        while let Some(is_up) = settling.next().await {
            up += usize::from(is_up);
            if up >= self.quorum.size() {
                return;
            }
        }
    }

    /// Sends one request to one node.
    pub(crate) fn call(&self, node: usize, request: Request, patience: Duration) -> Call {
        let target = Arc::clone(&self.nodes[node]);
        async move { (node, target.call(&request, patience).await) }.boxed()
    }

    /// Sends one request to all nodes at once.
    pub(crate) fn call_all(&self, request: &Request, patience: Duration) -> FuturesUnordered<Call> {
        (0..self.nodes.len()).map(|node| self.call(node, request.clone(), patience)).collect()
    }

    /// Sends one request to one node in the background, again and again until it is answered, or
    /// until `horizon`. Called on the runtime.
    pub(crate) fn deliver(
        &self,
        node: usize,
        request: Request,
        patience: Duration,
        horizon: Moment,
    ) {
        let (target, closing) = (Arc::clone(&self.nodes[node]), self.closing.clone());
        let task = async move { target.deliver(&request, patience, horizon, &closing).await };
        // The runtime is there: this runs on it.
        let _ = self.spawn(task);
    }

    async fn locked(&self, resource: &str, keys: Arc<Keys>, patience: Duration) -> Result<bool> {
        self.ready().await;
        let request =
            Request { subject: Arc::new(Subject { keys, token: String::new() }), verb: Verb::Look };
        let mut calls = self.call_all(&request, patience);
        let mut answers = vec![None; self.nodes.len()];
        let mut survey = Survey::default();
        while let Some((node, answered)) = calls.next().await {
            let seen = survey.seen(self.quorum, node, answer(&answered));
            answers[node] = Some(answered);
            match seen {
                None => {}
                Some(Ok(locked)) => return Ok(locked),
                Some(Err(_)) => break,
            }
        }
        Err(acquire::no_quorum(self, resource, &answers))
    }

    pub(crate) fn register(&self, lease: &Arc<Shared>) {
        self.leases().insert(lease.id, Arc::clone(lease));
    }

    pub(crate) fn unregister(&self, lease: u64) {
        self.leases().remove(&lease);
    }

    pub(crate) fn next_lease(&self) -> u64 {
        self.next_lease.fetch_add(1, Ordering::Relaxed)
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<u64, Arc<Shared>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
