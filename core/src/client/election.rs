//! [`Election`]: the public type of a candidate for the leadership of a resource, with the candidate's options.
//!
//! A leader is the holder of the lock on the resource. A candidate waits for two things at the same time: for the lock,
//! and for a leader that hands its lease over to the candidate. When one of the two waits succeeds, the candidate
//! cancels the other wait. `lock/election.rs` sends and reads the messages.

use crate::client::adoption::Adoption;
use crate::client::lock::Lock;
use crate::client::setters::lease_setters;
use crate::client::setup::Setup;
use crate::config::options::Scope;
use crate::config::quoted::Quoted;
use crate::config::resources::Resources;
use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, ErrorCode, Result};
use crate::lock::driver::{Driver, run_for};
use crate::lock::election::{announce, candidate_channel};
use crate::lock::lease::Lease;
use crate::lock::waiting::subscriber::Topic;
use crate::runtime::timer::sleep;
use crate::runtime::{Pending, random};
use crate::telemetry::events;
use crate::wire::keys::Keys;
use std::fmt;
use std::future::pending;
use std::num::NonZeroU64;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A candidate for the leadership of a resource: see [`Client::elect`](crate::Client::elect). A candidate holds nothing
/// until it is elected, so it can be cloned.
///
/// The options apply to the leader's lease. An option that is not set has the client's value, except `max_hold`: by
/// default, a leader keeps its lease without a limit. After a leader crashes, its lease expires within the `ttl`, and
/// another candidate can be elected. Observers see the `holder` name of the leader. To hand over its lease, a leader
/// chooses a candidate by the candidate's `holder` name, so a candidate without a name cannot get a lease by hand-over.
#[derive(Clone)]
#[must_use = "a candidate does nothing until `next` or `run` is called"]
pub struct Election {
    lock: Lock,
}

impl Election {
    pub(crate) fn new(setup: Arc<Setup>, resource: String) -> Self {
        let lock = Lock::new(setup, resource.into()).wait_forever().unlimited_hold();
        Self { lock: lock.with_scope(Scope::Election) }
    }

    lease_setters!();

    /// Sets an option by name, for language bindings. See [`Lock::option`].
    pub fn option(self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        Self { lock: self.lock.option(dialect, name, value) }
    }

    /// Returns this candidate for campaigns within these blocks: see [`Lock::within`]. For language bindings.
    #[doc(hidden)]
    pub fn within(self, blocks: Vec<NonZeroU64>) -> Self {
        Self { lock: self.lock.within(blocks) }
    }

    /// Returns the candidate, or the first error in its resource and options.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`] for an invalid resource or option.
    pub fn checked(self) -> Result<Self> {
        Ok(Self { lock: self.lock.checked()? })
    }

    /// The resource whose leader is elected.
    pub fn resource(&self) -> &str {
        self.lock.resources().first().map(String::as_str).unwrap_or_default()
    }

    /// Waits, without a limit, until this candidate is elected, and returns the leader's lease. Dropping the returned
    /// [`Pending`] cancels the wait.
    ///
    /// While too few nodes can vote, the candidate tries again. Only errors with [`ErrorCode::Config`] or
    /// [`ErrorCode::Closed`] end the wait.
    pub fn next(&self) -> Pending<Result<Lease>> {
        self.next_as().delivered_by(Lock::deliver)
    }

    /// Like [`Election::next`], for language bindings: if the lease is dropped, the option `keep` does not apply.
    #[doc(hidden)]
    pub fn next_as(&self) -> Pending<Result<Lease>> {
        let started = self.lock.prepare().and_then(|keys| {
            let driver = self.lock.setup.driver();
            let campaign = Campaign { election: self.clone(), driver: Arc::clone(driver), keys };
            let (sender, receiver) = oneshot::channel();
            driver.begin(run_for(sender, async move { campaign.elected().await }))?;
            Ok(Pending::open_ended(receiver))
        });
        Pending::started(started)
    }

    /// Waits until this candidate is elected, and calls `lead` with the lease. After `lead` returns, `run` releases the
    /// lease and returns the result of `lead`. If `lead` has [handed the lease over](Lease::hand_over), there is
    /// nothing to release. If the lease is lost before `lead` returns, `run` waits for the next election and calls
    /// `lead` again.
    ///
    /// If the lease is lost while `lead` runs, `run` drops the future of `lead` before another leader can be elected.
    /// Dropping the future of `run` drops the future of `lead` and releases the lease in the background, even if a task
    /// that `lead` has spawned still uses the lease.
    ///
    /// # Errors
    ///
    /// The same as [`Election::next`].
    ///
    /// ```
    /// # async fn run() -> quorlock::Result<()> {
    /// # let client = quorlock::Client::builder().nodes(["memory://elect"]).build()?;
    /// let election = client.elect("reports");
    /// let written = election.run(|lease| async move {
    ///     println!("elected with fence {}", lease.fence());
    ///     "one report"
    /// });
    /// assert_eq!(written.await?, "one report");
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
    /// ```
    pub async fn run<T, F: Future<Output = T>>(
        self,
        // Not `AsyncFnMut`: with that trait, the compiler could not tell whether the future is `Send`.
        mut lead: impl FnMut(Arc<Lease>) -> F,
    ) -> Result<T> {
        loop {
            let leading = Leading(Arc::new(self.next().await?));
            let lease = &leading.0;
            let lost = async {
                if lease.lost().await.is_none() {
                    // `lead` itself has released, detached or handed over the lease, but has not returned: keep polling
                    // `lead`.
                    pending::<()>().await;
                }
            };
            let led = tokio::select! {
                // The loss is polled first, so that `lead` is not polled after the loss.
                biased;
                () = lost => continue,
                led = lead(Arc::clone(lease)) => led,
            };
            lease.release().await;
            if lease.loss().is_none() {
                return Ok(led);
            }
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("resource", &format_args!("{}", Quoted(self.resource())))
            .finish_non_exhaustive()
    }
}

/// The lease of a leader. Dropping this value releases the lease.
struct Leading(Arc<Lease>);

impl Drop for Leading {
    fn drop(&mut self) {
        // The release continues in the background after its `Pending` is dropped.
        drop(self.0.release());
    }
}

/// The state of one call of [`Election::next`]: a candidate that waits until it is elected.
struct Campaign {
    election: Election,
    driver: Arc<Driver>,
    keys: Arc<[Keys]>,
}

impl Campaign {
    /// Waits until the candidate is elected or an error ends the wait.
    async fn elected(&self) -> Result<Lease> {
        let (lease, is_successor) = tokio::select! {
            biased;
            lease = self.succeed() => (lease, true),
            acquired = self.acquire() => (acquired?, false),
        };
        let resource = lease.resource();
        let fence = lease.only_fence()?;
        let resources = Resources::from(resource);
        events::elected(&resources, (fence, lease.holder()), is_successor);
        self.driver.totals.elections.up();
        announce(&self.driver, &self.keys, resource, fence);
        Ok(lease)
    }

    /// Acquires the lock. Retries while too few nodes can vote.
    async fn acquire(&self) -> Result<Lease> {
        let mut trouble = false;
        loop {
            match self.election.lock.acquire_as(None).await {
                Err(error) if error.code() == ErrorCode::NoQuorum => {
                    let resources = Resources::from(self.election.resource());
                    events::no_election(&resources, &error, trouble);
                    trouble = true;
                    // The acquire itself has retried for `connect_timeout`, so wait only for one retry delay.
                    let delay = self.driver.options.retry_delay.draw(random::random());
                    let pause = self.driver.closing.run_until_cancelled(sleep(delay));
                    if pause.await.is_none() {
                        return Err(Error::closed().about(&resources));
                    }
                }
                acquired => return acquired,
            }
        }
    }

    /// Adopts the lease of a leader that hands it over to this candidate. Does not return until an adoption succeeds.
    async fn succeed(&self) -> Lease {
        let Some(mut topic) = self.listen() else { return pending().await };
        loop {
            let text = topic.next().await;
            let adoption = Adoption::new(Arc::clone(&self.election.lock.setup), &text);
            // The message is only a hint: it may be a probe, be forged, concern another resource, or come too late.
            let Some(adoption) = adoption.like(&self.election.lock) else { continue };
            if let Ok(lease) = adoption.acquire_as(None).await {
                return lease;
            }
            // Discard the copies of this text that other nodes delivered. If the lease can still be adopted, the leader
            // sends the text again.
            topic.clear();
        }
    }

    /// Subscribes to the messages for this candidate. Returns `None` if the candidate has no name.
    fn listen(&self) -> Option<Topic> {
        let holder = self.election.lock.holder_name(&self.driver);
        let prefix = &self.driver.options.key_prefix;
        let channel = candidate_channel(prefix, self.election.resource(), &holder);
        (!holder.is_empty()).then(|| self.driver.waiters.subscribe(&channel))
    }
}
