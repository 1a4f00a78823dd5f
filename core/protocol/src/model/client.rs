//! A client of the model. It turns steps into method calls on its claims. It carries out the commands that the claims
//! return, as the driver does.

use super::action::Awaited;
use super::owned::{Decided, Extending, Owned, Raise};
use super::scope::Scope;
use super::settings::{NODES, TERM, Token};
use super::world::{Client, Offer, Reply, Request, World};
use crate::node::readers::LockMode;
use crate::{Answer, Commands, Event, Extended, Healing, NodeSet, Origin, Outcome, Round, Vote};

impl World {
    /// Begins a round. If there is an offer, the client tries to adopt the offered lease.
    pub(super) fn start(&mut self, scope: &Scope, number: usize, offer: Option<Offer>) {
        self.clients[number].rounds_left -= 1;
        let silent = offer.map_or(NodeSet::EMPTY, |offer| offer.silent);
        let giver = offer.map(|offer| offer.token);
        let origin = offer.map_or(Origin::Acquired, |_| Origin::Adopted);
        self.begin_round(scope, number, (giver, origin), self.modes[number], silent);
    }

    /// Begins a round of a new token in this mode. The nodes in `silent` get no request; their vote is `Refused`.
    fn begin_round(
        &mut self,
        scope: &Scope,
        number: usize,
        (giver, origin): (Option<Token>, Origin),
        mode: LockMode,
        silent: NodeSet,
    ) {
        let now = self.now(number);
        self.last_token += 1;
        let token = self.last_token;
        let begins = (Self::quorum(), origin, now, TERM);
        self.clients[number].claims.push(Owned::new(token, giver, mode, begins));
        // Adding the client's number makes the proposals of all clients differ.
        let time = self.wall_clock() + number as u64;
        let proposal = time.saturating_add_signed(scope.wall_clocks[number]);
        let request = Request::Acquire { token, giver, mode, proposal, is_again: false };
        for node in 0..NODES {
            if silent.contains(node) {
                self.vote(number, node, token, Vote::Refused, true);
            } else {
                self.send(number, node, request.clone());
            }
        }
    }

    /// Whether the client's lease can be detached.
    pub(super) fn can_be_detached(&self, number: usize) -> bool {
        let held = self.clients[number].held();
        held.is_some_and(|held| held.claim.clone().detach(self.now(number)).is_ok())
    }

    /// Detaches the client's lease.
    pub(super) fn detach(&mut self, number: usize) {
        let now = self.now(number);
        let Some(held) = self.clients[number].held_mut() else { return };
        let token = held.token;
        let silent = held.claim.silent();
        let Ok(commands) = held.claim.detach(now) else { return };
        self.offer = Some(Offer { token, silent, is_adopted: false });
        self.carry_out(number, token, commands);
        self.tidy(number);
    }

    /// Makes an exclusive lease shared, or begins the upgrade of a shared one.
    pub(super) fn change_mode(&mut self, scope: &Scope, number: usize) {
        let now = self.now(number);
        let last_token = self.last_token;
        let client = &mut self.clients[number];
        client.changes_left -= 1;
        let Some(held) = client.held_mut() else { return };
        let token = held.token;
        if held.mode != LockMode::Shared {
            if held.claim.downgrade(now, token).is_ok() {
                held.mode = LockMode::Shared;
                // Answers to an earlier EXTEND no longer count.
                held.extending = None;
                self.send_all(number, &Request::Downgrade { token });
            }
        } else if held.claim.begin_upgrade(now, TERM.patience()).is_ok() {
            // Answers to an earlier EXTEND no longer count.
            held.extending = None;
            held.upgrades.push(last_token + 1);
            let origin = (Some(token), Origin::Upgraded);
            self.begin_round(scope, number, origin, LockMode::Upgraded, NodeSet::EMPTY);
        }
    }

    fn send(&mut self, number: usize, node: usize, request: Request) {
        let link = &mut self.clients[number].links[node];
        if let Request::Release { token, giver, .. } = request {
            if link.is_released(token) {
                return;
            }
            let is_offered = |offer: Offer| offer.token == token && !offer.silent.contains(node);
            if giver.is_none()
                && self.offer.is_some_and(|offer| !offer.is_adopted && is_offered(offer))
            {
                self.wrong = Some("a detached lease is released where adopters need it");
            }
        }
        // A request on a broken connection is lost, except an undo or a release, which is delivered after the
        // reconnect.
        if !link.broken || matches!(request, Request::Release { .. }) {
            link.up.push(request);
        }
    }

    fn send_to(&mut self, number: usize, nodes: NodeSet, request: &Request) {
        nodes.iter().for_each(|node| self.send(number, node, request.clone()));
    }

    fn send_all(&mut self, number: usize, request: &Request) {
        self.send_to(number, Self::quorum().all(), request);
    }

    /// The requests to a node whose answers a client waits for, oldest first.
    pub(super) fn awaited(&self, number: usize, node: usize) -> Vec<Awaited> {
        let client = &self.clients[number];
        let mut awaited = Vec::new();
        for owned in &client.claims {
            let token = owned.token;
            let waits = [
                (Awaited::Vote(token), owned.votes[node].is_none() || owned.late[node]),
                (Awaited::Raise(token), owned.raises[node] == Raise::Awaited),
                (Awaited::Heal(token), owned.is_healing(node)),
                (Awaited::GiveBack(token), owned.giving_back.contains(node)),
            ];
            awaited.extend(waits.into_iter().filter(|(_, waits)| *waits).map(|(what, _)| what));
        }
        let extending = client.extending().filter(|e| e.answers[node].is_none());
        awaited.extend(extending.map(|extending| Awaited::Extension(extending.number)));
        awaited
    }

    /// The requests to a node whose answers a client waits for and whose deadline has not passed.
    pub(super) fn timely(&self, number: usize, node: usize) -> Vec<Awaited> {
        let client = &self.clients[number];
        let is_late = |awaited: &Awaited| match *awaited {
            Awaited::Vote(token) => client.owned(token).is_some_and(|owned| owned.late[node]),
            Awaited::Heal(token) => client.owned(token).is_some_and(|o| o.healing[node] == 0),
            _ => false,
        };
        let mut awaited = self.awaited(number, node);
        awaited.retain(|awaited| !is_late(awaited));
        // While no vote and no HEAL is pending, it makes no difference when the release ends.
        let waits_for_release = |owned: &&Owned| {
            owned.releasing.contains(node) && (owned.is_voting() || owned.is_healing_any())
        };
        let releasing = client.claims.iter().filter(waits_for_release);
        awaited.extend(releasing.map(|owned| Awaited::Release(owned.token)));
        awaited
    }

    /// Handles the expiry of this request's deadline. A later answer is still processed if the request is an
    /// ACQUIRE or a HEAL.
    pub(super) fn time_out(&mut self, number: usize, node: usize, awaited: Awaited) {
        match awaited {
            Awaited::Vote(token) => {
                if let Some(owned) = self.clients[number].owned_mut(token) {
                    owned.late[node] = true;
                }
            }
            Awaited::Heal(token) => {
                if let Some(owned) = self.clients[number].owned_mut(token) {
                    owned.healing[node] -= 1;
                    owned.healing_late[node] += 1;
                }
                return self.healed(number, node, token, Healing::Open);
            }
            _ => {}
        }
        self.give_up(number, node, awaited);
    }

    /// Gives up on this request, because its answer will not arrive, or will not arrive in time.
    pub(super) fn give_up(&mut self, number: usize, node: usize, awaited: Awaited) {
        match awaited {
            Awaited::Vote(token) => self.vote(number, node, token, Vote::Unknown, false),
            Awaited::Raise(token) => self.raised(number, node, token, false),
            Awaited::Extension(_) => self.extended(number, node, Answer::Unknown),
            Awaited::Heal(token) => {
                if let Some(owned) = self.clients[number].owned_mut(token) {
                    owned.healing[node] = 0;
                    owned.healing_late[node] = 0;
                }
                self.healed(number, node, token, Healing::Open);
            }
            Awaited::GiveBack(upgrade) => self.gave_back(number, node, upgrade, false),
            Awaited::Release(token) => self.released(number, node, token),
        }
    }

    /// Handles the answer of a node to RELEASE or GIVE BACK of this token.
    pub(super) fn deleted(&mut self, number: usize, node: usize, token: Token) {
        self.gave_back(number, node, token, true);
        self.released(number, node, token);
    }

    /// Handles the end of a client's wait for an answer to GIVE BACK of an upgrade. `is_answered` is `false` if the
    /// client gave up.
    fn gave_back(&mut self, number: usize, node: usize, token: Token, is_answered: bool) {
        let now = self.now(number);
        let client = &mut self.clients[number];
        let Some(upgrade) = client.owned_mut(token).filter(|o| o.giving_back.contains(node)) else {
            return;
        };
        upgrade.giving_back.remove(node);
        let giver = upgrade.giver.filter(|_| is_answered);
        if let Some(held) = giver.and_then(|giver| client.owned_mut(giver)) {
            held.claim.gave_back(now, &token, node);
        }
        self.end_upgrade(number, token);
        self.tidy(number);
    }

    /// Handles a node's answer to RELEASE, or the end of the wait for that answer.
    fn released(&mut self, number: usize, node: usize, token: Token) {
        let owned = self.clients[number].owned_mut(token);
        let Some(owned) = owned.filter(|owned| owned.releasing.contains(node)) else { return };
        owned.releasing.remove(node);
        if owned.releasing.is_empty() {
            let commands = owned.claim.end_release();
            self.carry_out(number, token, commands);
            self.tidy(number);
        }
    }

    pub(super) fn receive(&mut self, number: usize, node: usize, reply: Reply) {
        match reply {
            Reply::Vote(token, vote, in_order) => {
                let client = &mut self.clients[number];
                let Some(began) = client.owned(token).map(|owned| owned.began) else { return };
                let vote = if client.links[node].counts(began) { vote } else { vote.uncounted() };
                self.vote(number, node, token, vote, in_order);
            }
            Reply::Raised(token, stored) => self.raised(number, node, token, stored),
            Reply::Healed(token, healed) => {
                let Some(owned) = self.clients[number].owned_mut(token) else { return };
                let is_late = owned.healing_late[node] > 0;
                let pending = if is_late { &mut owned.healing_late } else { &mut owned.healing };
                pending[node] -= 1;
                // An answer after the deadline does not count.
                let healed = Some(healed).filter(|_| !is_late);
                self.healed(number, node, token, Healing::Answered(healed));
            }
            Reply::Extended(_, done) => {
                let client = &self.clients[number];
                let Some(extending) = client.extending() else { return };
                let answer = if done { Answer::Yes } else { Answer::No };
                let counts = client.links[node].counts(extending.extension.sent());
                self.extended(number, node, if counts { answer } else { answer.uncounted() });
            }
        }
    }

    /// Handles a node's vote, which may arrive before or after the deadline.
    fn vote(&mut self, number: usize, node: usize, token: Token, vote: Vote, in_order: bool) {
        let Some(owned) = self.clients[number].owned_mut(token) else { return };
        let event = match owned.votes[node] {
            None => Event::Vote { node, vote, in_order },
            Some(_) => {
                owned.late[node] = false;
                Event::Late { node, vote }
            }
        };
        // A late vote changes nothing in an undecided round.
        if owned.votes[node].is_none() || owned.decided.is_some() {
            owned.votes[node] = Some(vote);
        }
        self.handle(number, token, event);
        self.tidy(number);
    }

    /// Handles the report of a node that does not know the script of this request. The client sends the request again,
    /// after the other requests that it has sent in the meantime. The client does not send an ACQUIRE again after the
    /// deadline of the ACQUIRE.
    pub(super) fn send_again(&mut self, number: usize, node: usize, request: Request) {
        if self.clients[number].crashed {
            return;
        }
        if let Request::Acquire { token, giver, mode, proposal, .. } = request {
            match self.clients[number].owned(token).map(|owned| owned.votes[node]) {
                Some(None) => {
                    let request = Request::Acquire { token, giver, mode, proposal, is_again: true };
                    self.send(number, node, request);
                }
                Some(Some(_)) => self.vote(number, node, token, Vote::Refused, false),
                None => {}
            }
        } else {
            self.send(number, node, request);
        }
    }

    fn raised(&mut self, number: usize, node: usize, token: Token, stored: bool) {
        if let Some(owned) = self.clients[number].owned_mut(token) {
            owned.raises[node] = Raise::Answered { stored };
        }
        self.handle(number, token, Event::Raised { node, stored });
        self.tidy(number);
    }

    /// Passes an event of a round to the claim of that round, and carries out the commands.
    fn handle(&mut self, number: usize, token: Token, event: Event) {
        let now = self.now(number);
        self.end_giver(number, token);
        let Some(owned) = self.clients[number].owned_mut(token) else { return };
        let commands = owned.claim.handle(now, event);
        // The round may be lost before the reason is known.
        let is_lost = owned.claim.round().is_some_and(Round::is_lost);
        let outcome = commands.outcome;
        owned.decided = owned.decided.or(match outcome {
            Some(Outcome::Won { .. }) => Some(Decided::Won),
            _ if event == Event::Abandon => Some(Decided::Abandoned),
            _ => is_lost.then_some(Decided::Lost),
        });
        self.carry_out(number, token, commands);
        if let Some(Outcome::Won { fence, .. }) = outcome {
            self.won(number, token, fence);
        }
        self.end_upgrade(number, token);
    }

    /// If this is a failed upgrade and nobody can use its shared lease any more (`Claim::is_deleted`), tells the claim
    /// of the upgrade.
    fn end_giver(&mut self, number: usize, token: Token) {
        let client = &mut self.clients[number];
        let is_deleted = |owned: &Owned| {
            let mut claims = client.claims.iter();
            claims.any(|other| owned.is_undone_upgrade_of(other.token) && other.claim.is_deleted())
        };
        if client.owned(token).is_some_and(is_deleted)
            && let Some(owned) = client.owned_mut(token)
        {
            let commands = owned.claim.end_giver();
            self.carry_out(number, token, commands);
        }
    }

    /// Sends the requests that a claim asks for.
    fn carry_out(&mut self, number: usize, token: Token, commands: Commands<Token>) {
        let Some(owned) = self.clients[number].owned_mut(token) else { return };
        let Owned { giver, mode, .. } = *owned;
        let is_undo = owned.decided != Some(Decided::Won);
        if let Some((nodes, fence)) = commands.raise {
            nodes.iter().for_each(|node| owned.raises[node] = Raise::Awaited);
            self.send_to(number, nodes, &Request::Raise { token, mode, fence });
        }
        let release = Request::Release { token, giver: None, mode, is_undo };
        // The order matters: after a node has applied the RELEASE of an upgrade, no GIVE BACK can return the upgrade's
        // key to the lease.
        for (upgrade, node) in commands.release_upgrades {
            self.send(number, node, Request::release(upgrade, LockMode::Upgraded));
            self.send(number, node, release.clone());
        }
        self.send_to(number, commands.release_both, &release);
        if let Some(giver) = giver {
            let mode = if mode == LockMode::Upgraded { LockMode::Shared } else { mode };
            let release = Request::release(giver, mode);
            self.send_to(number, commands.release_both, &release);
            self.send_to(number, commands.release_giver, &release);
        }
        self.send_to(number, commands.release, &release);
        self.give_back(number, token, commands.give_back);
    }

    /// Sends GIVE BACK to these nodes. If the claim is a failed upgrade, its shared lease waits for the answers.
    fn give_back(&mut self, number: usize, token: Token, nodes: NodeSet) {
        let client = &mut self.clients[number];
        let Some(owned) = client.owned_mut(token) else { return };
        let Owned { giver, mode, .. } = *owned;
        let is_upgrade = owned.claim.origin() == Origin::Upgraded;
        // An earlier GIVE BACK that is still under way is answered together with this one.
        let waiting = owned.giving_back;
        let new: NodeSet = nodes.without(waiting);
        let upgraded = giver.filter(|_| is_upgrade);
        if let Some(held) = upgraded.and_then(|giver| client.owned_mut(giver)) {
            let commands = held.claim.gives_back(&token, new);
            if commands != Commands::default() {
                let held = held.token;
                return self.carry_out(number, held, commands);
            }
            if let Some(owned) = client.owned_mut(token) {
                new.iter().for_each(|node| owned.giving_back.insert(node));
            }
        }
        self.send_to(number, nodes, &Request::Release { token, giver, mode, is_undo: true });
    }

    /// Ends an upgrade that is decided and whose GIVE BACKs are all answered or given up. Afterwards, sends RELEASE if
    /// the lease was released during the upgrade.
    fn end_upgrade(&mut self, number: usize, upgrade: Token) {
        let now = self.now(number);
        let client = &mut self.clients[number];
        let has_ended = |owned: &&Owned| owned.decided.is_some() && owned.giving_back.is_empty();
        let giver = client.owned(upgrade).filter(has_ended).and_then(|owned| owned.giver);
        let Some(held) = giver.and_then(|giver| client.owned_mut(giver)) else { return };
        if !held.claim.lease().is_upgrading() || held.upgrades.last() != Some(&upgrade) {
            return;
        }
        let token = held.token;
        let is_releasing = held.is_releasing();
        let commands = held.claim.end_upgrade(now);
        self.carry_out(number, token, commands);
        if is_releasing {
            self.send_release(number, token);
        }
    }

    fn won(&mut self, number: usize, token: Token, fence: u64) {
        let now = self.now(number);
        let last_token = self.last_token;
        let client = &mut self.clients[number];
        let Some(owned) = client.owned_mut(token) else { return };
        let Owned { giver, mode, .. } = *owned;
        if !owned.claim.lease().is_valid(now) {
            self.wrong = Some("a lease has ended when it is won");
        }
        owned.last_token = last_token;
        if owned.claim.origin() == Origin::Upgraded {
            let mut upgrade = owned.claim.clone();
            let Some(held) = giver.and_then(|giver| client.owned_mut(giver)) else { return };
            let upgraded = held.claim.upgraded(now, &mut upgrade);
            let Some(owned) = client.owned_mut(token) else { return };
            owned.claim = upgrade;
            if let Err(commands) = upgraded {
                owned.decided = Some(Decided::Refused);
                return self.carry_out(number, token, commands);
            }
        }
        self.fence_granted(mode, fence);
        for other in (0..self.clients.len()).filter(|other| *other != number) {
            let now = self.now(other);
            let held = self.clients[other].held_mut();
            if let Some(held) = held.filter(|held| [mode, held.mode] != [LockMode::Shared; 2]) {
                let is_valid = held.claim.lease().is_valid(now);
                held.is_overtaken |= token > held.last_token && is_valid;
            }
        }
        if let Some(offer) = self.offer.as_mut().filter(|offer| giver == Some(offer.token))
            && std::mem::replace(&mut offer.is_adopted, true)
        {
            self.wrong = Some("a lease is adopted twice");
        }
    }

    pub(super) fn extend(&mut self, scope: &Scope, client: usize) {
        let now = self.now(client);
        let Client { claims, extensions_left, .. } = &mut self.clients[client];
        let Some(held) = claims.iter_mut().find(|owned| owned.is_held()) else { return };
        let patience = TERM.patience();
        let Some(extension) = held.claim.extend(now, scope.extension, patience) else { return };
        *extensions_left -= 1;
        let number = *extensions_left;
        let Owned { token, mode, .. } = *held;
        let ttl = extension.term().ttl;
        let request = Request::Extend { token, mode, ttl, number };
        held.extending = Some(Extending {
            number,
            extension,
            is_confirmed: false,
            is_overtaken: held.is_overtaken,
            answers: [None; NODES],
        });
        self.send_all(client, &request);
    }

    fn extended(&mut self, number: usize, node: usize, answer: Answer) {
        let now = self.now(number);
        let Some(held) = self.clients[number].held_mut() else { return };
        let Some(extending) = &mut held.extending else { return };
        let answer = held.claim.effective_answer(node, answer);
        extending.answers[node] = Some(answer);
        let extended = held.claim.extended(now, &mut extending.extension, node, answer);
        extending.is_confirmed |= extended == Some(Extended::Confirmed);
        if extending.is_confirmed && extending.is_overtaken {
            self.wrong = Some("a lease is confirmed after another client won the resource");
        }
        let missing = extending.extension.take_missing();
        let is_confirmed = extending.is_confirmed;
        if extending.answers.iter().all(Option::is_some) {
            held.extending = None;
        }
        let token = held.token;
        let may_heal = is_confirmed && held.claim.lease().is_valid(now);
        if self.heal(number, token, missing) && !may_heal {
            self.wrong = Some("a node is repaired although no majority confirmed the lease");
        }
        self.tidy(number);
    }

    /// Sends HEAL to the nodes that lack the key of the client's lease.
    pub(super) fn repair(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.repairs_left -= 1;
        let Some(held) = client.held() else { return };
        let (token, missing) = (held.token, held.claim.lease().missing());
        self.heal(number, token, missing);
    }

    /// Sends HEAL to these nodes, except where the connection is broken. Returns whether any HEAL was sent.
    fn heal(&mut self, number: usize, token: Token, nodes: NodeSet) -> bool {
        let now = self.now(number);
        let client = &mut self.clients[number];
        let sent: NodeSet = nodes.iter().filter(|node| !client.links[*node].broken).collect();
        let Some(owned) = client.owned_mut(token) else { return false };
        let Some(ttl) = owned.claim.heal(now, nodes) else { return false };
        sent.iter().for_each(|node| owned.healing[node] += 1);
        let Owned { giver, mode, .. } = *owned;
        let fence = owned.claim.lease().fence();
        self.send_to(number, sent, &Request::Heal { token, giver, mode, ttl, fence });
        nodes
            .without(sent)
            .iter()
            .for_each(|node| self.healed(number, node, token, Healing::Unsent));
        !sent.is_empty()
    }

    /// Tells the claim what has become of a HEAL.
    fn healed(&mut self, number: usize, node: usize, token: Token, healing: Healing) {
        let now = self.now(number);
        let Some(owned) = self.clients[number].owned_mut(token) else { return };
        // The ttl matters only for `gone_by`, which the model does not use.
        let commands = owned.claim.healed(now, (node, TERM.ttl), healing);
        self.carry_out(number, token, commands);
        self.tidy(number);
    }

    /// Releases the client's lease, valid or not. If the lease is being upgraded, RELEASE is sent after the upgrade has
    /// ended.
    pub(super) fn release(&mut self, number: usize) {
        let now = self.now(number);
        let Some(held) = self.clients[number].held_mut() else { return };
        let token = held.token;
        let is_upgrading = held.claim.lease().is_upgrading();
        if held.claim.release(now).is_some() && !is_upgrading {
            self.send_release(number, token);
        }
        self.tidy(number);
    }

    fn send_release(&mut self, number: usize, token: Token) {
        let Some(owned) = self.clients[number].owned_mut(token) else { return };
        let commands = owned.claim.send_release();
        owned.releasing = commands.release;
        self.carry_out(number, token, commands);
    }

    /// Cancels the client's undecided acquire, if there is one.
    pub(super) fn cancel(&mut self, number: usize) {
        let mut claims = self.clients[number].claims.iter();
        let Some(owned) = claims.find(|owned| owned.decided.is_none()) else { return };
        self.handle(number, owned.token, Event::Abandon);
        self.tidy(number);
    }

    /// Drops data that no longer matters. States that differ only in such data become equal.
    fn tidy(&mut self, number: usize) {
        let client = &mut self.clients[number];
        for owned in client.claims.iter_mut().filter(|owned| owned.decided.is_some()) {
            // Answers to RAISE no longer change anything.
            owned.raises = [Raise::Unasked; NODES];
        }
        client.forget();
        for node in 0..NODES {
            let awaited = self.awaited(number, node);
            self.clients[number].links[node].down.retain(|reply| awaited.contains(&reply.to()));
        }
    }
}
