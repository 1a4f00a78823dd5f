//! [`Lock`]: the public type for the resources to lock and the options of the lease. This module checks both;
//! `crate::lock` runs the acquires.

use crate::client::setters::{lease_setters, wait_setters};
use crate::client::setup::Setup;
use crate::config::endpoint::Endpoint;
use crate::config::mode::{Mode, Modes};
use crate::config::options::{Options, Scope};
use crate::config::resources::Resources;
use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, Result};
use crate::lock::acquire::{Acquire, Caller};
use crate::lock::claim::handover::Giver;
use crate::lock::driver::Driver;
use crate::lock::lease::Lease;
use crate::lock::lease::owner::Owner;
use crate::lock::locked::locked;
use crate::runtime::Pending;
use crate::wire::keys::Keys;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A lock on one or more resources, with its options. A `Lock` only says what to acquire; the [`Lease`] that an acquire
/// returns holds the resources. So a `Lock` can be cloned, shared and acquired any number of times.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    pub(super) setup: Arc<Setup>,
    resources: Resources,
    options: Options,
    scope: Scope,
    /// The permits that an acquire takes instead of locking the resources. `None`: an acquire locks the resources.
    permits: Option<WantedPermits>,
    /// The blocks that the caller of an acquire is in.
    blocks: Vec<NonZeroU64>,
    mistake: Option<Error>,
}

/// The permits of a semaphore that a [`Lock`] acquires. Such a lock does not lock the resource itself.
#[derive(Clone)]
pub(crate) enum WantedPermits {
    /// Any `count` permits that are free.
    Any { limit: u32, count: u32 },
    /// The permits of a lease that is being adopted.
    Adopted { limit: u32, slots: Vec<u32> },
}

impl Lock {
    pub(crate) fn new(setup: Arc<Setup>, resources: Resources) -> Self {
        let options = setup.options.clone();
        // On a Redis Cluster, all keys of a lock must be in one slot.
        let has_cluster = setup.endpoints.iter().any(Endpoint::is_cluster);
        let checked =
            resources.check().and_then(|()| resources.check_keys(&options.key_prefix, has_cluster));
        let mistake = checked.err();
        Self {
            setup,
            resources,
            options,
            scope: Scope::Lock,
            permits: None,
            blocks: Vec::new(),
            mistake,
        }
    }

    /// Returns a lock whose acquire fails with `mistake`.
    pub(crate) fn invalid(setup: Arc<Setup>, mistake: Error) -> Self {
        let lock = Self::new(setup, Resources::from(Vec::<String>::new()));
        Self { mistake: Some(mistake), ..lock }
    }

    /// Makes [`Lock::option`] accept the options of `scope` from now on.
    pub(crate) fn with_scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    lease_setters!();
    wait_setters!();

    /// Locks all resources in shared mode: any number of clients can hold the resources at the same time, if all of
    /// these clients lock in shared mode. Use this mode for readers of data, and the exclusive mode for writers of the
    /// same data.
    pub fn shared(self) -> Self {
        self.modes(Modes::All(Mode::Shared))
    }

    /// Locks the given resources in [shared mode](Lock::shared), and the other resources of this lock exclusively.
    pub fn shared_for(self, resources: impl Into<Resources>) -> Self {
        self.modes(Modes::shared(resources.into().to_vec()))
    }

    pub(crate) fn modes(mut self, modes: Modes) -> Self {
        self.options.mode = modes;
        self.with_checked_modes()
    }

    fn with_checked_modes(mut self) -> Self {
        if let Err(error) = self.options.mode.check(&self.resources) {
            self.mistake.get_or_insert(error);
        }
        self
    }

    /// Sets an option by name, for language bindings. `name`, `value` and error messages use the
    /// form of `dialect`. If the value is invalid, the acquire and [`Lock::checked`] return the
    /// error.
    pub fn option(mut self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        if let Err(error) = self.options.set_per_lock(self.scope, dialect, name, value) {
            let is_unnamed = self.scope == Scope::Lock && self.resources.is_empty();
            if is_unnamed && dialect == Dialect::Python {
                // The program has probably passed the resource as a keyword argument.
                self.mistake = Some(Error::config(format!(
                    "{}; the resource comes first, without a name: lock(\"orders:42\")",
                    error.message()
                )));
            }
            self.mistake.get_or_insert(error);
        }
        self.with_checked_modes()
    }

    /// The slots of the lease to adopt, in order; empty if the lease has no permits.
    pub(crate) fn adopted_slots(&self) -> &[u32] {
        match &self.permits {
            Some(WantedPermits::Adopted { slots, .. }) => slots,
            _ => &[],
        }
    }

    /// The limit of a semaphore, and the number of its permits that an acquire takes; `None` for a lock or an adoption.
    pub(crate) fn wanted_permits(&self) -> Option<(u32, u32)> {
        match self.permits {
            Some(WantedPermits::Any { limit, count }) => Some((limit, count)),
            _ => None,
        }
    }

    /// Makes an acquire take these permits instead of locking the resources. `None`: an acquire locks the resources.
    pub(crate) fn with_permits(mut self, permits: Option<WantedPermits>) -> Self {
        self.permits = permits;
        self
    }

    /// Makes the acquire fail with `mistake`, unless an earlier mistake is recorded.
    pub(crate) fn refuse(mut self, mistake: Error) -> Self {
        self.mistake.get_or_insert(mistake);
        self
    }

    /// The holder name that other clients see while this lock is held; empty if the holder has no name.
    pub(crate) fn holder_name(&self, driver: &Driver) -> Arc<str> {
        Arc::clone(self.options.holder.as_ref().unwrap_or(&driver.process_name))
    }

    /// The ttl of the leases that this lock acquires. For `quorlock serve`.
    #[doc(hidden)]
    pub fn wanted_ttl(&self) -> Duration {
        self.options.lease_ttl()
    }

    /// Returns the lock, or the first error in its resources and options. Without this call, the
    /// acquire returns that error.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for an invalid resource or option, or a
    /// resource that is named twice.
    pub fn checked(self) -> Result<Self> {
        self.mistake.clone().map_or(Ok(self), Err)
    }

    /// The resources to lock.
    pub fn resources(&self) -> &[String] {
        &self.resources
    }

    /// Acquires the lock. The time limit `wait` starts with this call, not when the returned [`Pending`] is first
    /// polled. Dropping the [`Pending`] cancels the acquire.
    ///
    /// If others hold the lock for the whole `wait`, the error is [`ErrorCode::Timeout`](crate::ErrorCode::Timeout). If
    /// too few nodes can vote, the acquire retries for `connect_timeout` or for `wait`, whichever is shorter. If too
    /// few nodes can vote during this whole time, the error is [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum).
    ///
    /// Locks are not re-entrant. If a lease of this client holds the resource, the `Timeout` error says so. If the same
    /// tokio task or thread acquired that lease, the caller waits for itself: the client emits the event
    /// `acquire.reentrant` after the acquire has waited for a second.
    pub fn acquire(&self) -> Pending<Result<Lease>> {
        self.acquire_as(Some(Owner::current())).delivered_by(Self::deliver)
    }

    /// Returns this lock for acquires within these blocks: see [`Lease::enter_block`]. For language bindings.
    #[doc(hidden)]
    pub fn within(self, blocks: Vec<NonZeroU64>) -> Self {
        Self { blocks, ..self }
    }

    /// Like [`Lock::acquire`], on behalf of a thread or task of a language binding. Without an
    /// owner, the event `acquire.reentrant` is never emitted.
    pub fn acquire_as(&self, owner: Option<Owner>) -> Pending<Result<Lease>> {
        self.start(&self.options, owner, None, Caller::Acquire)
    }

    /// Adopts a detached lease on these resources. `giver` is the detached lease.
    pub(crate) fn adopt(
        &self,
        giver: Option<Giver>,
        owner: Option<Owner>,
    ) -> Pending<Result<Lease>> {
        self.start(&self.options, owner, giver, Caller::Acquire)
    }

    /// Makes the option `keep` apply not only when the lease is released, but also when the lease is dropped. Called
    /// when a Rust program receives the lease.
    pub(crate) fn deliver(acquired: &mut Result<Lease>) {
        if let Ok(lease) = acquired {
            lease.keep_when_dropped();
        }
    }

    /// Tries once to acquire the lock, and ignores `wait`. Returns `None` if others hold the lock, or if the votes were
    /// split among several clients. Dropping the returned [`Pending`] cancels the attempt.
    ///
    /// Contention is the only failure that is not an error. If too few nodes can vote, the error is
    /// [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum), as in [`Lock::acquire`].
    ///
    /// ```
    /// # async fn run() -> quorlock::Result<()> {
    /// # let client = quorlock::Client::builder().nodes(["memory://a"]).build()?;
    /// match client.lock("report").try_acquire().await? {
    ///     Some(lease) => {
    ///         println!("write the report with fence {}", lease.fence());
    ///         lease.release().await;
    ///     }
    ///     None => println!("another process writes the report"),
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
    /// ```
    pub fn try_acquire(&self) -> Pending<Result<Option<Lease>>> {
        self.try_acquire_as(Some(Owner::current())).delivered_by(Lease::deliver)
    }

    /// Like [`Lock::try_acquire`], on behalf of a thread or task of a language binding.
    pub fn try_acquire_as(&self, owner: Option<Owner>) -> Pending<Result<Option<Lease>>> {
        let options = Options { wait: Some(Duration::ZERO), ..self.options.clone() };
        self.start(&options, owner, None, Caller::TryAcquire)
    }

    fn start<T>(
        &self,
        options: &Options,
        owner: Option<Owner>,
        giver: Option<Giver>,
        caller: impl FnOnce(oneshot::Sender<Result<T>>) -> Caller,
    ) -> Pending<Result<T>> {
        let started = self.prepare().and_then(|keys| {
            let renewer = self.setup.renewer();
            let permits = self.wanted_permits();
            let mut acquire =
                Acquire::new(renewer, &self.resources, keys, options, owner, giver, permits);
            acquire.blocks.clone_from(&self.blocks);
            renewer.driver.begin_for(|sender| acquire.run(caller(sender)))
        });
        Pending::started(started)
    }

    /// Whether an acquire would fail now because the lock is held on too many nodes. A lock on several resources is
    /// held on a node if at least one of the resources is held there. The answer may be out of date when the call
    /// returns.
    ///
    /// The error is [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum) if too few nodes answer to decide.
    pub fn locked(&self) -> Pending<Result<bool>> {
        let patience = self.options.node_timeout(self.options.ttl);
        self.query(async move |driver, keys, resources| {
            locked(&driver, &resources, keys, patience).await
        })
    }

    /// Starts a background task that waits for the connections with [`Driver::ready`], then calls `work` with the
    /// driver, the keys and the resources of this lock, and sends the result to the returned [`Pending`]. The result is
    /// an error if a resource or an option is invalid, the client is closed, or two nodes are duplicates.
    pub(crate) fn query<T, F>(
        &self,
        work: impl FnOnce(Arc<Driver>, Arc<[Keys]>, Resources) -> F + Send + 'static,
    ) -> Pending<Result<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let resources = self.resources.clone();
        Pending::started(self.prepare().and_then(|keys| {
            self.setup.driver().ask(async move |driver: Arc<Driver>| {
                driver.ready().await.map_err(|error| error.about(&resources))?;
                work(driver, keys, resources).await
            })
        }))
    }

    pub(crate) fn prepare(&self) -> Result<Arc<[Keys]>> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.setup.is_closed() {
            return Err(Error::closed().about(&self.resources));
        }
        let prefix = &self.options.key_prefix;
        match &self.permits {
            Some(WantedPermits::Any { .. }) => {
                return Ok([Keys::semaphore(prefix, &self.resources[0])].into());
            }
            Some(WantedPermits::Adopted { limit, slots }) => {
                let keys = |slot: &u32| Keys::permit(prefix, &self.resources[0], *slot, *limit);
                return Ok(slots.iter().map(keys).collect());
            }
            None => {}
        }
        let keys = |resource: &String| {
            let keys = Keys::new(prefix, resource);
            match self.options.mode.of(resource) {
                Mode::Exclusive => keys,
                Mode::Shared => keys.shared(),
            }
        };
        let mut keys: Vec<_> = self.resources.iter().map(keys).collect();
        // Sort the keys, so that locks that name the same resources in different orders share a local wait queue.
        keys.sort_unstable_by(|one, other| one.lock.cmp(&other.lock));
        Ok(keys.into())
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("resources", &self.resources).finish_non_exhaustive()
    }
}
