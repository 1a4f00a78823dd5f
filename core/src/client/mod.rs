//! The public API: [`Client`], its builder, locks and status queries.
//!
//! This module holds a client's configuration and, in each process, its driver and renewer. It turns calls into
//! operations of `lock`, `doctor` and `node`. It contains none of the lock's rules. Apart from tests, no other module
//! of the crate depends on this module; language bindings call it.
//!
//! Reading order: `mod.rs`, `lock.rs`, `setters.rs` (options), `setup.rs` (what belongs to one process), `election.rs`,
//! `watch.rs`, `status.rs`, `test_nodes.rs` (for the tests that users write).

pub(crate) mod adoption;
pub(crate) mod election;
pub(crate) mod kept;
pub(crate) mod list;
pub(crate) mod lock;
pub(crate) mod permits_status;
pub(crate) mod semaphore;
pub(crate) mod setters;
pub(crate) mod setup;
pub(crate) mod status;
pub(crate) mod test_nodes;
pub(crate) mod watch;

use crate::client::adoption::Adoption;
use crate::client::election::Election;
use crate::client::kept::{keep, resume};
use crate::client::list::list;
use crate::client::lock::Lock;
use crate::client::semaphore::Semaphore;
use crate::client::setters::{lease_setters, wait_setters};
use crate::client::setup::Setup;
use crate::client::watch::Watch;
use crate::config::credentials::{Credentials, CredentialsRequest, Provider};
use crate::config::endpoint::Endpoint;
use crate::config::environment;
use crate::config::nodes::{self, NODES_VARIABLE};
use crate::config::options::Options;
use crate::config::resources::Resources;
use crate::config::url;
use crate::config::value::{Dialect, OptionValue};
use crate::doctor::{Diagnosis, diagnose, votes};
use crate::error::{Error, NodeReport, Result};
use crate::lock::lease::Lease;
use crate::runtime::{self, Pending};
use crate::telemetry::stats::Stats;
use status::Status;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A client of N independent nodes. Clones are cheap, and share the client's connections, leases and statistics.
///
/// A client connects, and starts quorlock's background thread, only when it is first used.
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
#[must_use = "dropping the last clone of a client closes its connections"]
#[derive(Clone)]
pub struct Client {
    setup: Arc<Setup>,
}

/// Builds a [`Client`].
#[must_use = "a builder does nothing until `build` is called"]
#[derive(Clone, Default)]
pub struct ClientBuilder {
    urls: Option<Vec<String>>,
    options: Options,
    credentials: Option<Provider>,
    /// The first error, which `build` returns.
    mistake: Option<Error>,
}

impl ClientBuilder {
    /// Sets the nodes' URLs: `redis://[user:password@]host[:port][/database]`, `rediss://…` with TLS,
    /// `redis-sentinel://host[:port],…/service`, `redis-cluster://host[:port],…`, `unix:///path[?db=…&user=…&pass=…]`,
    /// or `memory://name` for an in-memory node of this process, for tests. By default the URLs are read from the
    /// environment variable `QUORLOCK_NODES`.
    pub fn nodes<I: IntoIterator<Item = S>, S: Into<String>>(mut self, urls: I) -> Self {
        self.urls = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the nodes, like [`ClientBuilder::nodes`], from a comma-separated list of URLs, as in `QUORLOCK_NODES`.
    pub fn node_list(self, urls: &str) -> Self {
        self.nodes(url::split(urls))
    }

    /// Like [`ClientBuilder::node_list`], for the command line: `source` names the option or variable that contained
    /// the list.
    #[doc(hidden)]
    pub fn node_list_from(mut self, source: &'static str, urls: &str) -> Self {
        self.options.dialect = Dialect::CommandLine;
        self.options.nodes_from = source;
        self.node_list(urls)
    }

    /// Sets a function that returns the user and the password for each new connection to a node, in place of those in
    /// the node's URL: for tokens that expire, and for passwords that change. The function's argument is the node's
    /// address, as in [`Client::addresses`]. Connections to sentinels and in-memory nodes do not use the function.
    ///
    /// The future runs on quorlock's own runtime, a tokio runtime, and must not block. If the future fails or panics,
    /// or if the future and the connecting together take longer than `connect_timeout`, the attempt to connect fails,
    /// and the client tries again later. Errors and logs contain the text of the future's error.
    ///
    /// `build` returns an error if a URL also has a user or a password.
    pub fn credentials<F>(mut self, ask: impl Fn(&str) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::result::Result<Credentials, String>> + Send + 'static,
    {
        self.credentials = Some(Provider::new(ask));
        self
    }

    /// Like [`ClientBuilder::credentials`], for language bindings: the function receives a request, which the binding
    /// can answer later. The function must not block.
    pub fn credentials_by_request(
        mut self,
        ask: impl Fn(CredentialsRequest) + Send + Sync + 'static,
    ) -> Self {
        self.credentials = Some(Provider::by_request(ask));
        self
    }

    lease_setters!();
    wait_setters!();

    /// Sets the maximum time that a node may take to answer a request: 1 ms to 1 h. The default is a twentieth of the
    /// ttl, but at least 10 ms and at most 200 ms.
    pub fn node_timeout(self, timeout: Duration) -> Self {
        self.duration("node_timeout", timeout)
    }

    /// Sets the maximum time for connecting to a node. While too few nodes can vote, an acquire or extension keeps
    /// trying for this time; an acquire stops earlier if `wait` is shorter. 1 ms to 1 h, 1 s by default.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.duration("connect_timeout", timeout)
    }

    /// Sets the maximum relative difference in rate between two clocks: 0 to 0.5. By default it is read from the
    /// environment variable `QUORLOCK_DRIFT_FACTOR`, and is 0.01 (1 %) if the variable is not set.
    pub fn drift_factor(self, factor: f64) -> Self {
        self.option(Dialect::Rust, "drift_factor", &OptionValue::Number(factor))
    }

    /// Sets the range of the random delay between two attempts of a waiter that is not notified: 1 ms to 1 h, 50 ms to
    /// 200 ms by default. `shortest` is also how long a notified waiter has priority over other waiters.
    pub fn retry_delay(self, shortest: Duration, longest: Duration) -> Self {
        let delays = [shortest, longest].map(|delay| OptionValue::Number(delay.as_secs_f64()));
        self.option(Dialect::Rust, "retry_delay", &OptionValue::List(delays.into()))
    }

    /// Sets the time for which a restarted node cannot vote: 10 ms to 24 h, and at least the longest ttl of any client;
    /// zero turns this guard off. By default it is read from the environment variable `QUORLOCK_RESTART_GUARD`, such as
    /// `30s`, and is off if the variable is not set. Without the guard, a node that loses its data in a restart may
    /// grant a lock while an earlier lease on the same resource is still valid.
    pub fn restart_guard(self, guard: Duration) -> Self {
        self.duration("restart_guard", guard)
    }

    /// Sets the prefix of all keys on the nodes. By default it is read from the environment variable
    /// `QUORLOCK_KEY_PREFIX`, and is empty if the variable is not set.
    pub fn key_prefix(self, prefix: impl Into<String>) -> Self {
        self.option(Dialect::Rust, "key_prefix", &OptionValue::Text(prefix.into()))
    }

    /// Sets an option by name, or the `nodes`, for language bindings. `name`, `value` and error
    /// messages use the form of `dialect`. If the value is invalid, `build` returns the error.
    pub fn option(mut self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        let set = match name {
            "nodes" => {
                self.options.dialect = dialect;
                nodes::urls(dialect, value).map(|urls| self.urls = urls)
            }
            _ => self.options.set(dialect, name, value),
        };
        if let Err(error) = set {
            self.mistake.get_or_insert(error);
        }
        self
    }

    fn duration(self, name: &str, duration: Duration) -> Self {
        self.option(Dialect::Rust, name, &OptionValue::Number(duration.as_secs_f64()))
    }

    /// Builds the client. Does no IO, apart from reading the files that TLS parameters name.
    ///
    /// Options that were not set, and that must be equal for all clients of a fleet, are read from the environment
    /// variables `QUORLOCK_RESTART_GUARD`, `QUORLOCK_KEY_PREFIX` and `QUORLOCK_DRIFT_FACTOR`, unless all nodes are
    /// in-memory nodes. An empty variable counts as not set.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for a bad URL, option, environment variable or node list.
    pub fn build(self) -> Result<Client> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let mut options = self.options;
        let endpoints =
            nodes::endpoints(options.dialect, self.urls.as_deref(), self.credentials.as_ref())?;
        if self.urls.is_none() {
            options.nodes_from = NODES_VARIABLE;
        }
        // In-memory nodes are for tests, which must not depend on the settings of a fleet.
        if !endpoints.iter().all(Endpoint::is_memory) {
            options.read_environment(environment::process)?;
        }
        options.check_ttl()?;
        Ok(Client { setup: Setup::new(options, endpoints) })
    }
}

impl fmt::Debug for ClientBuilder {
    /// Omits the URLs, which may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Client {
    /// Returns a builder with default options.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Returns the lock on a resource, or on several resources, of which an acquire locks all or none. A [`Lock`] holds
    /// nothing; each acquire creates its own lease. If a name is invalid, the acquire returns the error.
    pub fn lock(&self, resources: impl Into<Resources>) -> Lock {
        Lock::new(Arc::clone(&self.setup), resources.into())
    }

    /// Returns the semaphore of a resource. At most `limit` of its permits, 1 to 1,024, are held at the same time. All
    /// clients should use the same limit. If the name or the limit is invalid, the acquire returns the error.
    pub fn semaphore(&self, resource: impl Into<String>, limit: u32) -> Semaphore {
        self.semaphore_as(Dialect::Rust, resource, &OptionValue::Number(limit.into()))
    }

    /// Like [`Client::semaphore`], for language bindings.
    #[doc(hidden)]
    pub fn semaphore_as(
        &self,
        dialect: Dialect,
        resource: impl Into<String>,
        limit: &OptionValue,
    ) -> Semaphore {
        Semaphore::new(Arc::clone(&self.setup), resource.into(), dialect, limit)
    }

    /// Returns the adoption of a lease that its holder has [detached](Lease::detach), in this process or another, in
    /// any language. [`Lease::detach`] gave the `text` to that holder. If the text is invalid, the acquire returns the
    /// error.
    ///
    /// ```
    /// # async fn run() -> quorlock::Result<()> {
    /// # use std::time::Duration;
    /// # let client = quorlock::Client::builder().nodes(["memory://adopt"]).build()?;
    /// let lease = client.lock("orders:42").acquire().await?;
    /// let text = lease.detach(Duration::from_secs(30)).await?.into_text();
    ///
    /// // Elsewhere, within 30 s:
    /// let adopted = client.adopt(&text).acquire().await?;
    /// assert!(adopted.fence() > lease.fence());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
    /// ```
    pub fn adopt(&self, text: &str) -> Adoption {
        Adoption::new(Arc::clone(&self.setup), text)
    }

    /// Checks the time `within` for [`Lease::detach_by`] before a lease exists. Used by the command line.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) if `within` is not valid.
    #[doc(hidden)]
    pub fn check_within(&self, dialect: Dialect, within: Option<&OptionValue>) -> Result<()> {
        self.setup.options.within(dialect, within).map(drop)
    }

    /// Returns a candidate for the leader of a resource. The leader is the holder of the lock on the resource, and the
    /// candidates wait for this lock. If the name is invalid, [`Election::next`] and [`Election::run`] return the
    /// error.
    ///
    /// The candidate has the client's options, except that it waits without a limit and, as the leader, keeps its lease
    /// without a limit.
    pub fn elect(&self, resource: impl Into<String>) -> Election {
        Election::new(Arc::clone(&self.setup), resource.into())
    }

    /// Returns an observer of the leader of a resource. The observer takes no part in the election. It reports the
    /// holder name and the fence of each new leader, and the fences only increase. If the name is invalid,
    /// [`Watch::next`] returns the error.
    ///
    /// A reported leader is a hint, for followers that connect to the leader or redirect requests to it: the leader may
    /// have changed in the meantime. Safety comes from the fence that the leader sends with its writes.
    ///
    /// ```
    /// # async fn run() -> quorlock::Result<()> {
    /// # let client = quorlock::Client::builder().nodes(["memory://watch"]).build()?;
    /// let lease = client.elect("reports").holder("pod-1").next().await?;
    /// let mut leaders = client.watch("reports");
    /// let leader = leaders.next().await?;
    /// assert_eq!((&*leader.holder, leader.fence), ("pod-1", lease.fence()));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
    /// ```
    pub fn watch(&self, resource: impl Into<String>) -> Watch {
        Watch::new(Arc::clone(&self.setup), resource.into())
    }

    /// Returns the nodes' addresses: their URLs without user, password and query.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.setup.endpoints.iter().map(|endpoint| &*endpoint.address)
    }

    /// Returns statistics about locks and about the requests to each node, counted in this process.
    pub fn stats(&self) -> Stats {
        self.setup.driver().stats()
    }

    /// Examines all nodes, and reports what keeps them from voting and what may break a guarantee of the lock. The
    /// examination changes nothing on the nodes. It takes at most twice `connect_timeout`, or three times
    /// `connect_timeout` if a node is a Redis Cluster.
    ///
    /// The only possible error is [`ErrorCode::Closed`], if the client is closed.
    ///
    /// [`ErrorCode::Closed`]: crate::ErrorCode::Closed
    pub fn doctor(&self) -> Pending<Result<Diagnosis>> {
        let setup = Arc::clone(&self.setup);
        self.ask(async move { Ok(diagnose(&setup.endpoints, &setup.options).await) })
    }

    /// Asks each node whether it can vote now, and changes nothing on it. Returns as soon as `enough` nodes can vote,
    /// and at the latest when `connect_timeout` plus `node_timeout` has passed. The outcome is
    /// [`NodeOutcome::Granted`](crate::NodeOutcome::Granted) at nodes that can vote, and
    /// [`NodeOutcome::Pending`](crate::NodeOutcome::Pending) at nodes that had not answered when the call returned.
    ///
    /// If two nodes are the same server, the result is an error with [`ErrorCode::Config`], as in an acquire. Used by
    /// the command line.
    ///
    /// [`ErrorCode::Config`]: crate::ErrorCode::Config
    #[doc(hidden)]
    pub fn votes(&self, enough: usize) -> Pending<Result<Vec<NodeReport>>> {
        let setup = Arc::clone(&self.setup);
        self.ask(async move { votes(&setup.endpoints, &setup.options, enough).await })
    }

    /// Runs `work` in the background, unless the client is closed.
    fn ask<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Pending<Result<T>> {
        if self.is_closed() {
            return Pending::ready(Err(Error::closed()));
        }
        let (sender, receiver) = oneshot::channel();
        let task = async move {
            // Sending fails if the caller does not wait any more.
            let _ = sender.send(work.await);
        };
        match self.setup.driver().spawn(task) {
            Ok(()) => Pending::new(receiver),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Queries all nodes for the holder and the waiters of a resource. The query changes nothing;
    /// the result may be out of date on return.
    ///
    /// Nodes that do not answer are not an error: see [`State::Unknown`](crate::State::Unknown).
    pub fn status(&self, resource: impl Into<String>) -> Pending<Result<Status>> {
        status::status(&self.setup, resource.into())
    }

    /// Stops renewing a lease of this client, and returns the lease with a text from which [`Client::resume`] makes a
    /// lease in any process. After this call, neither dropping the lease nor closing the client releases it; the lease
    /// expires after its ttl. The text is a secret: anyone who has the text can extend and release the lease. Used by
    /// the command line.
    #[doc(hidden)]
    pub fn keep(&self, lease: Lease) -> Pending<Result<(Lease, String)>> {
        let setup = Arc::clone(&self.setup);
        self.ask(async move { keep(&setup, lease).await })
    }

    /// Makes a lease from the text that [`Client::keep`] returned. The lease is not renewed, and nodes that lost its
    /// key do not get the key back. Used by the command line.
    ///
    /// The result is [`ErrorCode::LeaseLost`] if the lease has ended, [`ErrorCode::NoQuorum`] if too few nodes answer
    /// to decide, and [`ErrorCode::Config`] if the text is damaged or was made for other nodes.
    ///
    /// [`ErrorCode::LeaseLost`]: crate::ErrorCode::LeaseLost
    /// [`ErrorCode::NoQuorum`]: crate::ErrorCode::NoQuorum
    /// [`ErrorCode::Config`]: crate::ErrorCode::Config
    #[doc(hidden)]
    pub fn resume(&self, text: impl Into<String>) -> Pending<Result<Lease>> {
        let setup = Arc::clone(&self.setup);
        let text = text.into();
        self.ask(async move { resume(&setup, &text).await })
    }

    /// Returns the resources whose names begin with `prefix` and that have a lock key on any node, sorted and at most
    /// `limit` of them, and whether there may be more. Lock keys are recognized by their values, so keys of other
    /// libraries are not listed. The call changes nothing on the nodes, but reads all of their keys.
    ///
    /// The result is [`ErrorCode::NoQuorum`] if fewer than a majority of the nodes answered. Used by the command
    /// line.
    ///
    /// [`ErrorCode::NoQuorum`]: crate::ErrorCode::NoQuorum
    #[doc(hidden)]
    pub fn list(
        &self,
        prefix: impl Into<String>,
        limit: usize,
    ) -> Pending<Result<(Vec<String>, bool)>> {
        let setup = Arc::clone(&self.setup);
        let prefix = prefix.into();
        self.ask(async move { list(&setup, &prefix, limit).await })
    }

    /// Releases the resource on behalf of the holder in this [`Status`], and notifies the next waiter. If another lease
    /// has replaced that holder, the new lease is not affected. Returns the outcome at each node;
    /// [`NodeOutcome::Missing`](crate::NodeOutcome::Missing) means that the node had nothing to delete.
    ///
    /// Use this for a holder that hangs, or that crashed and had a long ttl. A holder that is alive notices the loss at
    /// its next extension, after a third of its ttl; until then it may work concurrently with the next holder. A key
    /// whose value is not text is not deleted. A node for which the status has no token gets no request; its report
    /// repeats the outcome in the status.
    pub fn force_release(&self, seen: &Status) -> Pending<Result<Vec<NodeReport>>> {
        status::release(&self.setup, seen)
    }

    /// Like [`Client::force_release`], for the current holder of the resource. For language bindings.
    #[doc(hidden)]
    pub fn force_release_holder(
        &self,
        resource: impl Into<String>,
    ) -> Pending<Result<Vec<NodeReport>>> {
        status::release_holder(&self.setup, resource.into())
    }

    /// Deletes the fencing counters of a resource that is neither held nor waited for and that will not be used again,
    /// such as one with a random name. Otherwise the nodes keep these counters for a minute beyond the ttl. Returns the
    /// outcome at each node; [`NodeOutcome::Missing`](crate::NodeOutcome::Missing) means that the resource is in use.
    pub fn forget(&self, resource: impl Into<String>) -> Pending<Result<Vec<NodeReport>>> {
        status::forget(&self.setup, resource.into())
    }

    /// Whether [`Client::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.setup.is_closed()
    }

    /// Runs a future on the calling thread, which also drives quorlock's own runtime until the future is done. Client
    /// operations, the future and the tasks that the future spawns on tokio thus share one thread, and need not wake
    /// another thread. For a program whose main loop is this future, such as `quorlock serve`. Neither the future nor
    /// its tasks may block.
    ///
    /// The result is [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum) if the runtime cannot start.
    ///
    /// # Panics
    ///
    /// If the call is made on a thread of an async executor.
    #[doc(hidden)]
    pub fn drive<T>(future: impl Future<Output = T>) -> Result<T> {
        runtime::drive(future)
    }

    /// Runs a task on quorlock's own runtime, where renewals have priority over such tasks. For programs that use
    /// [`Client::drive`]. The task must not block, and must yield between pieces of work that take longer than a
    /// fraction of a millisecond. A panic ends only the task.
    ///
    /// The result is [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum) if the runtime cannot start.
    #[doc(hidden)]
    pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        runtime::spawn(task)
    }

    /// Returns a tokio runtime that the calling thread drives, for example for a program that also waits for things
    /// other than quorlock. Returns an error if the process cannot open enough files; tokio itself would panic.
    #[doc(hidden)]
    pub fn new_runtime() -> std::io::Result<tokio::runtime::Runtime> {
        runtime::executor::new_runtime()
    }

    /// Closes the client. Acquires in progress end with [`ErrorCode::Closed`], leases that are still held are released,
    /// and the connections are closed. Waits for the nodes for at most `connect_timeout`. May be called more than once.
    /// The option [`Lock::keep`] does not apply to the leases that the call releases, because their holders have not
    /// finished: the nodes delete the keys.
    ///
    /// In a forked child, closes only the child's connections, not the parent's.
    ///
    /// [`ErrorCode::Closed`]: crate::ErrorCode::Closed
    pub fn close(&self) -> Pending<()> {
        self.setup.close()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.addresses().collect();
        f.debug_struct("Client").field("nodes", &nodes).finish_non_exhaustive()
    }
}
