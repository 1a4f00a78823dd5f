//! The requests to a node, and its replies. What a server does with them is in `script.rs`, what an
//! in-memory node does in `memory.rs`.

use crate::command::keys::Keys;
use quorlock_protocol::Turns;
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
    Exists(Arc<[Keys]>),
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
            Self::Exists(keys) | Self::Inspect(keys) | Self::Forget(keys) => keys.first(),
        };
        keys.map_or(0, Keys::slot)
    }

    /// Whether the answer relies on what the node remembers.
    pub(crate) fn is_vote(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Extend(_) | Self::Exists(_) | Self::Inspect(_))
    }
}
