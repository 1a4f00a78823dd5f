//! How a held lease is extended and healed: what is to be sent, and what follows from the answers.

use super::{HeldLease, LeaseState};
use crate::command::request::Subject;
use crate::error::NodeReport;
use crate::runtime::clock;
use crate::telemetry::events;
use quorlock_protocol::{Answer, Extended, Extension, Healed, Moment, NodeSet, Term};
use std::sync::Arc;
use std::time::Duration;

/// An extension that is to be sent.
pub(crate) struct PendingExtension {
    pub(crate) lease: Arc<HeldLease>,
    pub(crate) extension: Extension,
    pub(crate) sent: Moment,
    /// How long to wait for the nodes' answers.
    pub(crate) patience: Duration,
}

/// What the renewer has to do for a lease.
pub(crate) enum RenewalStep {
    /// Nothing any more.
    Ended,
    /// Nothing until then.
    Wait(Moment),
    /// Extend it, and look again at this moment, its validity end.
    Extend(PendingExtension, Moment),
}

impl HeldLease {
    /// Begins to ask the nodes whether they hold the key, without moving the validity end; `None` if the
    /// lease is over.
    pub(crate) fn begin_verification(self: &Arc<Self>) -> Option<PendingExtension> {
        let mut state = self.state();
        let now = clock::now();
        let extension = state.lease.verify(now, self.grant.term)?;
        let patience = self.driver.options.node_timeout(self.grant.term.ttl);
        Some(self.pending(&mut state, now, extension, patience))
    }

    pub(crate) fn extend_target(&self, extension: &Extension) -> (Arc<Subject>, Duration) {
        (Arc::clone(&self.grant.subject), extension.term().ttl)
    }

    /// Looks after the lease, for the renewer.
    pub(crate) fn renew_if_due(self: &Arc<Self>, now: Moment) -> RenewalStep {
        let mut state = self.state();
        if state.lease.ended(now).is_some() {
            drop(state);
            self.notify_watchers(now);
            return RenewalStep::Ended;
        }
        let wake = state.wake();
        let end = state.lease.end();
        match state.upkeep.filter(|_| wake <= now) {
            None => RenewalStep::Wait(wake),
            Some(upkeep) => {
                let term = upkeep.term();
                let item = self.begin_extension(&mut state, now, term, term.patience());
                let Some(item) = item else { return RenewalStep::Ended };
                state.renewal_sent = Some(now);
                RenewalStep::Extend(item, end)
            }
        }
    }

    /// Begins an extension by hand; `None` if the lease is over.
    pub(crate) fn begin_manual_extension(
        self: &Arc<Self>,
        now: Moment,
        term: Term,
    ) -> Option<PendingExtension> {
        let patience = self.driver.options.node_timeout(self.grant.term.ttl);
        self.begin_extension(&mut self.state(), now, term, patience)
    }

    /// An automatic extension was decided. Returns when to look at the lease again.
    pub(crate) fn finish_renewal(&self, extended: Extended) -> Option<Moment> {
        let mut state = self.state();
        let sent = state.renewal_sent.take();
        if let (Extended::Undecided, Some(sent), Some(upkeep)) = (extended, sent, &mut state.upkeep)
        {
            upkeep.undecided(sent);
        }
        (extended != Extended::Lost).then(|| state.wake())
    }

    /// Begins an extension that waits so long for the nodes' answers; `None` if the lease is over.
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

    fn pending(
        self: &Arc<Self>,
        state: &mut LeaseState,
        now: Moment,
        extension: Extension,
        patience: Duration,
    ) -> PendingExtension {
        let patience = patience.min(state.lease.end().since(now));
        state.keys_gone_by = state.keys_gone_by.max(extension.term().gone(now.plus(patience)));
        PendingExtension { lease: Arc::clone(self), extension, sent: now, patience }
    }

    /// Takes in one node's answer to an extension.
    pub(crate) fn record_answer(
        &self,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        self.state().lease.extended(clock::now(), extension, node, answer)
    }

    /// For how long these nodes, which are to be healed now, are to keep the key; `None` if the
    /// lease is over.
    pub(crate) fn begin_repair(&self, nodes: NodeSet) -> Option<Duration> {
        let mut state = self.state();
        let ttl = state.lease.heal(clock::now(), self.grant.term)?;
        nodes.iter().for_each(|node| state.repaired.insert(node));
        Some(ttl)
    }

    /// Takes in a node's answer to HEAL, which was for this ttl, `None` if there is none in time; and if the
    /// lease was released before the node was healed, takes the key back.
    pub(crate) async fn finish_repair(&self, node: usize, ttl: Duration, healed: Option<Healed>) {
        if let Some(healed) = healed {
            self.state().lease.healed(node, healed);
        }
        if self.wait_if_released().await {
            let until = self.grant.key_gone_by(ttl);
            {
                let mut state = self.state();
                state.keys_gone_by = state.keys_gone_by.max(until);
            }
            let patience = self.driver.options.node_timeout(self.grant.term.ttl);
            self.deliver_release(node, &self.release_request(), patience);
        }
    }

    /// An extension that was sent at this moment is decided; `failure_reports` is what became of it at the
    /// nodes, unless it is confirmed.
    pub(crate) fn record_decision(
        &self,
        extended: Extended,
        sent: Moment,
        failure_reports: Vec<NodeReport>,
    ) {
        let (now, totals) = (clock::now(), &self.driver.totals);
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
        // One that a release overtook has not failed.
        if !is_released {
            totals.extension_failures.up();
        }
        self.notify_watchers(now);
    }
}
