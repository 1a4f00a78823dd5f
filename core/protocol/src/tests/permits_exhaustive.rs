//! Every run of a small semaphore: three clients, three nodes, two slots, and a restart.
//!
//! Each client has one round, which may begin at any time and may be for any slots. The requests of a round reach the
//! nodes in any order, at any time while the lease of the round would be valid. A client may release its lease at any
//! time. One node may restart and forget everything. The search checks that no two valid leases have the same slot, and
//! that at most two permits are held at a time.
//!
//! The nodes run the code of `node/permits.rs`. `Guard` decides which votes a client counts, and `Term` decides how
//! long a lease is valid.

use super::{TERM, at};
use crate::node::entry::{Entry, Time};
use crate::node::permits::{self, Choice, Permits, Permitted};
use crate::node::record::Wanted;
use crate::{Guard, Moment, Quorum, Turns};
use std::collections::HashSet;
use std::fmt::Write;
use std::time::Duration;

const NODES: usize = 3;
const CLIENTS: usize = 3;
const LIMIT: usize = 2;
/// Time passes in steps of half a ttl.
const STEP: u64 = 5_000;
/// The number of the current step. This number never changes: when time passes, the numbers of all recorded steps
/// decrease instead. States that differ only in when they occur are therefore equal.
const NOW: u8 = 10;
/// After this many steps, the votes of a restarted node count again.
const GUARDED: u8 = 3;

/// How a node decides, and whether clients count its vote.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// The real rule: each permit is a lock, and the client names the numbers of the permits that it wants.
    Slots,
    /// Like `Slots`, but clients count the votes of a node that has just restarted.
    Unguarded,
    /// A node only stores a set of members, and admits as many members as the limit allows.
    Counting,
}

/// The slots that a client wants or has, as bits.
type Mask = u8;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Client {
    Idle,
    /// `asked` and `granted` are sets of nodes. The lease is valid as soon as a majority has granted it. After that,
    /// `granted` no longer matters.
    Round {
        slots: Mask,
        sent: u8,
        asked: Mask,
        granted: Mask,
        is_won: bool,
    },
    /// The client has released its lease, or the validity of the lease has ended.
    Over,
}

/// A node: for each slot, its holder and the step in which its key expires; and the step in which the node restarted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
struct Node {
    held: [Option<(u8, u8)>; LIMIT],
    restarted: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct State {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(usize, Mask),
    Ask(usize, usize),
    Release(usize),
    Restart(usize),
    Tick,
}

fn moment(step: u8) -> Moment {
    at(u64::from(step) * STEP)
}

fn bits(mask: Mask) -> impl Iterator<Item = usize> {
    (0..8).filter(move |bit| mask & 1 << bit != 0)
}

fn token(client: usize) -> char {
    ['A', 'B', 'C'][client]
}

impl Node {
    /// Calls `act` with the locks of the node, in the form that `node/permits.rs` uses.
    fn with<R>(
        &mut self,
        now: u8,
        slots: Mask,
        act: impl FnOnce(&mut [(u32, &mut Entry<char>)], permits::Left<'_>) -> R,
    ) -> R {
        let time = moment(now);
        let mut entries: [Entry<char>; LIMIT] = Default::default();
        for (entry, held) in entries.iter_mut().zip(&self.held) {
            entry.store_lock(held.map(|(client, till)| (token(client.into()), moment(till))));
        }
        let lefts: Vec<_> = entries.iter().map(|entry| entry.expires_in(time)).collect();
        let left = |slot: u32| lefts[slot as usize];
        let mut named: Vec<_> = entries
            .iter_mut()
            .enumerate()
            .filter(|(slot, _)| slots & 1 << slot != 0)
            .map(|(slot, entry)| (slot as u32, entry))
            .collect();
        let done = act(&mut named, &left);
        for (held, entry) in self.held.iter_mut().zip(&entries) {
            *held = entry.stored_lock(time).map(|(token, left)| {
                let till = u64::from(now) + left.as_millis() as u64 / STEP;
                (*token as u8 - b'A', till as u8)
            });
        }
        done
    }

    fn acquire(&mut self, now: u8, client: usize, slots: Mask, rule: Rule) -> bool {
        if rule == Rule::Counting {
            let live = |held: &Option<(u8, u8)>| held.is_some_and(|(_, till)| now < till);
            let free: Vec<_> = (0..LIMIT).filter(|place| !live(&self.held[*place])).collect();
            let wanted = slots.count_ones() as usize;
            let is_granted = wanted <= free.len();
            for place in free.into_iter().take(wanted).filter(|_| is_granted) {
                self.held[place] = Some((client as u8, now + 2));
            }
            return is_granted;
        }
        let wall = 1_000_000_000 + u64::from(now) * STEP * 1_000;
        let time = Time { now: moment(now), wall };
        let choice = Choice { limit: 2, offset: 0 };
        let token = token(client);
        let wanted =
            Wanted { token: &token, ttl: TERM.ttl, proposal: wall, waiter: None, ticket: None };
        let answered = self.with(now, slots, |entries, left| {
            let settings = (time, choice, Turns::default());
            permits::acquire(&mut Permits::default(), entries, left, settings, wanted, &|_, _| {
                false
            })
        });
        matches!(answered, Some(Permitted::Granted(_)))
    }

    fn release(&mut self, now: u8, client: usize, slots: Mask, rule: Rule) {
        if rule == Rule::Counting {
            for held in &mut self.held {
                *held = held.filter(|(holder, _)| usize::from(*holder) != client);
            }
            return;
        }
        self.with(now, slots, |entries, left| {
            let times = (moment(now), Turns::default());
            let token = (&token(client), None);
            let nobody = (None, None);
            permits::release(
                &mut Permits::default(),
                entries,
                left,
                times,
                token,
                nobody,
                &|_, _| false,
            )
        });
    }

    /// Whether a client counts the vote of this node in a round that began at the step `sent`.
    fn counts(&self, sent: u8) -> bool {
        let Some(restarted) = self.restarted else { return true };
        let mut guard = Guard::new(TERM);
        guard.looked(at(0), Some(("first", Duration::from_secs(1_000))));
        guard.looked(moment(restarted), Some(("second", Duration::ZERO)));
        guard.counts(moment(sent))
    }
}

impl State {
    const FIRST: Self = Self {
        nodes: [Node { held: [None; LIMIT], restarted: None }; NODES],
        clients: [Client::Idle; CLIENTS],
    };

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (client, state) in self.clients.iter().enumerate() {
            match *state {
                // The clients are interchangeable, so the search tries only runs in which the clients begin in the
                // order of their numbers.
                Client::Idle => {
                    if client == 0 || self.clients[client - 1] != Client::Idle {
                        steps.extend((1..1 << LIMIT).map(|slots| Step::Begin(client, slots)));
                    }
                }
                Client::Round { asked, .. } => {
                    let others = (0..NODES).filter(|node| asked & 1 << node == 0);
                    steps.extend(others.map(|node| Step::Ask(client, node)));
                    steps.push(Step::Release(client));
                }
                Client::Over => {}
            }
        }
        // A node without keys has nothing to forget. Its restart could only make clients ignore its votes, so the
        // search does not try such a restart.
        if self.nodes.iter().all(|node| node.restarted.is_none()) {
            let has_keys = |node: &usize| self.nodes[*node].held != [None; LIMIT];
            steps.extend((0..NODES).filter(has_keys).map(Step::Restart));
        }
        steps.push(Step::Tick);
        steps
    }

    fn after(mut self, step: Step, rule: Rule) -> Self {
        let now = NOW;
        match step {
            Step::Tick => {
                for node in &mut self.nodes {
                    for held in &mut node.held {
                        let older = held.map(|(client, till)| (client, till - 1));
                        *held = older.filter(|(_, till)| now < *till);
                    }
                    node.restarted = node.restarted.map(|then| (then - 1).max(NOW - GUARDED));
                }
                // All clients whose leases have ended get the same state.
                for client in &mut self.clients {
                    if let Client::Round { sent, .. } = client {
                        *sent -= 1;
                        if moment(now) >= TERM.end(moment(*sent)) {
                            *client = Client::Over;
                        }
                    }
                }
            }
            Step::Restart(node) => {
                self.nodes[node] = Node { restarted: Some(now), ..Node::default() }
            }
            Step::Begin(client, slots) => {
                self.clients[client] =
                    Client::Round { slots, sent: now, asked: 0, granted: 0, is_won: false };
            }
            Step::Release(client) => {
                if let Client::Round { slots, asked, .. } = self.clients[client] {
                    for node in bits(asked) {
                        self.nodes[node].release(now, client, slots, rule);
                    }
                    self.clients[client] = Client::Over;
                }
            }
            Step::Ask(client, number) => {
                let node = &mut self.nodes[number];
                if let Client::Round { slots, sent, asked, granted, is_won } =
                    &mut self.clients[client]
                {
                    *asked |= 1 << number;
                    let is_granted = node.acquire(now, client, *slots, rule);
                    if is_granted && (rule == Rule::Unguarded || node.counts(*sent)) {
                        *granted |= 1 << number;
                    }
                    let majority = Quorum::over(NODES).expect("valid").size();
                    *is_won |= granted.count_ones() as usize >= majority;
                    if *is_won {
                        *granted = 0;
                    }
                }
            }
        }
        self
    }

    /// The clients whose leases are valid, each with its slots.
    fn holders(&self) -> impl Iterator<Item = (usize, Mask)> {
        self.clients.iter().enumerate().filter_map(|(client, state)| match state {
            Client::Round { slots, is_won: true, .. } => Some((client, *slots)),
            _ => None,
        })
    }

    fn is_right(&self, rule: Rule) -> bool {
        let held: u32 = self.holders().map(|(_, slots)| slots.count_ones()).sum();
        let all = self.holders().fold(0, |all: Mask, (_, slots)| all | slots);
        // Nodes that only count members do not distinguish slots.
        held as usize <= LIMIT && (rule == Rule::Counting || all.count_ones() == held)
    }
}

impl State {
    /// The smallest of the states that differ from this one only in how nodes and slots are numbered.
    fn representative(&self) -> Self {
        let both = [*self, self.with_slots_swapped()];
        let all = both.iter().flat_map(|state| ORDERS.map(|order| state.with_nodes(order)));
        all.min().expect("there is one")
    }

    fn with_slots_swapped(mut self) -> Self {
        self.nodes.iter_mut().for_each(|node| node.held.swap(0, 1));
        for client in &mut self.clients {
            if let Client::Round { slots, .. } = client {
                *slots = (*slots & 1) << 1 | *slots >> 1;
            }
        }
        self
    }

    fn with_nodes(mut self, order: [usize; NODES]) -> Self {
        let old = self.nodes;
        self.nodes = order.map(|node| old[node]);
        let permuted = |mask: Mask| -> Mask {
            let bit = |(new, node): (usize, &usize)| (mask >> node & 1) << new;
            order.iter().enumerate().map(bit).sum()
        };
        for client in &mut self.clients {
            if let Client::Round { asked, granted, .. } = client {
                (*asked, *granted) = (permuted(*asked), permuted(*granted));
            }
        }
        self
    }
}

const ORDERS: [[usize; NODES]; 6] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Searches all runs, the shortest first. Returns the number of states. States that differ only in how nodes and slots
/// are numbered count once. If a state is wrong, returns the run that leads to this state as the error.
fn search(rule: Rule) -> Result<usize, Vec<(Step, State)>> {
    let mut seen = HashSet::from([State::FIRST]);
    // Each state with the step that leads to it, and the position of the previous state.
    let mut all = vec![(State::FIRST, Step::Tick, 0)];
    let mut position = 0;
    while position < all.len() {
        let (state, ..) = all[position];
        if !state.is_right(rule) {
            let mut run = Vec::new();
            while position > 0 {
                let (state, step, before) = all[position];
                run.push((step, state));
                position = before;
            }
            run.reverse();
            return Err(run);
        }
        for step in state.steps() {
            let next = state.after(step, rule);
            if seen.insert(next.representative()) {
                all.push((next, step, position));
            }
        }
        position += 1;
    }
    Ok(all.len())
}

/// Returns the run as a table: each step, the tokens that each node stores after the step, and the clients that hold
/// permits.
fn table(run: &[(Step, State)]) -> String {
    let mut table = String::new();
    for (number, (step, state)) in run.iter().enumerate() {
        let step = match step {
            Step::Begin(client, _) => format!("{} begins a round", token(*client)),
            Step::Ask(client, node) => format!("node {node} answers {}", token(*client)),
            Step::Release(client) => format!("{} releases", token(*client)),
            Step::Restart(node) => format!("node {node} restarts"),
            Step::Tick => "time passes".to_owned(),
        };
        let stored = |node: &Node| {
            let tokens = node.held.iter().flatten().map(|(client, _)| token((*client).into()));
            tokens.map(String::from).collect::<Vec<_>>().join(" ")
        };
        let nodes: Vec<_> = state.nodes.iter().map(stored).collect();
        let holders: Vec<_> =
            state.holders().map(|(client, _)| String::from(token(client))).collect();
        let nodes = nodes.join(" | ");
        let holders = holders.join(" ");
        writeln!(table, "| {} | {step} | {nodes} | {holders} |", number + 1).expect("a string");
    }
    table
}

#[test]
fn no_slot_is_held_twice_in_any_run_of_three_clients() {
    let states = search(Rule::Slots).unwrap_or_else(|run| panic!("\n{}", table(&run)));
    println!("{states} states");
    assert!(states > 500_000, "{states}");
}

#[test]
fn without_the_restart_guard_a_slot_is_held_twice() {
    let run = search(Rule::Unguarded).expect_err("a restart forgets grants");
    println!("{}", table(&run));
    assert!(run.iter().any(|(step, _)| matches!(step, Step::Restart(_))));
}

#[test]
fn nodes_that_count_members_admit_three_holders_where_two_may_be() {
    let run = search(Rule::Counting).expect_err("each node admits two of three");
    println!("{}", table(&run));
    let (_, last) = run.last().expect("the first state is right");
    assert_eq!(last.holders().count(), 3);
    // In this run, nothing fails, nothing is late, and no node admits more than two clients.
    assert!(run.iter().all(|(step, _)| matches!(step, Step::Begin(..) | Step::Ask(..))));
    assert_eq!(run.len(), CLIENTS + CLIENTS * 2);
}
