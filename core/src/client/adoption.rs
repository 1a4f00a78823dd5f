//! [`Adoption`]: the public type for a lease that is taken over, and the options of the new lease.

use crate::client::lock::{Lock, PermitChoice};
use crate::client::setup::Setup;
use crate::config::value::{Dialect, OptionValue};
use crate::error::Result;
use crate::lock::handover::{Giver, Leased, Namespace};
use crate::lock::lease::Lease;
use crate::lock::owner::Owner;
use crate::runtime::Pending;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The adoption of a lease that its holder has detached: see [`Client::adopt`](crate::Client::adopt).
#[derive(Clone)]
#[must_use = "an adoption does nothing until `acquire` is called"]
pub struct Adoption {
    lock: Lock,
    /// `None` if the text is invalid; the lock then has the error.
    giver: Option<Giver>,
}

impl Adoption {
    pub(crate) fn new(setup: Arc<Setup>, text: &str) -> Self {
        let addresses = setup.endpoints.iter().map(|endpoint| &*endpoint.address).collect();
        let namespace = Namespace { addresses, key_prefix: &setup.options.key_prefix };
        match namespace.read(text) {
            Ok((Leased { resources, modes, permits }, giver)) => {
                let permits = permits.map(|(limit, slots)| PermitChoice::Adopted { limit, slots });
                let lock = Lock::new(setup, resources).modes(modes).with_permits(permits);
                Self { lock, giver: Some(giver) }
            }
            Err(mistake) => Self { lock: Lock::invalid(setup, mistake), giver: None },
        }
    }

    /// Sets the time for which the nodes keep the new lease if it is not extended: 10 ms to 24 h.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|lock| lock.ttl(ttl))
    }

    /// Sets how long to try again while other adopters hold the lease on some nodes. Zero means a single attempt.
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|lock| lock.wait(wait))
    }

    /// Tries again without a limit while other adopters hold the lease on some nodes.
    pub fn wait_forever(self) -> Self {
        self.with(Lock::wait_forever)
    }

    /// Sets whether the new lease is extended automatically until it is released.
    pub fn auto_extend(self, auto_extend: bool) -> Self {
        self.with(|lock| lock.auto_extend(auto_extend))
    }

    /// Sets the maximum time that the new lease can be held, despite extensions: 10 ms or more. It counts from
    /// the adoption.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with(|lock| lock.max_hold(max_hold))
    }

    /// Allows the new lease to be held without a limit.
    pub fn unlimited_hold(self) -> Self {
        self.with(Lock::unlimited_hold)
    }

    /// Sets the name of the new holder that others see: at most 128 bytes without control characters; empty
    /// for none.
    pub fn holder(self, name: impl Into<String>) -> Self {
        self.with(|lock| lock.holder(name))
    }

    /// Sets how long the nodes keep the key of the new lease after its release. See [`Lock::keep`].
    pub fn keep(self, keep: Duration) -> Self {
        self.with(|lock| lock.keep(keep))
    }

    /// Sets an option by name, for language bindings. See [`Lock::option`].
    pub fn option(self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        self.with(|lock| lock.adoption_option(dialect, name, value))
    }

    /// The resources of the lease; empty if the text is invalid.
    pub fn resources(&self) -> &[String] {
        self.lock.resources()
    }

    /// The slots of the lease's permits, in order; none if it is not a lease of a semaphore, or if the text is invalid.
    pub fn slots(&self) -> &[u32] {
        self.lock.adopted_slots()
    }

    /// Returns the adoption, or the first error in its text and options.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for a text that is damaged, of another version, or of other
    /// nodes or another key prefix, and for an invalid option.
    pub fn checked(self) -> Result<Self> {
        let Self { lock, giver } = self;
        Ok(Self { lock: lock.checked()?, giver })
    }

    /// Adopts the lease: makes a new lease with a new token and a larger fence, which is held here. At most one
    /// adopter wins. Dropping the result cancels the adoption; others may then still adopt the lease.
    ///
    /// The result is [`ErrorCode::LeaseLost`] if no adopter can win any more: the lease was adopted already, was
    /// released, or has expired. It is [`ErrorCode::Timeout`] if other adopters held it on some nodes for the
    /// whole `wait`, [`ErrorCode::NoQuorum`] if too few nodes can vote, and [`ErrorCode::Config`] for an
    /// invalid text. The text of a lease whose time has passed is tried, too: the nodes decide.
    ///
    /// [`ErrorCode::LeaseLost`]: crate::ErrorCode::LeaseLost
    /// [`ErrorCode::Timeout`]: crate::ErrorCode::Timeout
    /// [`ErrorCode::NoQuorum`]: crate::ErrorCode::NoQuorum
    /// [`ErrorCode::Config`]: crate::ErrorCode::Config
    pub fn acquire(&self) -> Pending<Result<Lease>> {
        self.acquire_as(Some(Owner::current())).delivered_by(Lock::deliver)
    }

    /// Like [`Adoption::acquire`], on behalf of a thread or task of a language binding. See
    /// [`Lock::acquire_as`].
    pub fn acquire_as(&self, owner: Option<Owner>) -> Pending<Result<Lease>> {
        self.lock.adopt(self.giver.clone(), owner)
    }

    /// Returns the adoption with the options of a lock; `None` if the text is invalid, or if it is not about the
    /// resources of the lock.
    pub(crate) fn like(self, lock: &Lock) -> Option<Self> {
        let giver = self.giver.filter(|_| self.lock.resources() == lock.resources())?;
        Some(Self { lock: lock.clone(), giver: Some(giver) })
    }

    /// Changes the options, unless the text is invalid.
    fn with(self, change: impl FnOnce(Lock) -> Lock) -> Self {
        let Self { lock, giver } = self;
        let lock = if giver.is_some() { change(lock) } else { lock };
        Self { lock, giver }
    }
}

impl fmt::Debug for Adoption {
    /// Omits the text and its token, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adoption").field("resources", &self.resources()).finish_non_exhaustive()
    }
}
