//! A won lock: whether it is valid, how it is extended, how it ends.

use super::{Answer, Moment, NodeSet, Quorum, Tally, Term};
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
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Lease {
    quorum: Quorum,
    end: Moment,
    limit: Option<Moment>,
    /// What ended it, other than the validity end.
    ended: Option<Ended>,
    released: bool,
}

impl Lease {
    /// The lease of a round won with this validity end. No extension moves the end beyond `limit`:
    /// the Redlock specification asks for such a limit, so that a holder that hangs does not keep
    /// the lock for ever.
    pub fn new(quorum: Quorum, end: Moment, limit: Option<Moment>) -> Self {
        Self { quorum, end, limit, ended: None, released: false }
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
        let (tally, missing) = Default::default();
        self.is_valid(sent).then_some(Extension { term, end, tally, confirmed: false, missing })
    }

    /// Takes in a node's answer to `extension`, learned of at `now`. `Some` once it is decided; what
    /// comes later is taken in for [`Extension::take_missing`].
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
        if answer == Answer::No {
            extension.missing.insert(node);
        }
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
            return Some(Extended::Confirmed);
        }
        extension.tally.is_complete(self.quorum).then_some(Extended::Undecided)
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
        release.tally.add(node, answer);
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
    /// The nodes without the key that were not healed yet.
    missing: NodeSet,
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
