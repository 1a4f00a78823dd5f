//! How a held lease is extended and repaired: what to send, and what the answers change.
//!
//! The protocol decides when an extension is due and whether it is confirmed. Sending is not done here:
//! `extend.rs`, `heal.rs` and `renewer.rs` send the requests and pass the answers to these methods.

use super::{HeldLease, LeaseState};
use crate::command::request::Subject;
use crate::error::NodeReport;
use crate::runtime::clock;
use crate::telemetry::events;
use quorlock_protocol::{Answer, Extended, Extension, Healed, Moment, NodeSet, Term};
use std::sync::Arc;
use std::time::Duration;

/// An extension that the protocol has begun and that is not sent yet.
pub(crate) struct PendingExtension {
    pub(crate) lease: Arc<HeldLease>,
    pub(crate) extension: Extension,
    pub(crate) sent: Moment,
    /// The time limit for each node's answer.
    pub(crate) patience: Duration,
}

/// The renewer's next step for a lease.
pub(crate) enum RenewalStep {
    /// The lease has ended: stop renewing it.
    Ended,
    /// Nothing is due before this moment.
    Wait(Moment),
    /// Begin a renewal. The moment is the validity end: the next step is due then, unless the renewal
    /// changes that.
    Renew(Moment),
}

impl HeldLease {
    /// Begins a verification: an EXTEND that checks which nodes hold the key and does not move the validity
    /// end. `None` if the lease has ended, or is being upgraded.
    pub(crate) fn begin_verification(self: &Arc<Self>) -> Option<PendingExtension> {
        let mut state = self.state();
        let now = clock::now();
        let extension = state.lease.verify(now, self.grant.term)?;
        let patience = self.driver.options.node_timeout(self.grant.term.ttl);
        Some(self.pending(&mut state, now, extension, patience))
    }

    /// Returns the arguments of EXTEND: the lease's keys and token, and the new ttl.
    pub(crate) fn extend_target(&self, extension: &Extension) -> (Arc<Subject>, Duration) {
        (self.subject(), extension.term().ttl)
    }

    /// Returns the next step for the lease, and notifies its watchers if it has ended.
    pub(crate) fn renewal_step(&self, now: Moment) -> RenewalStep {
        let state = self.state();
        if state.lease.ended(now).is_some() {
            drop(state);
            self.notify_watchers(now);
            return RenewalStep::Ended;
        }
        let wake = state.wake();
        if wake <= now { RenewalStep::Renew(state.lease.end()) } else { RenewalStep::Wait(wake) }
    }

    /// Begins an automatic extension; `None` if the lease has ended or is being upgraded, or if no extension is due any more.
    pub(crate) fn begin_renewal(self: &Arc<Self>, now: Moment) -> Option<PendingExtension> {
        let mut state = self.state();
        let term = state.upkeep.filter(|_| state.wake() <= now)?.term();
        let item = self.begin_extension(&mut state, now, term, term.patience())?;
        state.renewal_sent = Some(now);
        Some(item)
    }

    /// Begins an extension for a caller; `None` if the lease has ended, or is being upgraded.
    pub(crate) fn begin_manual_extension(
        self: &Arc<Self>,
        now: Moment,
        term: Term,
    ) -> Option<PendingExtension> {
        let patience = self.driver.options.node_timeout(self.grant.term.ttl);
        self.begin_extension(&mut self.state(), now, term, patience)
    }

    /// Ends an automatic extension. Returns when the renewer must handle the lease next; `None` if
    /// it is lost.
    pub(crate) fn finish_renewal(&self, extended: Extended) -> Option<Moment> {
        let mut state = self.state();
        let sent = state.renewal_sent.take();
        if let (Extended::Undecided, Some(sent), Some(upkeep)) = (extended, sent, &mut state.upkeep)
        {
            upkeep.undecided(sent);
        }
        (extended != Extended::Lost).then(|| state.wake())
    }

    /// Begins an extension with this timeout for each node; `None` if the lease has ended, or is being upgraded.
    fn begin_extension(
        self: &Arc<Self>,
        state: &mut LeaseState,
        now: Moment,
        term: Term,
        patience: Duration,
    ) -> Option<PendingExtension> {
        let extension = state.lease.extend(now, term)?;
        Some(self.pending(state, now, extension, patience))
    }

    /// Limits `patience` to the validity end, and records the expiry of the keys that this extension sets.
    fn pending(
        self: &Arc<Self>,
        state: &mut LeaseState,
        now: Moment,
        extension: Extension,
        patience: Duration,
    ) -> PendingExtension {
        #[cfg(test)]
        crate::lock::steps::extending(&self.grant.subject, now, extension.term());
        let patience = patience.min(state.lease.end().since(now));
        state.footprint.set_keys_until(extension.term().gone(now.plus(patience)));
        PendingExtension { lease: Arc::clone(self), extension, sent: now, patience }
    }

    /// Passes one node's answer to the protocol. Returns the decision if this answer leads to one.
    pub(crate) fn record_answer(
        &self,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        self.state().lease.extended(clock::now(), extension, node, answer)
    }

    /// Begins the repair of these nodes. Returns the ttl for HEAL; `None` if the lease has ended, or must not be
    /// repaired.
    pub(crate) fn begin_repair(&self, nodes: NodeSet) -> Option<Duration> {
        if self.grant.is_resumed {
            return None;
        }
        let mut state = self.state();
        let ttl = state.lease.heal(clock::now(), self.grant.term)?;
        #[cfg(test)]
        crate::lock::steps::healing(&self.grant.subject);
        nodes.iter().for_each(|node| state.footprint.sent_heal(node));
        Some(ttl)
    }

    /// Records a node's answer to a HEAL with this ttl; `None` if it did not answer in time. `is_open`: whether the
    /// node may still apply it. If the lease was released meanwhile, releases the node again.
    ///
    /// A lease that was detached meanwhile is released there, too: its text says that the node may not vote.
    pub(crate) async fn finish_repair(
        &self,
        node: usize,
        ttl: Duration,
        healed: Option<Healed>,
        is_open: bool,
    ) {
        let is_released = {
            let mut state = self.state();
            if let Some(healed) = healed {
                state.lease.healed(node, healed);
            }
            if !is_open {
                state.footprint.answered_heal(node);
            }
            // Read together with the change above, because a detach looks at both.
            state.lease.is_released()
        };
        if is_released {
            self.release_done.cancelled().await;
            let gone_by = self.grant.key_gone_by(ttl);
            self.state().footprint.set_keys_until(gone_by);
            let patience = self.driver.options.node_timeout(self.grant.term.ttl);
            self.deliver_release(node, &self.release_request(), patience);
        }
    }

    /// Reports a decided extension that was sent at `sent`. `failure_reports` has each node's
    /// outcome; it is empty if the extension was confirmed.
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
            (!before.is_empty(), state.lease.is_released())
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
