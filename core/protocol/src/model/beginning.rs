//! The initial state of a search.

use super::scope::Scope;
use super::settings::{EPOCH, NODES, Rates, TERM};
use super::world::{Client, Node, World};
use crate::node::entry::{Entry, Time};
use crate::node::readers::LockMode;
use crate::{Guard, Moment};
use std::time::Duration;

/// The initial time of the nodes' clocks.
const START: Moment = Moment::from_origin(Duration::ZERO);

impl World {
    pub(super) fn new(scope: &Scope, (client_rates, node_rates): Rates) -> Self {
        let node = |number: usize| {
            let wall = EPOCH.saturating_add_signed(scope.node_clocks[number]);
            let counter = match scope.counters[number] {
                0 => 0,
                ahead => wall + ahead,
            };
            let entry = Entry::with_counter(Time { now: START, wall }, counter);
            Node { entry, memory: 0, started: -100 }
        };
        let mut world = Self {
            tick: 0,
            client_rates,
            node_rates,
            wall_tick: scope.wall_tick,
            node_clocks: scope.node_clocks,
            nodes: std::array::from_fn(node),
            clients: Vec::new(),
            left: scope.faults,
            last_token: 0,
            last_fence: 0,
            fences: Vec::new(),
            check: scope.check,
            overtaken: false,
            offer: None,
            modes: std::array::from_fn(|number| match scope.readers.contains(&number) {
                true => LockMode::Shared,
                false => LockMode::Exclusive,
            }),
            last_exclusive: 0,
            wrong: None,
        };
        for rounds in scope.rounds {
            let is_first = world.clients.is_empty();
            world.clients.push(Client {
                crashed: false,
                rounds_left: *rounds,
                extensions_left: if is_first { scope.extensions } else { 0 },
                changes_left: if is_first { scope.changes } else { 0 },
                repairs_left: scope.repairs,
                claims: Vec::new(),
                links: Default::default(),
            });
        }
        if scope.guard {
            for client in 0..world.clients.len() {
                for node in 0..NODES {
                    world.clients[client].links[node].guard = Some(Guard::new(TERM));
                    world.examine(client, node);
                }
            }
        }
        world
    }
}
