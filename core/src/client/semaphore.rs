//! [`Semaphore`]: the public type for the permits of a resource. This module checks the options; `crate::lock` runs the
//! acquires.

use crate::client::lock::{Lock, WantedPermits};
use crate::client::permits_status::{SemaphoreStatus, status};
use crate::client::setters::{lease_setters, wait_setters};
use crate::client::setup::Setup;
use crate::config::options::Scope;
use crate::config::permits::{checked_limit, checked_permits};
use crate::config::quoted::Quoted;
use crate::config::value::{Dialect, OptionValue};
use crate::error::Result;
use crate::lock::lease::Lease;
use crate::lock::lease::owner::Owner;
use crate::runtime::Pending;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A semaphore: at most `limit` permits of a resource are held at the same time. A `Semaphore` holds nothing until it
/// is acquired, so it can be cloned, shared and acquired any number of times.
///
/// Each permit has a number, its slot: 0 to `limit` − 1. Each slot is a separate lock, held on a majority of the nodes,
/// so the limit is as safe as a lock. The semaphore is independent of the lock on the same resource.
///
/// An option that is not set has the client's value.
///
/// ```
/// # async fn run() -> quorlock::Result<()> {
/// # let client = quorlock::Client::builder().nodes(["memory://semaphore"]).build()?;
/// let lease = client.semaphore("api:stripe", 10).acquire().await?;
/// println!("at most ten of us call it now; I am number {}", lease.only_slot()?);
/// lease.release().await;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a semaphore does nothing until it is acquired"]
pub struct Semaphore {
    /// A lock that acquires the permits. Its limit is zero if the given limit is invalid.
    lock: Lock,
}

impl Semaphore {
    pub(crate) fn new(
        setup: Arc<Setup>,
        resource: String,
        dialect: Dialect,
        limit: &OptionValue,
    ) -> Self {
        let lock = Lock::new(setup, resource.into()).with_scope(Scope::Semaphore);
        let (lock, limit) = match checked_limit(dialect, limit) {
            Ok(limit) => (lock, limit),
            Err(mistake) => (lock.refuse(mistake), 0),
        };
        Self { lock: lock.with_permits(Some(WantedPermits::Any { limit, count: 1 })) }
    }

    /// Sets how many permits each acquire gets: 1 to the limit, 1 by default. An acquire gets all of them or none.
    pub fn permits(self, count: u32) -> Self {
        self.option(Dialect::Rust, "permits", &OptionValue::Number(count.into()))
    }

    lease_setters!();
    wait_setters!();

    /// Sets an option by name, for language bindings: `permits`, or an option of a lock. See [`Lock::option`].
    pub fn option(self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        if name != dialect.name("permits") {
            return Self { lock: self.lock.option(dialect, name, value) };
        }
        let limit = self.limit();
        let lock = match checked_permits(dialect, value, limit) {
            Ok(count) => self.lock.with_permits(Some(WantedPermits::Any { limit, count })),
            Err(mistake) => self.lock.refuse(mistake),
        };
        Self { lock }
    }

    /// Returns the semaphore, or the first error in its resource and options. Without this call, the acquire returns
    /// that error.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for an invalid resource, limit or option.
    pub fn checked(self) -> Result<Self> {
        Ok(Self { lock: self.lock.checked()? })
    }

    /// The resource whose permits this semaphore grants.
    pub fn resource(&self) -> &str {
        &self.lock.resources()[0]
    }

    /// The ttl of the leases that this semaphore acquires. For `quorlock serve`.
    #[doc(hidden)]
    pub fn wanted_ttl(&self) -> Duration {
        self.lock.wanted_ttl()
    }

    /// The largest number of permits that can be held at the same time.
    pub fn limit(&self) -> u32 {
        self.wanted().0
    }

    /// The number of permits that each acquire gets.
    pub fn permits_wanted(&self) -> u32 {
        self.wanted().1
    }

    /// The limit, and the number of permits that each acquire gets.
    fn wanted(&self) -> (u32, u32) {
        self.lock.wanted_permits().expect("the lock of a semaphore acquires permits")
    }

    /// Acquires the permits, as [`Lock::acquire`] acquires a lock. [`Lease::slots`] returns their slots.
    ///
    /// If too few permits are free during the whole `wait`, the error is
    /// [`ErrorCode::Timeout`](crate::ErrorCode::Timeout). Waiters are served in the order of their arrival, so a waiter
    /// that wants several permits is not overtaken forever. Dropping the returned [`Pending`] cancels the acquire.
    pub fn acquire(&self) -> Pending<Result<Lease>> {
        self.lock.acquire()
    }

    /// Like [`Semaphore::acquire`], on behalf of a thread or task of a language binding.
    pub fn acquire_as(&self, owner: Option<Owner>) -> Pending<Result<Lease>> {
        self.lock.acquire_as(owner)
    }

    /// Tries to acquire the permits without waiting, like [`Lock::try_acquire`]. Returns `None` if too few permits are
    /// free.
    pub fn try_acquire(&self) -> Pending<Result<Option<Lease>>> {
        self.lock.try_acquire()
    }

    /// Like [`Semaphore::try_acquire`], on behalf of a thread or task of a language binding.
    pub fn try_acquire_as(&self, owner: Option<Owner>) -> Pending<Result<Option<Lease>>> {
        self.lock.try_acquire_as(owner)
    }

    /// Queries all nodes for the holders and the waiters. The query changes nothing on the nodes. The status may be out
    /// of date when the query returns. A single node that does not answer does not cause an error. If fewer than a
    /// majority of the nodes answer, the error is [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum).
    pub fn status(&self) -> Pending<Result<SemaphoreStatus>> {
        status(&self.lock, self.limit())
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("resource", &format_args!("{}", Quoted(self.resource())))
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}
