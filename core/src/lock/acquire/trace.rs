//! Records one acquire in the statistics and events of its client.
//!
//! An acquire calls this module at each step. The module only reports: nothing here may influence the acquire.

use crate::config::mode::Modes;
use crate::config::resources::Resources;
use crate::error::{Error, ErrorCode};
use crate::lock::driver::Driver;
use crate::runtime::clock;
use crate::telemetry::events::{self, AcquireSpan};
use quorlock_protocol::{Loss, Moment};
use std::sync::Arc;
use std::time::Duration;

/// The statistics and the tracing span of one acquire. Dropping this value before [`AcquireTrace::win`] or
/// [`AcquireTrace::fail`] records a cancelled acquire.
pub(crate) struct AcquireTrace {
    driver: Arc<Driver>,
    resources: Resources,
    modes: Modes,
    arrived: Moment,
    rounds: u64,
    /// Whether other holders or waiters delayed the acquire.
    is_contended: bool,
    has_ended: bool,
    /// The tracing span that contains the acquire's events; empty after the acquire has ended.
    span: AcquireSpan,
}

impl AcquireTrace {
    /// Counts the acquire as an attempt and opens its tracing span. Must run in the caller's context, because the
    /// caller's current span becomes the parent.
    pub(crate) fn begin(
        driver: &Arc<Driver>,
        resources: &Resources,
        modes: &Modes,
        arrived: Moment,
    ) -> Self {
        driver.totals.attempts.up();
        Self {
            driver: Arc::clone(driver),
            resources: resources.clone(),
            modes: modes.clone(),
            arrived,
            rounds: 0,
            is_contended: false,
            has_ended: false,
            span: events::acquiring(resources, modes),
        }
    }

    pub(crate) fn begin_round(&mut self) {
        self.rounds += 1;
        self.driver.totals.rounds.up();
    }

    /// Records that other holders or waiters delay the acquire. `holder` is the holder's name, if known. Returns
    /// whether this is the first such call.
    pub(crate) fn begin_waiting(&mut self, holder: Option<&str>) -> bool {
        let begins = !std::mem::replace(&mut self.is_contended, true);
        if begins {
            self.span.within(|| events::waits(&self.resources, &self.modes, holder));
        }
        begins
    }

    pub(crate) fn notified(&self, node: &str) {
        self.span.within(|| events::called(&self.resources, node));
    }

    pub(crate) fn lose_round(&self, loss: Loss) {
        self.span.within(|| events::round_lost(&self.resources, loss));
    }

    /// Records that the acquire has won a lease with this fence and this holder name.
    pub(crate) fn win(&mut self, fence: u64, holder: &str) {
        let took = self.end(Ok(()));
        // Close the span now, so that it does not include the requests that are still under way.
        let span = std::mem::replace(&mut self.span, AcquireSpan::none());
        let locked = (&self.resources, &self.modes);
        events::acquired(&span, locked, (fence, holder), self.rounds, took);
    }

    /// Records that the acquire has failed with `error`; `None` if the acquire was cancelled or the client is closed.
    /// Does nothing if the acquire has already ended.
    pub(crate) fn fail(&mut self, error: Option<&Error>) {
        if self.has_ended {
            return;
        }
        let took = self.end(Err(error.map_or(ErrorCode::Closed, Error::code)));
        let span = std::mem::replace(&mut self.span, AcquireSpan::none());
        let locked = (&self.resources, &self.modes);
        events::not_acquired(&span, locked, error, self.rounds, took);
    }

    /// Counts the result, and returns how long the acquire took.
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
