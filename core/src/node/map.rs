//! The masters of a cluster, and which of them is to have a request.

use super::Node;
use crate::asking::{Parcel, Sink};
use crate::cluster::{Shard, no_master};
use crate::server::Place;
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The masters of a cluster, and the slots that they have.
pub(crate) struct Map {
    shards: Vec<(Shard, Arc<Node>)>,
}

impl Map {
    /// Of these masters. Those that are new are made by `make`.
    pub(crate) fn new(
        shards: Vec<Shard>,
        before: Option<&Map>,
        make: impl Fn(&Place) -> Arc<Node>,
    ) -> Self {
        let known: HashMap<&Place, &Arc<Node>> = before
            .into_iter()
            .flat_map(|map| map.shards.iter().map(|(shard, node)| (&shard.place, node)))
            .collect();
        let node = |place: &Place| known.get(place).map_or_else(|| make(place), |n| Arc::clone(n));
        let shards = shards.into_iter().map(|shard| {
            let node = node(&shard.place);
            (shard, node)
        });
        Self { shards: shards.collect() }
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        self.shards.iter().map(|(shard, _)| shard.place.clone()).collect()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.shards.iter().map(|(_, node)| node)
    }

    /// The master at this place.
    pub(crate) fn at(&self, place: &Place) -> Option<&Arc<Node>> {
        self.shards.iter().find(|(shard, _)| shard.place == *place).map(|(_, node)| node)
    }

    /// Puts a request on its way to the master that has its slot; returns what has to be run for that.
    pub(crate) fn send(&self, parcel: &Parcel, sink: Sink) -> Option<BoxFuture<'static, ()>> {
        let slot = parcel.request.slot();
        match self.shards.iter().find(|(shard, _)| shard.has(slot)) {
            Some((_, node)) => {
                sink.goes_to(node);
                node.send(parcel, sink)
            }
            None => {
                sink.answer(Err(no_master(slot)));
                None
            }
        }
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.places()).finish()
    }
}
