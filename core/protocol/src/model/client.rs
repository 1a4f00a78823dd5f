//! A client of the model: does what the driver does, one step at a time.

use super::action::Awaited;
use super::scope::Scope;
use super::settings::{NODES, TERM};
use super::world::{
    Attempt, Client, Decided, Extending, Held, Link, Offer, Raise, Reply, Request, Token, World,
};
use crate::node::readers::LockMode;
use crate::{
    Actions, Answer, Event, Extended, Footprint, Healed, Lease, Moment, NodeSet, Outcome, Round,
    Vote,
};

impl World {
    /// Begins a round; an adopter's if there is an offer.
    pub(super) fn start(&mut self, scope: &Scope, number: usize, offer: Option<Offer>) {
        self.clients[number].rounds_left -= 1;
        let silent = offer.map_or(NodeSet::EMPTY, |offer| offer.silent);
        let giver = offer.map(|offer| offer.token);
        self.begin_round(scope, number, giver, self.modes[number], silent);
    }

    /// Begins a round of a new token in this mode. The nodes in `silent` may not vote.
    fn begin_round(
        &mut self,
        scope: &Scope,
        number: usize,
        giver: Option<Token>,
        mode: LockMode,
        silent: NodeSet,
    ) {
        let now = self.now(number);
        self.last_token += 1;
        let token = self.last_token;
        self.clients[number].attempts.push(Attempt {
            token,
            giver,
            mode,
            round: Round::new(Self::quorum(), now, TERM),
            began: now,
            decided: None,
            votes: [None; NODES],
            late: [false; NODES],
            raises: [Raise::Unasked; NODES],
        });
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

    /// The nodes that have not answered all requests that set the key of the client's lease.
    fn silent(&self, number: usize) -> NodeSet {
        let held = self.clients[number].held.as_ref();
        held.map_or(NodeSet::EMPTY, |held| held.footprint.silent())
    }

    /// Whether the client's lease is valid and adopters could win it.
    pub(super) fn can_be_detached(&self, number: usize) -> bool {
        let held = self.clients[number].held.as_ref();
        held.is_some_and(|held| held.lease.is_valid(self.now(number)))
            && self.silent(number).len() <= Self::quorum().tolerated()
    }

    /// Detaches the client's lease.
    pub(super) fn detach(&mut self, number: usize) {
        let now = self.now(number);
        let silent = self.silent(number);
        let Some(mut held) = self.clients[number].held.take() else { return };
        if held.lease.detach(now) && held.lease.is_valid(now) {
            self.wrong = Some("a lease is valid after it was detached");
        }
        self.offer = Some(Offer { token: held.token, silent, is_adopted: false });
        self.release_giver(number, &held);
        self.tidy(number);
    }

    /// Makes an exclusive lease shared, or begins the upgrade of a shared one.
    pub(super) fn change_mode(&mut self, scope: &Scope, number: usize) {
        let now = self.now(number);
        let last_token = self.last_token;
        let client = &mut self.clients[number];
        client.changes_left -= 1;
        let Some(held) = &mut client.held else { return };
        let token = held.token;
        if held.mode != LockMode::Shared {
            held.mode = LockMode::Shared;
            self.send_all(number, &Request::Downgrade { token });
        } else if held.lease.begin_upgrade(now) {
            // Answers to EXTEND no longer count.
            held.extending = None;
            held.upgrades.push(last_token + 1);
            self.begin_round(scope, number, Some(token), LockMode::Upgraded, NodeSet::EMPTY);
        }
    }

    fn send(&mut self, number: usize, node: usize, request: Request) {
        let link = &mut self.clients[number].links[node];
        if let Request::Release { token, .. } = request
            && link.is_released(token)
        {
            return;
        }
        // A request on a broken connection is lost. An undo or release is not: it is delivered after the
        // reconnect.
        if !link.broken || matches!(request, Request::Release { .. }) {
            link.up.push(request);
        }
    }

    fn send_all(&mut self, number: usize, request: &Request) {
        for node in 0..NODES {
            self.send(number, node, request.clone());
        }
    }

    /// The requests to a node that a client waits for, oldest first.
    pub(super) fn awaited(&self, number: usize, node: usize) -> Vec<Awaited> {
        let client = &self.clients[number];
        let mut awaited = Vec::new();
        for attempt in &client.attempts {
            if attempt.votes[node].is_none() || attempt.late[node] {
                awaited.push(Awaited::Vote(attempt.token));
            }
            if attempt.raises[node] == Raise::Awaited {
                awaited.push(Awaited::Raise(attempt.token));
            }
        }
        let extending = client.held.as_ref().and_then(|held| held.extending.as_ref());
        if let Some(extending) = extending.filter(|e| e.answers[node].is_none()) {
            awaited.push(Awaited::Extension(extending.number));
        }
        let held = client.held.as_ref().filter(|held| held.healing.contains(node));
        awaited.extend(held.map(|held| Awaited::Heal(held.token)));
        let held = client.held.as_ref().filter(|held| held.giving_back.contains(node));
        let upgrade = held.and_then(|held| held.upgrades.last());
        awaited.extend(upgrade.map(|upgrade| Awaited::GiveBack(*upgrade)));
        awaited
    }

    /// The requests to a node that a client waits for and whose deadline has not passed.
    pub(super) fn timely(&self, number: usize, node: usize) -> Vec<Awaited> {
        let is_late = |token: Token| {
            let mut attempts = self.clients[number].attempts.iter();
            attempts.any(|attempt| attempt.token == token && attempt.late[node])
        };
        let mut awaited = self.awaited(number, node);
        awaited.retain(|a| !matches!(a, Awaited::Vote(token) if is_late(*token)));
        awaited
    }

    /// Handles the expiry of this request's deadline. A later answer is still processed if the request is an
    /// ACQUIRE.
    pub(super) fn time_out(&mut self, number: usize, node: usize, awaited: Awaited) {
        if let Awaited::Vote(token) = awaited
            && let Some(attempt) = self.clients[number].attempt(token)
        {
            attempt.late[node] = true;
        }
        self.give_up(number, node, awaited);
    }

    /// Gives up on this request: its answer will not arrive, or not in time.
    pub(super) fn give_up(&mut self, number: usize, node: usize, awaited: Awaited) {
        match awaited {
            Awaited::Vote(token) => self.vote(number, node, token, Vote::Unknown, false),
            Awaited::Raise(token) => self.raised(number, node, token, false),
            Awaited::Extension(_) => self.extended(number, node, Answer::Unknown),
            Awaited::Heal(_) => self.repaired(number, node, None),
            Awaited::GiveBack(upgrade) => self.gave_back(number, node, upgrade, false),
        }
    }

    /// Handles the answer of a node to GIVE BACK of an upgrade, or its deadline, as `is_answered` says.
    pub(super) fn gave_back(
        &mut self,
        number: usize,
        node: usize,
        upgrade: Token,
        is_answered: bool,
    ) {
        if !self.awaited(number, node).contains(&Awaited::GiveBack(upgrade)) {
            return;
        }
        let Some(held) = &mut self.clients[number].held else { return };
        held.giving_back.remove(node);
        if is_answered {
            held.footprint.answered_give_back(&upgrade, node);
        }
        if held.giving_back.is_empty() {
            held.lease.end_upgrade();
        }
    }

    pub(super) fn receive(&mut self, number: usize, node: usize, reply: Reply) {
        match reply {
            Reply::Vote(token, vote, in_order) => {
                let client = &mut self.clients[number];
                let Some(began) = client.attempt(token).map(|attempt| attempt.began) else {
                    return;
                };
                let vote = if client.links[node].counts(began) { vote } else { vote.uncounted() };
                self.vote(number, node, token, vote, in_order);
            }
            Reply::Raised(token, stored) => self.raised(number, node, token, stored),
            Reply::Healed(_, healed) => self.repaired(number, node, Some(healed)),
            Reply::Extended(_, done) => {
                let client = &self.clients[number];
                let extending = client.held.as_ref().and_then(|held| held.extending.as_ref());
                let Some(began) = extending.map(|extending| extending.began) else { return };
                let answer = if done { Answer::Yes } else { Answer::No };
                let counts = client.links[node].counts(began);
                self.extended(number, node, if counts { answer } else { answer.uncounted() });
            }
        }
    }

    /// Handles a node's vote, or its answer after the deadline.
    fn vote(&mut self, number: usize, node: usize, token: Token, vote: Vote, in_order: bool) {
        // The round was won, and its lease is already released: abandon the round, so that a late grant is
        // undone.
        if self.clients[number].attempt(token).is_some_and(|a| a.decided == Some(Decided::Won))
            && self.clients[number].held.as_ref().is_none_or(|held| held.token != token)
        {
            self.handle(number, token, Event::Abandon);
        }
        let Some(attempt) = self.clients[number].attempt(token) else { return };
        let event = match attempt.votes[node] {
            None => Event::Vote { node, vote, in_order },
            Some(_) => {
                attempt.late[node] = false;
                Event::Late { node, vote }
            }
        };
        // A late vote changes nothing in a round that is not decided.
        if attempt.votes[node].is_none() || attempt.decided.is_some() {
            attempt.votes[node] = Some(vote);
        }
        let held = self.clients[number].held.as_mut().filter(|held| held.token == token);
        if let (Some(held), Vote::Granted { fence }) = (held, vote) {
            held.lease.granted(node, fence);
        }
        self.handle(number, token, event);
        let Client { attempts, held, .. } = &mut self.clients[number];
        let attempt = attempts.iter().find(|attempt| attempt.token == token);
        let held = held.as_mut().filter(|held| held.token == token);
        if let (Some(held), Some(attempt)) = (held, attempt) {
            held.footprint.counted_votes(&attempt.round);
        }
        self.tidy(number);
    }

    /// Called when a node has applied a HEAL. If the lease has been released meanwhile, releases the key
    /// too.
    pub(super) fn healed(&mut self, number: usize, node: usize, token: Token, mode: LockMode) {
        let client = &self.clients[number];
        if !client.crashed && client.held.as_ref().is_none_or(|held| held.token != token) {
            self.send(number, node, Request::Release { token, giver: None, mode, is_undo: false });
        }
    }

    /// Handles a node's report that it does not know the script of this request. The client sends the
    /// request again, after the requests that it sent meanwhile, unless the deadline has passed.
    pub(super) fn send_again(&mut self, number: usize, node: usize, request: Request) {
        if self.clients[number].crashed {
            return;
        }
        if let Request::Acquire { token, giver, mode, proposal, .. } = request {
            let attempt = self.clients[number].attempt(token);
            match attempt.map(|attempt| attempt.votes[node]) {
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
        if let Some(attempt) = self.clients[number].attempt(token) {
            attempt.raises[node] = Raise::Answered { stored };
        }
        self.handle(number, token, Event::Raised { node, stored });
        self.tidy(number);
    }

    fn handle(&mut self, number: usize, token: Token, event: Event) {
        let now = self.now(number);
        let Some(attempt) = self.clients[number].attempt(token) else { return };
        let Actions { raise, undo, outcome } = attempt.round.handle(now, event);
        let giver = attempt.giver.filter(|_| !attempt.round.has_won());
        let mode = attempt.mode;
        let was_decided = attempt.decided.is_some();
        if event == Event::Abandon {
            attempt.decided = Some(Decided::Abandoned);
        } else if !undo.is_empty() && attempt.decided.is_none() {
            // The round is lost, although the reason may not be known yet.
            attempt.decided = Some(Decided::Lost);
        }
        match outcome {
            Some(Outcome::Won { .. }) => attempt.decided = Some(Decided::Won),
            Some(Outcome::Lost(_)) => attempt.decided = Some(Decided::Lost),
            None => {}
        }
        if let Some((nodes, fence)) = raise {
            nodes.iter().for_each(|node| attempt.raises[node] = Raise::Awaited);
            let request = Request::Raise { token, mode, fence };
            nodes.iter().for_each(|node| self.send(number, node, request.clone()));
        }
        let request = Request::Release { token, giver, mode, is_undo: true };
        let is_decided = self.clients[number].attempt(token).is_some_and(|a| a.decided.is_some());
        if mode == LockMode::Upgraded && giver.is_some() && is_decided && !was_decided {
            self.undo_upgrade(number, token, giver);
        } else {
            undo.iter().for_each(|node| self.send(number, node, request.clone()));
        }
        if let Some(Outcome::Won { fence, end }) = outcome {
            self.won(number, token, fence, end);
        }
    }

    /// Sends GIVE BACK of a failed upgrade to all nodes. The upgrade ends when they have answered.
    fn undo_upgrade(&mut self, number: usize, token: Token, giver: Option<Token>) {
        let held = self.clients[number].held.as_mut();
        if let Some(held) = held.filter(|held| Some(held.token) == giver) {
            held.footprint.sent_give_back(&token, Self::quorum().all());
            held.giving_back = Self::quorum().all();
        }
        let mode = LockMode::Upgraded;
        self.send_all(number, &Request::Release { token, giver, mode, is_undo: true });
    }

    fn won(&mut self, number: usize, token: Token, fence: u64, end: Moment) {
        let now = self.now(number);
        let Some(attempt) = self.clients[number].attempt(token) else { return };
        let giver = attempt.giver;
        let mode = attempt.mode;
        if mode == LockMode::Upgraded {
            let held = self.clients[number].held.as_mut();
            if !held.is_some_and(|held| held.lease.upgraded(now)) {
                // The lease has ended meanwhile.
                self.undo_upgrade(number, token, giver);
                return;
            }
        }
        self.fence_granted(mode, fence);
        for other in (0..self.clients.len()).filter(|other| *other != number) {
            let now = self.now(other);
            let held = self.clients[other].held.as_mut();
            if let Some(held) = held.filter(|held| [mode, held.mode] != [LockMode::Shared; 2]) {
                held.is_overtaken |= token > held.last_token && held.lease.is_valid(now);
            }
        }
        let Some(attempt) = self.clients[number].attempt(token) else { return };
        let footprint = Footprint::new(&attempt.round, end);
        let lease = Lease::new(Self::quorum(), attempt.round.granted(), fence, end, None);
        if !lease.is_valid(self.now(number)) {
            self.wrong = Some("a lease has ended when it is won");
        }
        if let Some(offer) = self.offer.as_mut().filter(|offer| giver == Some(offer.token))
            && std::mem::replace(&mut offer.is_adopted, true)
        {
            self.wrong = Some("a lease is adopted twice");
        }
        self.clients[number].held = Some(Held {
            token,
            giver,
            mode,
            upgrades: Vec::new(),
            footprint,
            giving_back: NodeSet::EMPTY,
            fence,
            lease,
            extending: None,
            is_complete: false,
            healing: NodeSet::EMPTY,
            last_token: self.last_token,
            is_overtaken: false,
            was_over: false,
        });
    }

    pub(super) fn extend(&mut self, scope: &Scope, client: usize) {
        let now = self.now(client);
        let Client { held, extensions_left, .. } = &mut self.clients[client];
        let Some(held) = held else { return };
        let Some(extension) = held.lease.extend(now, scope.extension) else { return };
        *extensions_left -= 1;
        let number = *extensions_left;
        let token = held.token;
        let mode = held.mode;
        let ttl = extension.term().ttl;
        let request = Request::Extend { token, mode, ttl, number };
        held.extending = Some(Extending {
            number,
            extension,
            began: now,
            is_confirmed: false,
            is_overtaken: held.is_overtaken,
            answers: [None; NODES],
        });
        self.send_all(client, &request);
    }

    fn extended(&mut self, number: usize, node: usize, answer: Answer) {
        let now = self.now(number);
        let Some(held) = &mut self.clients[number].held else { return };
        let Some(extending) = &mut held.extending else { return };
        extending.answers[node] = Some(answer);
        let extended = held.lease.extended(now, &mut extending.extension, node, answer);
        extending.is_confirmed |= extended == Some(Extended::Confirmed);
        if extending.is_confirmed && extending.is_overtaken {
            self.wrong = Some("a lease is confirmed after another client won the resource");
        }
        let missing = extending.extension.take_missing();
        let is_confirmed = extending.is_confirmed;
        if extending.answers.iter().all(Option::is_some) {
            held.extending = None;
        }
        let ttl = held.lease.heal(now, TERM).filter(|_| !missing.is_empty());
        if let Some(ttl) = ttl {
            let Held { token, giver, mode, fence, .. } = *held;
            if !is_confirmed || !held.lease.is_valid(now) {
                self.wrong = Some("a node is repaired although no majority confirmed the lease");
            }
            self.heal(number, missing, Request::Heal { token, giver, mode, ttl, fence });
        }
        self.tidy(number);
    }

    /// Sends HEAL to the nodes that lack a new lease.
    pub(super) fn repair(&mut self, number: usize) {
        let now = self.now(number);
        let client = &mut self.clients[number];
        client.repairs_left -= 1;
        let Some(held) = &client.held else { return };
        let Some(ttl) = held.lease.heal(now, TERM) else { return };
        let Held { token, giver, mode, fence, .. } = *held;
        let missing = held.lease.missing();
        self.heal(number, missing, Request::Heal { token, giver, mode, ttl, fence });
    }

    fn heal(&mut self, number: usize, nodes: NodeSet, request: Request) {
        for node in nodes.iter() {
            let client = &mut self.clients[number];
            if let Some(held) = client.held.as_mut().filter(|_| !client.links[node].broken) {
                held.healing.insert(node);
                held.footprint.sent_heal(node);
                self.send(number, node, request.clone());
            }
        }
    }

    fn repaired(&mut self, number: usize, node: usize, healed: Option<Healed>) {
        let Some(held) = &mut self.clients[number].held else { return };
        held.healing.remove(node);
        if let Some(healed) = healed {
            held.lease.healed(node, healed);
            held.footprint.answered_heal(node);
        }
        self.tidy(number);
    }

    /// Releases the client's lease, valid or not.
    pub(super) fn release(&mut self, number: usize) {
        let Some(mut held) = self.clients[number].held.take() else { return };
        let Held { token, mode, .. } = held;
        for (upgrade, node) in held.footprint.take_upgrades() {
            self.send(number, node, Request::release(upgrade, LockMode::Upgraded));
        }
        self.release_giver(number, &held);
        self.send_all(number, &Request::release(token, mode));
        self.tidy(number);
    }

    /// Releases what is left of the lease that this one was adopted from or has upgraded.
    fn release_giver(&mut self, number: usize, held: &Held) {
        let Some(giver) = held.giver else { return };
        let mode = if held.mode == LockMode::Upgraded { LockMode::Shared } else { held.mode };
        for node in held.footprint.may_hold_giver(Self::quorum()).iter() {
            self.send(number, node, Request::release(giver, mode));
        }
    }

    /// Cancels the client's undecided acquire, if there is one.
    pub(super) fn cancel(&mut self, number: usize) {
        let mut attempts = self.clients[number].attempts.iter();
        let Some(attempt) = attempts.find(|attempt| attempt.decided.is_none()) else { return };
        self.handle(number, attempt.token, Event::Abandon);
        self.tidy(number);
    }

    /// Drops data that no longer matters, so that states which differ only in it become the same.
    fn tidy(&mut self, number: usize) {
        let mut complete = Vec::new();
        let client = &mut self.clients[number];
        client.attempts.retain_mut(|attempt| {
            if attempt.decided.is_some() {
                // Answers to RAISE no longer change anything.
                attempt.raises = [Raise::Unasked; NODES];
            }
            let is_complete = attempt.votes.iter().all(Option::is_some);
            if is_complete && attempt.decided == Some(Decided::Won) {
                complete.push(attempt.token);
            }
            !is_complete || attempt.decided.is_none() || attempt.late.contains(&true)
        });
        if let Some(held) = &mut client.held {
            held.is_complete |= complete.contains(&held.token);
        }
        for node in 0..NODES {
            let awaited = self.awaited(number, node);
            self.clients[number].links[node].down.retain(|reply| awaited.contains(&reply.to()));
        }
    }
}

impl Client {
    fn attempt(&mut self, token: Token) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.token == token)
    }
}

impl Link {
    /// Whether a RELEASE is already in flight after every request that may store the token.
    fn is_released(&self, token: Token) -> bool {
        let mut up = self.up.iter().rev();
        up.find(|request| request.brings(token) || request.releases(token))
            .is_some_and(|request| request.releases(token))
    }

    /// Whether the node's votes count in a round or extension begun at `began`.
    fn counts(&self, began: Moment) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.counts(began))
    }
}

impl Request {
    fn release(token: Token, mode: LockMode) -> Self {
        Self::Release { token, giver: None, mode, is_undo: false }
    }

    /// Whether the request may store this token.
    pub(super) fn brings(&self, token: Token) -> bool {
        match self {
            Self::Acquire { token: other, .. } | Self::Heal { token: other, .. } => *other == token,
            _ => false,
        }
    }

    fn releases(&self, token: Token) -> bool {
        matches!(self, Self::Release { token: other, .. } if *other == token)
    }
}

impl Reply {
    /// The request that this reply answers.
    pub(super) fn to(&self) -> Awaited {
        match self {
            Self::Vote(token, ..) => Awaited::Vote(*token),
            Self::Raised(token, _) => Awaited::Raise(*token),
            Self::Extended(number, _) => Awaited::Extension(*number),
            Self::Healed(token, _) => Awaited::Heal(*token),
        }
    }
}
