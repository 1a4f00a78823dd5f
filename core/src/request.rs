//! The requests to a node, and its replies. What a server does with them is in `script.rs`, what an
//! in-memory node does in `memory.rs`.

use crate::error::NodeOutcome;
use crate::keys::Keys;
use crate::protocol::{Answer, Healed, Moment, Turns, Vote};
use std::sync::Arc;
use std::time::Duration;

/// What requests are about: resources that are locked together, and one round's token for them.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) keys: Arc<[Keys]>,
    pub(crate) token: String,
    /// The name, in the nodes' queues, of the waiter that this round is for.
    pub(crate) waiter: Option<Arc<str>>,
}

/// Where a waiter is to stand in the nodes' queues: behind those with a smaller number. It is the
/// time of its arrival by the nodes' clocks, in microseconds.
pub(crate) type Ticket = u64;

/// A request to one node.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Take the lock for a new token. With a ticket, the waiter joins the queue if it is refused.
    Acquire {
        subject: Arc<Subject>,
        ttl: Duration,
        proposal: u64,
        ticket: Option<Ticket>,
        turns: Turns,
    },
    /// Store a fence that is at least this.
    Raise { subject: Arc<Subject>, ttl: Duration, fence: u64 },
    /// Keep each of these locks for at least so long from now on.
    Extend(Arc<[(Arc<Subject>, Duration)]>),
    /// Take each of these locks again, where it is free, for so long; with its fence.
    Heal(Arc<[(Arc<Subject>, Duration, u64)]>),
    /// Delete the token, and call the next waiter: RELEASE, and UNDO of a round that was lost. With a
    /// ticket, the round's own waiter stays in the queue; else it leaves.
    Release { subject: Arc<Subject>, ticket: Option<Ticket>, turns: Turns },
    /// Is anything there?
    Look(Arc<[Keys]>),
    /// What is there? Of one resource.
    Inspect(Arc<[Keys]>),
    /// Delete the fence counter of one resource that nobody holds or waits for.
    Forget(Arc<[Keys]>),
}

impl Request {
    /// RELEASE and UNDO of what nobody waits for any more.
    pub(crate) fn release(subject: &Arc<Subject>, turns: Turns) -> Self {
        Self::Release { subject: Arc::clone(subject), ticket: None, turns }
    }

    /// Whether it may create keys.
    pub(crate) fn creates(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Heal(_))
    }

    /// The slot of its keys in a Redis Cluster: there it is about one slot only.
    pub(crate) fn slot(&self) -> u16 {
        let keys = match self {
            Self::Acquire { subject, .. }
            | Self::Raise { subject, .. }
            | Self::Release { subject, .. } => subject.keys.first(),
            Self::Extend(leases) => leases.first().and_then(|(subject, _)| subject.keys.first()),
            Self::Heal(leases) => leases.first().and_then(|(subject, ..)| subject.keys.first()),
            Self::Look(keys) | Self::Inspect(keys) | Self::Forget(keys) => keys.first(),
        };
        keys.map_or(0, Keys::slot)
    }

    /// Whether the answer relies on what the node remembers.
    pub(crate) fn is_vote(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Extend(_) | Self::Look(_) | Self::Inspect(_))
    }
}

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
    Seen(Kept),
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
pub(crate) struct Kept {
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
            Self::Seen(Kept { holder: Holder::Nobody, .. }) => NodeOutcome::Missing,
            Self::Held(_) | Self::Seen(_) => NodeOutcome::Held,
            Self::Own => NodeOutcome::Duplicate,
            Self::Yes | Self::Each(_) | Self::Healed(_) => NodeOutcome::Confirmed,
            Self::No => NodeOutcome::Missing,
            Self::Uncounted(..) => NodeOutcome::Guarded,
        }
    }
}
