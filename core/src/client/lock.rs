//! [`Lock`]: the public type for the resources to lock and the options. It checks both; the module
//! `lock` runs the acquires.

use crate::client::setup::Setup;
use crate::command::keys::Keys;
use crate::config::mode::{Mode, Modes};
use crate::config::options::Options;
use crate::config::resources::Resources;
use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, Result};
use crate::lock::acquire::{Acquire, Caller};
use crate::lock::driver::Driver;
use crate::lock::handover::Giver;
use crate::lock::lease::Lease;
use crate::lock::locked::locked;
use crate::lock::owner::Owner;
use crate::runtime::Pending;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A lock on one or more resources, with its options. It holds nothing until it is acquired, so it
/// can be cloned, shared and acquired any number of times.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    setup: Arc<Setup>,
    resources: Resources,
    options: Options,
    /// `None` for locks.
    permits: Option<PermitChoice>,
    mistake: Option<Error>,
}

/// The permits of a semaphore that are acquired instead of a lock.
#[derive(Clone)]
pub(crate) enum PermitChoice {
    /// So many, whichever are free.
    Any { limit: u32, count: u32 },
    /// Those of a lease that is adopted.
    Adopted { limit: u32, slots: Vec<u32> },
}

impl Lock {
    pub(crate) fn new(setup: Arc<Setup>, resources: Resources) -> Self {
        let options = setup.options.clone();
        let checked = resources
            .check()
            .and_then(|()| resources.check_keys(&options.key_prefix, setup.has_cluster()));
        let mistake = checked.err();
        Self { setup, resources, options, permits: None, mistake }
    }

    /// Returns a lock whose acquire fails with `mistake`.
    pub(crate) fn invalid(setup: Arc<Setup>, mistake: Error) -> Self {
        let resources = Resources::from(Vec::<String>::new());
        let options = setup.options.clone();
        Self { setup, resources, options, permits: None, mistake: Some(mistake) }
    }

    /// Sets the time for which the nodes keep this lock if it is not extended: 10 ms to 24 h.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.option(Dialect::Rust, "ttl", &OptionValue::Number(ttl.as_secs_f64()))
    }

    /// Sets the maximum time that an acquire waits while others hold the lock. Zero means a single
    /// attempt.
    pub fn wait(self, wait: Duration) -> Self {
        self.option(Dialect::Rust, "wait", &OptionValue::Number(wait.as_secs_f64()))
    }

    /// Makes acquires wait without a limit while others hold the lock.
    pub fn wait_forever(self) -> Self {
        self.option(Dialect::Rust, "wait", &OptionValue::Null)
    }

    /// Sets whether leases are extended automatically until they are released.
    pub fn auto_extend(self, auto_extend: bool) -> Self {
        self.option(Dialect::Rust, "auto_extend", &OptionValue::Bool(auto_extend))
    }

    /// Sets the maximum time that a lease can be held, despite extensions: 10 ms or more. It also
    /// limits the `ttl`.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.option(Dialect::Rust, "max_hold", &OptionValue::Number(max_hold.as_secs_f64()))
    }

    /// Allows leases to be held without a limit.
    pub fn unlimited_hold(self) -> Self {
        self.option(Dialect::Rust, "max_hold", &OptionValue::Null)
    }

    /// Sets the name that others see while they wait for this lock: at most 128 bytes without control
    /// characters; empty for none.
    pub fn holder(self, name: impl Into<String>) -> Self {
        self.option(Dialect::Rust, "holder", &OptionValue::Text(name.into()))
    }

    /// Sets how long the nodes keep the key of a released lease, so that nobody else acquires the lock before: 10
    /// ms to 24 h from the release, zero to delete the key. See [`Lease::release_and_keep`].
    pub fn keep(self, keep: Duration) -> Self {
        self.option(Dialect::Rust, "keep", &OptionValue::Number(keep.as_secs_f64()))
    }

    /// Locks all resources in shared mode: any number of clients hold them at the same time, if all of them lock in
    /// shared mode. For readers of what an exclusive lock protects.
    pub fn shared(self) -> Self {
        self.modes(Modes::All(Mode::Shared))
    }

    /// Locks these of the resources in [shared mode](Lock::shared), and the others exclusively.
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
        if let Err(error) = self.options.set_per_lock(dialect, name, value) {
            if self.resources.is_empty() && dialect == Dialect::Python {
                // The resource was probably passed by name.
                self.mistake = Some(Error::config(format!(
                    "{}; the resource comes first, without a name: lock(\"orders:42\")",
                    error.message()
                )));
            }
            self.mistake.get_or_insert(error);
        }
        self.with_checked_modes()
    }

    /// Sets an option of an election by name.
    pub(crate) fn election_option(self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        let reason = if dialect.name("wait") == name {
            "a candidate waits without a limit"
        } else if dialect.name("mode") == name {
            "there is one leader"
        } else {
            return self.option(dialect, name, value);
        };
        self.refuse(&format!("{name} is not an option of an election: {reason}"))
    }

    /// Sets an option of an adoption by name.
    pub(crate) fn adoption_option(self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        if dialect.name("mode") != name {
            return self.option(dialect, name, value);
        }
        self.refuse(&format!("{name} is not an option of an adoption: the lease keeps its mode"))
    }

    /// Sets an option of a semaphore by name.
    pub(crate) fn semaphore_option(
        mut self,
        dialect: Dialect,
        name: &str,
        value: &OptionValue,
    ) -> Self {
        if dialect.name("mode") == name {
            let message = "is not an option of a semaphore: each permit has one holder";
            return self.refuse(&format!("{name} {message}"));
        }
        if let Err(error) = self.options.set_per_semaphore(dialect, name, value) {
            self.mistake.get_or_insert(error);
        }
        self
    }

    /// The slots of an adopted lease, in order; none if it is not a lease of a semaphore.
    pub(crate) fn adopted_slots(&self) -> &[u32] {
        match &self.permits {
            Some(PermitChoice::Adopted { slots, .. }) => slots,
            _ => &[],
        }
    }

    /// Acquires permits of a semaphore instead of a lock.
    pub(crate) fn with_permits(mut self, permits: Option<PermitChoice>) -> Self {
        self.permits = permits;
        self
    }

    /// Makes the acquire fail, unless it would already.
    pub(crate) fn refuse(mut self, mistake: &str) -> Self {
        self.mistake.get_or_insert_with(|| Error::config(mistake));
        self
    }

    /// The name that others see while they wait for this lock; empty for none.
    pub(crate) fn holder_name(&self, driver: &Driver) -> Arc<str> {
        Arc::clone(self.options.holder.as_ref().unwrap_or(&driver.process_name))
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

    /// Acquires the lock. The time for `wait` starts now, not when the result is first polled.
    /// Dropping the result cancels the acquire.
    ///
    /// If others hold the lock for the whole `wait`, the result is
    /// [`ErrorCode::Timeout`](crate::ErrorCode::Timeout). If too few nodes can vote, and still
    /// cannot after `connect_timeout` or after `wait`, whichever is shorter, it is
    /// [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum).
    ///
    /// Locks are not re-entrant. If a lease of this client holds the resource, the `Timeout` error
    /// says so. If the calling tokio task or thread acquired that lease itself, the event
    /// `acquire.reentrant` warns about that after a second of waiting.
    pub fn acquire(&self) -> Pending<Result<Lease>> {
        self.acquire_as(Some(Owner::current())).delivered_by(Self::deliver)
    }

    /// Like [`Lock::acquire`], on behalf of a thread or task of a language binding. Without an
    /// owner, the event `acquire.reentrant` is never emitted.
    pub fn acquire_as(&self, owner: Option<Owner>) -> Pending<Result<Lease>> {
        self.start(&self.options, owner, None, Caller::Acquire)
    }

    /// Adopts a lease of these resources.
    pub(crate) fn adopt(
        &self,
        giver: Option<Giver>,
        owner: Option<Owner>,
    ) -> Pending<Result<Lease>> {
        self.start(&self.options, owner, giver, Caller::Acquire)
    }

    /// Called when a lease reaches a Rust program.
    pub(crate) fn deliver(acquired: &mut Result<Lease>) {
        if let Ok(lease) = acquired {
            lease.keep_when_dropped();
        }
    }

    /// Tries once to acquire the lock, whatever `wait` is. Returns `None` if others hold it, or if
    /// the votes of several clients split. Dropping the result cancels the attempt.
    ///
    /// Contention is the only case that is not an error. If too few nodes can vote, the result is
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
        let acquiring = self.try_acquire_as(Some(Owner::current()));
        acquiring.delivered_by(|acquired| {
            if let Ok(Some(lease)) = acquired {
                lease.keep_when_dropped();
            }
        })
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
            let permits = match self.permits {
                Some(PermitChoice::Any { limit, count }) => Some((limit, count)),
                _ => None,
            };
            let acquire =
                Acquire::new(renewer, &self.resources, keys, options, owner, giver, permits);
            let (sender, receiver) = oneshot::channel();
            renewer.driver().begin(acquire.run(caller(sender)))?;
            Ok(Pending::new(receiver))
        });
        started.unwrap_or_else(|error| Pending::ready(Err(error)))
    }

    /// Whether an acquire would fail now because others hold the lock on too many nodes. With
    /// several resources, whether this is true for any of them. The result may be out of date on
    /// return.
    ///
    /// The result is [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum) if too few nodes answer to
    /// decide.
    pub fn locked(&self) -> Pending<Result<bool>> {
        let started = self.prepare().and_then(|keys| {
            let (sender, receiver) = oneshot::channel();
            let driver = self.setup.driver();
            let resources = self.resources.clone();
            let patience = self.options.node_timeout(self.options.ttl);
            let fan_out = Arc::clone(driver);
            driver.begin(async move {
                let _ = sender.send(locked(&fan_out, &resources, keys, patience).await);
            })?;
            Ok(Pending::new(receiver))
        });
        started.unwrap_or_else(|error| Pending::ready(Err(error)))
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
            Some(PermitChoice::Any { .. }) => {
                return Ok([Keys::semaphore(prefix, &self.resources[0])].into());
            }
            Some(PermitChoice::Adopted { limit, slots }) => {
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
        // Sorted, so that locks with the same resources share a local wait queue.
        keys.sort_unstable_by(|one, other| one.lock.cmp(&other.lock));
        Ok(keys.into())
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("resources", &self.resources).finish_non_exhaustive()
    }
}
