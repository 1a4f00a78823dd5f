//! [`Adoption`]: the public type for taking over a detached lease, with the options of the new lease.

use crate::client::lock::{Lock, WantedPermits};
use crate::client::setters::{lease_setters, wait_setters};
use crate::client::setup::Setup;
use crate::config::options::Scope;
use crate::config::value::{Dialect, OptionValue};
use crate::error::Result;
use crate::lock::claim::handover::{Giver, Leased, Namespace};
use crate::lock::lease::Lease;
use crate::lock::lease::owner::Owner;
use crate::runtime::Pending;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The adoption of a lease that its holder has detached: see [`Client::adopt`](crate::Client::adopt).
///
/// The options apply to the new lease. An option that is not set has the client's value. `wait` limits how long the
/// adoption retries while other adopters hold the lease on some nodes. `max_hold` counts from the adoption.
#[derive(Clone)]
#[must_use = "an adoption does nothing until `acquire` is called"]
pub struct Adoption {
    lock: Lock,
    /// The detached lease; `None` if the text is invalid. In that case, `lock` contains the error.
    giver: Option<Giver>,
}

impl Adoption {
    pub(crate) fn new(setup: Arc<Setup>, text: &str) -> Self {
        let addresses = setup.endpoints.iter().map(|endpoint| &*endpoint.address).collect();
        let namespace = Namespace { addresses, key_prefix: &setup.options.key_prefix };
        let (lock, giver) = match namespace.read(text) {
            Ok((Leased { resources, modes, permits }, giver)) => {
                let permits = permits.map(|(limit, slots)| WantedPermits::Adopted { limit, slots });
                (Lock::new(setup, resources).modes(modes).with_permits(permits), Some(giver))
            }
            Err(mistake) => (Lock::invalid(setup, mistake), None),
        };
        Self { lock: lock.with_scope(Scope::Adoption), giver }
    }

    lease_setters!();
    wait_setters!();

    /// Sets an option by name, for language bindings. See [`Lock::option`].
    pub fn option(self, dialect: Dialect, name: &str, value: &OptionValue) -> Self {
        Self { lock: self.lock.option(dialect, name, value), ..self }
    }

    /// The resources of the lease; empty if the text is invalid.
    pub fn resources(&self) -> &[String] {
        self.lock.resources()
    }

    /// The ttl of the lease that the adoption gets. For `quorlock serve`.
    #[doc(hidden)]
    pub fn wanted_ttl(&self) -> Duration {
        self.lock.wanted_ttl()
    }

    /// The slots of the lease's permits, in order; empty if the lease has no permits, or if the text is invalid.
    pub fn slots(&self) -> &[u32] {
        self.lock.adopted_slots()
    }

    /// Returns the adoption, or the first error in its text and options.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) if an option is invalid, or if the text is damaged, has an
    /// unknown version, or was made for other nodes or another key prefix.
    pub fn checked(self) -> Result<Self> {
        let Self { lock, giver } = self;
        Ok(Self { lock: lock.checked()?, giver })
    }

    /// Adopts the lease: afterwards, this client holds a new lease with a new token and a larger fence. At most one
    /// adopter wins. Dropping the returned [`Pending`] cancels the adoption; other clients can still adopt the lease.
    ///
    /// The error is [`ErrorCode::LeaseLost`] if no adopter can win any more: the lease was adopted already, was
    /// released, or has expired. The error is [`ErrorCode::Timeout`] if other adopters held the lease on some nodes for
    /// the whole `wait`, [`ErrorCode::NoQuorum`] if too few nodes can vote, and [`ErrorCode::Config`] for an invalid
    /// text. The client tries the adoption even if the detached lease has expired by the local clock: only the nodes
    /// decide whether the lease has expired.
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

    /// Returns the same adoption, but with the options of `lock`; `None` if the text is invalid, or if `lock` has other
    /// resources than the detached lease.
    pub(crate) fn like(self, lock: &Lock) -> Option<Self> {
        let giver = self.giver.filter(|_| self.lock.resources() == lock.resources())?;
        Some(Self { lock: lock.clone(), giver: Some(giver) })
    }
}

impl fmt::Debug for Adoption {
    /// Omits the text and its token, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adoption").field("resources", &self.resources()).finish_non_exhaustive()
    }
}
