//! The replies of a node to requests.

use crate::error::NodeOutcome;
use quorlock_protocol::{Answer, Healed, Moment, Vote};
use std::time::Duration;

/// A node's answer to a request that it understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To ACQUIRE. With the time by the node's clock, in microseconds.
    Granted { fence: u64, clock: u64 },
    /// To ACQUIRE.
    Held(Refusal),
    /// To ACQUIRE: the key exists, and holds this very token. Another node is the same server.
    Own,
    /// To EXTEND: for each lock whether it was done.
    Each(Vec<bool>),
    /// To HEAL: for each lock.
    Healed(Vec<Healed>),
    /// To INSPECT.
    Seen(StoredLock),
    /// To all others.
    Yes,
    /// To all others.
    No,
    /// To requests that are votes, of a node whose word does not count before this moment.
    Uncounted(Box<Reply>, Moment),
}

/// Why the lock was not granted: a key exists, or a waiter was called and is given time to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// When that is over; `None` if never.
    pub(crate) expires_in: Option<Duration>,
    /// The time by the node's clock, in microseconds.
    pub(crate) clock: u64,
    /// How many waiters are before the one that asked, if it is in the queue.
    pub(crate) rank: Option<u64>,
}

/// What a node keeps of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredLock {
    pub(crate) holder: Holder,
    /// When the key expires; `None` if never, or if there is none.
    pub(crate) expires_in: Option<Duration>,
    /// The last one that was given out, as far as it is kept.
    pub(crate) fence: Option<u64>,
    /// How many clients are in the queue, if that could be seen.
    pub(crate) waiters: Option<u64>,
}

/// What the lock key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    Token(String),
    /// A value that is no text.
    Other,
}

impl Reply {
    /// The reply to ACQUIRE as the vote it is.
    pub(crate) fn vote(&self) -> Vote {
        match *self {
            Self::Granted { fence, .. } => Vote::Granted { fence },
            Self::Held(Refusal { expires_in, .. }) => Vote::Held { expires_in },
            // What is there was put there by the request to the other node, and is undone there.
            Self::Own => Vote::Refused,
            Self::Each(_)
            | Self::Healed(_)
            | Self::Seen(_)
            | Self::Yes
            | Self::No
            | Self::Uncounted(..) => Vote::Unknown,
        }
    }

    /// The reply about one lock as the answer it is.
    pub(crate) fn answer(&self) -> Answer {
        match self {
            Self::Yes => Answer::Yes,
            Self::No => Answer::No,
            _ => Answer::Unknown,
        }
    }

    /// What a reply about many locks says about the one at this position.
    pub(crate) fn about(&self, position: usize) -> Self {
        match self {
            Self::Each(all) if all.get(position) == Some(&true) => Self::Yes,
            Self::Each(_) => Self::No,
            Self::Uncounted(reply, from) => {
                let reply = reply.about(position);
                // Some answers count all the same.
                let counts = reply.answer() == reply.answer().uncounted();
                if counts { reply } else { Self::Uncounted(Box::new(reply), *from) }
            }
            other => other.clone(),
        }
    }

    /// The reply in a word.
    pub(crate) fn outcome(&self) -> NodeOutcome {
        match self {
            Self::Granted { .. } => NodeOutcome::Granted,
            Self::Seen(StoredLock { holder: Holder::Nobody, .. }) => NodeOutcome::Missing,
            Self::Held(_) | Self::Seen(_) => NodeOutcome::Held,
            Self::Own => NodeOutcome::Duplicate,
            Self::Yes | Self::Each(_) | Self::Healed(_) => NodeOutcome::Confirmed,
            Self::No => NodeOutcome::Missing,
            Self::Uncounted(..) => NodeOutcome::Guarded,
        }
    }
}
