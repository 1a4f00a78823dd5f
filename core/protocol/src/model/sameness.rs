//! Symmetry reduction: states that differ only in the numbering of their nodes count as the same.
//!
//! The search compares states by this hash, so it would not see a difference that the hash leaves out.
//! Protocol types with per-node state, such as `Round` and `Lease`, are hashed by their inputs instead,
//! which determine their state: [`Attempt`] and [`Extending`] store those inputs node by node.

use super::settings::NODES;
use super::world::{Attempt, Client, Extending, Held, World};
use crate::Term;
use std::hash::{DefaultHasher, Hash, Hasher};

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
    /// Everything about one node: its own state, the clients' views of it and the messages in flight.
    fn digest(&self, node: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
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
        for Attempt { votes, late, raises, .. } in &self.attempts {
            (votes[node], late[node], raises[node]).hash(hasher);
        }
        let extending = self.held.as_ref().and_then(|held| held.extending.as_ref());
        extending.map(|extending| extending.answers[node]).hash(hasher);
        let held = self.held.as_ref();
        held.map(|held| (held.lease.standing(node), held.healing.contains(node))).hash(hasher);
        held.map(|held| (held.footprint.open(node), held.giving_back.contains(node))).hash(hasher);
        held.map(|Held { giver, footprint, .. }| {
            giver.is_some() && footprint.may_hold_giver(World::quorum()).contains(node)
        })
        .hash(hasher);
        extending.map(|extending| extending.extension.trusts(node)).hash(hasher);
    }

    fn hash_rest(&self, hasher: &mut impl Hasher) {
        let Self { crashed, rounds_left, extensions_left, changes_left, repairs_left, .. } = self;
        (crashed, rounds_left, extensions_left, changes_left, repairs_left).hash(hasher);
        let Self { attempts, held, .. } = self;
        attempts.len().hash(hasher);
        for Attempt { token, giver, mode, began, decided, .. } in attempts {
            (token, giver, mode, began, decided).hash(hasher);
        }
        let Some(held) = held else { return };
        let Held { token, giver, mode, upgrades, fence, lease, extending, is_complete, .. } = held;
        (token, giver, mode, upgrades, fence, lease, is_complete).hash(hasher);
        (held.last_token, held.is_overtaken, held.was_over).hash(hasher);
        let Some(extending) = extending else { return };
        let Extending { number, extension, began, is_confirmed, is_overtaken, answers: _ } =
            extending;
        (number, extension.term().ttl, began, is_confirmed, is_overtaken).hash(hasher);
    }
}

impl Hash for Term {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.ttl, self.drift_factor.to_bits()).hash(hasher);
    }
}
