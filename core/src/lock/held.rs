//! What a lease shares with the tasks that work for it: its state, its extension, its release.

use crate::command::answer::answer;
use crate::command::keys::Keys;
use crate::command::request::{Request, Subject};
use crate::config::resources::Resources;
use crate::error::duration::HumanDuration;
use crate::error::{Error, ErrorCode, NodeReport};
use crate::lock::driver::Driver;
use crate::lock::owner::Owner;
use crate::runtime::Pending;
use crate::runtime::clock;
use crate::runtime::panics;
use crate::runtime::timer::sleep;
use crate::telemetry::events;
use quorlock_protocol::{
    self as protocol, Answer, Ended, Event, Extended, Extension, Healed, Moment, NodeSet, Release,
    Term, Upkeep, Vote,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Somebody who wants to know of the loss of a lease.
pub(crate) enum Watcher {
    /// Gets the error, or nothing if the lease is released first.
    Waiting(oneshot::Sender<Option<Error>>),
    /// Is called with the error, or dropped if the lease is released first.
    Callback(Box<dyn FnOnce(Error) + Send>),
}

impl Watcher {
    /// Must be called without a lock held: the callback may use the lease.
    fn notify(self, loss: Option<Error>) {
        panics::contain(|| match (self, loss) {
            // An error means that nobody waits any more.
            (Self::Waiting(waiting), loss) => drop(waiting.send(loss)),
            (Self::Callback(call), Some(loss)) => call(loss),
            (Self::Callback(_), None) => {}
        });
    }
}

/// What a round won.
pub(crate) struct Won {
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
pub(crate) struct Held {
    pub(crate) won: Arc<Won>,
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
    extending: Option<Moment>,
    /// What became of the last extension at each node, unless it was confirmed.
    trouble: Vec<NodeReport>,
    /// By when every node has forgotten the key of itself.
    gone: Moment,
    /// The nodes that have the key of the round that won it, or may come to have it.
    holders: NodeSet,
    /// The nodes that the key was or may have been set on later.
    healed: NodeSet,
    /// Who wants to know of the loss.
    watchers: Vec<Watcher>,
    /// Whether its end was counted and told.
    is_over: bool,
    /// Whether its holder dropped it without releasing it.
    is_dropped: bool,
}

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

impl Won {
    /// By when a node has forgotten a key that it was asked to set for this `ttl` and has set by now.
    pub(crate) fn healed_until(&self, ttl: Duration) -> Moment {
        Term { ttl, ..self.term }.gone(clock::now())
    }
}

impl LeaseState {
    /// When the renewer has to look at the lease.
    pub(crate) fn wake(&self) -> Moment {
        let upkeep = self.upkeep.filter(|_| self.extending.is_none());
        upkeep.and_then(|upkeep| upkeep.due(&self.lease)).unwrap_or(self.lease.end())
    }

    pub(crate) fn loss(&self, held: &Held, now: Moment) -> Option<Error> {
        let ended = self.lease.ended(now).filter(|ended| *ended != Ended::Released);
        ended.map(|ended| held.over(self, now, ended))
    }
}

impl Held {
    /// The lease of a round that was won. `granted` are the nodes that have granted it so far, `holders`
    /// those that may have the key.
    pub(crate) fn new(
        driver: &Arc<Driver>,
        won: Won,
        granted: NodeSet,
        holders: NodeSet,
    ) -> Arc<Self> {
        let limit = won.max_hold.map(|max_hold| won.sent.plus(max_hold));
        let state = LeaseState {
            lease: protocol::Lease::new(driver.quorum, granted, won.fence, won.end, limit),
            upkeep: won.auto_extend.then(|| Upkeep::new(won.term)),
            extending: None,
            trouble: Vec::new(),
            gone: won.term.gone(clock::now()),
            holders,
            healed: NodeSet::EMPTY,
            watchers: Vec::new(),
            is_over: false,
            is_dropped: false,
        };
        driver.totals.held.up();
        let (driver, won) = (Arc::clone(driver), Arc::new(won));
        let (state, release_done) = (Mutex::new(state), CancellationToken::new());
        Arc::new(Self { driver, won, state, release_done })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// The slot of its keys in a Redis Cluster.
    pub(crate) fn slot(&self) -> u16 {
        self.won.subject.keys.first().map_or(0, Keys::slot)
    }

    /// Whether the lease is released. If so, waits until all nodes have answered to that, or had
    /// their time to: what is taken back from a node before would not be found by the release.
    pub(crate) async fn was_released(&self) -> bool {
        let released = self.state().lease.is_released();
        if released {
            self.release_done.cancelled().await;
        }
        released
    }

    /// A node voted after the round was won; `holders` may have the key now.
    pub(crate) fn voted(&self, event: Event, holders: NodeSet) {
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
    pub(crate) fn has_passed(&self) -> bool {
        self.state().lease.has_passed()
    }

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

    fn to_release(&self) -> Request {
        Request::release(&self.won.subject, self.driver.turns())
    }

    /// The error for a lease that is over.
    pub(crate) fn over(&self, state: &LeaseState, now: Moment, ended: Ended) -> Error {
        let ago = HumanDuration(now.since(state.lease.end()));
        let why = match ended {
            Ended::Expired | Ended::AtLimit if state.is_dropped => {
                format!("ended {ago} ago: it was dropped without being released")
            }
            Ended::Expired => format!("ended {ago} ago, without being extended in time"),
            Ended::AtLimit => {
                let limit = self
                    .won
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
        let resources = &self.won.resources;
        let error = Error::new(ErrorCode::LeaseLost, format!("the lease of {resources} {why}"))
            .about(resources);
        match ended {
            Ended::Expired | Ended::Taken => error.with_nodes(state.trouble.clone()),
            Ended::AtLimit | Ended::ClientClosed | Ended::Released => error,
        }
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

    /// Tells the watcher of the loss of the lease, now or later.
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

    /// Tells those who wait for the loss, if the lease is over.
    fn notify_watchers(&self, now: Moment) {
        let (watchers, loss) = {
            let mut state = self.state();
            if state.lease.is_valid(now) {
                return;
            }
            (std::mem::take(&mut state.watchers), state.loss(self, now))
        };
        self.end(now);
        for watcher in watchers {
            watcher.notify(loss.clone());
        }
    }

    /// Counts and tells the end of the lease, once.
    fn end(&self, now: Moment) {
        let Won { resources, fence, sent, .. } = &*self.won;
        let (ended, loss, until) = {
            let mut state = self.state();
            let Some(ended) = state.lease.ended(now) else { return };
            if std::mem::replace(&mut state.is_over, true) {
                return;
            }
            (ended, state.loss(self, now), now.min(state.lease.end()))
        };
        let totals = &self.driver.totals;
        totals.held.down();
        totals.holding.add(until.since(*sent));
        match ended {
            Ended::Released => totals.releases.up(),
            Ended::ClientClosed => totals.closed.up(),
            Ended::Expired | Ended::AtLimit | Ended::Taken => totals.losses.up(),
        }
        if let Some(loss) = loss {
            events::lost(resources, *fence, ended, &loss);
        }
    }

    /// Stops renewing a lease that its holder dropped; the nodes keep the key until it expires. Returns
    /// whether the lease was valid until now.
    pub(crate) fn abandon(&self) -> bool {
        let Won { resources, fence, sent, .. } = &*self.won;
        let now = clock::now();
        {
            let mut state = self.state();
            if !state.lease.is_valid(now) || state.is_dropped {
                return false;
            }
            state.upkeep = None;
            state.is_dropped = true;
            // This is its end for the counts. Its watchers still hear when it expires.
            state.is_over = true;
        }
        let totals = &self.driver.totals;
        totals.held.down();
        totals.holding.add(now.since(*sent));
        totals.dropped.up();
        events::dropped(resources, *fence);
        true
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        self.state().lease.is_valid(now)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.state().is_dropped
    }

    /// What came of the release of a lease that was valid until then.
    fn released(&self, confirmed: bool) {
        let Won { resources, fence, .. } = &*self.won;
        let (ended, loss) = {
            let state = self.state();
            let now = clock::now();
            (state.lease.ended(now), state.loss(self, now))
        };
        match (ended, loss) {
            // It turns out to have been lost before.
            (Some(Ended::Taken), Some(loss)) => {
                self.driver.totals.losses.up();
                events::lost(resources, *fence, Ended::Taken, &loss);
            }
            _ => events::released(resources, *fence, confirmed),
        }
    }

    /// The error for a lease that is found to be over.
    pub(crate) fn lost_now(&self) -> Error {
        let state = self.state();
        let now = clock::now();
        self.over(&state, now, state.lease.ended(now).unwrap_or(Ended::Expired))
    }

    /// Releases the lease for its holder.
    pub(crate) fn release(self: &Arc<Self>) -> Pending<bool> {
        self.finish(protocol::Lease::release)
    }

    /// Releases the lease because its client is closed.
    pub(crate) fn close(self: &Arc<Self>) -> Pending<bool> {
        self.finish(protocol::Lease::close)
    }

    fn finish(
        self: &Arc<Self>,
        begin: impl FnOnce(&mut protocol::Lease, Moment) -> Release,
    ) -> Pending<bool> {
        let now = clock::now();
        let mut release = {
            let mut state = self.state();
            if state.lease.is_released() {
                return Pending::ready(false);
            }
            begin(&mut state.lease, now)
        };
        self.notify_watchers(now);
        let (sender, receiver) = oneshot::channel();
        let mut caller = Some(sender);
        if !release.was_valid() {
            answer_caller(&mut caller, false);
        }
        let held = Arc::clone(self);
        let task = async move {
            let driver = &held.driver;
            let node_timeout = driver.options.node_timeout(held.won.term.ttl);
            let patience = held.won.term.patience().max(node_timeout);
            let request = held.to_release();
            let mut fan_out = driver.broadcast(request.clone(), now, patience);
            while let Some((node, answered)) = fan_out.next().await {
                if answered.is_err() {
                    held.deliver(node, &request, node_timeout);
                }
                let answer = answer(&answered);
                let released = held.state().lease.released(&mut release, node, answer);
                if let Some(released) = released {
                    if caller.is_some() {
                        held.released(released);
                    }
                    answer_caller(&mut caller, released);
                }
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

    /// Keeps on releasing a node that did not answer, until its key has expired of itself.
    fn deliver(&self, node: usize, request: &Request, patience: Duration) {
        let (holds, gone) = {
            let state = self.state();
            (state.holders.contains(node) || state.healed.contains(node), state.gone)
        };
        if holds {
            self.driver.deliver(node, request.clone(), patience, gone);
        }
    }
}

/// Tells the caller, once.
pub(crate) fn answer_caller<T>(caller: &mut Option<oneshot::Sender<T>>, result: T) {
    if let Some(caller) = caller.take() {
        // An error means that nobody waits any more.
        let _ = caller.send(result);
    }
}
