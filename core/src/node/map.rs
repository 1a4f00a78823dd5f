//! The masters of a cluster with their slots, and the choice of the master for a request.
//! `routing.rs` builds the map, and replaces it when the masters change.

use crate::config::server::ServerAddress;
use crate::node::exchange::{PackedRequest, Peer, ReplySink};
use crate::transport::cluster::{Shard, no_master};
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub(crate) struct Map<N> {
    shards: Vec<(Shard, Arc<N>)>,
}

impl<N: Peer + 'static> Map<N> {
    /// Creates a map of these masters. Masters that are already in `before` keep their nodes; `make` creates
    /// the nodes of the other masters.
    pub(crate) fn new(
        shards: Vec<Shard>,
        before: Option<&Self>,
        make: impl Fn(&ServerAddress) -> Arc<N>,
    ) -> Self {
        let known: HashMap<&ServerAddress, &Arc<N>> = before
            .into_iter()
            .flat_map(|map| map.shards.iter().map(|(shard, node)| (&shard.place, node)))
            .collect();
        let node =
            |place: &ServerAddress| known.get(place).map_or_else(|| make(place), |n| Arc::clone(n));
        let shards = shards.into_iter().map(|shard| {
            let node = node(&shard.place);
            (shard, node)
        });
        Self { shards: shards.collect() }
    }

    pub(crate) fn places(&self) -> Vec<ServerAddress> {
        self.shards.iter().map(|(shard, _)| shard.place.clone()).collect()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<N>> {
        self.shards.iter().map(|(_, node)| node)
    }

    /// Returns the master with this address; `None` if the map has no such master.
    pub(crate) fn at(&self, place: &ServerAddress) -> Option<&Arc<N>> {
        self.shards.iter().find(|(shard, _)| shard.place == *place).map(|(_, node)| node)
    }

    /// Whether both maps have the same masters with the same slots.
    pub(crate) fn has_same_masters(&self, other: &Self) -> bool {
        let has = |map: &Self, shard: &Shard| map.shards.iter().any(|(own, _)| own == shard);
        self.shards.len() == other.shards.len()
            && self.shards.iter().all(|(shard, _)| has(other, shard))
    }

    /// Sends a request to the master that serves the request's slot. If the request cannot be sent immediately, returns
    /// a future that sends it. If no known master serves the slot, answers the sink with a failure.
    pub(crate) fn send(
        &self,
        packed_request: &PackedRequest,
        sink: ReplySink,
    ) -> Option<BoxFuture<'static, ()>> {
        let slot = packed_request.request.slot();
        match self.shards.iter().find(|(shard, _)| shard.has(slot)) {
            Some((_, node)) => {
                let node: Arc<dyn Peer> = Arc::<N>::clone(node);
                sink.set_node(Arc::clone(&node));
                node.send(packed_request, sink)
            }
            None => {
                sink.answer(Err(no_master(slot)));
                None
            }
        }
    }
}

impl<N> fmt::Debug for Map<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.shards.iter().map(|(shard, _)| &shard.place);
        f.debug_list().entries(places).finish()
    }
}
