//! What a lease shares with the tasks that work for it: its state, its extension, its release.

mod ending;
pub(crate) mod extension;

use crate::command::keys::Keys;
use crate::command::request::{Request, Subject};
use crate::config::resources::Resources;
use crate::error::duration::HumanDuration;
use crate::error::{Error, ErrorCode, NodeReport};
use crate::lock::driver::Driver;
use crate::lock::owner::Owner;
use crate::lock::watcher::Watcher;
use crate::runtime::clock;
use crate::runtime::timer::sleep;
use quorlock_protocol::{self as protocol, Ended, Event, Moment, NodeSet, Term, Upkeep, Vote};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// What a round won.
pub(crate) struct Grant {
    pub(crate) resources: Resources,
    pub(crate) subject: Arc<Subject>,
    pub(crate) fence: u64,
    pub(crate) term: Term,
    pub(crate) sent: Moment,
    pub(crate) end: Moment,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) auto_extend: bool,
    /// The thread or task that acquired it, if it is known.
    pub(crate) owner: Option<Owner>,
}

/// What a lease shares with the tasks that work for it.
pub(crate) struct HeldLease {
    pub(crate) grant: Arc<Grant>,
    driver: Arc<Driver>,
    state: Mutex<LeaseState>,
    /// Cancelled when all nodes have answered to the release, or had their time to.
    release_done: CancellationToken,
}

pub(crate) struct LeaseState {
    pub(crate) lease: protocol::Lease,
    /// `None` if the lease is not extended automatically.
    upkeep: Option<Upkeep>,
    /// When the automatic extension that is under way was sent.
    renewal_sent: Option<Moment>,
    /// What became of the last extension at each node, unless it was confirmed.
    failure_reports: Vec<NodeReport>,
    /// By when every node has forgotten the key of itself.
    keys_gone_by: Moment,
    /// The nodes that have the key of the round that won it, or may come to have it.
    holders: NodeSet,
    /// The nodes that the key was or may have been set on later.
    repaired: NodeSet,
    /// Who wants to know of the loss.
    watchers: Vec<Watcher>,
    /// Whether its end was counted and told.
    end_recorded: bool,
    /// Whether its holder dropped it without releasing it.
    is_dropped: bool,
}

impl Grant {
    /// By when a node has forgotten a key that it was asked to set for this `ttl` and has set by now.
    pub(crate) fn key_gone_by(&self, ttl: Duration) -> Moment {
        Term { ttl, ..self.term }.gone(clock::now())
    }
}

impl LeaseState {
    /// When the renewer has to look at the lease.
    pub(crate) fn wake(&self) -> Moment {
        let upkeep = self.upkeep.filter(|_| self.renewal_sent.is_none());
        upkeep.and_then(|upkeep| upkeep.due(&self.lease)).unwrap_or(self.lease.end())
    }

    pub(crate) fn loss(&self, held: &HeldLease, now: Moment) -> Option<Error> {
        let ended = self.lease.ended(now).filter(|ended| *ended != Ended::Released);
        ended.map(|ended| held.end_error(self, now, ended))
    }
}

impl HeldLease {
    /// The lease of a round that was won. `granted` are the nodes that have granted it so far, `holders`
    /// those that may have the key.
    pub(crate) fn new(
        driver: &Arc<Driver>,
        grant: Grant,
        granted: NodeSet,
        holders: NodeSet,
    ) -> Arc<Self> {
        let limit = grant.max_hold.map(|max_hold| grant.sent.plus(max_hold));
        let state = LeaseState {
            lease: protocol::Lease::new(driver.quorum, granted, grant.fence, grant.end, limit),
            upkeep: grant.auto_extend.then(|| Upkeep::new(grant.term)),
            renewal_sent: None,
            failure_reports: Vec::new(),
            keys_gone_by: grant.term.gone(clock::now()),
            holders,
            repaired: NodeSet::EMPTY,
            watchers: Vec::new(),
            end_recorded: false,
            is_dropped: false,
        };
        driver.totals.held.up();
        let (driver, grant) = (Arc::clone(driver), Arc::new(grant));
        let (state, release_done) = (Mutex::new(state), CancellationToken::new());
        Arc::new(Self { driver, grant, state, release_done })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// The slot of its keys in a Redis Cluster.
    pub(crate) fn slot(&self) -> u16 {
        self.grant.subject.keys.first().map_or(0, Keys::slot)
    }

    /// Whether the lease is released. If so, waits until all nodes have answered to that, or had
    /// their time to: what is taken back from a node before would not be found by the release.
    pub(crate) async fn wait_if_released(&self) -> bool {
        let released = self.state().lease.is_released();
        if released {
            self.release_done.cancelled().await;
        }
        released
    }

    /// A node voted after the round was won; `holders` may have the key now.
    pub(crate) fn record_vote(&self, event: Event, holders: NodeSet) {
        let mut state = self.state();
        state.holders = holders;
        if let Event::Vote { node, vote: Vote::Granted { fence }, .. }
        | Event::Late { node, vote: Vote::Granted { fence } } = event
        {
            state.lease.granted(node, fence);
        }
    }

    /// Waits for so long; returns whether the lease is still held, and its client open.
    pub(crate) async fn is_held_after(&self, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.driver.closing.cancelled() => false,
            () = self.release_done.cancelled() => false,
            () = sleep(pause) => self.state().lease.is_valid(clock::now()),
        }
    }

    /// The nodes that lack the key, as far as this client knows.
    pub(crate) fn missing(&self) -> NodeSet {
        self.state().lease.missing()
    }

    /// Whether some nodes hold the key and do not count yet.
    pub(crate) fn has_uncounted_nodes(&self) -> bool {
        self.state().lease.has_passed()
    }

    fn release_request(&self) -> Request {
        Request::release(&self.grant.subject, self.driver.turns())
    }

    /// The error for a lease that is over.
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
        };
        let resources = &self.grant.resources;
        let error = Error::new(ErrorCode::LeaseLost, format!("the lease of {resources} {why}"))
            .about(resources);
        match ended {
            Ended::Expired | Ended::Taken => error.with_nodes(state.failure_reports.clone()),
            Ended::AtLimit | Ended::ClientClosed | Ended::Released => error,
        }
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        self.state().lease.is_valid(now)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.state().is_dropped
    }

    /// The error for a lease that is found to be over.
    pub(crate) fn lost_error(&self) -> Error {
        let state = self.state();
        let now = clock::now();
        self.end_error(&state, now, state.lease.ended(now).unwrap_or(Ended::Expired))
    }
}

/// Tells the caller, once.
pub(crate) fn answer_caller<T>(caller: &mut Option<oneshot::Sender<T>>, result: T) {
    if let Some(caller) = caller.take() {
        // An error means that nobody waits any more.
        let _ = caller.send(result);
    }
}
