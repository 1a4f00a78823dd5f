//! The restart guard: whether a node has been up for long enough for its word to count.
//!
//! A node that restarts may have forgotten what it granted. The Redlock specification asks to keep it
//! away until the leases that it forgot are over ("delayed restarts"); here it is not counted.

use crate::round::Vote;
use crate::tally::Answer;
use crate::term::{Moment, Term};
use core::time::Duration;

/// Servers tell their uptime in whole seconds: they may be that much younger.
const UPTIME_ERROR: Duration = Duration::from_secs(1);
const NEVER: Moment = Moment::from_origin(Duration::MAX);

/// What one client knows of the memory of one node.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(Hash))]
pub struct Guard {
    /// The longest lease that the node may have forgotten.
    term: Term,
    memory: Option<String>,
    counts_from: Moment,
}

impl Guard {
    /// For a node that nobody has looked at. The ttl of `term` is the longest one in use.
    pub fn new(term: Term) -> Self {
        Self { term, memory: None, counts_from: NEVER }
    }

    /// Takes in a look at the node, answered at `now`: what names its memory (while that is the same,
    /// it has forgotten nothing) and its uptime; `None` if it does not tell.
    pub fn looked(&mut self, now: Moment, seen: Option<(&str, Duration)>) {
        let age = match seen {
            Some((memory, _)) if self.memory.as_deref() == Some(memory) => return,
            // The first look of this client: there is nothing but the uptime to go by.
            Some((_, uptime)) if self.counts_from == NEVER => uptime.saturating_sub(UPTIME_ERROR),
            // A restart or a failover, perhaps just now: what has come in its place may have been
            // up for long without knowing what the other knew. Or one that does not tell.
            _ => Duration::ZERO,
        };
        self.memory = seen.map(|(memory, _)| memory.to_owned());
        self.counts_from = self.term.gone(now).minus(age);
    }

    /// The node said at `now` that its memory is being exchanged: it is loading it, or a replica.
    pub fn doubted(&mut self, now: Moment) {
        self.counts_from = self.counts_from.max(self.term.gone(now));
    }

    /// The moment from which its word counts.
    pub fn counts_from(&self) -> Moment {
        self.counts_from
    }

    /// Whether the answer to a request counts that is part of something begun at `began`.
    pub fn counts(&self, began: Moment) -> bool {
        began >= self.counts_from
    }
}

impl Vote {
    /// The vote, of a node whose word does not count.
    pub fn uncounted(self) -> Self {
        match self {
            Self::Granted { .. } | Self::Held { .. } => Self::Guarded,
            other => other,
        }
    }
}

impl Answer {
    /// The answer to EXTEND, of a node whose word does not count. A key that is there may have been
    /// healed, where a grant to somebody else was forgotten; one that is missing is missing.
    pub fn uncounted(self) -> Self {
        if self == Self::Yes { Self::Unknown } else { self }
    }
}
