//! Locks: recipes for leases.

use crate::client::setup::Setup;
use crate::command::keys::Keys;
use crate::config::options::{Dialect, OptionValue, Options};
use crate::config::resources::Resources;
use crate::error::{Error, Result};
use crate::lock::acquire::Acquire;
use crate::lock::lease::Lease;
use crate::lock::locked::locked;
use crate::lock::owner::Owner;
use crate::runtime::Pending;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A lock: a resource or several, and how to acquire it. It owns nothing, so it can be shared and used again.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    setup: Arc<Setup>,
    resources: Resources,
    options: Options,
    mistake: Option<Error>,
}

impl Lock {
    pub(crate) fn new(setup: Arc<Setup>, resources: Resources) -> Self {
        let options = setup.options.clone();
        let checked = resources
            .check()
            .and_then(|()| resources.check_keys(&options.key_prefix, setup.has_cluster()));
        let mistake = checked.err();
        Self { setup, resources, options, mistake }
    }

    /// How long the nodes keep this lock if it is not extended: 10 ms to 24 h.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.option(Dialect::Rust, "ttl", &OptionValue::Number(ttl.as_secs_f64()))
    }

    /// How long an acquire waits while others hold the lock; zero for one try.
    pub fn wait(self, wait: Duration) -> Self {
        self.option(Dialect::Rust, "wait", &OptionValue::Number(wait.as_secs_f64()))
    }

    /// Acquires wait for ever while others hold the lock.
    pub fn wait_forever(self) -> Self {
        self.option(Dialect::Rust, "wait", &OptionValue::Null)
    }

    /// Whether leases are extended until they are released.
    pub fn auto_extend(self, auto_extend: bool) -> Self {
        self.option(Dialect::Rust, "auto_extend", &OptionValue::Bool(auto_extend))
    }

    /// How long a lease can be held at most, however it is extended: 10 ms or more.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.option(Dialect::Rust, "max_hold", &OptionValue::Number(max_hold.as_secs_f64()))
    }

    /// Leases can be held for ever.
    pub fn unlimited_hold(self) -> Self {
        self.option(Dialect::Rust, "max_hold", &OptionValue::Null)
    }

    /// Sets an option by its name, as a language binding received it.
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
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for an empty resource, one that is named twice, or
    /// a bad option.
    pub fn checked(self) -> Result<Self> {
        self.mistake.clone().map_or(Ok(self), Err)
    }

    /// What it locks.
    pub fn resources(&self) -> &[String] {
        &self.resources
    }

    /// Acquires the lock. The clock of `wait` starts now; dropping the result cancels.
    ///
    /// Contention is waited out for `wait`; then the result is an error with
    /// [`ErrorCode::Timeout`](crate::ErrorCode::Timeout). If too few nodes can vote, and still
    /// cannot after `connect_timeout`, it is one with
    /// [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum).
    ///
    /// Locks are not re-entrant. If a lease of this client holds the resource, the error with
    /// [`ErrorCode::Timeout`](crate::ErrorCode::Timeout) says so, and if the tokio task or thread that
    /// calls this acquired that lease, the event `acquire.reentrant` warns after a second of waiting.
    pub fn acquire(&self) -> Pending<Result<Lease>> {
        self.acquire_as(Some(Owner::current()))
    }

    /// [`Lock::acquire`] for a thread or task that a language binding knows; without one, the event
    /// `acquire.reentrant` is never published.
    pub fn acquire_as(&self, owner: Option<Owner>) -> Pending<Result<Lease>> {
        let started = self.prepare().and_then(|keys| {
            let renewer = self.setup.renewer();
            let acquire = Acquire::new(renewer, &self.resources, keys, &self.options, owner);
            let (sender, receiver) = oneshot::channel();
            renewer.driver().begin(acquire.run(sender))?;
            Ok(Pending::new(receiver))
        });
        started.unwrap_or_else(|error| Pending::ready(Err(error)))
    }

    /// Whether somebody holds so many nodes that the lock could not be acquired now; of several
    /// resources, any of them. It may have changed by the time this returns.
    ///
    /// The result is an error with [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum) if too few
    /// nodes answer to tell.
    pub fn locked(&self) -> Pending<Result<bool>> {
        let started = self.prepare().and_then(|keys| {
            let (sender, receiver) = oneshot::channel();
            let (driver, resources) = (self.setup.driver(), self.resources.clone());
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
        let keys = |resource: &String| Keys::new(&self.options.key_prefix, resource);
        let mut keys: Vec<_> = self.resources.iter().map(keys).collect();
        // Whoever names the same resources stands in the same line.
        keys.sort_unstable_by(|one, other| one.lock.cmp(&other.lock));
        Ok(keys.into())
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("resources", &self.resources).finish_non_exhaustive()
    }
}
