//! The part of [`Node`] for Redis Clusters: finds the cluster's masters, and sends redirected requests to the right
//! master.
//!
//! Each master is a [`Node`] of its own, with the position and the counters of the cluster.

use super::Node;
use super::history::History;
use super::link::{self, LinkState};
use super::map::Map;
use crate::config::endpoint::{Cluster, Endpoint, Target};
use crate::config::server::{Server, ServerAddress};
use crate::node::exchange::{PackedRequest, Peer, ReplySink};
use crate::node::health::Health;
use crate::runtime;
use crate::runtime::clock;
use crate::runtime::timer::{sleep, timeout};
use crate::transport::cluster::Redirect;
use crate::wire::answer::Failure;
use crate::wire::request::Request;
use futures_util::future::FutureExt;
use quorlock_protocol::Guard;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// The time between two queries that ask a cluster which servers are its masters. While the masters stay the same, the
/// time grows from the first to the second value, because each query opens connections to all servers.
const REROUTE_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

impl Node {
    /// Finds the masters of a cluster, and starts to connect to them. `before`: the masters known
    /// so far.
    pub(super) async fn route(
        self: &Arc<Self>,
        cluster: &Cluster,
        before: Option<&Map<Self>>,
    ) -> Result<Arc<Map<Self>>, Failure> {
        let known = before.map(|map| map.places()).unwrap_or_default();
        let shards = cluster.masters(&known).boxed().await?;
        let ids = shards.iter().map(|shard| shard.id.clone()).collect();
        self.identities.reached(self.position, ids)?;
        let make =
            |place: &ServerAddress| self.member(cluster.server(place.clone()), before.is_some());
        let map = Arc::new(Map::new(shards, before, make));
        for node in map.nodes() {
            node.start_connecting();
        }
        Ok(map)
    }

    /// Creates the node for a master of this cluster. `is_late`: the server may have become a master after this client
    /// first connected to the cluster.
    fn member(self: &Arc<Self>, server: Server, is_late: bool) -> Arc<Self> {
        let guard = self.term.map(|term| {
            let mut guard = Guard::new(term);
            if is_late {
                // A promoted replica may lack writes that had not been replicated to it. So start the
                // guard: the replica's votes do not count until the guard has ended.
                guard.looked(clock::now(), None);
            }
            Mutex::new(guard)
        });
        Arc::new(Self {
            endpoint: Endpoint::of_cluster(self.address(), server),
            position: self.position,
            identities: Arc::clone(&self.identities),
            deadlines: Arc::clone(&self.deadlines),
            clocks: Arc::clone(&self.clocks),
            connect_timeout: self.connect_timeout,
            term: self.term,
            guard,
            check_interval: self.check_interval,
            counters: Arc::clone(&self.counters),
            health: Health::default(),
            history: History::default(),
            owner: Some(Arc::downgrade(self)),
            stale: watch::Sender::new(()),
            unsent: AtomicUsize::new(0),
            turn: tokio::sync::Mutex::new(()),
            state: watch::Sender::new(LinkState::Idle),
        })
    }

    /// Returns the servers that together have all keys of this node: the masters of a cluster, or the node
    /// itself. Empty if the masters of the cluster are not known.
    pub(crate) fn servers(self: &Arc<Self>) -> Vec<Arc<Self>> {
        match self.map() {
            Some(map) => map.nodes().map(Arc::clone).collect(),
            None if self.endpoint.is_cluster() => Vec::new(),
            None => vec![Arc::clone(self)],
        }
    }

    /// Returns the masters and their slots if this node is a connected cluster; else `None`.
    pub(super) fn map(&self) -> Option<Arc<Map<Self>>> {
        match &*self.state.borrow() {
            LinkState::Routed(map) => Some(Arc::clone(map)),
            _ => None,
        }
    }
}

impl link::Masters for Node {
    fn redirect(&self, to: Redirect, request: &Arc<Request>, sink: ReplySink) -> Option<ReplySink> {
        self.stale.send_replace(());
        let map = self.map();
        let at = |place: &ServerAddress| map.as_ref().and_then(|map| map.at(place));
        match to {
            Redirect::Moved(place) => {
                let Some(node) = at(&place) else { return Some(sink) };
                sink.set_node(Arc::<Self>::clone(node));
                let node = Arc::clone(node);
                if let Some(sending) = node.send(&PackedRequest::from(Arc::clone(request)), sink) {
                    runtime::detach_urgent(sending);
                }
                None
            }
            Redirect::Ask(place) => {
                let Some(node) = at(&place) else { return Some(sink) };
                let Some(link) = node.state.borrow().link() else { return Some(sink) };
                sink.set_node(Arc::<Self>::clone(node));
                if !sink.mark_sent(Arc::<link::Link>::clone(&link)) {
                    return None;
                }
                link.connection.send_asking(request, sink).err()
            }
        }
    }
}

/// Asks the cluster again which servers are its masters whenever they may have changed, and updates the map. Ends when
/// the node is closed or dropped.
pub(super) async fn keep_routing(node: Weak<Node>, mut stale: watch::Receiver<()>) {
    let (shortest, longest) = REROUTE_DELAY;
    let mut delay = shortest;
    while stale.changed().await.is_ok() {
        let Some(node) = node.upgrade() else { return };
        let (Some(map), Target::Cluster(cluster)) = (node.map(), &node.endpoint.target) else {
            return;
        };
        let mut states = node.state.subscribe();
        let routed = tokio::select! {
            biased;
            _ = states.wait_for(|state| matches!(state, LinkState::Closed)) => return,
            routed = timeout(node.connect_timeout, node.route(cluster, Some(&map))) => routed,
        };
        let has_changed = matches!(&routed, Ok(Ok(new)) if !new.has_same_masters(&map));
        delay = if has_changed { shortest } else { (delay * 2).min(longest) };
        if let Ok(Ok(map)) = routed {
            node.state.send_if_modified(|state| {
                let is_open = matches!(state, LinkState::Routed(_));
                if is_open {
                    *state = LinkState::Routed(map);
                }
                is_open
            });
        }
        drop(node);
        sleep(delay).await;
    }
}
