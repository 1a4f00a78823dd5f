//! Runs waiters and the nodes' queues through every order of events.
//!
//! In the search "queues" in `scopes.rs`, nodes refuse arbitrary clients. That search shows that queues and
//! notifications cannot break exclusion. The searches here check the queues themselves, without faults: no waiter is
//! forgotten and no key or queue entry is left behind. Time stands still, so notifications do not expire. A waiter
//! tries without a notification only as often as the search permits (`tries`).

use super::settings::{NODES, TERM};
use crate::node::entry::Time;
use crate::node::queue;
use crate::node::readers::LockMode;
use crate::node::record::{self, LockRecord, Wanted};
use crate::{Actions, Calls, Event, Moment, Outcome, Quorum, RetryDelay, Round, Turns, Vote};
use ahash::AHasher;
use stateright::{Checker, Expectation, Model, Property};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

const NOW: Moment = Moment::from_origin(Duration::from_secs(1));
const DELAY: RetryDelay =
    RetryDelay { shortest: Duration::from_millis(50), longest: Duration::from_millis(200) };

type Token = u8;

/// One search.
#[derive(Clone)]
struct Scope {
    name: &'static str,
    /// The number of times that each client acquires the lock.
    turns: &'static [u8],
    /// The number of tries without a notification, over all clients.
    tries: u8,
    /// The maximum number of waiters that cancel.
    cancels: u8,
    /// Whether the first client holds the lock initially.
    is_held: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct World {
    records: [LockRecord<Token>; NODES],
    clients: Vec<Client>,
    arrived: u64,
    last_token: Token,
    tries_left: u8,
    cancels_left: u8,
}

#[derive(Clone, Debug, PartialEq)]
struct Client {
    turns_left: u8,
    phase: Phase,
    /// Requests in flight to each node, in order.
    up: [Vec<Request>; NODES],
    /// Replies in flight from each node, in order.
    down: [Vec<Reply>; NODES],
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Idle,
    Trying(Waiter, Attempt),
    Waiting(Waiter),
    Holding(Waiter, Token),
}

/// A waiter. `number` counts the waiters in the order of arrival, and is the waiter's ticket in the nodes' queues.
#[derive(Clone, Debug, PartialEq)]
struct Waiter {
    number: u64,
    calls: Calls,
    /// The nodes that have notified the waiter since its last round began. These nodes determine `calls`, so the hash
    /// uses this field and not `calls`.
    called: [bool; NODES],
}

#[derive(Clone, Debug, PartialEq)]
struct Attempt {
    token: Token,
    round: Round,
    votes: [Option<bool>; NODES],
}

/// States that differ only in the numbering of their nodes count as the same, as in `sameness.rs`.
impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.arrived, self.last_token, self.tries_left, self.cancels_left).hash(hasher);
        for client in &self.clients {
            (client.turns_left, std::mem::discriminant(&client.phase)).hash(hasher);
            (client.phase.number(), client.phase.token()).hash(hasher);
        }
        let mut nodes: [u64; NODES] = std::array::from_fn(|node| {
            let mut hasher = AHasher::default();
            self.records[node].hash(&mut hasher);
            for Client { up, down, phase, .. } in &self.clients {
                (&up[node], &down[node], phase.about(node)).hash(&mut hasher);
            }
            hasher.finish()
        });
        nodes.sort_unstable();
        nodes.hash(hasher);
    }
}

impl Phase {
    fn number(&self) -> Option<u64> {
        match self {
            Self::Idle => None,
            Self::Trying(waiter, _) | Self::Waiting(waiter) | Self::Holding(waiter, _) => {
                Some(waiter.number)
            }
        }
    }

    fn token(&self) -> Option<Token> {
        match self {
            Self::Trying(_, Attempt { token, .. }) | Self::Holding(_, token) => Some(*token),
            Self::Idle | Self::Waiting(_) => None,
        }
    }

    /// Returns whether the node has notified the waiter, and the node's vote.
    fn about(&self, node: usize) -> (bool, Option<bool>) {
        match self {
            Self::Trying(waiter, attempt) => (waiter.called[node], attempt.votes[node]),
            Self::Waiting(waiter) => (waiter.called[node], None),
            Self::Idle | Self::Holding(..) => (false, None),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Hash)]
enum Request {
    Acquire { token: Token, number: u64 },
    Release { token: Token, number: u64, stays: bool },
}

#[derive(Clone, Debug, PartialEq, Hash)]
enum Reply {
    Vote(Token, bool),
    Call(u64),
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    /// A client begins to acquire the lock.
    Arrive(usize),
    /// A waiter tries without a notification.
    Try(usize),
    /// A waiter cancels.
    Cancel(usize),
    /// A holder releases its lease.
    Release(usize),
    /// The next request of a client reaches a node.
    Request(usize, usize),
    /// The next reply of a node reaches a client.
    Reply(usize, usize),
}

fn quorum() -> Quorum {
    Quorum::over(NODES).expect("NODES is a valid number of nodes")
}

fn name(client: usize, number: u64) -> Arc<str> {
    queue::name(&client.to_string(), number)
}

impl Model for Scope {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let client = |turns_left: &u8| Client {
            turns_left: *turns_left,
            phase: Phase::Idle,
            up: Default::default(),
            down: Default::default(),
        };
        let mut world = World {
            records: Default::default(),
            clients: self.turns.iter().map(client).collect(),
            arrived: 0,
            last_token: 0,
            tries_left: self.tries,
            cancels_left: self.cancels,
        };
        if self.is_held {
            world.arrive(0);
            for node in 0..NODES {
                world.receive(0, node);
                world.reply(0, node);
            }
        }
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (number, client) in world.clients.iter().enumerate() {
            for node in 0..NODES {
                if !client.up[node].is_empty() {
                    actions.push(Action::Request(number, node));
                }
                if !client.down[node].is_empty() {
                    actions.push(Action::Reply(number, node));
                }
            }
            match client.phase {
                Phase::Idle if client.turns_left > 0 => actions.push(Action::Arrive(number)),
                Phase::Holding(..) => actions.push(Action::Release(number)),
                Phase::Waiting(_) => {
                    if world.tries_left > 0 {
                        actions.push(Action::Try(number));
                    }
                    if world.cancels_left > 0 {
                        actions.push(Action::Cancel(number));
                    }
                }
                _ => {}
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Arrive(client) => world.arrive(client),
            Action::Try(client) => {
                world.tries_left -= 1;
                let waiter = world.clients[client].waiter()?;
                world.begin(client, waiter);
            }
            Action::Cancel(client) => {
                world.cancels_left -= 1;
                let Waiter { number, .. } = world.clients[client].waiter()?;
                world.clients[client].phase = Phase::Idle;
                world.send_all(client, &Request::Release { token: 0, number, stays: false });
            }
            Action::Release(client) => {
                let phase = std::mem::replace(&mut world.clients[client].phase, Phase::Idle);
                let Phase::Holding(Waiter { number, .. }, token) = phase else { return None };
                world.send_all(client, &Request::Release { token, number, stays: false });
            }
            Action::Request(client, node) => world.receive(client, node),
            Action::Reply(client, node) => match world.clients[client].down[node].remove(0) {
                Reply::Vote(token, granted) => world.vote(client, node, token, granted),
                Reply::Call(number) => world.called(client, node, number),
            },
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one client holds the lock", |_, world: &World| {
                world.clients.iter().filter(|client| client.holds()).count() <= 1
            }),
            Property::always("no waiter is forgotten", |_, world: &World| {
                !world.is_quiet() || world.waiting().next().is_none()
            }),
            Property::always("no key or queue entry is left behind", |_, world: &World| {
                !world.is_quiet() || world.waiting().next().is_some() || world.is_clean()
            }),
            Property::sometimes("a notified client holds the lock", |_, world: &World| {
                world.clients.iter().any(|client| client.holds()) && world.arrived > 1
            }),
            Property::sometimes("a client waits", |_, world: &World| {
                world.waiting().next().is_some()
            }),
        ]
    }
}

impl World {
    fn arrive(&mut self, client: usize) {
        self.clients[client].turns_left -= 1;
        self.arrived += 1;
        let calls = Calls::new(quorum(), NOW, Turns::new(DELAY));
        let number = self.arrived;
        let called = [false; NODES];
        self.begin(client, Waiter { number, calls, called });
    }

    fn reply(&mut self, client: usize, node: usize) {
        match self.clients[client].down[node].remove(0) {
            Reply::Vote(token, granted) => self.vote(client, node, token, granted),
            Reply::Call(number) => self.called(client, node, number),
        }
    }

    /// A client sends ACQUIRE to all nodes.
    fn begin(&mut self, client: usize, mut waiter: Waiter) {
        self.last_token += 1;
        let token = self.last_token;
        let number = waiter.number;
        let _ = waiter.calls.begin(NOW);
        waiter.called = [false; NODES];
        let round = Round::new(quorum(), NOW, TERM);
        let attempt = Attempt { token, round, votes: [None; NODES] };
        self.clients[client].phase = Phase::Trying(waiter, attempt);
        self.send_all(client, &Request::Acquire { token, number });
    }

    fn send_all(&mut self, client: usize, request: &Request) {
        self.clients[client].up.iter_mut().for_each(|up| up.push(request.clone()));
    }

    /// A node receives and answers its next request from a client.
    fn receive(&mut self, client: usize, node: usize) {
        let request = self.clients[client].up[node].remove(0);
        let turns = Turns::new(DELAY);
        let called = std::cell::RefCell::new(Vec::new());
        let call = |_, waiter: &str, _| {
            called.borrow_mut().extend(queue::parts(waiter).map(|(name, number)| {
                let client = name.parse::<usize>().expect("a client's name is its number");
                (client, number.parse().expect("a waiter has a number"))
            }));
            true
        };
        let records = &mut [(&mut self.records[node], LockMode::Exclusive)];
        match request {
            Request::Acquire { token, number } => {
                let waiter = name(client, number);
                let ttl = TERM.ttl;
                let waiter = Some(&waiter);
                let ticket = Some(4 * number);
                let wanted = Wanted { token: &token, ttl, proposal: 1, waiter, ticket };
                let time = Time { now: NOW, wall: 0 };
                let vote = record::acquire(records, time, wanted, turns, call);
                let granted = matches!(vote, Some(Vote::Granted { .. }));
                if !granted {
                    let _ =
                        record::join(records, NOW, (&name(client, number), number), turns, call);
                }
                self.clients[client].down[node].push(Reply::Vote(token, granted));
            }
            Request::Release { token, number, stays } => {
                let waiter = name(client, number);
                let place = (Some(&waiter), stays.then_some(number));
                let _ = record::release(records, NOW, (&token, None), place, turns, call);
            }
        }
        for (client, number) in called.into_inner() {
            self.clients[client].down[node].push(Reply::Call(number));
        }
    }

    fn vote(&mut self, client: usize, node: usize, token: Token, granted: bool) {
        let Phase::Trying(waiter, attempt) = &mut self.clients[client].phase else {
            return self.late(client, node, token, granted);
        };
        if attempt.token != token {
            return self.late(client, node, token, granted);
        }
        attempt.votes[node] = Some(granted);
        let vote = match granted {
            // Fences do not matter in these searches.
            true => Vote::Granted { fence: 1 },
            false => Vote::Held { expires_in: None },
        };
        let Actions { undo, outcome, .. } =
            attempt.round.handle(NOW, Event::Vote { node, vote, in_order: true });
        let waiter = waiter.clone();
        for node in undo.iter() {
            let request = Request::Release { token, number: waiter.number, stays: true };
            self.clients[client].up[node].push(request);
        }
        match outcome {
            Some(Outcome::Won { .. }) => {
                self.clients[client].phase = Phase::Holding(waiter, token);
            }
            Some(Outcome::Lost(_)) => {
                let is_turn = waiter.calls.is_turn(NOW);
                self.clients[client].phase = Phase::Waiting(waiter.clone());
                if is_turn {
                    self.begin(client, waiter);
                }
            }
            None => {}
        }
    }

    /// Handles a vote that arrives after its round was decided. A grant is undone unless the client holds the lease of
    /// that round.
    fn late(&mut self, client: usize, node: usize, token: Token, granted: bool) {
        let (number, stays) = match &self.clients[client].phase {
            Phase::Holding(_, held) if *held == token => return,
            Phase::Trying(waiter, _) | Phase::Waiting(waiter) => (waiter.number, true),
            Phase::Holding(waiter, _) => (waiter.number, false),
            Phase::Idle => (0, false),
        };
        if granted {
            self.clients[client].up[node].push(Request::Release { token, number, stays });
        }
    }

    fn called(&mut self, client: usize, node: usize, called: u64) {
        let waits = matches!(self.clients[client].phase, Phase::Waiting(_));
        let (Phase::Trying(waiter, _) | Phase::Waiting(waiter)) = &mut self.clients[client].phase
        else {
            return;
        };
        if waiter.number != called {
            return;
        }
        waiter.called[node] = true;
        let next = waiter.calls.add(NOW, node, 0, NOW.plus(DELAY.longest), DELAY, 0);
        if waits && next <= NOW {
            let waiter = waiter.clone();
            self.begin(client, waiter);
        }
    }

    /// Whether no message is in flight and every client is idle or waiting.
    fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| {
            client.up.iter().all(Vec::is_empty)
                && client.down.iter().all(Vec::is_empty)
                && matches!(client.phase, Phase::Idle | Phase::Waiting(_))
        })
    }

    fn waiting(&self) -> impl Iterator<Item = usize> {
        let clients = self.clients.iter().enumerate();
        clients.filter(|(_, client)| matches!(client.phase, Phase::Waiting(_))).map(|(n, _)| n)
    }

    fn is_clean(&self) -> bool {
        let mut records = self.records.clone();
        records
            .iter_mut()
            .all(|record| record.entry.token(NOW).is_none() && record.queue.is_empty(NOW))
    }
}

impl Client {
    fn holds(&self) -> bool {
        matches!(self.phase, Phase::Holding(..))
    }

    fn waiter(&self) -> Option<Waiter> {
        match &self.phase {
            Phase::Waiting(waiter) => Some(waiter.clone()),
            _ => None,
        }
    }
}

#[test]
fn no_waiter_is_forgotten_in_any_order_of_events() {
    let two =
        Scope { name: "turns: two clients", turns: &[1, 1], tries: 0, cancels: 0, is_held: false };
    let again = Scope { name: "turns: one client acquires twice", turns: &[2, 1], ..two };
    let impatient =
        Scope { name: "turns: waiters also poll, and cancel", tries: 1, cancels: 1, ..two };
    let three =
        Scope { name: "turns: one holds, two arrive", turns: &[1, 1, 1], is_held: true, ..two };
    for scope in [two, again, impatient, three] {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let began = std::time::Instant::now();
        let searched = scope.clone().checker().threads(threads).spawn_dfs().join();
        println!(
            "{}: {} distinct states, {:.0} s",
            scope.name,
            searched.unique_state_count(),
            began.elapsed().as_secs_f64()
        );
        for property in scope.properties() {
            let found = searched.discovery(property.name);
            match (property.expectation, found) {
                (Expectation::Always, Some(path)) => {
                    panic!("{}: violated: {}:\n{path:?}", scope.name, property.name)
                }
                (Expectation::Sometimes, None) => {
                    panic!("{}: never reached: {}", scope.name, property.name)
                }
                _ => {}
            }
        }
    }
}
