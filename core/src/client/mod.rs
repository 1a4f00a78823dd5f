//! The client: its nodes, its options, the locks it makes.

pub(crate) mod lock;
pub(crate) mod setup;
pub(crate) mod status;

use crate::client::lock::Lock;
use crate::client::setup::Setup;
use crate::config::nodes;
use crate::config::options::{Dialect, OptionValue, Options};
use crate::config::resources::Resources;
use crate::config::url;
use crate::doctor::{Diagnosis, diagnose};
use crate::error::{Error, NodeReport, Result};
use crate::runtime::Pending;
use crate::telemetry::stats::Stats;
use status::Status;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

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
    setup: Arc<Setup>,
}

/// Makes a [`Client`].
#[derive(Clone, Default)]
pub struct ClientBuilder {
    urls: Option<Vec<String>>,
    options: Options,
    /// How the last option was written.
    dialect: Option<Dialect>,
    /// The first mistake, reported by `build`.
    mistake: Option<Error>,
}

impl ClientBuilder {
    /// The nodes' URLs: `redis://[user:password@]host[:port][/database]`, `rediss://…` with TLS,
    /// `redis-sentinel://host[:port],…/service`, `redis-cluster://host[:port],…`,
    /// `unix:///path[?db=…&user=…&pass=…]`, or `memory://name` for a node in this process, which
    /// is for tests. Without this, they are taken from the environment variable `QUORLOCK_NODES`.
    #[must_use]
    pub fn nodes<I: IntoIterator<Item = S>, S: Into<String>>(mut self, urls: I) -> Self {
        self.urls = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// [`ClientBuilder::nodes`] with URLs in one text, separated by commas, as in `QUORLOCK_NODES`.
    #[must_use]
    pub fn node_list(self, urls: &str) -> Self {
        self.nodes(url::split(urls))
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

    /// Whether leases are extended until they are released: true by default.
    #[must_use]
    pub fn auto_extend(self, auto_extend: bool) -> Self {
        self.option(Dialect::Rust, "auto_extend", &OptionValue::Bool(auto_extend))
    }

    /// How long a lease can be held at most, however it is extended: 10 ms or more, 1 h by
    /// default. The first `ttl` of a lease is not cut short by it.
    #[must_use]
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.duration("max_hold", max_hold)
    }

    /// Leases can be held for ever.
    #[must_use]
    pub fn unlimited_hold(self) -> Self {
        self.option(Dialect::Rust, "max_hold", &OptionValue::Null)
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

    /// The range of the random delay between two tries of a waiter that no node calls: 1 ms to 1 h,
    /// 50 ms to 200 ms by default. The shorter one is also for how long a waiter that is called goes
    /// before others.
    #[must_use]
    pub fn retry_delay(self, shortest: Duration, longest: Duration) -> Self {
        let pair = OptionValue::Pair(shortest.as_secs_f64(), longest.as_secs_f64());
        self.option(Dialect::Rust, "retry_delay", &pair)
    }

    /// For how long a node that has restarted does not count: 10 ms to 24 h, and not shorter than
    /// any ttl that any client uses. Off by default: a node that keeps nothing over a restart then
    /// may grant a lock again that it granted before, while that lease is valid.
    #[must_use]
    pub fn restart_guard(self, guard: Duration) -> Self {
        self.duration("restart_guard", guard)
    }

    /// What the keys on the nodes begin with, before the resource: nothing by default.
    #[must_use]
    pub fn key_prefix(self, prefix: impl Into<String>) -> Self {
        self.option(Dialect::Rust, "key_prefix", &OptionValue::Text(prefix.into()))
    }

    /// Sets an option by its name, as a language binding received it.
    #[must_use]
    pub fn option(mut self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        self.dialect = Some(dialect);
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
        self.options.check_guard(self.dialect.unwrap_or(Dialect::Rust), self.options.ttl)?;
        let endpoints = nodes::endpoints(self.urls.as_deref())?;
        Ok(Client { setup: Setup::new(self.options, endpoints) })
    }
}

impl fmt::Debug for ClientBuilder {
    // The URLs may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Client {
    /// Begins to make a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The lock on a resource, or on several, of which all are locked or none: a recipe that owns
    /// nothing. Each acquire makes a lease of its own.
    pub fn lock(&self, resources: impl Into<Resources>) -> Lock {
        Lock::new(Arc::clone(&self.setup), resources.into())
    }

    /// The nodes' addresses: their URLs without user, password and query.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.setup.endpoints.iter().map(|endpoint| &*endpoint.address)
    }

    /// What became of locks, and of the requests to each node, counted in this process.
    pub fn stats(&self) -> Stats {
        self.setup.driver().stats()
    }

    /// Looks at all nodes, and says what is amiss with them: what cannot vote, and what may break
    /// a promise of the lock. It changes nothing on them, and takes at most `connect_timeout` to
    /// connect and as long again to look.
    ///
    /// The result is an error with [`ErrorCode::Closed`] if the client is closed, and no other.
    ///
    /// [`ErrorCode::Closed`]: crate::ErrorCode::Closed
    pub fn doctor(&self) -> Pending<Result<Diagnosis>> {
        if self.is_closed() {
            return Pending::ready(Err(Error::closed()));
        }
        let (sender, receiver) = oneshot::channel();
        let setup = Arc::clone(&self.setup);
        let task = async move {
            // An error means that nobody waits any more.
            let _ = sender.send(Ok(diagnose(&setup.endpoints, &setup.options).await));
        };
        match self.setup.driver().spawn(task) {
            Ok(()) => Pending::new(receiver),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Who holds a resource: asks all nodes, and says what each of them keeps of it. It changes nothing,
    /// and may have changed by the time this returns.
    ///
    /// The result is not an error if nodes do not answer: see [`State::Unknown`](crate::State::Unknown).
    pub fn status(&self, resource: impl Into<String>) -> Pending<Result<Status>> {
        status::status(&self.setup, resource.into())
    }

    /// Takes the resource away from whoever held it in this [`Status`], and calls the next waiter. What has
    /// changed hands since then is not touched. The result is what became of it at each node, where
    /// [`NodeOutcome::Missing`](crate::NodeOutcome::Missing) means that nothing was left to delete.
    ///
    /// For a holder that hangs, or that is gone and had a long ttl. One that lives learns of the loss when it
    /// next extends its lease, after a third of its ttl, and may work on until then: beside the next holder.
    /// A value that is no text is not deleted.
    pub fn force_release(&self, seen: &Status) -> Pending<Result<Vec<NodeReport>>> {
        status::release(&self.setup, seen)
    }

    /// Deletes the fencing counters of a resource that nobody holds or waits for and nobody will use again,
    /// such as one with a random name. Otherwise the nodes keep them for a day. The result is what became of
    /// it at each node, where [`NodeOutcome::Missing`](crate::NodeOutcome::Missing) means that it is in use.
    pub fn forget(&self, resource: impl Into<String>) -> Pending<Result<Vec<NodeReport>>> {
        status::forget(&self.setup, resource.into())
    }

    /// Whether [`Client::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.setup.is_closed()
    }

    /// Closes the client: acquires under way end with [`ErrorCode::Closed`], leases that are still
    /// held end and are released, and the connections are closed. Waits for the nodes for at most
    /// `connect_timeout`. May be called again.
    ///
    /// In a forked child it closes the child's connections; the parent's are not touched.
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
