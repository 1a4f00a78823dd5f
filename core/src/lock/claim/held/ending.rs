//! How a held lease ends: it is lost, released, closed, detached, or dropped by its holder.
//!
//! The protocol decides why and when a lease ended. This code notifies watchers, records the end once, and sends
//! RELEASE. Mainly `lease.rs` and `renewer.rs` call this code.

use super::{Grant, HeldLease, UPGRADING, answer_caller};
use crate::error::{Error, ErrorCode, Result};
use crate::lock::claim::handover::Leased;
use crate::lock::claim::{Claim, Commands};
use crate::lock::lease::watcher::Watcher;
use crate::lock::renewer::Renewer;
use crate::node::fanout::Received;
use crate::runtime::Pending;
use crate::runtime::clock;
use crate::runtime::timer::sleep;
use crate::telemetry::events;
use crate::wire::answer::{Answered, answer};
use crate::wire::request::{Given, Request};
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorlock_protocol::{Answer, Ended, Moment, NodeSet, Release, Term, Undetachable};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

impl HeldLease {
    /// Notifies `watcher` when the lease is lost or released; immediately if the lease has already ended.
    pub(crate) fn watch(&self, watcher: Watcher) {
        let loss = {
            let mut state = self.state();
            let now = clock::now();
            if state.claim.lease().is_valid(now) {
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
            if state.claim.lease().is_valid(now) {
                return;
            }
            (std::mem::take(&mut state.watchers), state.loss(self, now))
        };
        if let (Some(_), Some(permits)) = (&loss, &self.grant.permits) {
            permits.give_back(false);
        }
        self.record_end(now);
        for watcher in watchers {
            watcher.notify(loss.clone());
        }
    }

    /// Records the end of the lease in statistics and events. Only the first call after the end has an effect.
    fn record_end(&self, now: Moment) {
        let Grant { resources, fence, sent, .. } = &*self.grant;
        let (ended, loss, until) = {
            let mut state = self.state();
            let Some(ended) = state.claim.lease().ended(now) else { return };
            if std::mem::replace(&mut state.end_recorded, true) {
                return;
            }
            (ended, state.loss(self, now), now.min(state.claim.lease().end()))
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
            events::lost(resources, (*fence, self.grant.holder()), ended, &loss);
        }
    }

    /// Stops renewing a lease whose handle was dropped; the nodes keep the key until it expires. Returns whether the
    /// lease was valid until now. If the lease was not valid, or was given up before, does nothing and returns `false`.
    pub(crate) fn abandon(&self) -> bool {
        let was_valid = self.let_go();
        if was_valid {
            self.driver.totals.dropped.up();
            events::dropped(&self.grant.resources, self.grant.fence, self.grant.holder());
        }
        was_valid
    }

    /// Stops renewing the lease, like [`HeldLease::abandon`], but does not report that the lease was dropped.
    pub(crate) fn let_go(&self) -> bool {
        let now = clock::now();
        {
            let mut state = self.state();
            if !state.claim.lease().is_valid(now) || state.is_dropped {
                return false;
            }
            state.upkeep = None;
            state.is_dropped = true;
            // The statistics count this as the end of the lease. Watchers are still notified when the lease expires.
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
            (state.claim.lease().ended(now), state.loss(self, now))
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

    /// Releases the lease for its holder. With `keep`, the nodes keep the keys for that time. The result is that of
    /// [`Lease::release`](crate::Lease::release).
    pub(crate) fn release(self: &Arc<Self>, keep: Option<Duration>) -> Pending<bool> {
        self.start_release(Claim::release, keep)
    }

    /// Releases the lease because its client is closed. Unlike [`HeldLease::release`], this counts as a loss
    /// for its watchers.
    pub(crate) fn close(self: &Arc<Self>) -> Pending<bool> {
        self.start_release(Claim::close, None)
    }

    /// Ends the lease with `begin`, then sends RELEASE to all nodes in the background. Returns whether the
    /// lease was valid until now and a majority confirms the release.
    fn start_release(
        self: &Arc<Self>,
        begin: impl FnOnce(&mut Claim, Moment) -> Option<Release>,
        keep: Option<Duration>,
    ) -> Pending<bool> {
        let now = clock::now();
        let Some(mut release) = begin(&mut self.state().claim, now) else {
            return Pending::ready(false);
        };
        let term = keep.map(|ttl| Term { ttl, ..self.grant.term });
        if let Some(keep) = term.and_then(|term| release.keep(now, term)) {
            // Only one release gets here. The subjects differ after a downgrade, and late requests may name either.
            for subject in [&self.grant.subject, &self.subject()] {
                let _ = subject.keep.set(keep);
            }
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
            let patience = held.grant.term.patience().max(held.node_timeout());
            let commands = held.state().claim.send_release();
            let request = Request::release(&held.subject(), driver.turns());
            let began = clock::now();
            let mut fan_out = driver.broadcast(request.clone(), began, patience);
            // The RELEASE is under way now, so on each connection, the ACQUIRE of a later round for the same slots
            // follows it.
            if let Some(permits) = &held.grant.permits {
                permits.give_back(request.keep().is_none());
            }
            held.clean(Commands { release: NodeSet::EMPTY, ..commands });
            let mut record = |node, answer| {
                let released = held.state().claim.released(&mut release, node, answer);
                if let Some(released) = released {
                    if caller.is_some() {
                        held.record_release(released);
                    }
                    answer_caller(&mut caller, released);
                }
                released.is_some()
            };
            // The tasks that repeat RELEASE on the nodes where it failed.
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
                            match held.deliver_release(node, &request) {
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
            held.end_release();
        };
        match self.driver.begin(task) {
            Ok(()) => Pending::new(receiver),
            Err(_) => {
                // Without the runtime, nothing can be sent later, either.
                drop(self.state().claim.end_release());
                Pending::ready(false)
            }
        }
    }

    /// Ends the release. Called when every node has answered RELEASE or reached its deadline.
    fn end_release(&self) {
        let commands = self.state().claim.end_release();
        self.clean(commands);
    }

    /// Repeats RELEASE on a node that did not answer, until the node answers or its key has expired. The future returns
    /// the answer, and whether the node may have applied an earlier copy of the request. Returns `None` if the node has
    /// no key.
    fn deliver_release(
        &self,
        node: usize,
        request: &Request,
    ) -> Option<impl Future<Output = Option<(Answered, bool)>> + Send + use<>> {
        let (holds, gone_by) = {
            let state = self.state();
            (state.claim.holders().contains(node), state.claim.gone_by())
        };
        holds.then(|| {
            let patience = self.node_timeout();
            let delivered = self.driver.delivered(node, request.clone(), patience, gone_by);
            async move { delivered.await.ok().flatten() }
        })
    }

    /// Ends the lease for its holder, and returns the text with which another client can adopt the lease within the
    /// time `within`. Until [`HeldLease::take_text`] is called, nobody has the text.
    ///
    /// After this call, keys of the lease can be set only on nodes that have not answered an earlier request. The text
    /// names these nodes.
    pub(crate) fn detach(&self, within: Duration) -> Result<String> {
        let Grant { resources, subject, fence, .. } = &*self.grant;
        let (silent, within, commands) = {
            let mut state = self.state();
            let now = clock::now();
            let silent = state.claim.silent();
            let commands = match state.claim.detach(now) {
                Ok(commands) => commands,
                Err(Undetachable::Upgrading) => return Err(self.not_sole_error(UPGRADING)),
                Err(Undetachable::Silent(silent)) => return Err(self.silent_error(silent)),
                Err(Undetachable::Ended(ended)) => return Err(self.end_error(&state, now, ended)),
            };
            state.has_untaken_text = true;
            // The lease may last longer than `within` already. GIVE BACK of a lost adoption must not shorten that time.
            let within = within.max(state.claim.lease().end().since(now));
            (silent, within, commands)
        };
        #[cfg(test)]
        crate::lock::steps::detached(subject, silent);
        self.clean(commands);
        if let Some(permits) = &self.grant.permits {
            permits.give_back(false);
        }
        self.notify_watchers(clock::now());
        events::detached(resources, (*fence, self.grant.holder()));
        let micros = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        // If no node has reported its clock yet, `until` is unlimited: a lost adoption then gives the keys back for the
        // whole of `within` again.
        let until =
            self.driver.clocks.at(clock::now()).map_or(u64::MAX, |now| now.saturating_add(micros));
        let given = Given { token: Arc::new(subject.token.clone()), until, within };
        let limit = subject.permit().map(|permit| permit.limit);
        let permits = limit.map(|limit| (limit, subject.slots()));
        let resources = resources.clone();
        let modes = self.modes();
        Ok(self.driver.namespace().write(&Leased { resources, modes, permits }, &given, silent))
    }

    /// Ends the lease because the round of its upgrade was won. Returns whether the lease was valid until now.
    pub(crate) fn end_for_upgrade(&self) -> bool {
        let was_valid = self.state().claim.upgraded(clock::now());
        #[cfg(test)]
        crate::lock::steps::finished(&self.grant.subject);
        if was_valid {
            self.clean(Commands::default());
            self.notify_watchers(clock::now());
        }
        was_valid
    }

    /// Ends an upgrade. If the lease is still valid, its renewal goes on. If the lease was lost during the upgrade,
    /// releases the keys that GIVE BACK may have restored since. If the lease was released, that release has waited for
    /// the end of the upgrade and goes on now.
    pub(crate) fn end_upgrade(self: &Arc<Self>, renewer: &Renewer) {
        let now = clock::now();
        let commands = self.state().claim.end_upgrade(now);
        if self.is_valid(now) {
            renewer.wake(self);
        }
        #[cfg(test)]
        if commands != Commands::default() {
            crate::lock::steps::finished(&self.grant.subject);
        }
        self.clean(commands);
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

    /// Records that somebody has taken the text of a detached lease. Returns `true` if the lease was detached and
    /// nobody had taken the text before.
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
            let commands = held.state().claim.delete();
            held.clean(commands);
        });
    }
}

/// Returns the answer to RELEASE as the protocol must count it. If the request `is_repeated`, the node may have applied
/// an earlier copy of it.
fn once(answer: Answer, is_repeated: bool) -> Answer {
    if is_repeated { answer.repeated() } else { answer }
}
