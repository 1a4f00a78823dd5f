//! A client of the model: it does what the driver does, a step at a time.

use super::scopes::Scope;
use super::world::{
    Attempt, Client, Decided, Extending, Held, Link, NODES, Raise, Reply, Request, TERM, Token,
    World,
};
use crate::protocol::{
    Actions, Answer, Event, Extended, Lease, Moment, NodeSet, Outcome, Round, Vote,
};

/// A request that a client waits for the answer of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Vote(Token),
    Raise(Token),
    /// By its number.
    Extension(u8),
}

impl World {
    pub(super) fn start(&mut self, scope: &Scope, number: usize) {
        let now = self.now(number);
        self.last_token += 1;
        let token = self.last_token;
        self.clients[number].rounds_left -= 1;
        self.clients[number].attempts.push(Attempt {
            token,
            round: Round::new(Self::quorum(), now, TERM),
            began: now,
            decided: None,
            votes: [None; NODES],
            raises: [Raise::Unasked; NODES],
        });
        let proposal = self.wall_clock().saturating_add_signed(scope.wall_clocks[number]);
        self.send_all(number, &Request::Acquire { token, proposal });
    }

    fn send(&mut self, number: usize, node: usize, request: Request) {
        let link = &mut self.clients[number].links[node];
        // What is sent to a process that is gone is lost. But an undo is sent until it is answered.
        if !link.broken || matches!(request, Request::Release { .. }) {
            link.up.push(request);
        }
    }

    fn send_all(&mut self, number: usize, request: &Request) {
        for node in 0..NODES {
            self.send(number, node, request.clone());
        }
    }

    /// What a client waits for from a node, oldest first.
    pub(super) fn awaited(&self, number: usize, node: usize) -> Vec<Awaited> {
        let client = &self.clients[number];
        let mut awaited = Vec::new();
        for attempt in &client.attempts {
            if attempt.votes[node].is_none() {
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
        awaited
    }

    /// The client will not hear of this request any more: its deadline has passed, or its connection
    /// broke.
    pub(super) fn give_up(&mut self, number: usize, node: usize, awaited: Awaited) {
        match awaited {
            Awaited::Vote(token) => self.vote(number, node, token, Vote::Unknown),
            Awaited::Raise(token) => self.raised(number, node, token, false),
            Awaited::Extension(_) => self.extended(number, node, Answer::Unknown),
        }
    }

    pub(super) fn receive(&mut self, number: usize, node: usize, reply: Reply) {
        match reply {
            Reply::Vote(token, vote) => {
                let client = &mut self.clients[number];
                let Some(began) = client.attempt(token).map(|attempt| attempt.began) else {
                    return;
                };
                let vote = if client.links[node].counts(began) { vote } else { vote.uncounted() };
                self.vote(number, node, token, vote);
            }
            Reply::Raised(token, stored) => self.raised(number, node, token, stored),
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

    fn vote(&mut self, number: usize, node: usize, token: Token, vote: Vote) {
        // What would join a lease that is released already is taken back, behind the release.
        if self.clients[number].attempt(token).is_some_and(|a| a.decided == Some(Decided::Won))
            && self.clients[number].held.as_ref().is_none_or(|held| held.token != token)
        {
            self.handle(number, token, Event::Abandon);
        }
        if let Some(attempt) = self.clients[number].attempt(token) {
            attempt.votes[node] = Some(vote);
        }
        self.handle(number, token, Event::Vote { node, vote });
        self.tidy(number);
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
        if event == Event::Abandon {
            attempt.decided = Some(Decided::Abandoned);
        } else if !undo.is_empty() && attempt.decided.is_none() {
            // What becomes of it is certain, if not yet for which reason.
            attempt.decided = Some(Decided::Lost);
        }
        match outcome {
            Some(Outcome::Won { .. }) => attempt.decided = Some(Decided::Won),
            Some(Outcome::Lost(_)) => attempt.decided = Some(Decided::Lost),
            None => {}
        }
        if let Some((nodes, fence)) = raise {
            nodes.iter().for_each(|node| attempt.raises[node] = Raise::Awaited);
            nodes.iter().for_each(|node| self.send(number, node, Request::Raise { token, fence }));
        }
        for node in undo.iter() {
            self.send(number, node, Request::Release { token, is_undo: true });
        }
        if let Some(Outcome::Won { fence, end }) = outcome {
            self.won(number, token, fence, Lease::new(Self::quorum(), end, None));
        }
    }

    fn won(&mut self, number: usize, token: Token, fence: u64, lease: Lease) {
        self.fence_granted(fence);
        if !lease.is_valid(self.now(number)) {
            self.wrong = Some("a lease is over when it is won");
        }
        let (extending, lacking, was_over) = (None, NodeSet::EMPTY, false);
        self.clients[number].held =
            Some(Held { token, fence, lease, extending, lacking, was_over });
    }

    pub(super) fn extend(&mut self, client: usize) {
        let now = self.now(client);
        let Client { held, extensions_left, .. } = &mut self.clients[client];
        let Some(held) = held else { return };
        let Some(extension) = held.lease.extend(now, TERM) else { return };
        *extensions_left -= 1;
        let number = *extensions_left;
        let request = Request::Extend { token: held.token, ttl: extension.term().ttl, number };
        let (is_confirmed, answers) = (false, [None; NODES]);
        held.extending = Some(Extending { number, extension, began: now, is_confirmed, answers });
        self.send_all(client, &request);
    }

    fn extended(&mut self, number: usize, node: usize, answer: Answer) {
        let now = self.now(number);
        let Some(held) = &mut self.clients[number].held else { return };
        let Some(extending) = &mut held.extending else { return };
        extending.answers[node] = Some(answer);
        let extended = held.lease.extended(now, &mut extending.extension, node, answer);
        extending.is_confirmed |= extended == Some(Extended::Confirmed);
        let missing = extending.extension.take_missing();
        let is_confirmed = extending.is_confirmed;
        if extending.answers.iter().all(Option::is_some) {
            held.extending = None;
        }
        let ttl = held.lease.heal(now, TERM).filter(|_| !missing.is_empty());
        if let Some(ttl) = ttl {
            let (token, fence) = (held.token, held.fence);
            if !is_confirmed || !held.lease.is_valid(now) {
                self.wrong = Some("a node is healed, and no majority holds the lease");
            }
            for node in missing.iter() {
                self.send(number, node, Request::Heal { token, ttl, fence });
            }
        }
        self.tidy(number);
    }

    /// A lease that was won in contention spreads to where the others were.
    pub(super) fn spread(&mut self, number: usize) {
        let now = self.now(number);
        let Some(held) = &mut self.clients[number].held else { return };
        let lacking = std::mem::take(&mut held.lacking);
        let Some(ttl) = held.lease.heal(now, TERM) else { return };
        let (token, fence) = (held.token, held.fence);
        for node in lacking.iter() {
            self.send(number, node, Request::Heal { token, ttl, fence });
        }
    }

    /// The holder releases its lease, or what is left of it.
    pub(super) fn release(&mut self, number: usize) {
        let Some(held) = self.clients[number].held.take() else { return };
        self.send_all(number, &Request::Release { token: held.token, is_undo: false });
        self.tidy(number);
    }

    /// The caller goes away.
    pub(super) fn cancel(&mut self, number: usize) {
        let mut attempts = self.clients[number].attempts.iter();
        let Some(attempt) = attempts.find(|attempt| attempt.decided.is_none()) else { return };
        self.handle(number, attempt.token, Event::Abandon);
        self.tidy(number);
    }

    /// Forgets what is done with, so that states that differ in nothing that matters are one.
    fn tidy(&mut self, number: usize) {
        let mut spreading = Vec::new();
        let client = &mut self.clients[number];
        client.attempts.retain_mut(|attempt| {
            if attempt.decided.is_some() {
                // Answers to RAISE change nothing any more.
                attempt.raises = [Raise::Unasked; NODES];
            }
            let is_complete = attempt.votes.iter().all(Option::is_some);
            if is_complete && attempt.decided == Some(Decided::Won) {
                spreading.push((attempt.token, attempt.round.lacking()));
            }
            !is_complete || attempt.decided.is_none()
        });
        for (token, lacking) in spreading {
            if let Some(held) = client.held.as_mut().filter(|held| held.token == token) {
                held.lacking = lacking;
            }
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
    /// Whether the node's word counts in what began then.
    fn counts(&self, began: Moment) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.counts(began))
    }
}

impl Reply {
    /// The request that it answers.
    pub(super) fn to(&self) -> Awaited {
        match self {
            Self::Vote(token, _) => Awaited::Vote(*token),
            Self::Raised(token, _) => Awaited::Raise(*token),
            Self::Extended(number, _) => Awaited::Extension(*number),
        }
    }
}
