//! The public API: [`Client`] and its builder, and the types for locks, semaphores, adoptions, elections and statuses.
//!
//! This module owns a client's configuration, driver and renewer. A forked child process gets its own driver and
//! renewer, because it must not use its parent's connections. The module turns calls into operations of `lock`,
//! `doctor` and `node`, and contains none of the lock's rules. Language bindings call this module. Inside the crate,
//! only tests depend on it.
//!
//! Reading order: `mod.rs`, `lock.rs`, `semaphore.rs`, `adoption.rs`, `setters.rs` (options), `setup.rs` (the
//! configuration, the driver and the renewer), `election.rs`, `watch.rs`, `status.rs`, `permits_status.rs`, `list.rs`,
//! `kept.rs`, `test_nodes.rs` (for the tests that users write).

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

/// Collects the nodes and the options of a [`Client`], and builds the client.
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
    /// `redis-sentinel://host[:port],…/service`, `redis-cluster://host[:port],…` or
    /// `unix:///path[?db=…&user=…&pass=…]`. For tests, `memory://name` is an in-memory node of this process. If the
    /// program sets no nodes, the client reads the URLs from the environment variable `QUORLOCK_NODES`.
    pub fn nodes<I: IntoIterator<Item = S>, S: Into<String>>(mut self, urls: I) -> Self {
        self.urls = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the nodes, like [`ClientBuilder::nodes`], from a comma-separated list of URLs, as in `QUORLOCK_NODES`.
    ///
    /// `build` returns an error if a URL in the list is empty.
    pub fn node_list(self, urls: &str) -> Self {
        self.node_list_of("node_list", urls)
    }

    /// Like [`ClientBuilder::node_list`], for the command line: `source` is the name of the option or variable that
    /// contained the list.
    #[doc(hidden)]
    pub fn node_list_from(mut self, source: &'static str, urls: &str) -> Self {
        self.options.dialect = Dialect::CommandLine;
        self.options.nodes_from = source;
        self.node_list_of(source, urls)
    }

    fn node_list_of(mut self, source: &str, urls: &str) -> Self {
        match nodes::split_list(source, urls) {
            Ok(urls) => self.urls = Some(urls),
            Err(mistake) => {
                self.mistake.get_or_insert(mistake);
            }
        }
        self
    }

    /// Sets a function that returns a user and a password. The client calls the function for each new connection to a
    /// node, with the node's address as in [`Client::addresses`]. Use a function for tokens that expire and for
    /// passwords that change. The client does not call the function for connections to sentinels and in-memory nodes.
    ///
    /// The future that the function returns runs on quorlock's own tokio runtime, and must not block. `connect_timeout`
    /// limits the whole attempt to connect, including this future. The attempt also fails if the future returns an
    /// error or panics. After a failed attempt, the client tries again later. Errors and logs contain the error text
    /// that the future returns.
    ///
    /// `build` returns an error if the URL of a node also contains a user or a password.
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

    /// Sets the maximum time for connecting to a node: 1 ms to 1 h, 1 s by default. While too few nodes can vote, an
    /// acquire or an extension retries for at most this time. If `wait` is shorter, the acquire stops after `wait`.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.duration("connect_timeout", timeout)
    }

    /// Sets how much the speed of two clocks may differ, as a fraction: 0 to 0.5. The default is the value of the
    /// environment variable `QUORLOCK_DRIFT_FACTOR`, or 0.01 (1 %) if the variable is not set.
    pub fn drift_factor(self, factor: f64) -> Self {
        self.option(Dialect::Rust, "drift_factor", &OptionValue::Number(factor))
    }

    /// Sets the range of the random delay between two attempts of a waiter that is not notified: 1 ms to 1 h, 50 ms to
    /// 200 ms by default. `shortest` is also how long a notified waiter has priority over other waiters.
    pub fn retry_delay(self, shortest: Duration, longest: Duration) -> Self {
        let delays = [shortest, longest].map(OptionValue::seconds);
        self.option(Dialect::Rust, "retry_delay", &OptionValue::List(delays.into()))
    }

    /// Sets the restart guard: the time after a restart during which a node cannot vote, 10 ms to 24 h. The guard must
    /// be at least as long as the longest ttl of any client. Zero turns the guard off. The default is the value of the
    /// environment variable `QUORLOCK_RESTART_GUARD`, such as `30s`. If the variable is not set, the guard is off.
    /// Without the guard, a node that loses its data in a restart may grant a lock while an earlier lease on the same
    /// resource is still valid.
    pub fn restart_guard(self, guard: Duration) -> Self {
        self.duration("restart_guard", guard)
    }

    /// Sets the prefix of all keys on the nodes. The default is the value of the environment variable
    /// `QUORLOCK_KEY_PREFIX`. If the variable is not set, the prefix is empty.
    pub fn key_prefix(self, prefix: impl Into<String>) -> Self {
        self.option(Dialect::Rust, "key_prefix", &OptionValue::Text(prefix.into()))
    }

    /// Sets the option with this name, or the nodes if the name is `nodes`. For language bindings. `name`, `value` and
    /// error messages use the form of `dialect`. If the value is invalid, `build` returns the error.
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
        self.option(Dialect::Rust, name, &OptionValue::seconds(duration))
    }

    /// Builds the client. This method reads the TLS files that the URLs name, and does no other IO.
    ///
    /// The restart guard, the key prefix and the drift factor must be equal for all clients of a fleet. If the program
    /// has not set one of these options, this method reads its environment variable: `QUORLOCK_RESTART_GUARD`,
    /// `QUORLOCK_KEY_PREFIX` or `QUORLOCK_DRIFT_FACTOR`. If all nodes are in-memory nodes, this method does not read
    /// these variables. An empty variable counts as not set.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for an invalid URL, option, environment variable or list of
    /// nodes.
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

    /// Returns the lock on one or several resources. An acquire locks all of the resources or none. A [`Lock`] holds
    /// nothing; each acquire creates a separate lease. If the name of a resource is invalid, the acquire returns an
    /// error.
    pub fn lock(&self, resources: impl Into<Resources>) -> Lock {
        Lock::new(Arc::clone(&self.setup), resources.into())
    }

    /// Returns the semaphore of a resource. At most `limit` permits are held at the same time; the limit is 1 to 1,024.
    /// All clients should use the same limit. If the name of the resource or the limit is invalid, the acquire returns
    /// an error.
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

    /// Returns an [`Adoption`], which takes over a lease that its holder has detached. The holder may be a program in
    /// another process and in another language. `text` is the text that the holder got from [`Lease::detach`]. If the
    /// text is invalid, [`Adoption::acquire`] returns an error.
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

    /// Checks `within`, the argument of [`Lease::detach_by`], before there is a lease to detach. Used by the command
    /// line.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) if `within` is not valid.
    #[doc(hidden)]
    pub fn check_within(&self, dialect: Dialect, within: Option<&OptionValue>) -> Result<()> {
        self.setup.options.within(dialect, within).map(drop)
    }

    /// Returns a candidate for the leadership of a resource. The leader is the holder of the lock on the resource, and
    /// the candidates wait for this lock. If the name of the resource is invalid, [`Election::next`] and
    /// [`Election::run`] return the error.
    ///
    /// The candidate has the client's options, with two exceptions: the candidate waits without a time limit, and after
    /// its election, it keeps its lease without a time limit.
    pub fn elect(&self, resource: impl Into<String>) -> Election {
        Election::new(Arc::clone(&self.setup), resource.into())
    }

    /// Returns an observer of the leader of a resource. The observer takes no part in the election. The observer
    /// reports the holder name and the fence of each new leader. Every reported fence is larger than the one before. If
    /// the name of the resource is invalid, [`Watch::next`] returns the error.
    ///
    /// A reported leader is only a hint, because another leader may have been elected since. Followers can use the hint
    /// to connect to the leader, or to redirect requests to it. Safety comes from the fence that the leader sends with
    /// its writes.
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

    /// Examines all nodes. Reports why a node cannot vote, and what may break a guarantee of the lock. The examination
    /// changes nothing on the nodes. It takes at most twice `connect_timeout`, or three times `connect_timeout` if a
    /// node is a Redis Cluster.
    ///
    /// The only possible error is [`ErrorCode::Closed`], if the client is closed.
    ///
    /// [`ErrorCode::Closed`]: crate::ErrorCode::Closed
    pub fn doctor(&self) -> Pending<Result<Diagnosis>> {
        let setup = Arc::clone(&self.setup);
        self.ask(async move { Ok(diagnose(&setup.endpoints, &setup.options).await) })
    }

    /// Asks each node whether it can vote now. The query changes nothing on the nodes. After `enough` nodes have
    /// confirmed that they can vote, the call waits only a little longer for the others. The call takes at most
    /// `connect_timeout` plus `node_timeout`. The outcome is [`NodeOutcome::Granted`](crate::NodeOutcome::Granted) for
    /// nodes that can vote, and [`NodeOutcome::Pending`](crate::NodeOutcome::Pending) for nodes that did not answer
    /// before the call returned.
    ///
    /// If two nodes are the same server, the call fails with [`ErrorCode::Config`], as an acquire does. Used by the
    /// command line.
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
        Pending::started(self.setup.driver().ask(|_| work))
    }

    /// Queries all nodes for the holder and the waiters of a resource. The query changes nothing on the nodes. The
    /// status may be out of date when the query returns.
    ///
    /// A node that does not answer does not cause an error: see [`State::Unknown`](crate::State::Unknown).
    pub fn status(&self, resource: impl Into<String>) -> Pending<Result<Status>> {
        status::status(&self.setup, resource.into())
    }

    /// Stops renewing a lease of this client. Returns the lease, and a text from which [`Client::resume`] makes a lease
    /// in any process. After this call, neither dropping the lease nor closing the client releases the lease; the lease
    /// expires after its ttl. The text is a secret: anyone who has the text can extend and release the lease. Used by
    /// the command line.
    #[doc(hidden)]
    pub fn keep(&self, lease: Lease) -> Pending<Result<(Lease, String)>> {
        let setup = Arc::clone(&self.setup);
        self.ask(async move { keep(&setup, lease).await })
    }

    /// Makes a lease from the text that [`Client::keep`] returned. The client does not renew this lease, and does not
    /// restore the lease's key on nodes that have lost the key. Dropping the lease does not release it. Used by the
    /// command line.
    ///
    /// The error is [`ErrorCode::LeaseLost`] if the lease has ended, [`ErrorCode::NoQuorum`] if too few nodes answer to
    /// tell whether the lease has ended, and [`ErrorCode::Config`] if the text is damaged or was made for other nodes.
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

    /// Lists the resources that have a lock key on any node and whose names begin with `prefix`. Returns at most
    /// `limit` names, sorted, and whether there may be more names. quorlock recognizes its lock keys by their values,
    /// so the list does not contain keys of other libraries. The call changes nothing on the nodes, but reads every key
    /// of every node.
    ///
    /// The error is [`ErrorCode::NoQuorum`] if fewer than a majority of the nodes answered. Used by the command line.
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

    /// Takes the resource away from the holder, or from the readers, that the status `seen` shows: deletes the tokens
    /// in `seen`, each on the node that reported the token, and notifies the next waiter. If another client has
    /// acquired the resource since, the new lease has another token and is not affected. Returns the outcome at each
    /// node; [`NodeOutcome::Missing`](crate::NodeOutcome::Missing) means that the node had nothing to delete.
    ///
    /// Use this method if the holder hangs, or if the holder has crashed and its ttl is long. A holder that is alive
    /// notices the loss at its next extension, within about a third of its ttl. Until then, the old holder and the next
    /// holder may work at the same time. The call does not delete a key whose value is not text. If the status has no
    /// token for a node, the call sends no request to the node, and the report repeats the node's outcome from the
    /// status.
    pub fn force_release(&self, seen: &Status) -> Pending<Result<Vec<NodeReport>>> {
        status::release(&self.setup, seen)
    }

    /// Like [`Client::force_release`], but first queries the current status of the resource. For language bindings.
    #[doc(hidden)]
    pub fn force_release_holder(
        &self,
        resource: impl Into<String>,
    ) -> Pending<Result<Vec<NodeReport>>> {
        status::release_holder(&self.setup, resource.into())
    }

    /// Deletes the fencing counters of a resource, unless the resource is held or has waiters. Use this method for a
    /// resource that will not be used again, such as one with a random name. Without this call, the counters expire a
    /// minute after the last lease would have expired. Returns the outcome at each node;
    /// [`NodeOutcome::Missing`](crate::NodeOutcome::Missing) means that the resource is in use.
    pub fn forget(&self, resource: impl Into<String>) -> Pending<Result<Vec<NodeReport>>> {
        status::forget(&self.setup, resource.into())
    }

    /// Whether [`Client::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.setup.is_closed()
    }

    /// Runs a future on the calling thread, which also drives quorlock's own runtime until the future is done. So
    /// client operations, the future, and the tasks that the future spawns on tokio share one thread, and none of them
    /// has to wake another thread. For a program whose main loop is this future, such as `quorlock serve`. Neither the
    /// future nor its tasks may block.
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

    /// Runs a task on quorlock's own runtime, where renewals have priority over the task. For programs that use
    /// [`Client::drive`]. The task must not block, and must not run for more than a fraction of a millisecond without
    /// yielding. If the task panics, only the task ends.
    ///
    /// The result is [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum) if the runtime cannot start.
    #[doc(hidden)]
    pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        runtime::spawn(task)
    }

    /// Creates a tokio runtime that runs only while a thread blocks on it. For a program that waits for quorlock and
    /// for other events. Returns an error if the process cannot open enough files; in that case, tokio's own
    /// constructor would panic.
    #[doc(hidden)]
    pub fn new_runtime() -> std::io::Result<tokio::runtime::Runtime> {
        runtime::executor::new_runtime()
    }

    /// Closes the client: ends acquires in progress with [`ErrorCode::Closed`], releases the leases that are still
    /// held, and closes the connections. Waits for the nodes for at most `connect_timeout`. May be called more than
    /// once. The nodes delete the keys of the released leases at once: the option [`Lock::keep`] does not apply,
    /// because the holders have not finished their work.
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
