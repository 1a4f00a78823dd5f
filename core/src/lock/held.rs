//! A lease in the process that holds it: the state that its handle shares with background tasks.
//!
//! `held/extension.rs` has its extension and repair, `held/ending.rs` its loss and release. The
//! protocol's `Lease` decides whether it is valid; the code here protects that with a mutex and
//! acts on its decisions. The mutex must not be held across an `await` or while a watcher runs.
//! Acquires create [`HeldLease`]s; the renewer, the round's late votes and the public `Lease` use
//! them.

mod ending;
pub(crate) mod extension;

use crate::command::keys::Keys;
use crate::command::request::{Request, Subject};
use crate::config::mode::{Mode, Modes};
use crate::config::resources::Resources;
use crate::error::duration::HumanDuration;
use crate::error::{Error, ErrorCode, NodeReport, Result};
use crate::lock::driver::Driver;
use crate::lock::owner::Owner;
use crate::lock::permits::Reserved;
use crate::lock::watcher::Watcher;
use crate::runtime::clock;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::timer::sleep;
use once_cell::race::OnceBox;
use quorlock_protocol::{
    self as protocol, Ended, Event, Footprint, Moment, NodeSet, Round, Term, Upkeep, Vote,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

/// The interval at which [`HeldLease::wait_until`] looks at the state.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Why a lease is not handed over or downgraded while an upgrade of it is under way: the requests of both would change the
/// same keys in any order.
const UPGRADING: &str = "it is being upgraded";

/// Why a lease that was resumed or kept is not handed over or upgraded.
const KEPT: &str = "other processes may have it too, by the text of `keep`";

/// The result of a won round. Does not change while the lease is held.
pub(crate) struct Grant {
    pub(crate) resources: Resources,
    pub(crate) modes: Modes,
    /// The slots that this lease keeps from other rounds of the client; `None` for locks.
    pub(crate) permits: Option<Box<Reserved>>,
    pub(crate) subject: Arc<Subject>,
    pub(crate) fence: u64,
    pub(crate) term: Term,
    /// When the first ACQUIRE was sent, from which `max_hold` counts.
    pub(crate) sent: Moment,
    /// The first validity end, before any extension.
    pub(crate) end: Moment,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) auto_extend: bool,
    /// How long the nodes keep the keys after a release, unless the release says otherwise.
    pub(crate) keep: Option<Duration>,
    /// Whether the lease was resumed from a text. If so, nothing may repair it: see `protocol::Lease::resume`.
    pub(crate) is_resumed: bool,
    /// The thread or task that called the acquire, if known.
    pub(crate) owner: Option<Owner>,
}

/// A lease and its state. Shared by its handle, the renewer and the tasks that extend, repair or release it.
pub(crate) struct HeldLease {
    pub(crate) grant: Arc<Grant>,
    driver: Arc<Driver>,
    state: Mutex<LeaseState>,
    /// Cancelled once every node has answered the release or reached its deadline.
    release_done: CancellationToken,
    /// Notified when an upgrade ends. Empty until somebody waits for that, because few leases are upgraded.
    upgrade_ended: OnceBox<Notify>,
}

/// The mutable state of a lease, behind [`HeldLease::state`].
pub(crate) struct LeaseState {
    pub(crate) lease: protocol::Lease,
    /// The keys and the token, as the next requests name them: that of the grant, unless the lease was downgraded.
    subject: Arc<Subject>,
    pub(crate) footprint: Footprint<FailedUpgrade>,
    /// The owner of the block that releases the lease at its end; `None` if there is none. Boxed, because few leases are
    /// shared and in a block.
    block: Option<Box<Owner>>,
    /// The schedule of automatic extensions; `None` if the lease is not renewed.
    upkeep: Option<Upkeep>,
    /// When the automatic extension under way was sent; `None` if there is none.
    renewal_sent: Option<Moment>,
    /// Each node's outcome in the last extension; empty if that extension was confirmed.
    failure_reports: Vec<NodeReport>,
    /// Notified when the lease is lost.
    watchers: Vec<Watcher>,
    /// Whether the end is recorded in statistics and events.
    end_recorded: bool,
    /// Whether the handle was dropped without a release: see [`HeldLease::abandon`].
    is_dropped: bool,
    /// Whether the lease was detached, and nobody has taken the text yet.
    has_untaken_text: bool,
}

/// The round of an upgrade that failed.
#[derive(Clone)]
pub(crate) struct FailedUpgrade(pub(crate) Arc<Subject>);

impl PartialEq for FailedUpgrade {
    fn eq(&self, other: &Self) -> bool {
        self.0.token == other.0.token
    }
}

impl Grant {
    /// Returns the name of the holder; empty if it has none.
    pub(crate) fn holder(&self) -> &str {
        self.subject.token.holder().unwrap_or_default()
    }

    /// Returns the time by which any key that was set with this `ttl` until now has expired on the nodes.
    pub(crate) fn key_gone_by(&self, ttl: Duration) -> Moment {
        Term { ttl, ..self.term }.gone(clock::now())
    }
}

impl LeaseState {
    /// Returns when the renewer must handle the lease next: to extend it or, at the validity end, to report
    /// its loss.
    pub(crate) fn wake(&self) -> Moment {
        let upkeep =
            self.upkeep.filter(|_| self.renewal_sent.is_none() && !self.lease.is_upgrading());
        upkeep.and_then(|upkeep| upkeep.due(&self.lease)).unwrap_or(self.lease.end())
    }

    /// Returns the error if the lease is lost; `None` while it is valid, or if it was released or detached first.
    pub(crate) fn loss(&self, held: &HeldLease, now: Moment) -> Option<Error> {
        let given_up = [Ended::Released, Ended::Detached, Ended::Upgraded];
        let ended = self.lease.ended(now).filter(|ended| !given_up.contains(ended));
        ended.map(|ended| held.end_error(self, now, ended))
    }
}

impl HeldLease {
    /// Creates the lease of a won round and counts it as held.
    pub(crate) fn new(driver: &Arc<Driver>, grant: Grant, round: &Round) -> Arc<Self> {
        let limit = grant.max_hold.map(|max_hold| grant.sent.plus(max_hold));
        let lease =
            protocol::Lease::new(driver.quorum, round.granted(), grant.fence, grant.end, limit);
        let footprint = Footprint::new(round, grant.term.gone(clock::now()));
        Self::with(driver, grant, lease, footprint)
    }

    /// Like [`HeldLease::new`], for a lease that exists already.
    pub(crate) fn with(
        driver: &Arc<Driver>,
        grant: Grant,
        lease: protocol::Lease,
        footprint: Footprint<FailedUpgrade>,
    ) -> Arc<Self> {
        let state = LeaseState {
            lease,
            subject: Arc::clone(&grant.subject),
            footprint,
            block: None,
            upkeep: grant.auto_extend.then(|| Upkeep::new(grant.term)),
            renewal_sent: None,
            failure_reports: Vec::new(),
            watchers: Vec::new(),
            end_recorded: false,
            is_dropped: false,
            has_untaken_text: false,
        };
        driver.totals.held.up();
        let driver = Arc::clone(driver);
        let grant = Arc::new(grant);
        let state = Mutex::new(state);
        Arc::new(Self {
            driver,
            grant,
            state,
            release_done: CancellationToken::new(),
            upgrade_ended: OnceBox::new(),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock()
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Returns the Redis Cluster slot of the first key; all keys of a lease are in one slot there.
    pub(crate) fn slot(&self) -> u16 {
        self.grant.subject.keys.first().map_or(0, Keys::slot)
    }

    /// Returns whether the lease is released. If it is, waits first until the release has finished: an undo
    /// sent earlier would delete the key, and the node would then answer the RELEASE that it holds no key.
    pub(crate) async fn wait_if_released(&self) -> bool {
        let released = self.state().lease.is_released();
        if released {
            self.release_done.cancelled().await;
        }
        released
    }

    /// Records a vote that arrived after the round was won.
    pub(crate) fn record_vote(&self, event: Event, round: &Round) {
        let mut state = self.state();
        state.footprint.counted_votes(round);
        if let Event::Vote { node, vote: Vote::Granted { fence }, .. }
        | Event::Late { node, vote: Vote::Granted { fence } } = event
        {
            state.lease.granted(node, fence);
        }
    }

    /// Waits until the state of the lease meets a condition, but at most `node_timeout`.
    pub(crate) async fn wait_until(&self, is_met: impl Fn(&LeaseState) -> bool) {
        let until = clock::now().plus(self.driver.options.node_timeout(self.grant.term.ttl));
        while !is_met(&self.state()) && clock::now() < until {
            sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) fn is_upgrading(&self) -> bool {
        self.state().lease.is_upgrading()
    }

    /// Waits until no upgrade of the lease is under way.
    pub(crate) async fn wait_for_upgrade(&self) {
        while self.is_upgrading() {
            // Registered before the state is read again, so that no notification is missed.
            let ended = self.upgrade_ended.get_or_init(Box::default).notified();
            if !self.is_upgrading() {
                return;
            }
            ended.await;
        }
    }

    /// Waits for `pause`, or until the lease is released or the client closed. Returns whether the lease is
    /// still held and the client open.
    pub(crate) async fn is_held_after(&self, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.driver.closing.cancelled() => false,
            () = self.release_done.cancelled() => false,
            () = sleep(pause) => self.state().lease.is_valid(clock::now()),
        }
    }

    /// Returns the nodes that lack the key, as far as this client knows.
    pub(crate) fn missing(&self) -> NodeSet {
        self.state().lease.missing()
    }

    /// Whether nodes hold the key but do not count, because they granted the resource to another lease in
    /// between. A verification makes them count again.
    pub(crate) fn has_uncounted_nodes(&self) -> bool {
        self.state().lease.has_passed()
    }

    /// Returns what the next request for this lease is about.
    pub(crate) fn subject(&self) -> Arc<Subject> {
        Arc::clone(&self.state().subject)
    }

    /// The modes of the resources.
    pub(crate) fn modes(&self) -> Modes {
        let all_shared = self.state().subject.keys.iter().all(Keys::is_shared);
        if all_shared { Modes::All(Mode::Shared) } else { self.grant.modes.clone() }
    }

    fn release_request(&self) -> Request {
        Request::release(&self.subject(), self.driver.turns())
    }

    /// Returns the error for this lease, which ended for the reason `ended`. `state` is its state.
    pub(crate) fn end_error(&self, state: &LeaseState, now: Moment, ended: Ended) -> Error {
        let ago = HumanDuration(now.since(state.lease.end()));
        let why = match ended {
            Ended::Expired | Ended::AtLimit if state.is_dropped => {
                format!("ended {ago} ago: it was dropped without being released")
            }
            Ended::Expired => format!("ended {ago} ago, without being extended in time"),
            Ended::AtLimit => {
                let limit = self
                    .grant
                    .max_hold
                    .map_or_else(String::new, |limit| HumanDuration(limit).to_string());
                format!("ended {ago} ago: it may be held for {limit} at most")
            }
            Ended::Taken => {
                "was lost: a majority of the nodes does not hold it any more".to_owned()
            }
            Ended::ClientClosed => "ended when its client was closed".to_owned(),
            Ended::Released => "was released".to_owned(),
            Ended::Detached => "was detached, for another client to adopt it".to_owned(),
            Ended::Upgraded => "was upgraded: use the new lease".to_owned(),
        };
        let resources = &self.grant.resources;
        let error = Error::new(ErrorCode::LeaseLost, format!("the lease of {resources} {why}"))
            .about(resources);
        match ended {
            Ended::Expired | Ended::Taken => error.with_nodes(state.failure_reports.clone()),
            _ => error,
        }
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        self.state().lease.is_valid(now)
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.state().lease.ended(clock::now()) == Some(Ended::Detached)
    }

    /// Returns an error if something else may use the lease: another process, by a text of `Client::keep`, or an upgrade.
    /// It would not notice a hand-over.
    pub(crate) fn check_sole(&self) -> crate::error::Result<()> {
        if self.grant.is_resumed || self.is_dropped() {
            return Err(self.not_sole_error(KEPT));
        }
        if self.is_upgrading() { Err(self.not_sole_error(UPGRADING)) } else { Ok(()) }
    }

    fn not_sole_error(&self, mistake: &str) -> Error {
        let resources = &self.grant.resources;
        let message = format!("the lease of {resources} cannot be handed over: {mistake}");
        Error::config(message).about(resources)
    }

    /// See [`Lease::enter_block`](crate::Lease::enter_block).
    pub(crate) fn enter_block(&self, owner: Option<Owner>) {
        if let Some(owner) = owner.or(self.grant.owner) {
            // A lease is in one block only.
            self.state().block.get_or_insert_with(|| Box::new(owner));
        }
    }

    /// Whether the lease is shared, and released only when a block of this owner ends.
    pub(crate) fn is_shared_in_block_of(&self, owner: Owner) -> bool {
        let state = self.state();
        state.block.as_deref() == Some(&owner) && state.subject.is_shared()
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.state().is_dropped
    }

    /// Makes the lease shared, from now on. Returns whether it was not before; an error if it has ended.
    pub(crate) fn begin_downgrade(&self) -> Result<bool> {
        let mut state = self.state();
        let now = clock::now();
        if let Some(ended) = state.lease.ended(now) {
            return Err(self.end_error(&state, now, ended));
        }
        if state.subject.permit().is_some() {
            let resources = &self.grant.resources;
            let message = format!(
                "the lease of {resources} cannot be downgraded: it is a permit of a semaphore"
            );
            return Err(Error::config(message).about(resources));
        }
        if state.lease.is_upgrading() {
            let resources = &self.grant.resources;
            let message = format!("the lease of {resources} cannot be downgraded: {UPGRADING}");
            return Err(Error::config(message).about(resources));
        }
        let is_changed = !state.subject.keys.iter().all(Keys::is_shared);
        if is_changed {
            state.subject = Arc::new(state.subject.downgraded());
            #[cfg(test)]
            crate::lock::steps::downgraded(&state.subject);
        }
        Ok(is_changed)
    }

    /// Stops extending and repairing the lease until [`HeldLease::end_upgrade`].
    pub(crate) fn begin_upgrade(&self) -> Result<()> {
        let mut state = self.state();
        let now = clock::now();
        let resources = &self.grant.resources;
        let mistake = if !state.subject.keys.iter().any(Keys::is_shared) {
            "it is exclusive already"
        } else if state.lease.is_upgrading() {
            "it is being upgraded already"
        } else if self.grant.is_resumed || state.is_dropped {
            KEPT
        } else if state.lease.begin_upgrade(now) {
            // The keys last for at least a term from the arrival of TRANSFER and of GIVE BACK, which can be late.
            let patience = self.driver.options.node_timeout(self.grant.term.ttl);
            state.footprint.set_keys_until(self.grant.term.gone(now.plus(2 * patience)));
            #[cfg(test)]
            crate::lock::steps::upgrading(&state.subject, state.lease.end());
            return Ok(());
        } else {
            let ended = state.lease.ended(now).unwrap_or(Ended::Expired);
            return Err(self.end_error(&state, now, ended));
        };
        let message = format!("the lease of {resources} cannot be upgraded: {mistake}");
        Err(Error::config(message).about(resources))
    }

    /// Returns the time by which the last key of this lease has expired on the nodes.
    pub(crate) fn keys_gone_by(&self) -> Moment {
        self.state().footprint.gone_by()
    }

    /// Returns the error for this lease. Called when its end has just been noticed.
    pub(crate) fn lost_error(&self) -> Error {
        let state = self.state();
        let now = clock::now();
        self.end_error(&state, now, state.lease.ended(now).unwrap_or(Ended::Expired))
    }
}

/// Sends `result` to the caller, unless it was sent before.
pub(crate) fn answer_caller<T>(caller: &mut Option<oneshot::Sender<T>>, result: T) {
    if let Some(caller) = caller.take() {
        // Fails only if the caller has stopped waiting.
        let _ = caller.send(result);
    }
}
