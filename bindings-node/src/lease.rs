//! The methods of the native part of `Lease`. Called by `lease.js`.
//!
//! This module converts a lease's properties and starts its operations. It must not decide whether a lease is valid,
//! which the core does. The struct is in `outcome`, because it is one of the results of operations.

use crate::convert::{Failure, given, settle, value};
use crate::outcome::{Lease, begin};
use crate::scope::block;
use napi::bindgen_prelude::{Either, Function, Null, Unknown};
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi::{Result, Status};
use napi_derive::napi;
use quorlock::Dialect;

#[napi]
impl Lease {
    /// The locked resources, in the order given.
    #[napi(getter, catch_unwind)]
    pub fn resources(&self) -> Vec<String> {
        self.lease.resources().to_vec()
    }

    /// The ttl in milliseconds with which the lease was acquired.
    #[napi(getter, catch_unwind)]
    pub fn ttl(&self) -> f64 {
        self.lease.ttl().as_secs_f64() * 1e3
    }

    /// The value of the key on the nodes.
    #[napi(getter, catch_unwind)]
    pub fn token(&self) -> &str {
        self.lease.token()
    }

    /// The name that others see; empty if there is none.
    #[napi(getter, catch_unwind)]
    pub fn holder(&self) -> &str {
        self.lease.holder()
    }

    /// Returns the fencing token: below 2^53, so the conversion is exact. Returns a failure if the lease has
    /// several resources.
    #[napi(catch_unwind)]
    pub fn fence(&self) -> Either<f64, Failure> {
        settle(self.lease.only_fence().map(|fence| fence as f64))
    }

    /// Returns the fencing tokens, in the order of the resources.
    #[napi(catch_unwind)]
    pub fn fences(&self) -> Vec<f64> {
        self.lease.fences().map(|(_, fence)| fence as f64).collect()
    }

    /// The numbers of the permits of a semaphore, in ascending order.
    #[napi(getter, catch_unwind)]
    pub fn slots(&self) -> Vec<u32> {
        self.lease.slots()
    }

    /// Returns the only slot, or a failure if there are several or none.
    #[napi(catch_unwind)]
    pub fn slot(&self) -> Either<u32, Failure> {
        settle(self.lease.only_slot())
    }

    /// The mode of the resources; `null` if it is not the same for all of them.
    #[napi(getter, catch_unwind)]
    pub fn mode(&self) -> Either<&'static str, Null> {
        self.lease.mode().map_or(Either::B(Null), |mode| Either::A(mode.as_str()))
    }

    /// Returns the modes, in the order of the resources.
    #[napi(catch_unwind)]
    pub fn modes(&self) -> Vec<&'static str> {
        self.lease.modes().map(|(_, mode)| mode.as_str()).collect()
    }

    /// Whether the lock is held now, by the local clock.
    #[napi(getter, catch_unwind)]
    pub fn valid(&self) -> bool {
        self.lease.is_valid()
    }

    /// The time in milliseconds for which the lease stays valid without another extension; 0 once
    /// it has ended.
    #[napi(getter, catch_unwind)]
    pub fn remaining(&self) -> f64 {
        self.lease.remaining().as_secs_f64() * 1e3
    }

    /// Returns why the lease has ended, or `undefined` while it is valid.
    #[napi(catch_unwind)]
    pub fn check(&self) -> Option<Failure> {
        self.lease.check().err().map(Failure::from)
    }

    /// Returns why the lease was lost, or `undefined` if it was not lost.
    #[napi(catch_unwind)]
    pub fn loss(&self) -> Option<Failure> {
        self.lease.loss().map(Failure::from)
    }

    /// Calls `done` on the event loop when the lease is lost. Does not keep the process alive.
    #[napi(catch_unwind)]
    pub fn on_lost(&self, done: Function<'_, Failure, ()>) -> Result<()> {
        let done = done.build_threadsafe_function::<Failure>().weak::<true>().build()?;
        self.lease.on_lost(move |loss| {
            // The call fails if the environment has been torn down. Nothing needs to be done then.
            let _: Status = done.call(loss.into(), NonBlocking);
        });
        Ok(())
    }

    /// Starts an extension to `ttl` ms from now. If `ttl` is `undefined`, uses the ttl of the acquire.
    #[napi(catch_unwind)]
    pub fn extend(&self, ttl: Unknown<'_>) -> Result<f64> {
        let ttl = given(ttl)?;
        begin(&self.mailbox, self.lease.extend_by(Dialect::JavaScript, ttl.as_ref()))
    }

    /// Marks the lease as one that the block of this number releases at its end. If the lease is shared, an acquire in
    /// the block that would wait for it fails instead.
    #[napi(catch_unwind)]
    pub fn enter_block(&self, number: f64) {
        if let Some(block) = block(number) {
            self.lease.enter_block(block);
        }
    }

    /// Starts to make the lease shared. The result is `undefined`.
    #[napi(catch_unwind)]
    pub fn downgrade(&self) -> Result<f64> {
        begin(&self.mailbox, self.lease.downgrade())
    }

    /// Starts to upgrade the lease. The result is a lease, or `null` if others read a resource.
    #[napi(catch_unwind)]
    pub fn try_upgrade(&self) -> Result<f64> {
        begin(&self.mailbox, self.lease.try_upgrade_as())
    }

    /// Starts to detach the lease, for an adopter within `within` ms; `undefined` for the default. The result is a
    /// [`Detached`](crate::outcome::Detached).
    #[napi(catch_unwind)]
    pub fn detach(&self, within: Unknown<'_>) -> Result<f64> {
        let within = given(within)?;
        begin(&self.mailbox, self.lease.detach_by(Dialect::JavaScript, within.as_ref()))
    }

    /// Starts to hand the lease over to a candidate of this name within `within` ms; `undefined` for the default.
    /// The result is whether the candidate has taken over.
    #[napi(catch_unwind)]
    pub fn hand_over(&self, successor: Unknown<'_>, within: Unknown<'_>) -> Result<f64> {
        let within = given(within)?;
        let successor = value(successor)?;
        let handing = self.lease.hand_over_by(Dialect::JavaScript, &successor, within.as_ref());
        begin(&self.mailbox, handing)
    }

    /// Stops renewing a lease that was garbage-collected, without releasing it. Returns whether it was valid.
    #[napi(catch_unwind)]
    pub fn abandon(&self) -> bool {
        self.lease.abandon()
    }

    /// Starts the release. `keep` overrides the option of the lock, unless it is `undefined`. The result is whether
    /// the lease was valid and a majority confirmed the release.
    #[napi(catch_unwind)]
    pub fn release(&self, keep: Unknown<'_>) -> Result<Either<f64, Failure>> {
        let keep = given(keep)?;
        match self.lease.release_by(Dialect::JavaScript, keep.as_ref()) {
            Ok(released) => begin(&self.mailbox, released).map(Either::A),
            Err(error) => Ok(Either::B(error.into())),
        }
    }
}
