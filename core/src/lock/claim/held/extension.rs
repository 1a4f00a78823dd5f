//! How a held lease is extended and repaired: what to send, and what the answers change.
//!
//! The protocol decides when an extension is due and whether it is confirmed. This file sends nothing: `extend.rs`,
//! `heal.rs` and `renewer.rs` send the requests and pass the answers to these methods.

use super::{Grant, HeldLease};
use crate::error::NodeReport;
use crate::lock::claim::Commands;
use crate::runtime::clock;
use crate::telemetry::events;
use quorlock_protocol::{Answer, Extended, Extension, Healing, Moment, NodeSet};
use std::sync::Arc;
use std::time::Duration;

/// An extension that the protocol has begun, and its lease.
pub(crate) struct PendingExtension {
    pub(crate) lease: Arc<HeldLease>,
    pub(crate) extension: Extension,
}

/// The renewer's next step for a lease.
pub(crate) enum RenewalStep {
    /// The lease has ended: stop renewing it.
    Ended,
    Wait,
    /// Begin a renewal. The moment is the lease's validity end: the latest time of the next step. The result of the
    /// renewal usually schedules this step earlier.
    Renew(Moment),
}

impl HeldLease {
    /// Returns the next step for the lease, and notifies its watchers if it has ended.
    pub(crate) fn renewal_step(&self) -> RenewalStep {
        let now = clock::now();
        if !self.is_valid(now) {
            self.notify_watchers(now);
            return RenewalStep::Ended;
        }
        self.check_heartbeat(now);
        let state = self.state();
        if state.wake() <= now {
            RenewalStep::Renew(state.claim.lease().end())
        } else {
            RenewalStep::Wait
        }
    }

    /// Stops renewal if the last heartbeat is too old. Once half of the heartbeat timeout has passed, emits a warning.
    fn check_heartbeat(&self, now: Moment) {
        let late = {
            let mut state = self.state();
            // Once the lease has ended, the reason of its end must not change.
            let is_valid = state.claim.lease().is_valid(now);
            let upkeep = state.upkeep.as_mut().filter(|_| is_valid);
            upkeep.and_then(|upkeep| upkeep.check_heartbeat(now))
        };
        if let Some(timeout) = late {
            let Grant { resources, fence, .. } = &*self.grant;
            events::silent(resources, (*fence, self.grant.holder()), timeout);
        }
    }

    /// Begins an automatic extension; `None` if the lease has ended or is being upgraded, or if no extension is due
    /// now.
    pub(crate) fn begin_renewal(self: &Arc<Self>, now: Moment) -> Option<PendingExtension> {
        // Check again: the renewer sends batches one after another, so the check in `renewal_step` may be out of date.
        self.check_heartbeat(now);
        let mut state = self.state();
        let is_due = state.renewal_due().is_some_and(|due| due <= now);
        let term = state.upkeep.filter(|_| is_due)?.term();
        let extension = state.claim.extend(now, term, term.patience())?;
        state.renewal_sent = Some(now);
        Some(PendingExtension { lease: Arc::clone(self), extension })
    }

    /// Records the end of an automatic extension. Returns `false` if the lease is lost, so that its renewal must end.
    pub(crate) fn finish_renewal(&self, extended: Extended) -> bool {
        let mut state = self.state();
        let sent = state.renewal_sent.take();
        if let (Extended::Undecided, Some(sent), Some(upkeep)) = (extended, sent, &mut state.upkeep)
        {
            upkeep.undecided(sent);
        }
        extended != Extended::Lost
    }

    /// Passes one node's answer to the protocol. Returns the decision if this answer leads to one. If the lease was
    /// released meanwhile, may send a second RELEASE to the node.
    pub(crate) fn record_answer(
        &self,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        let mut state = self.state();
        let extended = state.claim.extended(clock::now(), extension, node, answer);
        let commands = state.claim.extended_after_release(node, answer);
        drop(state);
        if commands != Commands::default() {
            self.clean(commands);
        }
        extended
    }

    /// Records that HEAL will be sent to these nodes. Returns the ttl for HEAL; `None` if HEAL must not be sent.
    pub(crate) fn begin_repair(&self, nodes: NodeSet) -> Option<Duration> {
        self.state().claim.heal(clock::now(), nodes)
    }

    /// Records what has become of a HEAL with this ttl, and sends the requests that follow from it.
    pub(crate) fn finish_repair(&self, node: usize, ttl: Duration, healing: Healing) {
        let commands = self.state().claim.healed(clock::now(), (node, ttl), healing);
        self.clean(commands);
    }

    /// Records and reports the result of an extension that was sent at `sent`. If the lease has ended, notifies its
    /// watchers. `failure_reports` contains each node's outcome; it is empty if the extension was confirmed.
    pub(crate) fn record_decision(
        &self,
        extended: Extended,
        sent: Moment,
        failure_reports: Vec<NodeReport>,
    ) {
        let now = clock::now();
        let totals = &self.driver.totals;
        let took = now.since(sent);
        let (had_failures, is_released) = {
            let mut state = self.state();
            let before = std::mem::replace(&mut state.failure_reports, failure_reports);
            (!before.is_empty(), state.claim.lease().is_released())
        };
        events::extended(&self.grant.resources, self.grant.fence, extended, took, had_failures);
        if extended == Extended::Confirmed {
            totals.extensions.up();
            totals.extending.add(took);
            return;
        }
        // An extension that fails because of a release is not counted as a failure.
        if !is_released {
            totals.extension_failures.up();
        }
        self.notify_watchers(now);
    }
}
