//! Symmetry reduction: states that differ only in the numbering of their nodes count as the same.
//!
//! The search compares states by a hash, so the hash must include every difference that matters. Protocol types with
//! per-node state, such as `Round` and `Extension`, are not hashed. Their inputs determine their state, so the inputs
//! are hashed instead: [`Owned`] and [`Extending`] store these inputs node by node.

use super::owned::{Extending, Owned};
use super::scopes::scopes;
use super::settings::NODES;
use super::world::{Client, World};
use crate::Term;
use ahash::AHasher;
use stateright::Model;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { tick, client_rates, clients, left, .. } = self;
        (tick, client_rates, left, self.last_token, self.last_fence).hash(hasher);
        (&self.fences, self.last_exclusive, self.overtaken, self.wrong).hash(hasher);
        self.offer.map(|offer| (offer.token, offer.is_adopted)).hash(hasher);
        clients.iter().for_each(|client| client.hash_rest(hasher));
        let mut nodes: [u64; NODES] = std::array::from_fn(|node| self.digest(node));
        nodes.sort_unstable();
        nodes.hash(hasher);
    }
}

impl World {
    /// Returns a hash of everything about one node: its own state, the clients' views of the node, and its messages in
    /// flight.
    fn digest(&self, node: usize) -> u64 {
        let mut hasher = AHasher::default();
        (self.node_rates[node], self.node_clocks[node], &self.nodes[node]).hash(&mut hasher);
        self.offer.map(|offer| offer.silent.contains(node)).hash(&mut hasher);
        for client in &self.clients {
            client.hash_node(node, &mut hasher);
        }
        hasher.finish()
    }
}

impl Client {
    fn hash_node(&self, node: usize, hasher: &mut impl Hasher) {
        self.links[node].hash(hasher);
        for owned in &self.claims {
            owned.hash_node(node, hasher);
            if owned.is_held() && (self.changes_left > 0 || owned.claim.lease().is_upgrading()) {
                // If the lease is lost during an upgrade, its keys are deleted on the nodes in `holders`.
                owned.claim.holders().contains(node).hash(hasher);
            }
        }
    }

    fn hash_rest(&self, hasher: &mut impl Hasher) {
        let Self { crashed, rounds_left, extensions_left, changes_left, repairs_left, .. } = self;
        (crashed, rounds_left, extensions_left, changes_left, repairs_left).hash(hasher);
        self.claims.len().hash(hasher);
        self.claims.iter().for_each(|owned| owned.hash_rest(hasher));
    }
}

impl Owned {
    fn hash_node(&self, node: usize, hasher: &mut impl Hasher) {
        if self.is_voting() {
            (self.votes[node], self.late[node], self.raises[node]).hash(hasher);
        }
        let (footprint, lease) = (self.claim.footprint(), self.claim.lease());
        (self.healing[node], self.healing_late[node], self.giving_back.contains(node)).hash(hasher);
        (self.releasing.contains(node), self.claim.releases_again(node)).hash(hasher);
        if self.is_held() || lease.is_upgrading() {
            let may_hold_giver = || footprint.may_hold_giver(World::quorum()).contains(node);
            (footprint.open(node), self.giver.map(|_| may_hold_giver())).hash(hasher);
        }
        if self.is_held() {
            let extending = self.extending.as_ref();
            let extending = extending.map(|e| (e.answers[node], e.extension.trusts(node)));
            (lease.standing(node), extending).hash(hasher);
        }
    }

    fn hash_rest(&self, hasher: &mut impl Hasher) {
        let Self { token, giver, mode, claim, decided, upgrades, .. } = self;
        (token, giver, mode, decided, claim.phase()).hash(hasher);
        self.is_voting().then_some(self.began).hash(hasher);
        if self.is_held() || claim.lease().is_upgrading() {
            (upgrades, claim.lease().is_upgrading()).hash(hasher);
        }
        if !self.is_held() {
            return;
        }
        (claim.lease(), self.is_complete(), self.last_token).hash(hasher);
        (self.is_overtaken, self.was_over).hash(hasher);
        let Some(extending) = &self.extending else { return };
        let Extending { number, extension, is_confirmed, is_overtaken, answers: _ } = extending;
        (number, extension.term().ttl, extension.sent(), is_confirmed, is_overtaken).hash(hasher);
    }
}

impl Hash for Term {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.ttl, self.drift_factor.to_bits()).hash(hasher);
    }
}

fn hash(world: &World) -> u64 {
    let mut hasher = AHasher::default();
    world.hash(&mut hasher);
    hasher.finish()
}

/// In a part of each search, compares the successors of states that have the same hash.
#[test]
fn states_with_the_same_hash_are_followed_by_the_same_states() {
    const STATES: usize = 1_000;
    for scope in scopes(false) {
        let mut seen: HashMap<u64, BTreeSet<u64>> = HashMap::new();
        let mut worlds = VecDeque::from(scope.init_states());
        while seen.len() < STATES {
            // Alternate between states near the beginning of the search and states after many steps.
            let from_end = seen.len().is_multiple_of(2);
            let world = if from_end { worlds.pop_back() } else { worlds.pop_front() };
            let Some(world) = world else { break };
            let next = scope.next_states(&world);
            let hashes = next.iter().map(hash).collect();
            match seen.entry(hash(&world)) {
                Entry::Occupied(same) => {
                    assert_eq!(*same.get(), hashes, "{}: {world:?}", scope.name)
                }
                Entry::Vacant(new) => {
                    new.insert(hashes);
                    worlds.extend(next);
                }
            }
        }
    }
}
