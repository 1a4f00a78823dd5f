//! A won lock: whether it is valid, how it is extended, how it ends.

use crate::quorum::{NodeSet, Quorum};
use crate::tally::{Answer, Healed, Tally};
use crate::term::{Moment, Term};
use core::time::Duration;

/// Why a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Its validity end passed without an extension in time.
    Expired,
    /// Its validity end passed, and it had been extended as far as its limit allows.
    AtLimit,
    /// More nodes than may be missing turned out not to hold it.
    Taken,
    /// Its client was closed while it was held.
    ClientClosed,
    /// Its holder released it.
    Released,
}

/// The validity of one lease.
///
/// It is valid from the round that won it until its validity end, which only a confirmed
/// extension moves, and never beyond its limit; until a majority turned out not to hold it; or
/// until it is released. An end is final.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    quorum: Quorum,
    end: Moment,
    limit: Option<Moment>,
    /// What ended it, other than the validity end.
    ended: Option<Ended>,
    released: bool,
    fence: u64,
    /// The nodes whose confirmations count: they hold the key, and have granted the resource to nobody
    /// else since they, or the majority of the round, granted it to this lease.
    sound: NodeSet,
    /// Nodes that hold the key again, but have granted the resource to somebody else in between. While
    /// they are not [sound](Self::sound) again they speak against the lease.
    passed: NodeSet,
}

impl Lease {
    /// The lease of a round won with this fence and validity end, and granted by these nodes. No
    /// extension moves the end beyond `limit`: the Redlock specification asks for such a limit, so that
    /// a holder that hangs does not keep the lock for ever.
    pub fn new(
        quorum: Quorum,
        granted: NodeSet,
        fence: u64,
        end: Moment,
        limit: Option<Moment>,
    ) -> Self {
        let (ended, released, sound, passed) = (None, false, granted, NodeSet::EMPTY);
        Self { quorum, end, limit, ended, released, fence, sound, passed }
    }

    /// A node granted the token, with this fence, after the round was won.
    pub fn granted(&mut self, node: usize, fence: u64) {
        // A larger fence than the lease's own: the node has granted the resource to somebody else before
        // the request arrived, and possibly after the round was won.
        let healed = if fence > self.fence { Healed::Passed } else { Healed::Clean };
        self.healed(node, healed);
    }

    /// Takes in a node's answer to HEAL. The key is there again; whether the node counts depends on
    /// whether it may have helped somebody else to a majority while the key was missing.
    pub fn healed(&mut self, node: usize, healed: Healed) {
        match healed {
            Healed::Held => {}
            Healed::Clean if self.passed.contains(node) => {}
            Healed::Clean => self.sound.insert(node),
            Healed::Passed if self.sound.contains(node) => {}
            Healed::Passed => self.passed.insert(node),
        }
    }

    /// The nodes to be healed: as far as this client knows, they do not hold the key.
    pub fn missing(&self) -> NodeSet {
        let known = |node: &usize| self.sound.contains(*node) || self.passed.contains(*node);
        (0..self.quorum.nodes()).filter(|node| !known(node)).collect()
    }

    /// Whether nodes hold the key that do not count yet: see [`Lease::extended`].
    pub fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    /// The validity end as it stands: the moment from which the lease is not valid.
    pub fn end(&self) -> Moment {
        self.end
    }

    /// Whether the validity end is as late as the limit allows.
    pub fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.end >= limit)
    }

    /// Why the lease is over; `None` while it is valid.
    pub fn ended(&self, now: Moment) -> Option<Ended> {
        self.ended.or_else(|| {
            let expired = if self.is_at_limit() { Ended::AtLimit } else { Ended::Expired };
            (now >= self.end).then_some(expired)
        })
    }

    /// Whether the holder may still rely on the lease.
    pub fn is_valid(&self, now: Moment) -> bool {
        self.ended(now).is_none()
    }

    /// Whether the nodes were asked to give it up, be it before or after it was lost.
    pub fn is_released(&self) -> bool {
        self.released
    }

    /// Begins an extension whose first EXTEND is sent at `sent` or later; `None` if the lease is
    /// over. EXTEND never shortens the life of a key, so neither does an extension the lease.
    pub fn extend(&self, sent: Moment, term: Term) -> Option<Extension> {
        let (term, latest) = match self.limit {
            Some(limit) => (term.until(sent, limit), limit),
            None => (term, term.end(sent)),
        };
        let end = term.end(sent).min(latest);
        Some(self.ask(term, end)).filter(|_| self.is_valid(sent))
    }

    /// Begins an extension that does not move the validity end: it only asks the nodes whether they
    /// hold the key. `None` if the lease is over.
    pub fn verify(&self, sent: Moment, term: Term) -> Option<Extension> {
        Some(self.ask(term.until(sent, self.end), self.end)).filter(|_| self.is_valid(sent))
    }

    fn ask(&self, term: Term, end: Moment) -> Extension {
        let (passed, tally, missing) = (self.passed, Tally::default(), NodeSet::EMPTY);
        Extension { term, end, tally, confirmed: false, missing, passed }
    }

    /// Takes in a node's answer to `extension`, learned of at `now`. `Some` once it is decided; what
    /// comes later is taken in for [`Extension::take_missing`].
    ///
    /// A majority has to confirm before the *old* validity end: later, its confirmations would
    /// each have been true at some time, but not together. Only *sound* nodes can: a node
    /// that lost the key and was healed may have granted the resource to somebody else in between, and
    /// that holder's majority may have come and gone unseen. It counts again when a majority of sound
    /// nodes has confirmed an extension that was sent after it was healed, since then nobody had.
    pub fn extended(
        &mut self,
        now: Moment,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        let answer = self.weigh(node, answer, &mut extension.missing);
        extension.tally.add(node, answer);
        if !self.is_valid(now) {
            return Some(Extended::Lost);
        }
        if extension.tally.no.len() > self.quorum.tolerated() {
            self.ended = Some(Ended::Taken);
            return Some(Extended::Lost);
        }
        if extension.tally.yes.len() >= self.quorum.size() {
            self.end = self.end.max(extension.end);
            extension.confirmed = true;
            self.trust(extension.passed);
            return Some(Extended::Confirmed);
        }
        extension.tally.is_complete(self.quorum).then_some(Extended::Undecided)
    }

    /// What a node's answer to EXTEND counts for. `missing` are the nodes to be healed.
    fn weigh(&mut self, node: usize, answer: Answer, missing: &mut NodeSet) -> Answer {
        match answer {
            Answer::Yes if self.sound.contains(node) => Answer::Yes,
            Answer::Yes if self.passed.contains(node) => Answer::No,
            Answer::Yes => {
                // How it came to hold the key is not known: HEAL tells.
                missing.insert(node);
                Answer::Unknown
            }
            Answer::No => {
                self.sound.remove(node);
                self.passed.remove(node);
                missing.insert(node);
                Answer::No
            }
            Answer::Unknown => Answer::Unknown,
        }
    }

    /// A majority has confirmed: these nodes, which held the key before they were asked, count again.
    fn trust(&mut self, nodes: NodeSet) {
        for node in nodes.iter() {
            if self.passed.contains(node) {
                self.passed.remove(node);
                self.sound.insert(node);
            }
        }
    }

    /// For how long a node that lacks the key is to keep it if it is set there now; `None` if the
    /// lease is over. While it is valid a majority excludes everybody else: it is no acquisition.
    pub fn heal(&self, now: Moment, term: Term) -> Option<Duration> {
        self.is_valid(now).then(|| self.end.since(now) + term.drift())
    }

    /// Ends the lease for its holder: from `now` on it is not valid, whatever the nodes answer.
    pub fn release(&mut self, now: Moment) -> Release {
        self.finish(now, Ended::Released)
    }

    /// Ends the lease because its client is closed, which its holder has to learn of.
    pub fn close(&mut self, now: Moment) -> Release {
        self.finish(now, Ended::ClientClosed)
    }

    fn finish(&mut self, now: Moment, why: Ended) -> Release {
        let ended = self.ended(now);
        self.ended = ended.or(Some(why));
        self.released = true;
        Release { was_valid: ended.is_none(), tally: Tally::default() }
    }

    /// Takes in a node's answer to `release`. `Some` once it is decided: `true` if the lease was
    /// valid when it was released and a majority confirms that it held it until then, else
    /// `false`. If a majority did not, the lease was lost before.
    pub fn released(&mut self, release: &mut Release, node: usize, answer: Answer) -> Option<bool> {
        let has_passed = answer == Answer::Yes && self.passed.contains(node);
        release.tally.add(node, if has_passed { Answer::No } else { answer });
        if !release.was_valid {
            return Some(false);
        }
        if release.tally.no.len() > self.quorum.tolerated() {
            self.ended = Some(Ended::Taken);
            return Some(false);
        }
        if release.tally.yes.len() >= self.quorum.size() {
            return Some(true);
        }
        release.tally.is_complete(self.quorum).then_some(false)
    }
}

/// What the model compares: all but what is about single nodes, see [`Lease::standing`].
#[cfg(test)]
impl core::hash::Hash for Lease {
    fn hash<H: core::hash::Hasher>(&self, hasher: &mut H) {
        let Self { quorum, end, limit, ended, released, fence, sound: _, passed: _ } = self;
        (quorum, end, limit, ended, released, fence).hash(hasher);
    }
}

#[cfg(test)]
impl Lease {
    /// Whether a node is sound, and whether it has passed.
    pub(crate) fn standing(&self, node: usize) -> (bool, bool) {
        (self.sound.contains(node), self.passed.contains(node))
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
#[derive(Clone, Debug, PartialEq)]
pub struct Extension {
    term: Term,
    end: Moment,
    tally: Tally,
    confirmed: bool,
    /// The nodes that are to be healed and were not yet.
    missing: NodeSet,
    /// The nodes that held the key again when it was sent.
    passed: NodeSet,
}

impl Extension {
    /// What the nodes are asked for.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The nodes that lack the key and are to be healed, each named once; none before a majority has
    /// confirmed.
    pub fn take_missing(&mut self) -> NodeSet {
        if self.confirmed { core::mem::take(&mut self.missing) } else { NodeSet::EMPTY }
    }
}

#[cfg(test)]
impl Extension {
    /// Whether a node is to count again if a majority confirms.
    pub(crate) fn trusts(&self, node: usize) -> bool {
        self.passed.contains(node)
    }
}

/// One release under way.
#[derive(Clone, Debug)]
pub struct Release {
    was_valid: bool,
    tally: Tally,
}

impl Release {
    /// Whether the lease was valid when it was released. If not, no answer is needed: `false`.
    pub fn was_valid(&self) -> bool {
        self.was_valid
    }
}
