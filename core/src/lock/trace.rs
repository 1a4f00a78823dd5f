//! One acquire, from its call to what becomes of it, as it is counted and told.

use crate::config::resources::Resources;
use crate::error::{Error, ErrorCode};
use crate::lock::driver::Driver;
use crate::runtime::clock;
use crate::telemetry::events::{self, Scope};
use quorlock_protocol::{Loss, Moment};
use std::sync::Arc;
use std::time::Duration;

/// An acquire. When it is dropped before it has ended, it was cancelled.
pub(crate) struct AcquireTrace {
    driver: Arc<Driver>,
    resources: Resources,
    arrived: Moment,
    rounds: u64,
    /// Whether others keep it waiting, or did.
    is_contended: bool,
    has_ended: bool,
    /// What it is told in, until it has ended.
    span: Scope,
}

impl AcquireTrace {
    /// Called by the caller, whose span it is in.
    pub(crate) fn begin(driver: &Arc<Driver>, resources: &Resources, arrived: Moment) -> Self {
        driver.totals.attempts.up();
        Self {
            driver: Arc::clone(driver),
            resources: resources.clone(),
            arrived,
            rounds: 0,
            is_contended: false,
            has_ended: false,
            span: events::acquiring(resources),
        }
    }

    pub(crate) fn begin_round(&mut self) {
        self.rounds += 1;
        self.driver.totals.rounds.up();
    }

    /// Others have it, or are before it. Returns whether it begins to wait now.
    pub(crate) fn begin_waiting(&mut self) -> bool {
        let begins = !std::mem::replace(&mut self.is_contended, true);
        if begins {
            self.span.within(|| events::waits(&self.resources));
        }
        begins
    }

    /// A node has called it.
    pub(crate) fn notified(&self, node: &str) {
        self.span.within(|| events::called(&self.resources, node));
    }

    pub(crate) fn lose_round(&self, loss: Loss) {
        self.span.within(|| events::round_lost(&self.resources, loss));
    }

    /// It has won a lease with this fence.
    pub(crate) fn win(&mut self, fence: u64) {
        let took = self.end(Ok(()));
        // Its span ends here. Requests that are still under way do not belong to it.
        let span = std::mem::replace(&mut self.span, Scope::none());
        events::acquired(&span, &self.resources, fence, self.rounds, took);
    }

    /// It has ended in an error; `None` if it was cancelled.
    pub(crate) fn fail(&mut self, error: Option<&Error>) {
        if self.has_ended {
            return;
        }
        let took = self.end(Err(error.map_or(ErrorCode::Closed, Error::code)));
        let span = std::mem::replace(&mut self.span, Scope::none());
        events::not_acquired(&span, &self.resources, error, self.rounds, took);
    }

    fn end(&mut self, result: Result<(), ErrorCode>) -> Duration {
        self.has_ended = true;
        let took = clock::now().since(self.arrived);
        self.driver.totals.acquired(result, took);
        if self.is_contended {
            self.driver.totals.contended.add(took);
        }
        took
    }
}

impl Drop for AcquireTrace {
    fn drop(&mut self) {
        self.fail(None);
    }
}
