//! The native part of `Semaphore`, which `Client::semaphore` creates. Called by `index.js`.

use crate::convert::values;
use crate::outcome::{Mailbox, begin};
use crate::scope::NO_OWNER;
use napi::Result;
use napi::bindgen_prelude::Object;
use napi_derive::napi;
use quorlock::Dialect;
use std::sync::Weak;

/// The native part of `Semaphore`.
#[napi]
pub struct Semaphore {
    pub(crate) semaphore: quorlock::Semaphore,
    pub(crate) mailbox: Weak<Mailbox>,
}

#[napi]
impl Semaphore {
    #[napi(getter, catch_unwind)]
    pub fn resource(&self) -> &str {
        self.semaphore.resource()
    }

    #[napi(getter, catch_unwind)]
    pub fn limit(&self) -> u32 {
        self.semaphore.limit()
    }

    #[napi(getter, catch_unwind)]
    pub fn permits(&self) -> u32 {
        self.semaphore.permits_wanted()
    }

    /// Starts an acquire. The options override those of the semaphore. The result is a lease.
    #[napi(catch_unwind)]
    pub fn acquire(&self, options: Option<Object<'_>>) -> Result<f64> {
        let semaphore = self.semaphore.clone().options(Dialect::JavaScript, values(options)?);
        begin(&self.mailbox, semaphore.acquire_as(NO_OWNER))
    }

    /// Starts a single attempt to acquire. The result is a lease, or `null` if too few permits are free.
    #[napi(catch_unwind)]
    pub fn try_acquire(&self) -> Result<f64> {
        begin(&self.mailbox, self.semaphore.try_acquire_as(NO_OWNER))
    }

    /// Starts a query of the status. The result is JSON.
    #[napi(catch_unwind)]
    pub fn status(&self) -> Result<f64> {
        begin(&self.mailbox, self.semaphore.status())
    }
}
