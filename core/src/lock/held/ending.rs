//! How a held lease ends: it is lost, released, closed, detached, or dropped by its holder.
//!
//! The protocol decides why and when a lease ended. This code notifies watchers, records the end once, and
//! sends RELEASE. `lease.rs` and `renewer.rs` call it.

use super::{FailedUpgrade, Grant, HeldLease, UPGRADING, answer_caller};
use crate::command::answer::{Answered, answer};
use crate::command::request::{Given, Request};
use crate::error::{Error, ErrorCode, Result};
use crate::lock::handover::{self, Leased};
use crate::lock::renewer::Renewer;
use crate::lock::watcher::Watcher;
use crate::node::fanout::Received;
use crate::runtime::Pending;
use crate::runtime::clock;
use crate::runtime::timer::sleep;
use crate::telemetry::events;
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorlock_protocol::{self as protocol, Answer, Ended, Moment, NodeSet, Release, Term};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

impl HeldLease {
    /// Notifies `watcher` when the lease is lost or released; immediately if it has already ended.
    pub(crate) fn watch(&self, watcher: Watcher) {
        let loss = {
            let mut state = self.state();
            let now = clock::now();
            if state.lease.is_valid(now) {
                let waits = |other: &Watcher| match other {
                    Watcher::Waiting(waiting) => !waiting.is_closed(),
                    Watcher::Callback(_) => true,
                };
                state.watchers.retain(waits);
                state.watchers.push(watcher);
                return;
            }
            state.loss(self, now)
        };
        watcher.notify(loss);
    }

    /// Notifies all watchers and records the end, if the lease has ended.
    pub(super) fn notify_watchers(&self, now: Moment) {
        let (watchers, loss) = {
            let mut state = self.state();
            if state.lease.is_valid(now) {
                return;
            }
            (std::mem::take(&mut state.watchers), state.loss(self, now))
        };
        self.record_end(now);
        for watcher in watchers {
            watcher.notify(loss.clone());
        }
    }

    /// Records the end in statistics and events, the first time it is called after the end.
    fn record_end(&self, now: Moment) {
        let Grant { resources, fence, sent, .. } = &*self.grant;
        let (ended, loss, until) = {
            let mut state = self.state();
            let Some(ended) = state.lease.ended(now) else { return };
            if std::mem::replace(&mut state.end_recorded, true) {
                return;
            }
            (ended, state.loss(self, now), now.min(state.lease.end()))
        };
        let totals = &self.driver.totals;
        totals.held.down();
        totals.holding.add(until.since(*sent));
        match ended {
            Ended::Released | Ended::Upgraded => totals.releases.up(),
            Ended::ClientClosed => totals.closed.up(),
            Ended::Detached => totals.detached.up(),
            Ended::Expired | Ended::AtLimit | Ended::Taken => totals.losses.up(),
        }
        if let Some(loss) = loss {
            if let Some(permits) = &self.grant.permits {
                permits.give_back(false);
            }
            events::lost(resources, (*fence, self.grant.holder()), ended, &loss);
        }
    }

    /// Stops renewing a lease whose handle was dropped; the nodes keep the key until it expires.
    /// Returns `true` if the lease was valid until now. Otherwise it does nothing and returns
    /// `false`.
    pub(crate) fn abandon(&self) -> bool {
        let was_valid = self.let_go();
        if was_valid {
            self.driver.totals.dropped.up();
            events::dropped(&self.grant.resources, self.grant.fence, self.grant.holder());
        }
        was_valid
    }

    /// Stops renewing the lease, without a report. Returns as [`HeldLease::abandon`] does.
    pub(crate) fn let_go(&self) -> bool {
        let now = clock::now();
        {
            let mut state = self.state();
            if !state.lease.is_valid(now) || state.is_dropped {
                return false;
            }
            state.upkeep = None;
            state.is_dropped = true;
            // The statistics count this as the end. Watchers are still notified when the lease expires.
            state.end_recorded = true;
        }
        let totals = &self.driver.totals;
        totals.held.down();
        totals.holding.add(now.since(self.grant.sent));
        true
    }

    /// Reports the result of releasing a lease that was valid until then.
    fn record_release(&self, confirmed: bool) {
        let Grant { resources, fence, .. } = &*self.grant;
        let (ended, loss) = {
            let state = self.state();
            let now = clock::now();
            (state.lease.ended(now), state.loss(self, now))
        };
        match (ended, loss) {
            // A majority does not hold the key, so the lease was lost before the release.
            (Some(Ended::Taken), Some(loss)) => {
                self.driver.totals.losses.up();
                events::lost(resources, (*fence, self.grant.holder()), Ended::Taken, &loss);
            }
            _ => events::released(resources, (*fence, self.grant.holder()), confirmed),
        }
    }

    /// Releases the lease for its holder. With `keep`, the nodes keep the keys for so long. The result is that of
    /// [`Lease::release`](crate::Lease::release).
    pub(crate) fn release(self: &Arc<Self>, keep: Option<Duration>) -> Pending<bool> {
        self.start_release(protocol::Lease::release, keep)
    }

    /// Releases the lease because its client is closed. Unlike [`HeldLease::release`], this counts as a loss
    /// for its watchers.
    pub(crate) fn close(self: &Arc<Self>) -> Pending<bool> {
        self.start_release(protocol::Lease::close, None)
    }

    /// Ends the lease with `begin`, then sends RELEASE to all nodes in the background. Returns whether the
    /// lease was valid until now and a majority confirms the release.
    fn start_release(
        self: &Arc<Self>,
        begin: impl FnOnce(&mut protocol::Lease, Moment) -> Release,
        keep: Option<Duration>,
    ) -> Pending<bool> {
        let now = clock::now();
        let mut release = {
            let mut state = self.state();
            if state.lease.is_released() {
                return Pending::ready(false);
            }
            begin(&mut state.lease, now)
        };
        let term = keep.map(|ttl| Term { ttl, ..self.grant.term });
        if let Some(keep) = term.and_then(|term| release.keep(now, term)) {
            // Only one release gets here.
            let _ = self.subject().keep.set(keep);
        }
        #[cfg(test)]
        crate::lock::steps::finished(&self.grant.subject);
        self.notify_watchers(now);
        let (sender, receiver) = oneshot::channel();
        let mut caller = Some(sender);
        if !release.was_valid() {
            answer_caller(&mut caller, false);
        }
        let held = Arc::clone(self);
        let task = async move {
            held.wait_for_upgrade().await;
            let driver = &held.driver;
            let node_timeout = driver.options.node_timeout(held.grant.term.ttl);
            let patience = held.grant.term.patience().max(node_timeout);
            let request = held.release_request();
            let began = clock::now();
            let mut fan_out = driver.broadcast(request.clone(), began, patience);
            // The RELEASE is on its way, so that a round for the same slots follows it on each connection.
            if let Some(permits) = &held.grant.permits {
                permits.give_back(request.keep().is_none());
            }
            held.release_giver();
            held.release_undone();
            let mut record = |node, answer| {
                let released = held.state().lease.released(&mut release, node, answer);
                if let Some(released) = released {
                    if caller.is_some() {
                        held.record_release(released);
                    }
                    answer_caller(&mut caller, released);
                }
                released.is_some()
            };
            // The nodes where the request failed, and a task tries again.
            let mut retried = None::<FuturesUnordered<_>>;
            let mut unanswered = NodeSet::EMPTY;
            let mut is_decided = false;
            let mut has_more = true;
            while has_more || !(is_decided || unanswered.is_empty()) {
                tokio::select! {
                    biased;
                    received = fan_out.received(), if has_more => match received {
                        Some(Received { node, answered: Err(failure), is_repeated, .. }) => {
                            let was_sent = is_repeated || failure.sent;
                            match held.deliver_release(node, &request, node_timeout) {
                                Some(delivered) => {
                                    unanswered.insert(node);
                                    let retry = async move { (node, was_sent, delivered.await) };
                                    retried.get_or_insert_default().push(retry);
                                }
                                None => is_decided |= record(node, Answer::Unknown),
                            }
                        }
                        Some(Received { node, answered, is_repeated, .. }) => {
                            is_decided |= record(node, once(answer(&answered), is_repeated));
                        }
                        None => has_more = false,
                    },
                    Some((node, was_sent, delivered)) = async { retried.as_mut()?.next().await } => {
                        let answer = delivered.map(|(answered, is_repeated)| {
                            once(answer(&answered), was_sent || is_repeated)
                        });
                        unanswered.remove(node);
                        is_decided |= record(node, answer.unwrap_or(Answer::Unknown));
                    }
                    () = sleep(began.plus(patience).since(clock::now())), if !has_more => break,
                }
            }
            for node in unanswered.iter() {
                record(node, Answer::Unknown);
            }
            held.release_done.cancel();
        };
        match self.driver.begin(task) {
            Ok(()) => Pending::new(receiver),
            Err(_) => {
                self.release_done.cancel();
                Pending::ready(false)
            }
        }
    }

    /// Retries the release of a node that did not answer, until its key has expired. Returns the answer, and whether an
    /// earlier copy may have been applied; `None` if the node has no key.
    pub(super) fn deliver_release(
        &self,
        node: usize,
        request: &Request,
        patience: Duration,
    ) -> Option<impl Future<Output = Option<(Answered, bool)>> + Send + use<>> {
        let (holds, keys_gone_by) = {
            let state = self.state();
            (state.footprint.holders().contains(node), state.footprint.gone_by())
        };
        holds.then(|| {
            let delivered = self.driver.delivered(node, request.clone(), patience, keys_gone_by);
            async move { delivered.await.ok().flatten() }
        })
    }

    /// Releases what is left of the lease that this one was adopted from: on nodes that have not granted the adoption.
    fn release_giver(&self) {
        let term = &self.grant.term;
        let giver = handover::release_giver(&self.subject(), *term, self.driver.turns());
        let Some((request, gone)) = giver else { return };
        let node_timeout = self.driver.options.node_timeout(term.ttl);
        let nodes = self.state().footprint.may_hold_giver(self.driver.quorum);
        for node in nodes.iter() {
            self.driver.deliver(node, request.clone(), node_timeout, gone);
        }
    }

    /// Ends the lease for its holder, and returns the text with which another client adopts it `within` this time.
    /// Until [`HeldLease::take_text`], the lease counts as one whose text nobody has.
    ///
    /// From then on, a repair can only set the key on a node that has not answered an earlier one. The text names
    /// these nodes.
    pub(crate) fn detach(&self, within: Duration) -> Result<String> {
        let Grant { resources, subject, fence, .. } = &*self.grant;
        let (silent, within) = {
            let mut state = self.state();
            if state.lease.is_upgrading() {
                return Err(self.not_sole_error(UPGRADING));
            }
            let now = clock::now();
            let silent = state.footprint.silent();
            if silent.len() > self.driver.quorum.tolerated() {
                return Err(self.silent_error(silent));
            }
            if !state.lease.detach(now) {
                let ended = state.lease.ended(now).unwrap_or(Ended::Expired);
                return Err(self.end_error(&state, now, ended));
            }
            state.has_untaken_text = true;
            // The lease may last longer than that: a lost adoption must not give back less.
            (silent, within.max(state.lease.end().since(now)))
        };
        #[cfg(test)]
        crate::lock::steps::detached(subject, silent);
        // Nothing of this lease is released, so late votes need not wait for that.
        self.release_done.cancel();
        // The next adopter takes over this token only. It does not know that of the giver.
        self.release_giver();
        if let Some(permits) = &self.grant.permits {
            permits.give_back(false);
        }
        self.notify_watchers(clock::now());
        events::detached(resources, (*fence, self.grant.holder()));
        let micros = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        // Without a clock, a failed adopter gives the keys back for the whole time again.
        let until =
            self.driver.clocks.at(clock::now()).map_or(u64::MAX, |now| now.saturating_add(micros));
        let given = Given { token: Arc::new(subject.token.clone()), until, within };
        let limit = subject.permit().map(|permit| permit.limit);
        let permits = limit.map(|limit| (limit, subject.slots()));
        let resources = resources.clone();
        let modes = self.modes();
        Ok(self.driver.namespace().write(&Leased { resources, modes, permits }, &given, silent))
    }

    /// Ends the lease because the round of its upgrade was won. Returns whether it was valid until now.
    pub(crate) fn end_for_upgrade(&self) -> bool {
        let is_valid = self.state().lease.upgraded(clock::now());
        #[cfg(test)]
        crate::lock::steps::finished(&self.grant.subject);
        if is_valid {
            self.release_done.cancel();
            self.notify_watchers(clock::now());
        }
        is_valid
    }

    /// Ends an upgrade. If the lease is still valid, its renewal goes on. If it was lost meanwhile, releases what
    /// GIVE BACK may have restored after that; a release waits for the end of the upgrade.
    pub(crate) fn end_upgrade(self: &Arc<Self>, renewer: &Renewer) {
        let ended = {
            let mut state = self.state();
            state.lease.end_upgrade();
            state.lease.ended(clock::now())
        };
        if let Some(waiters) = self.upgrade_ended.get() {
            waiters.notify_waiters();
        }
        match ended {
            None => renewer.wake(self),
            Some(Ended::Upgraded | Ended::Released) => {}
            Some(_) => {
                #[cfg(test)]
                crate::lock::steps::finished(&self.grant.subject);
                let request = self.release_request();
                let node_timeout = self.driver.options.node_timeout(self.grant.term.ttl);
                for node in 0..self.driver.nodes.len() {
                    self.deliver_release(node, &request, node_timeout);
                }
                self.release_undone();
            }
        }
    }

    /// Releases what the nodes may have given back to this lease, or may yet give back.
    fn release_undone(&self) {
        let upgrades = self.state().footprint.take_upgrades();
        // An upgrade never shortens the time of a key, so what it gives back lasts as long as the keys of the lease.
        let gone = self.keys_gone_by().max(self.grant.key_gone_by(self.grant.term.ttl));
        let node_timeout = self.driver.options.node_timeout(self.grant.term.ttl);
        for (FailedUpgrade(subject), node) in upgrades {
            let undo = Request::release(&subject, self.driver.turns());
            // After the first one, a GIVE BACK that is still under way finds nothing to give back.
            let requests = [undo, self.release_request()];
            self.driver.deliver_in_turn(node, requests, node_timeout, gone);
        }
    }

    fn silent_error(&self, silent: NodeSet) -> Error {
        let resources = &self.grant.resources;
        let nodes = self.driver.quorum.nodes();
        let message = format!(
            "too few nodes could vote on an adoption of {resources}: {} of {nodes} have not answered earlier \
             requests for it, {}",
            silent.len(),
            self.driver.needed(),
        );
        Error::new(ErrorCode::NoQuorum, message).about(resources)
    }

    /// Records that the text of a detached lease has a recipient. Returns whether it had none.
    pub(crate) fn take_text(&self) -> bool {
        std::mem::take(&mut self.state().has_untaken_text)
    }

    /// Releases the lease if it was detached and nobody has taken the text, so nobody can adopt it.
    pub(crate) fn release_untaken(self: &Arc<Self>) {
        if self.take_text() {
            self.release_detached();
        }
    }

    /// Releases a detached lease that nobody adopts.
    pub(crate) fn release_detached(self: &Arc<Self>) {
        let held = Arc::clone(self);
        // Fails if the runtime cannot be started. The keys then expire by themselves.
        let _ = self.driver.begin(async move {
            let node_timeout = held.driver.options.node_timeout(held.grant.term.ttl);
            let request = held.release_request();
            for node in 0..held.driver.nodes.len() {
                held.deliver_release(node, &request, node_timeout);
            }
        });
    }
}

/// The answer to a RELEASE, an earlier copy of which the node may have applied if it `is_repeated`.
fn once(answer: Answer, is_repeated: bool) -> Answer {
    if is_repeated { answer.repeated() } else { answer }
}
