//! A lease in the process that holds it: the state that its handle shares with background tasks.
//!
//! `held/extension.rs` implements the extension and repair of the lease, and `held/ending.rs` its loss and release. The
//! protocol's `Lease` decides whether the lease is valid; the code here protects that state with a mutex and acts on
//! the decisions. The mutex must not be held across an `await` or while a watcher runs. Won rounds and `client/kept.rs`
//! create [`HeldLease`]s; the renewer, the round's late votes and the public `Lease` use them.

mod ending;
pub(crate) mod extension;

use crate::config::mode::{Mode, Modes};
use crate::config::resources::Resources;
use crate::error::duration::HumanDuration;
use crate::error::{Error, ErrorCode, NodeReport, Result};
use crate::lock::claim::{Claim, Cleanup, Commands};
use crate::lock::driver::Driver;
use crate::lock::lease::owner::Owner;
use crate::lock::waiting::permits::Reserved;
use crate::runtime::clock;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::panics;
use crate::runtime::timer::{sleep, timeout};
use crate::wire::keys::Keys;
use crate::wire::request::{Request, Subject};
use once_cell::race::OnceBox;
use quorlock_protocol::{Ended, Event, Moment, NodeSet, Obstacle, Term, Upkeep};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Completes the error message "the lease … cannot be …" for [`Lease::detach`](crate::Lease::detach) and
/// [`Lease::hand_over`](crate::Lease::hand_over).
pub(crate) const HANDED_OVER: &str = "handed over";

/// The properties of a lease that was won or resumed. After the lease was created, only `fate` changes.
pub(crate) struct Grant {
    pub(crate) resources: Resources,
    pub(crate) modes: Modes,
    /// The slots that are reserved for this lease, so that the client's other rounds avoid them; `None` for locks.
    pub(crate) permits: Option<Box<Reserved>>,
    pub(crate) subject: Arc<Subject>,
    pub(crate) fence: u64,
    pub(crate) term: Term,
    /// When the first ACQUIRE was sent. `max_hold` counts from this moment.
    pub(crate) sent: Moment,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) auto_extend: bool,
    /// The lease is renewed only while its last heartbeat is younger than this time; `None` if none is needed.
    pub(crate) heartbeat_timeout: Option<Duration>,
    /// How long the nodes keep the keys after a release, unless the release says otherwise.
    pub(crate) keep: Option<Duration>,
    /// The thread or task that called the acquire, if known.
    pub(crate) owner: Option<Owner>,
    pub(crate) fate: Fate,
}

/// What has become of a lease. Set while the [`HeldLease`] exists, and read by tasks that outlive the [`HeldLease`].
#[derive(Default)]
pub(crate) struct Fate {
    is_deleted: AtomicBool,
    is_elsewhere: AtomicBool,
}

impl Fate {
    /// Whether the lease was released, upgraded or deleted, so that nobody can use it.
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Whether another process may also have the lease, because the lease was passed on or resumed.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.is_elsewhere.load(Ordering::Acquire)
    }
}

/// A lease and its state. The lease's handle, the renewer, and the tasks that extend, repair or release the lease share
/// this value.
pub(crate) struct HeldLease {
    pub(crate) grant: Arc<Grant>,
    pub(crate) driver: Arc<Driver>,
    state: Mutex<LeaseState>,
    /// Notified when the claim has changed. Empty until a task waits for a change.
    changed: OnceBox<Notify>,
}

/// The mutable state of a lease, behind [`HeldLease::state`].
pub(crate) struct LeaseState {
    pub(crate) claim: Claim,
    /// The block at whose end the lease is released; `None` if there is no such block.
    block: Option<NonZeroU64>,
    /// The schedule of automatic extensions; `None` if the lease is not renewed.
    upkeep: Option<Upkeep>,
    /// When the current automatic extension was sent; `None` between two automatic extensions.
    renewal_sent: Option<Moment>,
    /// Each node's outcome in the last extension; empty if that extension was confirmed.
    failure_reports: Vec<NodeReport>,
    /// The callers and callbacks to notify when the lease ends.
    watchers: Vec<Watcher>,
    /// Whether the end is recorded in statistics and events.
    end_recorded: bool,
    /// Whether the holder gave the lease up without a release: see [`HeldLease::abandon`] and [`HeldLease::pass_on`].
    is_dropped: bool,
    /// Whether the lease was detached, and nobody has taken its text yet: see [`HeldLease::take_text`].
    has_untaken_text: bool,
}

/// A watcher of one lease: a waiting caller that is notified when the lease ends, or a callback that is called if the
/// lease is lost. `lease.rs` creates watchers. `held/ending.rs` notifies each of them once.
pub(crate) enum Watcher {
    /// Receives the error if the lease is lost, and `None` if the lease ends in another way.
    Waiting(oneshot::Sender<Option<Error>>),
    /// Called with the error if the lease is lost; dropped without a call if the lease ends in another way.
    Callback(Box<dyn FnOnce(Error) + Send>),
}

impl Grant {
    /// Returns the name of the holder; empty if it has none.
    pub(crate) fn holder(&self) -> &str {
        self.subject.token.holder().unwrap_or_default()
    }
}

impl LeaseState {
    /// Returns when the renewer must handle the lease next: to extend it, to warn that there was no heartbeat or, at
    /// the validity end, to report the loss.
    pub(crate) fn wake(&self) -> Moment {
        let warning = self.upkeep.and_then(|upkeep| upkeep.warning_due());
        [self.renewal_due(), warning].into_iter().flatten().fold(self.claim.lease().end(), Ord::min)
    }

    /// Returns when to extend the lease; `None` if no automatic extension may begin before the validity end.
    fn renewal_due(&self) -> Option<Moment> {
        let may_begin = self.renewal_sent.is_none() && !self.claim.lease().is_upgrading();
        self.upkeep.filter(|_| may_begin)?.due(self.claim.lease())
    }

    /// Records a heartbeat of the holder. Returns whether the renewer must now handle the lease earlier.
    pub(crate) fn beat(&mut self, now: Moment) -> bool {
        self.upkeep.as_mut().is_some_and(|upkeep| upkeep.beat(now))
    }

    /// Returns `NoHeartbeat` if the lease expired because missing heartbeats stopped its renewal, else `ended`.
    fn reason(&self, ended: Ended) -> Ended {
        self.upkeep.map_or(ended, |upkeep| upkeep.reason(ended))
    }

    /// Returns the error if the lease is lost; `None` while the lease is valid, or if it was released, detached or
    /// upgraded in time.
    pub(crate) fn loss(&self, held: &HeldLease, now: Moment) -> Option<Error> {
        let given_up = [Ended::Released, Ended::Detached, Ended::Upgraded];
        let ended = self.claim.lease().ended(now).filter(|ended| !given_up.contains(ended));
        ended.map(|ended| held.end_error(self, now, ended))
    }
}

impl Watcher {
    /// Notifies the watcher. `loss` is `None` if the lease was not lost. The caller must not hold a mutex, because the
    /// callback may use the lease.
    pub(crate) fn notify(self, loss: Option<Error>) {
        panics::contain(|| match (self, loss) {
            // Fails only if the caller has stopped waiting.
            (Self::Waiting(waiting), loss) => drop(waiting.send(loss)),
            (Self::Callback(call), Some(loss)) => call(loss),
            (Self::Callback(_), None) => {}
        });
    }
}

impl HeldLease {
    /// Creates the lease of a claim that was won or resumed, and counts the lease as held.
    pub(crate) fn new(driver: &Arc<Driver>, grant: Grant, claim: Claim) -> Arc<Self> {
        let upkeep = grant.auto_extend.then(|| Upkeep::new(grant.term));
        let upkeep = match grant.heartbeat_timeout {
            Some(timeout) => upkeep.map(|upkeep| upkeep.with_heartbeat(timeout, clock::now())),
            None => upkeep,
        };
        let state = LeaseState {
            claim,
            block: None,
            upkeep,
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
        Arc::new(Self { driver, grant, state, changed: OnceBox::new() })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock()
    }

    /// Returns the Redis Cluster slot of the first key. On a Redis Cluster, all keys of the lease are in this slot.
    pub(crate) fn slot(&self) -> u16 {
        self.grant.subject.keys.first().map_or(0, Keys::slot)
    }

    /// Passes an event of the round to the claim, and sends the requests that the claim commands. Because the round is
    /// won, these requests only delete keys.
    pub(crate) fn handle(&self, event: Event) {
        let commands = self.state().claim.handle(clock::now(), event);
        self.clean(commands);
    }

    /// Acts on a change of the claim: records the fate of the lease, sends the requests of `commands` that delete keys
    /// or give keys back, and wakes the tasks that wait for a change.
    pub(crate) fn clean(&self, commands: Commands) {
        let state = self.state();
        let gone_by = state.claim.gone_by();
        self.record_fate(&state.claim);
        let subject = (commands != Commands::default()).then(|| Arc::clone(state.claim.subject()));
        drop(state);
        if let Some(subject) = subject {
            let cleanup = Cleanup::of(subject, self.grant.term, self.node_timeout());
            cleanup.run(&self.driver, gone_by, commands);
        }
        if let Some(waiting) = self.changed.get() {
            waiting.notify_waiters();
        }
    }

    fn record_fate(&self, claim: &Claim) {
        let Fate { is_deleted, is_elsewhere } = &self.grant.fate;
        is_deleted.store(claim.is_deleted(), Ordering::Release);
        is_elsewhere.store(claim.is_elsewhere(), Ordering::Release);
    }

    /// How long a request of this lease waits for a node's answer.
    pub(crate) fn node_timeout(&self) -> Duration {
        self.driver.options.node_timeout(self.grant.term.ttl)
    }

    /// Waits until `is_met` returns `true` for the state of the lease.
    async fn wait_until(&self, is_met: impl Fn(&LeaseState) -> bool) {
        while !is_met(&self.state()) {
            // This task must register before it reads the state again. Otherwise, it could miss a notification.
            let changed = self.changed.get_or_init(Box::default).notified();
            if is_met(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until `is_met` returns `true` for the state of the lease, but for at most `node_timeout`.
    pub(crate) async fn wait_a_moment_until(&self, is_met: impl Fn(&LeaseState) -> bool) {
        let _ = timeout(self.node_timeout(), self.wait_until(is_met)).await;
    }

    /// Waits until no upgrade of the lease is under way.
    pub(crate) async fn wait_for_upgrade(&self) {
        self.wait_until(|state| !state.claim.lease().is_upgrading()).await;
    }

    /// Waits for `pause`, then returns whether the lease is still valid. Returns `false` early if the lease is released
    /// or the client is closed.
    pub(crate) async fn is_held_after(&self, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.driver.closing.cancelled() => false,
            () = self.wait_until(|state| state.claim.lease().is_released()) => false,
            () = sleep(pause) => self.is_valid(clock::now()),
        }
    }

    /// Returns the keys and the token that the next request for this lease must name.
    pub(crate) fn subject(&self) -> Arc<Subject> {
        Arc::clone(self.state().claim.subject())
    }

    /// Returns the modes of the resources: all shared after a downgrade, and otherwise those of the acquire.
    pub(crate) fn modes(&self) -> Modes {
        let all_shared = self.subject().keys.iter().all(Keys::is_shared);
        if all_shared { Modes::All(Mode::Shared) } else { self.grant.modes.clone() }
    }

    /// Returns the error for this lease, which ended for the reason `ended`. `state` is the lease's state.
    pub(crate) fn end_error(&self, state: &LeaseState, now: Moment, ended: Ended) -> Error {
        let ago = HumanDuration(now.since(state.claim.lease().end()));
        let shown = |limit: Option<Duration>| HumanDuration(limit.unwrap_or_default());
        let ended = state.reason(ended);
        let why = match ended {
            Ended::Expired | Ended::AtLimit if state.is_dropped => {
                format!("ended {ago} ago: it was dropped without being released")
            }
            Ended::Expired => format!("ended {ago} ago, without being extended in time"),
            Ended::AtLimit => {
                format!(
                    "ended {ago} ago: it may be held for {} at most",
                    shown(self.grant.max_hold)
                )
            }
            Ended::NoHeartbeat => {
                format!("ended {ago} ago: no heartbeat for {}", shown(self.grant.heartbeat_timeout))
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
            .about(resources)
            .with_reason(reason(ended));
        match ended {
            Ended::Expired | Ended::NoHeartbeat | Ended::Taken => {
                error.with_nodes(state.failure_reports.clone())
            }
            _ => error,
        }
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        self.state().claim.lease().is_valid(now)
    }

    pub(crate) fn is_released(&self) -> bool {
        self.state().claim.lease().is_released()
    }

    /// Returns the time by which the last key of this lease has expired on the nodes.
    pub(crate) fn gone_by(&self) -> Moment {
        self.state().claim.gone_by()
    }

    /// Whether the lease was released, upgraded or deleted, so that nobody can use it.
    pub(crate) fn is_deleted(&self) -> bool {
        self.state().claim.is_deleted()
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.state().claim.lease().ended(clock::now()) == Some(Ended::Detached)
    }

    /// Returns an error if the lease has ended, or cannot be handed over now.
    pub(crate) fn check_hand_over(&self) -> Result<()> {
        self.change(HANDED_OVER, |state, now| state.claim.check_change(now))
    }

    /// Calls `change` with the lease's state and the current time. If an [`Obstacle`] prevents the change, returns the
    /// error "the lease … cannot be {participle}: …".
    fn change<T>(
        &self,
        participle: &str,
        change: impl FnOnce(&mut LeaseState, Moment) -> std::result::Result<T, Obstacle>,
    ) -> Result<T> {
        let mut state = self.state();
        let now = clock::now();
        change(&mut state, now).map_err(|obstacle| match obstacle {
            Obstacle::Elsewhere => {
                self.mistake(participle, "other processes may have it too, by the text of `keep`")
            }
            Obstacle::Upgrading => self.mistake(participle, "it is being upgraded"),
            Obstacle::Silent(silent) => self.silent_error(silent),
            Obstacle::Ended(ended) => self.end_error(&state, now, ended),
        })
    }

    /// Returns the error "the lease … cannot be {change}: {why}". `change` is a participle such as "upgraded".
    pub(crate) fn mistake(&self, change: &str, why: &str) -> Error {
        let resources = &self.grant.resources;
        Error::config(format!("the lease of {resources} cannot be {change}: {why}"))
            .about(resources)
    }

    /// Records that the lease is released at the end of a block.
    pub(crate) fn enter_block(&self, block: NonZeroU64) {
        // A lease belongs to one block only, so later calls change nothing.
        self.state().block.get_or_insert(block);
    }

    /// Whether an acquire of `keys` within these blocks would wait for this lease forever: the lease belongs to one of
    /// them, at whose end it is released, and it shares one of the keys.
    pub(crate) fn blocks_acquire_within(&self, blocks: &[NonZeroU64], keys: &[Keys]) -> bool {
        let state = self.state();
        let excludes = |own: &Keys| keys.iter().any(|wanted| own.excludes(wanted));
        let mut own = state.claim.subject().keys.iter();
        state.block.is_some_and(|block| blocks.contains(&block))
            && own.any(|own| own.is_shared() && excludes(own))
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.state().is_dropped
    }

    /// Makes the lease shared, from now on. Returns whether any of its resources was exclusive before; an error if the
    /// lease has ended or cannot be downgraded.
    pub(crate) fn begin_downgrade(&self) -> Result<bool> {
        if self.grant.subject.permit().is_some() && self.is_valid(clock::now()) {
            return Err(self.mistake("downgraded", "it is a permit of a semaphore"));
        }
        self.change("downgraded", |state, now| {
            let subject = Arc::clone(state.claim.subject());
            let is_changed = !subject.keys.iter().all(Keys::is_shared);
            if is_changed {
                state.claim.downgrade(now, Arc::new(subject.downgraded()))?;
            } else {
                state.claim.check_change(now)?;
            }
            Ok(is_changed)
        })
    }

    /// Begins an upgrade: stops extending and repairing the lease until [`HeldLease::end_upgrade`]. Fails if the lease
    /// has ended or cannot be upgraded.
    pub(crate) fn begin_upgrade(&self) -> Result<()> {
        // A lease never becomes exclusive, so the mode need not be checked together with the change.
        if !self.subject().is_shared() {
            return Err(self.mistake("upgraded", "it is exclusive already"));
        }
        self.change("upgraded", |state, now| state.claim.begin_upgrade(now, self.node_timeout()))
    }

    /// Sends GIVE BACK to these nodes after a failed upgrade of this lease. Repeats each request until its node has
    /// answered, the lease is [deleted](HeldLease::is_deleted), or the last key has expired, at `gone_by`. If the lease
    /// is deleted already, releases the keys of the upgrade instead. Must be called on the runtime.
    pub(crate) fn give_back(
        self: &Arc<Self>,
        upgrade: &Arc<Subject>,
        nodes: NodeSet,
        gone_by: Moment,
    ) {
        let commands = self.state().claim.gives_back(upgrade, nodes);
        if commands != Commands::default() {
            return self.clean(commands);
        }
        for node in nodes.iter() {
            let held = Arc::clone(self);
            let upgrade = Arc::clone(upgrade);
            self.driver.detach(async move { held.give_back_to(node, &upgrade, gone_by).await });
        }
    }

    async fn give_back_to(&self, node: usize, upgrade: &Arc<Subject>, gone_by: Moment) {
        let request = Request::GiveBack(Arc::clone(upgrade));
        let closing = &self.driver.closing;
        let delivered =
            self.driver.nodes[node].deliver(request, self.node_timeout(), gone_by, closing);
        let answered = tokio::select! {
            biased;
            // Stop repeating GIVE BACK when the lease is deleted. The requests that delete the lease's keys also delete
            // a key that an earlier GIVE BACK restores on this node.
            () = self.wait_until(|state| state.claim.is_deleted()) => return,
            answered = delivered => answered,
        };
        // Once the upgrade's keys have expired, a late GIVE BACK restores nothing.
        if answered.is_some() || clock::now() >= gone_by {
            self.state().claim.gave_back(clock::now(), upgrade, node);
            self.clean(Commands::default());
        }
    }

    /// Returns the error that says why this lease has ended. Must be called after the end of the lease.
    pub(crate) fn lost_error(&self) -> Error {
        let state = self.state();
        let now = clock::now();
        self.end_error(&state, now, state.claim.lease().ended(now).unwrap_or(Ended::Expired))
    }
}

/// Returns the text of [`Error::reason`] for a lease that ended in this way.
fn reason(ended: Ended) -> &'static str {
    match ended {
        Ended::Expired => "expired",
        Ended::AtLimit => "max_hold",
        Ended::NoHeartbeat => "no_heartbeat",
        Ended::Taken => "taken",
        Ended::ClientClosed => "closed",
        Ended::Released => "released",
        Ended::Detached => "detached",
        Ended::Upgraded => "upgraded",
    }
}

/// Sends `result` to the caller, unless the caller was answered before.
pub(crate) fn answer_caller<T>(caller: &mut Option<oneshot::Sender<T>>, result: T) {
    if let Some(caller) = caller.take() {
        // Fails only if the caller has stopped waiting.
        let _ = caller.send(result);
    }
}
