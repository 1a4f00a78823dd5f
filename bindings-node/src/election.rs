//! The observer of an election, which `Client::watch` creates; `Client::elect` starts a candidacy. Called by
//! `leading.js`.

use crate::outcome::{Mailbox, begin};
use napi::Result;
use napi_derive::napi;
use std::sync::Weak;

/// An observer of the leader of a resource.
#[napi]
pub struct Watch {
    pub(crate) watch: quorlock::Watch,
    pub(crate) mailbox: Weak<Mailbox>,
}

#[napi]
impl Watch {
    /// Starts to wait for a leader with a larger fence. The result is an array of two strings: its name and its fence.
    #[napi(catch_unwind)]
    pub fn after(&self, fence: f64) -> Result<f64> {
        // Fences are below 2^53, so the conversion is exact.
        begin(&self.mailbox, self.watch.after(fence as u64))
    }
}
