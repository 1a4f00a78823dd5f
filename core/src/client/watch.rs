//! [`Watch`]: the public type that observes the leader of a resource. A watch takes no part in the election.
//!
//! A watch queries all nodes about once a second, and at once when a new leader announces itself. `next_leader` in the
//! protocol crate decides which leader the watch may report.

use crate::client::lock::Lock;
use crate::client::setup::Setup;
use crate::config::quoted::Quoted;
use crate::error::{Error, Result};
use crate::lock::driver::Driver;
use crate::lock::election::{leader_channel, look};
use crate::lock::waiting::subscriber::Topic;
use crate::runtime::fork::PerProcess;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::timer::timeout;
use crate::runtime::{Pending, random};
use crate::wire::keys::Keys;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The longest time between two queries of the nodes. Each interval is shortened at random, by at most half, so that
/// observers that were started together do not send their queries together.
const INTERVAL: Duration = Duration::from_secs(1);

/// A leader that an observer reports. The report is only a hint: another leader may have been elected since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The holder name of the leader; empty if the leader has no name.
    pub holder: String,
    /// The fencing token of the leader's lease.
    pub fence: u64,
}

/// An observer of the leader of a resource: see [`Client::watch`](crate::Client::watch).
#[must_use = "a watch does nothing until `next` is called"]
pub struct Watch {
    lock: Lock,
    seen: u64,
    /// The subscription to announcements. It stays active between two calls, so that the next call need not subscribe
    /// again. `None` before the first call and during a call.
    topic: Arc<PerProcess<Mutex<Option<Topic>>>>,
}

impl Watch {
    pub(crate) fn new(setup: Arc<Setup>, resource: String) -> Self {
        let lock = Lock::new(setup, resource.into());
        Self { lock, seen: 0, topic: Arc::new(PerProcess::new()) }
    }

    /// Waits, without a limit, for a leader whose fence is larger than all fences that this method has returned before.
    /// If there is a leader, the first call returns it. If leaders change quickly, this method may skip some of them,
    /// but never the last one. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The same as [`Watch::after`].
    pub async fn next(&mut self) -> Result<Leader> {
        let leader = self.after(self.seen).await?;
        self.seen = leader.fence;
        Ok(leader)
    }

    /// Waits, without a limit, for a leader whose fence is larger than `fence`. An observer that stores the largest
    /// fence it has seen can continue from that fence after a restart.
    ///
    /// An outage does not end the wait. The error is [`ErrorCode::Config`] if the resource is invalid, and
    /// [`ErrorCode::Closed`] if the client is closed.
    ///
    /// [`ErrorCode::Config`]: crate::ErrorCode::Config
    /// [`ErrorCode::Closed`]: crate::ErrorCode::Closed
    pub fn after(&self, fence: u64) -> Pending<Result<Leader>> {
        let started = self.lock.prepare().and_then(|keys| {
            let driver = self.lock.setup.driver();
            let resource = self.resource().to_owned();
            let topic = Arc::clone(&self.topic);
            let observer = Observer { driver: Arc::clone(driver), keys, resource, topic };
            let (sender, receiver) = oneshot::channel();
            driver.begin(observer.run(fence, sender))?;
            Ok(Pending::open_ended(receiver))
        });
        Pending::started(started)
    }

    /// Returns the watch, or the error in its resource.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for an invalid resource.
    pub fn checked(self) -> Result<Self> {
        self.lock.clone().checked().map(|_| self)
    }

    /// The resource whose leader is observed.
    pub fn resource(&self) -> &str {
        self.lock.resources().first().map(String::as_str).unwrap_or_default()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("resource", &format_args!("{}", Quoted(self.resource())))
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// The state of one call of [`Watch::after`].
struct Observer {
    driver: Arc<Driver>,
    keys: Arc<[Keys]>,
    resource: String,
    topic: Arc<PerProcess<Mutex<Option<Topic>>>>,
}

impl Observer {
    async fn run(self, after: u64, mut caller: oneshot::Sender<Result<Leader>>) {
        let kept = self.topic().take();
        let mut topic = kept.unwrap_or_else(|| {
            let channel = leader_channel(&self.driver.options.key_prefix, &self.resource);
            self.driver.waiters.subscribe(&channel)
        });
        let found = tokio::select! {
            biased;
            () = caller.closed() => None,
            () = self.driver.closing.cancelled() => Some(Err(Error::closed())),
            found = self.find(after, &mut topic) => Some(found),
        };
        let unused = self.topic().replace(topic);
        drop(unused);
        if let Some(found) = found {
            // Sending fails if the caller is gone.
            let _ = caller.send(found.map_err(|error| error.about(&[self.resource])));
        }
    }

    fn topic(&self) -> MutexGuard<'_, Option<Topic>> {
        let topic = self.topic.get_or_init(Mutex::default);
        topic.lock()
    }

    async fn find(&self, after: u64, topic: &mut Topic) -> Result<Leader> {
        loop {
            // Clear the announcements before the query, not after it: a leader that the query misses announces itself
            // later, and this announcement must not be cleared.
            topic.clear();
            self.driver.ready().await?;
            if let Some((token, fence)) = look(&self.driver, &self.keys, after).await {
                let holder = token.holder().unwrap_or_default().to_owned();
                return Ok(Leader { holder, fence });
            }
            // Wait for an announcement or the end of the interval, whichever comes first.
            let _ = timeout(INTERVAL.mul_f64(random::jitter()), topic.next()).await;
        }
    }
}
