//! The requests to a node, and its replies. What a server does with them is in `script.rs`, what an
//! in-memory node does in `memory.rs`.

use crate::protocol::Vote;
use std::sync::Arc;
use std::time::Duration;

/// The key of a resource, and that of its fence counter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) lock: String,
    pub(crate) fence: String,
}

impl Keys {
    /// The fence key shares the lock key's hash slot in a Redis Cluster: by the hash tag of the
    /// lock key if it has one, else by making the lock key the hash tag.
    pub(crate) fn new(prefix: &str, resource: &str) -> Self {
        let lock = format!("{prefix}{resource}");
        let tag = lock.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        let fence = match tag {
            Some((tag, _)) if !tag.is_empty() => format!("{lock}:fence"),
            _ => format!("{{{lock}}}:fence"),
        };
        Self { lock, fence }
    }
}

/// What requests are about: a resource, and one round's token for it.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) keys: Arc<Keys>,
    pub(crate) token: String,
}

/// A request to one node.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Take the lock for a new token.
    Acquire { subject: Arc<Subject>, ttl: Duration, proposal: u64 },
    /// Store a fence that is at least this.
    Raise { subject: Arc<Subject>, ttl: Duration, fence: u64 },
    /// Keep each of these locks for at least so long from now on.
    Extend(Arc<[(Arc<Subject>, Duration)]>),
    /// Delete the token: RELEASE, and UNDO of a round that was lost.
    Release(Arc<Subject>),
    /// Is anything there?
    Look(Arc<Keys>),
}

/// A node's answer to a request that it understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To ACQUIRE.
    Granted(u64),
    /// To ACQUIRE: the key exists, and expires in so long, or never.
    Held(Option<Duration>),
    /// To EXTEND: for each lock whether it was done.
    Extended(Vec<bool>),
    /// To all others.
    Yes,
    /// To all others.
    No,
}

impl Reply {
    /// The reply to ACQUIRE as the vote it is.
    pub(crate) fn vote(&self) -> Vote {
        match *self {
            Self::Granted(fence) => Vote::Granted { fence },
            Self::Held(expires_in) => Vote::Held { expires_in },
            Self::Extended(_) | Self::Yes | Self::No => Vote::Unknown,
        }
    }

    /// What a reply to EXTEND says about the lock at this position, as a reply about one lock.
    pub(crate) fn about(self, position: usize) -> Self {
        match self {
            Self::Extended(all) if all.get(position) == Some(&true) => Self::Yes,
            Self::Extended(_) => Self::No,
            other => other,
        }
    }
}
