//! A won lock: whether it is valid, how it is extended, how it ends.

use super::{Moment, NodeSet, Quorum, Term};

/// What one node answered to EXTEND, RELEASE or a look at the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// EXTEND, RELEASE: the node held this lease's token and did it. A look: the key exists.
    Yes,
    /// EXTEND, RELEASE: the node does not hold this lease's token. A look: the key is free.
    No,
    /// No usable answer within the node's deadline.
    Unknown,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    yes: NodeSet,
    no: NodeSet,
    unknown: NodeSet,
}

impl Tally {
    fn add(&mut self, node: usize, answer: Answer) {
        match answer {
            Answer::Yes => self.yes.insert(node),
            Answer::No => self.no.insert(node),
            Answer::Unknown => self.unknown.insert(node),
        }
    }

    fn is_complete(&self, quorum: Quorum) -> bool {
        self.yes.len() + self.no.len() + self.unknown.len() == quorum.nodes()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Lost,
    Released,
}

/// The validity of one lease.
///
/// It is valid from the round that won it until its validity end, which only a confirmed
/// extension moves; until a majority turned out not to hold it; or until it is released. An end
/// is final.
#[derive(Clone, Debug)]
pub struct Lease {
    quorum: Quorum,
    end: Moment,
    state: State,
}

impl Lease {
    /// The lease of a round won with this validity end.
    pub fn new(quorum: Quorum, end: Moment) -> Self {
        Self { quorum, end, state: State::Held }
    }

    /// The validity end as it stands: the moment from which the lease is not valid.
    pub fn end(&self) -> Moment {
        self.end
    }

    /// Whether the holder may still rely on the lease.
    pub fn is_valid(&self, now: Moment) -> bool {
        self.state == State::Held && now < self.end
    }

    /// Whether the lease ended without being released.
    pub fn is_lost(&self, now: Moment) -> bool {
        self.state == State::Lost || (self.state == State::Held && now >= self.end)
    }

    /// Whether the lease was released, be it before or after it was lost.
    pub fn is_released(&self) -> bool {
        self.state == State::Released
    }

    /// Begins an extension whose first EXTEND is sent at `sent` or later; `None` if the lease is
    /// over. EXTEND never shortens the life of a key, so neither does an extension the lease.
    pub fn extend(&self, sent: Moment, term: Term) -> Option<Extension> {
        self.is_valid(sent).then(|| Extension { end: term.end(sent), tally: Tally::default() })
    }

    /// Takes in a node's answer to `extension`, learned of at `now`. `Some` once it is decided.
    ///
    /// A majority has to confirm before the *old* validity end: later, its confirmations would
    /// each have been true at some time, but not together.
    pub fn extended(
        &mut self,
        now: Moment,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        extension.tally.add(node, answer);
        if !self.is_valid(now) {
            return Some(Extended::Lost);
        }
        if extension.tally.no.len() > self.quorum.tolerated() {
            self.state = State::Lost;
            return Some(Extended::Lost);
        }
        if extension.tally.yes.len() >= self.quorum.size() {
            self.end = self.end.max(extension.end);
            return Some(Extended::Confirmed);
        }
        extension.tally.is_complete(self.quorum).then_some(Extended::Undecided)
    }

    /// Ends the lease: from `now` on it is not valid, whatever the nodes will answer.
    pub fn release(&mut self, now: Moment) -> Release {
        let release = Release { was_valid: self.is_valid(now), tally: Tally::default() };
        self.state = State::Released;
        release
    }
}

/// How an extension ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// A majority confirmed: the validity end has moved.
    Confirmed,
    /// The lease is over: its end passed, it was released, or a majority does not hold it.
    Lost,
    /// Too few answers. The lease stands as it was; another extension may be tried.
    Undecided,
}

/// One extension under way.
#[derive(Clone, Debug)]
pub struct Extension {
    end: Moment,
    tally: Tally,
}

/// A release under way.
#[derive(Clone, Debug)]
pub struct Release {
    was_valid: bool,
    tally: Tally,
}

impl Release {
    /// Whether the lease was valid when it was released. If not, the release is decided without
    /// any answer: `false`.
    pub fn was_valid(&self) -> bool {
        self.was_valid
    }

    /// Whether so many nodes did not hold the lease that it was lost before it was released.
    pub fn is_disowned(&self, quorum: Quorum) -> bool {
        self.tally.no.len() > quorum.tolerated()
    }

    /// Takes in a node's answer. `Some` once it is decided: `true` if the lease was valid when it
    /// was released and a majority confirms that it held it until then, else `false`.
    pub fn released(&mut self, quorum: Quorum, node: usize, answer: Answer) -> Option<bool> {
        self.tally.add(node, answer);
        if !self.was_valid || self.is_disowned(quorum) {
            return Some(false);
        }
        if self.tally.yes.len() >= quorum.size() {
            return Some(true);
        }
        self.tally.is_complete(quorum).then_some(false)
    }
}

/// A look at the key on all nodes, which changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    tally: Tally,
}

impl Survey {
    /// Takes in a node's answer. `Some` once it is decided: `Ok(true)` if somebody holds so many
    /// nodes that no majority is free, `Ok(false)` if a majority is free, `Err` if too few nodes
    /// answered to tell.
    pub fn seen(
        &mut self,
        quorum: Quorum,
        node: usize,
        answer: Answer,
    ) -> Option<Result<bool, super::Loss>> {
        self.tally.add(node, answer);
        let Tally { yes, no, unknown } = self.tally;
        if no.len() >= quorum.size() {
            return Some(Ok(false));
        }
        if yes.len() > quorum.tolerated() {
            return Some(Ok(true));
        }
        if unknown.len() > quorum.tolerated() {
            return Some(Err(super::Loss::NoQuorum));
        }
        self.tally.is_complete(quorum).then_some(Ok(true))
    }
}
