//! The restart guard: decides whether a node has been up for long enough for its votes to count.
//!
//! A node that has restarted may have forgotten which leases it granted. The Redlock specification asks operators to
//! keep such a node down until the forgotten leases have expired ("delayed restarts"). The guard instead ignores the
//! node's votes for that time. The node still gets all requests. The modules in `node/` of the crate `quorlock` and the
//! model use this module.

use crate::round::Vote;
use crate::tally::Answer;
use crate::term::{Moment, Term};
use core::time::Duration;

/// Servers report their uptime in whole seconds, so the true uptime may be up to a second shorter than the reported
/// one. The guard subtracts this second, so that no vote counts too early.
const UPTIME_ERROR: Duration = Duration::from_secs(1);
const NEVER: Moment = Moment::from_origin(Duration::MAX);

/// The restart guard of one node, kept by one client: the last known identity of the node's memory, and the
/// moment from which the node's votes count.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(Hash))]
pub struct Guard {
    /// The term of the longest lease that the node may have forgotten.
    term: Term,
    /// The last reported identity of the node's memory; `None` if the node reported none. This identity changes at a
    /// restart or a failover.
    memory: Option<String>,
    counts_from: Moment,
}

impl Guard {
    /// Creates the guard of a node that the client has not examined yet. No vote of the node counts before
    /// [`Guard::looked`] is called. The ttl of `term` must be the longest in use by any client.
    pub fn new(term: Term) -> Self {
        Self { term, memory: None, counts_from: NEVER }
    }

    /// Records the result of an examination of the node, which arrived at `now`. `seen` is the identity of the node's
    /// memory and the node's uptime, or `None` if the node does not report them. If the identity is unchanged, the node
    /// has forgotten nothing, and this method changes nothing. Otherwise, the node's votes do not count until all
    /// leases that the node may have forgotten have expired.
    ///
    /// Call this after every connect and reconnect, before any vote from the new connection is counted.
    pub fn looked(&mut self, now: Moment, seen: Option<(&str, Duration)>) {
        let age = match seen {
            Some((memory, _)) if self.memory.as_deref() == Some(memory) => return,
            // This client examines the node for the first time. The node has forgotten nothing since it started, so its
            // uptime shortens the time for which its votes do not count.
            Some((_, uptime)) if self.counts_from == NEVER => uptime.saturating_sub(UPTIME_ERROR),
            // The node restarted, failed over (perhaps just now), or does not report the identity of its memory. The
            // uptime does not help: a promoted replica may have been up for a long time and still lack grants of its
            // predecessor.
            _ => Duration::ZERO,
        };
        self.memory = seen.map(|(memory, _)| memory.to_owned());
        self.counts_from = self.term.gone(now).minus(age);
    }

    /// Records that the node reported at `now` that its memory is being replaced: the node is loading data, or has
    /// become a replica. The node may have forgotten every lease that it granted until `now`, so its votes do not count
    /// until these leases have expired.
    pub fn doubted(&mut self, now: Moment) {
        self.counts_from = self.counts_from.max(self.term.gone(now));
    }

    /// The moment from which the node's votes count.
    pub fn counts_from(&self) -> Moment {
        self.counts_from
    }

    /// Whether the node's answer counts in a round or extension that began at `began`. When the answer arrived does not
    /// matter.
    pub fn counts(&self, began: Moment) -> bool {
        began >= self.counts_from
    }
}

impl Vote {
    /// Returns the vote to count for a node whose votes do not count: `Guarded` in place of `Granted` and `Held`, and
    /// every other vote unchanged.
    pub fn uncounted(self) -> Self {
        match self {
            Self::Granted { .. } | Self::Held { .. } => Self::Guarded,
            other => other,
        }
    }
}

impl Answer {
    /// Converts an answer to EXTEND from a node whose votes do not count.
    ///
    /// `Yes` becomes `Unknown`: the node may have granted the resource to another client, forgotten that grant, and
    /// received this lease's key by a repair. `No` stays `No`: the key is missing, whatever the node has forgotten.
    pub fn uncounted(self) -> Self {
        if self == Self::Yes { Self::Unknown } else { self }
    }
}
