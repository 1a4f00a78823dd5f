//! How a held lease is extended and healed: what is to be sent, and what follows from the answers.

use super::{Held, LeaseState};
use crate::command::request::Subject;
use crate::error::NodeReport;
use crate::runtime::clock;
use crate::telemetry::events;
use quorlock_protocol::{Answer, Extended, Extension, Healed, Moment, NodeSet, Term};
use std::sync::Arc;
use std::time::Duration;

/// An extension that is to be sent.
pub(crate) struct PendingExtension {
    pub(crate) lease: Arc<Held>,
    pub(crate) extension: Extension,
    pub(crate) sent: Moment,
    /// How long to wait for the nodes' answers.
    pub(crate) patience: Duration,
}

/// What the renewer has to do for a lease.
pub(crate) enum RenewalStep {
    /// Nothing any more.
    Over,
    /// Nothing until then.
    Wait(Moment),
    /// Extend it, and look again at this moment, its validity end.
    Extend(PendingExtension, Moment),
}

impl Held {
    /// Begins to ask the nodes whether they hold the key, without moving the validity end; `None` if the
    /// lease is over.
    pub(crate) fn begin_verification(self: &Arc<Self>) -> Option<PendingExtension> {
        let mut state = self.state();
        let now = clock::now();
        let extension = state.lease.verify(now, self.won.term)?;
        let patience = self.driver.options.node_timeout(self.won.term.ttl);
        Some(self.item(&mut state, now, extension, patience))
    }

    pub(crate) fn to_extend(&self, extension: &Extension) -> (Arc<Subject>, Duration) {
        (Arc::clone(&self.won.subject), extension.term().ttl)
    }

    /// Looks after the lease, for the renewer.
    pub(crate) fn renew_if_due(self: &Arc<Self>, now: Moment) -> RenewalStep {
        let mut state = self.state();
        if state.lease.ended(now).is_some() {
            drop(state);
            self.notify_watchers(now);
            return RenewalStep::Over;
        }
        let wake = state.wake();
        let end = state.lease.end();
        match state.upkeep.filter(|_| wake <= now) {
            None => RenewalStep::Wait(wake),
            Some(upkeep) => {
                let term = upkeep.term();
                let item = self.begin(&mut state, now, term, term.patience());
                let Some(item) = item else { return RenewalStep::Over };
                state.extending = Some(now);
                RenewalStep::Extend(item, end)
            }
        }
    }

    /// Begins an extension by hand; `None` if the lease is over.
    pub(crate) fn begin_now(self: &Arc<Self>, now: Moment, term: Term) -> Option<PendingExtension> {
        let patience = self.driver.options.node_timeout(self.won.term.ttl);
        self.begin(&mut self.state(), now, term, patience)
    }

    /// An automatic extension was decided. Returns when to look at the lease again.
    pub(crate) fn renewed(&self, extended: Extended) -> Option<Moment> {
        let mut state = self.state();
        let sent = state.extending.take();
        if let (Extended::Undecided, Some(sent), Some(upkeep)) = (extended, sent, &mut state.upkeep)
        {
            upkeep.undecided(sent);
        }
        (extended != Extended::Lost).then(|| state.wake())
    }

    /// Begins an extension that waits so long for the nodes' answers; `None` if the lease is over.
    fn begin(
        self: &Arc<Self>,
        state: &mut LeaseState,
        now: Moment,
        term: Term,
        patience: Duration,
    ) -> Option<PendingExtension> {
        let extension = state.lease.extend(now, term)?;
        Some(self.item(state, now, extension, patience))
    }

    fn item(
        self: &Arc<Self>,
        state: &mut LeaseState,
        now: Moment,
        extension: Extension,
        patience: Duration,
    ) -> PendingExtension {
        let patience = patience.min(state.lease.end().since(now));
        state.gone = state.gone.max(extension.term().gone(now.plus(patience)));
        PendingExtension { lease: Arc::clone(self), extension, sent: now, patience }
    }

    /// Takes in one node's answer to an extension.
    pub(crate) fn extended(
        &self,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        self.state().lease.extended(clock::now(), extension, node, answer)
    }

    /// For how long these nodes, which are to be healed now, are to keep the key; `None` if the
    /// lease is over.
    pub(crate) fn heal(&self, nodes: NodeSet) -> Option<Duration> {
        let mut state = self.state();
        let ttl = state.lease.heal(clock::now(), self.won.term)?;
        nodes.iter().for_each(|node| state.healed.insert(node));
        Some(ttl)
    }

    /// Takes in a node's answer to HEAL, which was for this ttl, `None` if there is none in time; and if the
    /// lease was released before the node was healed, takes the key back.
    pub(crate) async fn healed(&self, node: usize, ttl: Duration, healed: Option<Healed>) {
        if let Some(healed) = healed {
            self.state().lease.healed(node, healed);
        }
        if self.was_released().await {
            let until = self.won.healed_until(ttl);
            {
                let mut state = self.state();
                state.gone = state.gone.max(until);
            }
            let patience = self.driver.options.node_timeout(self.won.term.ttl);
            self.deliver(node, &self.to_release(), patience);
        }
    }

    /// An extension that was sent at this moment is decided; `trouble` is what became of it at the
    /// nodes, unless it is confirmed.
    pub(crate) fn decided(&self, extended: Extended, sent: Moment, trouble: Vec<NodeReport>) {
        let (now, totals) = (clock::now(), &self.driver.totals);
        let took = now.since(sent);
        let (had_trouble, is_released) = {
            let mut state = self.state();
            let before = std::mem::replace(&mut state.trouble, trouble);
            (!before.is_empty(), state.lease.is_released())
        };
        events::extended(&self.won.resources, self.won.fence, extended, took, had_trouble);
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
