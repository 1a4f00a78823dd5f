//! Opens, checks and replaces the connection to a node.
//!
//! The work runs in background services. `mod.rs` calls this module after a request fails, and `frozen.rs` calls
//! it when a connection is stuck. No code here waits for the answer to a request of `lock` or `client`.

use super::history::RECONNECT_DELAY;
use super::link::{Link, LinkState, Masters};
use super::routing::keep_routing;
use super::{CHECK_INTERVAL, Node};
use crate::config::endpoint::Target;
use crate::memory::node::MemoryNode;
use crate::node::connection::NodeConnection;
use crate::runtime;
use crate::runtime::clock;
use crate::runtime::panics;
use crate::runtime::random;
use crate::runtime::timer::{sleep, timeout};
use crate::telemetry::events;
use crate::transport::handshake::ServerInfo;
use crate::transport::login::within;
use crate::wire::answer::Failure;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Node {
    /// Reconnects because the server has become a replica, or loads its data. The node's URL may already lead to the
    /// new master.
    pub(super) fn demoted(self: &Arc<Self>, link: &Link) {
        // Replace only a connection that is at least `connect_timeout` old. Without this rule, the node would
        // reconnect continually while there is no master.
        if clock::now().since(link.since) >= self.connect_timeout {
            self.broken(link);
        }
    }

    /// Replaces a connection on which the server sent nonsense. Before the node reconnects, it waits as after
    /// a failed attempt to connect.
    pub(super) fn garbled(self: &Arc<Self>, link: &Link, failure: &Failure) {
        let lived = clock::now().since(link.since);
        let ends = |state: &LinkState<Self>| {
            let is_this = state.is(link);
            if is_this {
                self.history.garbled(lived);
            }
            is_this
        };
        if self.transition(ends, LinkState::Down(failure.clone())) {
            events::disconnected(self.address());
            self.health.failed(self.address(), failure);
        }
    }

    /// Reconnects, because the connection has ended. If this connection and the one before it both ended soon after they
    /// were opened, first waits for the shortest [`RECONNECT_DELAY`]. Requests wait meanwhile.
    pub(super) fn broken(self: &Arc<Self>, link: &Link) {
        let lived = clock::now().since(link.since);
        let ends = |state: &LinkState<Self>| {
            let is_this = state.is(link);
            // Tests break and mend in-memory nodes at once, and their clients reconnect at once.
            if is_this && !self.is_in_memory() {
                self.history.broken(lived);
            }
            is_this
        };
        if self.transition(ends, LinkState::Connecting) {
            events::disconnected(self.address());
        }
    }

    /// Changes the state to `to` if `from` accepts the current state, and then reconnects in the
    /// background. Returns whether the state was changed. At most one task may run `connect` at a time, so
    /// `from` must reject every state in which a task runs `connect`.
    pub(super) fn transition(
        self: &Arc<Self>,
        from: impl Fn(&LinkState<Self>) -> bool,
        to: LinkState<Self>,
    ) -> bool {
        let changed = self.state.send_if_modified(|state| {
            let matches = from(state);
            if matches {
                *state = to;
            }
            matches
        });
        if changed {
            let node = Arc::downgrade(self);
            runtime::serve(move || Self::connect(Weak::clone(&node)));
        }
        changed
    }

    /// Connects, and tries again until an attempt succeeds or the node is closed. Between attempts, this task
    /// holds only a weak reference to the node, so that it does not keep an unused node alive.
    async fn connect(node: Weak<Self>) {
        let (mut delay, longest) = RECONNECT_DELAY;
        let pause = node.upgrade().and_then(|node| node.history.pause());
        if let Some(pause) = pause {
            sleep(pause.mul_f64(random::jitter())).await;
            delay = (pause * 2).min(longest);
        }
        while let Some(node) = node.upgrade() {
            let recovered = recovered(&node.endpoint.target);
            let mut states = node.state.subscribe();
            let state = tokio::select! {
                biased;
                // Do not finish a connection that nobody uses.
                _ = states.wait_for(|state| matches!(state, LinkState::Closed)) => return,
                state = node.open_in_time() => state.unwrap_or_else(LinkState::Down),
            };
            let failure = match &state {
                LinkState::Down(failure) => Some(failure.clone()),
                _ => None,
            };
            let open = node.state.send_if_modified(|current| {
                let open = !matches!(current, LinkState::Closed);
                if open {
                    *current = state;
                }
                open
            });
            if !open {
                return;
            }
            let Some(failure) = failure else {
                if node.health.connected(node.address()) {
                    node.counters.reconnects.up();
                }
                return;
            };
            node.health.failed(node.address(), &failure);
            drop(node);
            let _ = timeout(delay.mul_f64(random::jitter()), recovered).await;
            delay = (delay * 2).min(longest);
        }
    }

    pub(super) async fn open_in_time(self: &Arc<Self>) -> Result<LinkState<Self>, Failure> {
        let opening = async {
            // A panic is a bug in quorlock or in a library. Treat the panic as a failed attempt to connect.
            let panicked = || Err(Failure::unreachable("connecting to it panicked"));
            panics::contained(self.open()).await.unwrap_or_else(panicked)
        };
        within(self.connect_timeout, &self.endpoint.target, opening).await
    }

    async fn open(self: &Arc<Self>) -> Result<LinkState<Self>, Failure> {
        if let Target::Cluster(cluster) = &self.endpoint.target {
            let map = self.route(cluster, None).await?;
            let node = Arc::downgrade(self);
            let stale = self.stale.subscribe();
            runtime::serve(move || keep_routing(Weak::clone(&node), stale.clone()));
            return Ok(LinkState::Routed(map));
        }
        let id = Arc::new(());
        let node = Arc::downgrade(self);
        let weak_id = Arc::downgrade(&id);
        let on_broken = move || {
            let (Some(node), Some(id)) = (node.upgrade(), weak_id.upgrade()) else { return };
            let link = node.state.borrow().link().filter(|link| Arc::ptr_eq(&link.id, &id));
            let Some(link) = link else { return };
            match link.connection.nonsense() {
                Some(failure) => node.garbled(&link, &failure),
                None => node.broken(&link),
            }
        };
        let connection = NodeConnection::open(&self.endpoint.target, on_broken).await?;
        let asked = clock::now();
        let info = connection.prepare().await?;
        self.record_server_info(info)?;
        let owner = self.owner.clone().map(|owner| owner as Weak<dyn Masters>);
        let now = clock::now();
        let link = Arc::new(Link::new(connection, id, now, now.since(asked), owner));
        if self.guard.is_some() || link.connection.uses_sentinels() {
            let node = Arc::downgrade(self);
            let link = Arc::downgrade(&link);
            runtime::serve(move || keep_checking(Weak::clone(&node), Weak::clone(&link)));
        }
        Ok(LinkState::Up(link))
    }

    /// Checks that the server is not also another node, and that it is still the master. Returns whether to keep the
    /// connection; `None` if too few sentinels answered in time.
    async fn check_server(&self, link: &Link) -> Option<bool> {
        // A missing answer is not an error here: the requests on the connection detect and report a server that does
        // not answer.
        let info = timeout(self.connect_timeout, link.connection.fetch_info()).await;
        if let Ok(Ok(Some(info))) = info
            && self.record_server_info(Some(info)).is_err()
        {
            return Some(false);
        }
        timeout(self.connect_timeout, link.connection.is_current()).await.ok().flatten()
    }

    /// Records what the server reports about itself. Fails if another node is the same server.
    pub(super) fn record_server_info(&self, info: Option<ServerInfo>) -> Result<(), Failure> {
        let now = clock::now();
        if let Some(micros) = info.as_ref().and_then(|info| info.clock) {
            self.clocks.saw(self.position, micros);
        }
        if let Some(mut guard) = self.guard() {
            #[cfg(test)]
            self.report_look(info.as_ref());
            guard.looked(now, info.as_ref().map(|info| (&*info.memory, info.uptime)));
            if info.as_ref().is_some_and(|info| info.is_replica) {
                guard.doubted(now);
            }
        }
        if self.owner.is_some() {
            // `routing.rs` records the ids of all servers of a cluster, so do not record this server's id here.
            return Ok(());
        }
        let ids = info.map(|info| info.run_id).into_iter().collect();
        self.identities.reached(self.position, ids)
    }
}

#[cfg(test)]
impl Node {
    /// Reports to the simulation what the server has reported to the restart guard.
    fn report_look(&self, info: Option<&ServerInfo>) {
        crate::runtime::machine::record(|| {
            let position = self.position;
            let term = self.term.expect("there is a guard");
            let guard = term.ttl.as_nanos();
            let drift = term.drift_factor;
            let memory = info.map_or("", |info| &info.memory);
            let uptime = info.map_or(0, |info| info.uptime.as_nanos());
            format!("\"look\",{position},{memory:?},{uptime},{guard},{drift}")
        });
    }
}

/// Returns a future that completes when a fault of an in-memory node ends after this call. The client then connects to
/// the node without a further pause. For a server, the future never completes.
fn recovered(target: &Target) -> impl Future<Output = ()> + use<> {
    let recovered = match target {
        Target::Memory(name) => Some(MemoryNode::named(name).recovered()),
        Target::Server(_) | Target::Sentinel(_) | Target::Cluster(_) => None,
    };
    async {
        match recovered {
            Some(recovered) => recovered.await,
            None => std::future::pending().await,
        }
    }
}

/// Checks the server regularly while this connection is in use.
async fn keep_checking(node: Weak<Node>, link: Weak<Link>) {
    // A receiver owns the node's connection, so drop each receiver after its wait.
    let Some(mut states) = node.upgrade().map(|node| node.state.subscribe()) else { return };
    let is_in_use = |state: &LinkState<Node>| state.is_open() || matches!(state, LinkState::Closed);
    if states.wait_for(is_in_use).await.is_err() {
        return;
    }
    drop(states);
    // The sentinels may have changed the master since this client queried them, so check immediately.
    let uses_sentinels = link.upgrade().is_some_and(|link| link.connection.uses_sentinels());
    let mut pause = uses_sentinels.then_some(Duration::ZERO);
    let mut is_confirmed = true;
    while let Some(interval) = node.upgrade().map(|node| node.check_interval) {
        sleep(pause.take().unwrap_or(interval)).await;
        let (Some(node), Some(link)) = (node.upgrade(), link.upgrade()) else { return };
        let mut states = node.state.subscribe();
        let keep = tokio::select! {
            biased;
            // Do not keep the connection open until the server answers.
            _ = states.wait_for(|state| !state.is(&link)) => return,
            keep = node.check_server(&link) => keep,
        };
        is_confirmed = match keep {
            Some(true) => true,
            Some(false) => return node.broken(&link),
            // Too few sentinels answered; they may be a minority that missed a failover. One check may fail by
            // chance. After two failed checks in a row, the master counts as unknown, so reconnect.
            None if !is_confirmed => return node.broken(&link),
            None => {
                pause = Some(CHECK_INTERVAL.0);
                false
            }
        };
    }
}
