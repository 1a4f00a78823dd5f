//! What can happen next, and what becomes of the world then.

use super::client::Awaited;
use super::scopes::Scope;
use super::world::{Decided, Faults, NODES, Node, Reply, Request, TERM, World};
use crate::entry::acquire;
use crate::protocol::Vote;
use stateright::{Model, Property};

/// One step. Clients and nodes are named by their numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Time passes.
    Tick,
    /// A client sends ACQUIRE to all nodes.
    Start(usize),
    /// A client sends EXTEND to all nodes.
    Extend(usize),
    /// A client sends HEAL to the nodes where others were when its lease was won.
    Spread(usize),
    /// A client sends RELEASE to all nodes.
    Release(usize),
    /// The caller of an acquire goes away.
    Cancel(usize),
    /// A client ends without a word; what it has sent is still on its way.
    Crash(usize),
    /// The next request of a client reaches a node.
    Request(usize, usize),
    /// The next request of a client, an ACQUIRE, is refused by a node, since its queue says so.
    Refuse(usize, usize),
    /// The next reply of a node reaches a client.
    Reply(usize, usize),
    /// A request of a connection that was replaced reaches a node.
    Late(usize, usize),
    /// A client gives up on a request.
    TimeOut(usize, usize, Awaited),
    /// A connection breaks; `true` if what was sent on it may come late, instead of never.
    Break(usize, usize, bool),
    /// A node restarts; `true` if it forgets everything.
    Restart(usize, bool),
    /// A client learns of a restart, and is connected again.
    Reconnect(usize, usize),
}

impl Model for Scope {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let clocks = self.clocks.iter();
        clocks.map(|rates| World::new(self, *rates)).collect()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.wrong.is_some() {
            return;
        }
        let Faults { timeouts, breaks, restarts, memory_losses, crashes, cancels, refusals } =
            world.left;
        if world.tick < self.ticks && world.has_begun() {
            actions.push(Action::Tick);
        }
        for (number, client) in world.clients.iter().enumerate() {
            for (node, link) in client.links.iter().enumerate() {
                if !link.up.is_empty() && !link.broken {
                    actions.push(Action::Request(number, node));
                    if refusals > 0 && matches!(link.up[0], Request::Acquire { .. }) {
                        actions.push(Action::Refuse(number, node));
                    }
                }
                if !link.late.is_empty() {
                    actions.push(Action::Late(number, node));
                }
                if client.crashed {
                    continue;
                }
                if !link.down.is_empty() {
                    actions.push(Action::Reply(number, node));
                }
                let awaited = world.awaited(number, node);
                if timeouts > 0 {
                    actions.extend(awaited.iter().map(|a| Action::TimeOut(number, node, *a)));
                }
                let is_idle = awaited.is_empty() && link.up.is_empty();
                if breaks > 0 && !link.broken && !is_idle {
                    actions.push(Action::Break(number, node, false));
                    if !link.up.is_empty() {
                        actions.push(Action::Break(number, node, true));
                    }
                }
                if link.broken {
                    actions.push(Action::Reconnect(number, node));
                }
            }
            if client.crashed {
                continue;
            }
            let is_busy = client.attempts.iter().any(|attempt| attempt.decided.is_none());
            if client.rounds_left > 0 && client.held.is_none() && !is_busy {
                actions.push(Action::Start(number));
            }
            if is_busy && cancels > 0 {
                actions.push(Action::Cancel(number));
            }
            if let Some(held) = &client.held {
                if self.releases {
                    actions.push(Action::Release(number));
                }
                if !held.lacking.is_empty() {
                    actions.push(Action::Spread(number));
                }
                let is_extended = held.extending.is_some();
                if client.extensions_left > 0
                    && !is_extended
                    && held.lease.is_valid(world.now(number))
                {
                    actions.push(Action::Extend(number));
                }
            }
            if crashes > 0 && (client.held.is_some() || is_busy) {
                actions.push(Action::Crash(number));
            }
        }
        for node in 0..NODES {
            if restarts > 0 {
                actions.push(Action::Restart(node, false));
            }
            if memory_losses > 0 {
                actions.push(Action::Restart(node, true));
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick => world.tick += 1,
            Action::Start(number) => world.start(self, number),
            Action::Extend(number) => world.extend(number),
            Action::Spread(number) => world.spread(number),
            Action::Release(number) => world.release(number),
            Action::Cancel(number) => {
                world.left.cancels -= 1;
                world.cancel(number);
            }
            Action::Crash(number) => world.crash(number),
            Action::Request(number, node) => {
                let request = world.clients[number].links[node].up.remove(0);
                let reply = world.answer(node, &request);
                if let Some(reply) =
                    reply.filter(|reply| world.awaited(number, node).contains(&reply.to()))
                {
                    world.clients[number].links[node].down.push(reply);
                }
            }
            Action::Refuse(number, node) => {
                world.left.refusals -= 1;
                let link = &mut world.clients[number].links[node];
                if let Request::Acquire { token, .. } = link.up.remove(0) {
                    link.down.push(Reply::Vote(token, Vote::Held { expires_in: None }));
                }
                let awaited = world.awaited(number, node);
                let link = &mut world.clients[number].links[node];
                link.down.retain(|reply| awaited.contains(&reply.to()));
            }
            Action::Late(number, node) => {
                let request = world.clients[number].links[node].late.remove(0);
                let leaves_key = matches!(request, Request::Acquire { .. } | Request::Heal { .. });
                world.overtaken |= leaves_key;
                let _ = world.answer(node, &request);
            }
            Action::Reply(number, node) => {
                let reply = world.clients[number].links[node].down.remove(0);
                world.receive(number, node, reply);
            }
            Action::TimeOut(number, node, awaited) => {
                world.left.timeouts -= 1;
                world.give_up(number, node, awaited);
            }
            Action::Break(number, node, late) => world.break_link(number, node, late),
            Action::Restart(node, forgets) => world.restart(node, forgets),
            Action::Reconnect(number, node) => world.reconnect(number, node),
        }
        world.settle();
        world.observe();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.claims()
    }
}

impl World {
    /// What a node does with a request, and its reply if somebody may wait for it.
    fn answer(&mut self, node: usize, request: &Request) -> Option<Reply> {
        let (now, wall_clock) = (self.node_now(node), self.wall_clock());
        let entry = &mut self.nodes[node].entry;
        match *request {
            Request::Acquire { token, proposal } => {
                let vote = acquire(&mut [entry], now, &token, TERM.ttl, proposal, wall_clock);
                let vote = match vote {
                    // When it expires matters to waiting only, which is not searched.
                    Some(Vote::Held { .. }) => Vote::Held { expires_in: None },
                    other => other.unwrap_or(Vote::Refused),
                };
                Some(Reply::Vote(token, vote))
            }
            Request::Raise { token, fence } => {
                Some(Reply::Raised(token, entry.raise(now, &token, fence)))
            }
            Request::Extend { token, ttl, number } => {
                Some(Reply::Extended(number, entry.extend(now, &token, ttl)))
            }
            Request::Heal { token, ttl, fence } => {
                entry.heal(now, &token, ttl, fence);
                None
            }
            Request::Release { token, .. } => {
                entry.release(now, &token);
                None
            }
        }
    }

    /// Does at once what makes no difference whenever it is done, so that less is to be searched.
    fn settle(&mut self) {
        for number in 0..self.clients.len() {
            for node in 0..NODES {
                self.settle_link(number, node);
            }
        }
    }

    fn settle_link(&mut self, number: usize, node: usize) {
        // A release of what is not there, and can't come any more.
        while let Some(&Request::Release { token, .. }) =
            self.clients[number].links[node].up.first()
        {
            let brings = |request: &Request| match request {
                Request::Acquire { token: other, .. } | Request::Heal { token: other, .. } => {
                    *other == token
                }
                _ => false,
            };
            let is_there = self.token_on(node) == Some(token);
            let link = &mut self.clients[number].links[node];
            if is_there || link.late.iter().any(brings) || link.broken {
                break;
            }
            link.up.remove(0);
        }
        // A refusal that comes when the round is lost already.
        while let Some(Reply::Vote(token, Vote::Held { .. })) =
            self.clients[number].links[node].down.first()
        {
            let mut attempts = self.clients[number].attempts.iter();
            let attempt = attempts.find(|attempt| attempt.token == *token);
            if attempt.is_none_or(|attempt| {
                !matches!(attempt.decided, Some(Decided::Lost | Decided::Abandoned))
            }) {
                break;
            }
            let reply = self.clients[number].links[node].down.remove(0);
            self.receive(number, node, reply);
        }
    }

    fn crash(&mut self, number: usize) {
        self.left.crashes -= 1;
        let client = &mut self.clients[number];
        client.crashed = true;
        client.attempts.clear();
        client.held = None;
        client.links.iter_mut().for_each(|link| link.down.clear());
    }

    fn break_link(&mut self, number: usize, node: usize, late: bool) {
        self.left.breaks -= 1;
        self.cut(number, node, late);
        self.hear_of_the_end(number, node);
    }

    /// What was on the way is lost or late, but what is to be undone is sent again.
    fn cut(&mut self, number: usize, node: usize, late: bool) {
        let link = &mut self.clients[number].links[node];
        let lost = std::mem::take(&mut link.up);
        if late {
            link.late.extend(lost.iter().cloned());
        }
        let is_release = |request: &Request| matches!(request, Request::Release { .. });
        link.up.extend(lost.into_iter().filter(is_release));
    }

    /// Nothing that the client waits for comes any more.
    fn hear_of_the_end(&mut self, number: usize, node: usize) {
        self.clients[number].links[node].down.clear();
        for awaited in self.awaited(number, node) {
            self.give_up(number, node, awaited);
        }
    }

    fn restart(&mut self, node: usize, forgets: bool) {
        let started = self.tick as i8;
        if forgets {
            self.left.memory_losses -= 1;
            let memory = self.nodes[node].memory + 1;
            self.nodes[node] = Node { memory, started, ..Node::default() };
        } else {
            self.left.restarts -= 1;
            self.nodes[node].started = started;
        }
        for number in 0..self.clients.len() {
            if self.clients[number].crashed {
                self.clients[number].links[node].up.clear();
            } else {
                self.cut(number, node, false);
                self.clients[number].links[node].broken = true;
            }
        }
    }

    fn reconnect(&mut self, number: usize, node: usize) {
        self.clients[number].links[node].broken = false;
        self.hear_of_the_end(number, node);
        self.look(number, node);
    }
}
