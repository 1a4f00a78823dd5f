//! The steps: which actions are possible in a state, and the state that follows each of them.

use super::action::Action;
use super::scope::Scope;
use super::settings::{Faults, NODES, TERM, Token};
use super::world::{Node, Reply, Request, World};
use crate::Vote;
use crate::node::entry::{acquire, transfer};
use crate::node::readers::LockMode;
use stateright::{Model, Property};
use std::time::Duration;

impl Model for Scope {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let clocks = self.clocks.iter();
        let begins = |world| {
            let next = |world: World, action: &Action| self.next_state(&world, action.clone());
            self.begins.iter().try_fold(world, next).expect("the steps are possible")
        };
        clocks.map(|rates| begins(World::new(self, *rates))).collect()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.wrong.is_some() {
            return;
        }
        let Faults {
            timeouts,
            breaks,
            restarts,
            memory_losses,
            crashes,
            cancels,
            refusals,
            unknowns,
            replacements,
            pauses,
        } = world.left;
        if world.tick < self.ticks && world.has_begun() {
            actions.push(Action::Tick);
        }
        for (number, client) in world.clients.iter().enumerate() {
            for (node, link) in client.links.iter().enumerate() {
                if !link.up.is_empty() && !link.broken {
                    actions.push(Action::Request(number, node));
                    if pauses > 0 {
                        actions.push(Action::Pause(number, node));
                    }
                    if refusals > 0 && matches!(link.up[0], Request::Acquire { .. }) {
                        actions.push(Action::Refuse(number, node));
                    }
                    let may_be_unknown = match link.up[0] {
                        Request::Acquire { is_again, .. } => !is_again,
                        Request::Heal { .. } => true,
                        _ => false,
                    };
                    if unknowns > 0 && may_be_unknown {
                        actions.push(Action::Again(number, node));
                    }
                }
                if !link.old.is_empty() {
                    actions.push(Action::Old(number, node));
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
                    let timely = world.timely(number, node).into_iter();
                    actions.extend(timely.map(|awaited| Action::TimeOut(number, node, awaited)));
                }
                let is_idle = awaited.is_empty() && link.up.is_empty();
                if breaks > 0 && !link.broken && !is_idle {
                    actions.push(Action::Break(number, node, false));
                    if !link.up.is_empty() {
                        actions.push(Action::Break(number, node, true));
                    }
                }
                if replacements > 0 && !link.broken && !is_idle {
                    actions.push(Action::Replace(number, node));
                }
                if link.broken {
                    actions.push(Action::Reconnect(number, node));
                }
            }
            if client.crashed {
                continue;
            }
            let is_busy = client.is_busy();
            if client.rounds_left > 0 && client.held().is_none() && !is_busy {
                actions.push(Action::Start(number));
                if world.offer.is_some() {
                    actions.push(Action::Adopt(number));
                }
            }
            if is_busy && cancels > 0 {
                actions.push(Action::Cancel(number));
            }
            if self.releases && client.held().is_some() {
                actions.push(Action::Release(number));
            }
            if let Some(held) = client.held().filter(|held| !held.claim.lease().is_upgrading()) {
                if held.is_complete()
                    && held.healing == [0; NODES]
                    && client.repairs_left > 0
                    && !held.claim.lease().missing().is_empty()
                {
                    actions.push(Action::Repair(number));
                }
                if self.hand_over && world.offer.is_none() && world.can_be_detached(number) {
                    actions.push(Action::Detach(number));
                }
                let is_valid = held.claim.lease().is_valid(world.now(number));
                if client.extensions_left > 0 && held.extending.is_none() && is_valid {
                    actions.push(Action::Extend(number));
                }
                if client.changes_left > 0 && is_valid {
                    actions.push(Action::ChangeMode(number));
                }
            }
            if crashes > 0 && (client.held().is_some() || is_busy) {
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
            Action::Start(number) => world.start(self, number, None),
            Action::Adopt(number) => world.start(self, number, world.offer),
            Action::ChangeMode(number) => world.change_mode(self, number),
            Action::Detach(number) => world.detach(number),
            Action::Extend(number) => world.extend(self, number),
            Action::Repair(number) => world.repair(number),
            Action::Release(number) => world.release(number),
            Action::Cancel(number) => {
                world.left.cancels -= 1;
                world.cancel(number);
            }
            Action::Crash(number) => world.crash(number),
            Action::Request(number, node) => {
                let request = world.clients[number].links[node].up.remove(0);
                world.reach(number, node, &request, true);
            }
            Action::Pause(number, node) => {
                world.left.pauses -= 1;
                let before = world.nodes[node].entry.clone();
                let request = world.clients[number].links[node].up.remove(0);
                world.reach(number, node, &request, true);
                let pause = Duration::from_millis(world.node_rates[node]);
                world.nodes[node].entry.set_after(&before, pause);
            }
            Action::Old(number, node) => {
                let request = world.clients[number].links[node].old.remove(0);
                world.reach(number, node, &request, false);
            }
            Action::Again(number, node) => {
                world.left.unknowns -= 1;
                let request = world.clients[number].links[node].up.remove(0);
                world.send_again(number, node, request);
            }
            Action::Refuse(number, node) => {
                world.left.refusals -= 1;
                let link = &mut world.clients[number].links[node];
                if let Request::Acquire { token, .. } = link.up.remove(0) {
                    link.down.push(Reply::Vote(token, Vote::Held { expires_in: None }, true));
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
                world.time_out(number, node, awaited);
            }
            Action::Replace(number, node) => world.replace(number, node),
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
    /// Delivers a request to a node, and sends the reply if the client waits for it. `is_current` is
    /// `false` for a replaced connection.
    fn reach(&mut self, number: usize, node: usize, request: &Request, is_current: bool) {
        let reply = self.answer(node, request).map(|reply| match reply {
            Reply::Vote(token, vote, in_order) => Reply::Vote(token, vote, in_order && is_current),
            other => other,
        });
        if let Some(reply) = reply.filter(|reply| self.awaited(number, node).contains(&reply.to()))
        {
            self.clients[number].links[node].down.push(reply);
        }
        if let Request::Release { token, .. } = request {
            self.deleted(number, node, *token);
        }
    }

    /// Applies a request on a node and returns its reply, if the request has one.
    fn answer(&mut self, node: usize, request: &Request) -> Option<Reply> {
        let time = self.node_time(node);
        let entry = &mut self.nodes[node].entry;
        match *request {
            Request::Acquire { token, giver, mode, proposal, is_again } => {
                let entries = &mut [(entry, mode)];
                let vote = match giver {
                    None => acquire(entries, time, &token, TERM.ttl, proposal),
                    Some(giver) => transfer(entries, time, &giver, &token, TERM.ttl, proposal),
                };
                let vote = match vote {
                    // The expiry matters only for waiting, which these searches do not cover.
                    Some(Vote::Held { .. }) => Vote::Held { expires_in: None },
                    other => other.unwrap_or(Vote::Refused),
                };
                Some(Reply::Vote(token, vote, !is_again))
            }
            Request::Raise { token, mode, fence } => {
                Some(Reply::Raised(token, entry.raise(time, &token, TERM.ttl, fence, mode)))
            }
            Request::Extend { token, mode, ttl, number } => {
                Some(Reply::Extended(number, entry.extend_in(time, &token, ttl, mode)))
            }
            Request::Heal { token, giver, mode, ttl, fence } => Some(Reply::Healed(
                token,
                entry.heal(time, (&token, giver.as_ref()), ttl, fence, mode),
            )),
            Request::Downgrade { token } => {
                entry.downgrade(time.now, &token);
                None
            }
            Request::Release { token, giver, mode, .. } => {
                match giver {
                    None => entry.release_in(time.now, &token, mode),
                    Some(giver) => {
                        let is_upgrade = mode == LockMode::Upgraded;
                        let left = match is_upgrade {
                            true => TERM.ttl,
                            false => entry.expires_in(time.now).unwrap_or_default(),
                        };
                        entry.give_back_in(time.now, (&token, &giver), left, mode, is_upgrade)
                    }
                };
                None
            }
        }
    }

    /// Immediately performs the steps whose timing makes no difference, to reduce the number of states.
    fn settle(&mut self) {
        // A step on one link can send requests on others.
        while (0..self.clients.len())
            .any(|number| (0..NODES).any(|node| self.settle_link(number, node)))
        {}
    }

    /// Performs the steps on one link whose timing makes no difference. Returns whether there were any.
    fn settle_link(&mut self, number: usize, node: usize) -> bool {
        let mut has_changed = false;
        // Drop each RELEASE whose token is not on the node and cannot arrive there any more.
        while let Some(&Request::Release { token, .. }) =
            self.clients[number].links[node].up.first()
        {
            let brings = |request: &Request| request.brings(token);
            let is_there = self.tokens_on(node).contains(&token);
            let link = &mut self.clients[number].links[node];
            let may_come = link.late.iter().any(brings) || link.old.iter().any(brings);
            if is_there || may_come || link.broken {
                break;
            }
            link.up.remove(0);
            self.deleted(number, node, token);
            has_changed = true;
        }
        // Deliver at once: refusals in lost rounds, answers after their deadline, and answers to HEAL after the
        // release. If such an answer were delivered later, the only effect could be another RELEASE.
        while let Some(reply) = self.clients[number].links[node].down.first() {
            let owned = |token: Token| self.clients[number].owned(token);
            let changes_nothing = match reply {
                Reply::Vote(token, vote, _) => owned(*token).is_some_and(|owned| {
                    let is_over = owned.decided.is_some() && !owned.is_held();
                    (is_over && matches!(vote, Vote::Held { .. })) || owned.late[node]
                }),
                Reply::Healed(token, _) => owned(*token)
                    .is_some_and(|owned| !owned.is_held() || owned.healing_late[node] > 0),
                Reply::Raised(..) | Reply::Extended(..) => false,
            };
            if !changes_nothing {
                break;
            }
            let reply = self.clients[number].links[node].down.remove(0);
            self.receive(number, node, reply);
            has_changed = true;
        }
        has_changed
    }

    fn crash(&mut self, number: usize) {
        self.left.crashes -= 1;
        let client = &mut self.clients[number];
        client.crashed = true;
        client.claims.clear();
        client.links.iter_mut().for_each(|link| link.down.clear());
    }

    fn break_link(&mut self, number: usize, node: usize, late: bool) {
        self.left.breaks -= 1;
        self.cut(number, node, late);
        self.hear_of_the_end(number, node);
    }

    /// Replaces the connection. The old connection stays open. Undos and releases in flight are sent again on the new
    /// one.
    fn replace(&mut self, number: usize, node: usize) {
        self.left.replacements -= 1;
        let link = &mut self.clients[number].links[node];
        let sent = std::mem::take(&mut link.up);
        link.old.extend(sent.iter().cloned());
        let is_release = |request: &Request| matches!(request, Request::Release { .. });
        link.up.extend(sent.into_iter().filter(is_release));
        for reply in &mut link.down {
            if let Reply::Vote(_, _, in_order) = reply {
                *in_order = false;
            }
        }
    }

    /// Breaks the connections between a client and a node. Requests in flight arrive late if `late` is `true`;
    /// otherwise, they are lost. Undos and releases are sent again.
    fn cut(&mut self, number: usize, node: usize, late: bool) {
        let link = &mut self.clients[number].links[node];
        let lost = std::mem::take(&mut link.up);
        let old = std::mem::take(&mut link.old);
        if late {
            link.late.extend(old.into_iter().chain(lost.iter().cloned()));
        }
        let is_release = |request: &Request| matches!(request, Request::Release { .. });
        link.up.extend(lost.into_iter().filter(is_release));
    }

    /// Handles the end of the connection: the client gives up on every request whose answer it waits for.
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
        self.examine(number, node);
    }
}
