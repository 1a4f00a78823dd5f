//! How a held lease ends: the lease is lost, released, detached or upgraded, its client is closed, or its holder drops
//! it.
//!
//! The protocol decides why and when a lease ended. This code notifies watchers, records the end once, and sends
//! RELEASE. Mainly `lease.rs` and `renewer.rs` call this code.

use super::{Grant, HANDED_OVER, HeldLease, LeaseState, Watcher, answer_caller};
use crate::error::{Error, ErrorCode, needed};
use crate::lock::claim::handover::Leased;
use crate::lock::claim::release::RunningRelease;
use crate::lock::claim::{Claim, Commands};
use crate::lock::renewer::Renewer;
use crate::runtime::Pending;
use crate::runtime::clock;
use crate::telemetry::events;
use crate::wire::request::Given;
use quorlock_protocol::{Ended, Moment, NodeSet, Release, Term};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

impl HeldLease {
    /// Notifies `watcher` when the lease ends; immediately if the lease has already ended.
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
            let ended = state.reason(ended);
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
            Ended::NoHeartbeat => {
                totals.losses.up();
                totals.no_heartbeat.up();
            }
        }
        if let Some(loss) = loss {
            events::lost(resources, (*fence, self.grant.holder()), &loss);
        }
    }

    /// Gives the lease up without releasing it: renewal stops, and the nodes keep the key until it expires. Reports
    /// that the lease was dropped, and returns `true`. If the lease is not valid, or was given up before, does nothing
    /// and returns `false`.
    pub(crate) fn abandon(&self) -> bool {
        let now = clock::now();
        {
            let mut state = self.state();
            if !state.claim.lease().is_valid(now) || state.is_dropped {
                return false;
            }
            self.stop(&mut state, now);
        }
        self.driver.totals.dropped.up();
        events::dropped(&self.grant.resources, self.grant.fence, self.grant.holder());
        true
    }

    /// Gives the lease up, so that another process can resume it. Returns the nodes that count towards its majority.
    pub(crate) fn pass_on(&self) -> Result<NodeSet, Error> {
        self.change("kept", |state, now| {
            let sound = state.claim.pass_on(now)?;
            self.record_fate(&state.claim);
            if !state.is_dropped {
                self.stop(state, now);
            }
            Ok(sound)
        })
    }

    /// Stops renewing the lease, and counts it as ended in the statistics.
    fn stop(&self, state: &mut LeaseState, now: Moment) {
        state.upkeep = None;
        state.is_dropped = true;
        // The statistics count the lease as ended now, so its expiry must not be recorded as a second end. The flag
        // does not affect watchers: after `abandon`, they are notified when the lease expires.
        state.end_recorded = true;
        let totals = &self.driver.totals;
        totals.held.down();
        totals.holding.add(now.since(self.grant.sent));
    }

    /// Reports the result of the release of a lease that was valid until its release.
    pub(crate) fn record_release(&self, confirmed: bool) {
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
                events::lost(resources, (*fence, self.grant.holder()), &loss);
            }
            _ => events::released(resources, (*fence, self.grant.holder()), confirmed),
        }
    }

    /// Releases the lease for its holder. With `keep`, the nodes keep the keys for that time. The result is the same as
    /// for [`Lease::release`](crate::Lease::release).
    pub(crate) fn release(self: &Arc<Self>, keep: Option<Duration>) -> Pending<bool> {
        self.start_release(Claim::release, keep)
    }

    /// Releases the lease because its client is closed. Unlike [`HeldLease::release`], this method notifies the lease's
    /// watchers of a loss.
    pub(crate) fn close(self: &Arc<Self>) -> Pending<bool> {
        self.start_release(Claim::close, None)
    }

    /// Ends the lease with `begin`, then sends RELEASE to all nodes in the background. The result is `true` if the
    /// lease is still valid at this call and a majority confirms the release.
    fn start_release(
        self: &Arc<Self>,
        begin: impl FnOnce(&mut Claim, Moment) -> Option<Release>,
        keep: Option<Duration>,
    ) -> Pending<bool> {
        let (now, release) = {
            let mut state = self.state();
            // Read while the state is locked: by an earlier moment, the lease could still be valid although its watchers
            // know of its loss.
            let now = clock::now();
            (now, begin(&mut state.claim, now))
        };
        let Some(release) = release else { return Pending::ready(false) };
        let term = keep.map(|ttl| Term { ttl, ..self.grant.term });
        let keep = term.and_then(|term| self.state().claim.keep_keys(&release, now, term));
        if let Some(keep) = keep {
            // Only one release of a lease gets here, so `keep` is not set yet. After a downgrade, the two subjects
            // differ, and late requests may name either of them.
            for subject in [&self.grant.subject, &self.subject()] {
                let _ = subject.keep.set(keep);
            }
        }
        self.notify_watchers(now);
        let (sender, receiver) = oneshot::channel();
        let mut caller = Some(sender);
        if !release.was_valid() {
            answer_caller(&mut caller, false);
        }
        let running = RunningRelease { held: Arc::clone(self), release, caller };
        match self.driver.begin(running.run()) {
            Ok(()) => Pending::new(receiver),
            Err(_) => {
                // The runtime cannot be started, so no RELEASE can be sent, now or later.
                drop(self.state().claim.end_release());
                Pending::ready(false)
            }
        }
    }

    /// Ends the lease for its holder, and returns the text with which another client can adopt the lease within the
    /// time `within`. Until [`HeldLease::take_text`] is called, nobody has the text.
    ///
    /// After this call, the client sends no more requests that set the lease's keys. But a node that has not answered
    /// an earlier request may still apply it. The text names these nodes, because they must not vote on an adoption.
    pub(crate) fn detach(&self, within: Duration) -> Result<String, Error> {
        let Grant { resources, subject, fence, .. } = &*self.grant;
        let (silent, within, commands) = self.change(HANDED_OVER, |state, now| {
            let silent = state.claim.silent();
            let commands = state.claim.detach(now)?;
            state.has_untaken_text = true;
            // If the lease is valid for longer than `within`, use the longer time: GIVE BACK must not shorten it.
            let within = within.max(state.claim.lease().end().since(now));
            Ok((silent, within, commands))
        })?;
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

    /// Ends the lease because `upgrade`, the claim of its upgrade, has won its round. If the lease had ended before,
    /// the error contains the commands that give the keys of the upgrade back.
    pub(crate) fn end_for_upgrade(&self, upgrade: &mut Claim) -> Result<(), Commands> {
        self.state().claim.upgraded(clock::now(), upgrade)?;
        self.clean(Commands::default());
        self.notify_watchers(clock::now());
        Ok(())
    }

    /// Ends an upgrade of this lease. What happens next depends on the lease:
    ///
    /// - If the lease is still valid, the renewer continues to renew it.
    /// - If the lease was lost during the upgrade, the keys that GIVE BACK may have restored are released.
    /// - If the lease was released during the upgrade, that release has waited for the end of the upgrade, and now
    ///   sends RELEASE.
    ///
    /// `id` is the ID that the renewer assigned to the lease.
    pub(crate) fn end_upgrade(&self, renewer: &Renewer, id: u64) {
        let now = clock::now();
        let commands = self.state().claim.end_upgrade(now);
        if self.is_valid(now) {
            renewer.wake(id, self);
        }
        self.clean(commands);
    }

    pub(super) fn silent_error(&self, silent: NodeSet) -> Error {
        let resources = &self.grant.resources;
        let nodes = self.driver.quorum.nodes();
        let message = format!(
            "too few nodes could vote on an adoption of {resources}: {} of {nodes} have not answered earlier \
             requests for it, {}",
            silent.len(),
            needed(self.driver.quorum.size()),
        );
        Error::new(ErrorCode::NoQuorum, message).about(resources)
    }

    /// Records that somebody has taken the text of a detached lease. Returns `true` if the lease was detached and
    /// nobody had taken the text before.
    pub(crate) fn take_text(&self) -> bool {
        std::mem::take(&mut self.state().has_untaken_text)
    }

    /// Releases the lease if it was detached and nobody has taken the text: without the text, nobody can adopt the
    /// lease.
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
