//! The replies of nodes to requests, and what they mean for the protocol. Servers and in-memory
//! nodes produce the same types.

use crate::error::NodeOutcome;
use crate::wire::token::Token;
use quorlock_protocol::{Answer, Healed, Moment, Vote};
use std::sync::Arc;
use std::time::Duration;

/// A node's reply to a request that the node understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To ACQUIRE and TRANSFER: the lock was granted. `clock` is the node's time in microseconds since the Unix
    /// epoch.
    Granted { fence: u64, clock: u64 },
    /// To ACQUIRE: the lock was refused.
    Held(Refusal),
    /// To TRANSFER: the lock was refused, because a key is missing or holds a token other than the giver's.
    NotTransferred(Elsewhere),
    /// To ACQUIRE and TRANSFER: a key already holds the token of this same request. So the request has already reached
    /// this server through another node of the list.
    Own,
    /// To EXTEND: for each lock, whether it was extended.
    Each(Vec<bool>),
    /// To HEAL: for each lock, the result of its repair.
    Healed(Vec<Healed>),
    /// To INSPECT: what the node stores about the resource.
    Seen(StoredLock),
    /// To INSPECT, for a semaphore: what the node stores about the semaphore.
    SeenPermits(StoredPermits),
    /// To LIST: lock keys, and the cursor of the next page. The cursor is zero if this page is the last one.
    Page { cursor: u64, keys: Vec<String> },
    /// To PUBLISH: the number of subscribers to which the server sent the message.
    Published(u64),
    /// To all other requests: the request succeeded, or the condition that it checks holds.
    Yes,
    /// To all other requests: the request did not succeed, or the condition that it checks does not hold.
    No,
    /// The reply of a guarded node to a request whose answer counts as a vote
    /// ([`Request::is_vote`](super::request::Request::is_vote)). The node's votes do not count before the [`Moment`].
    Uncounted(Box<Reply>, Moment),
}

/// Why a node refused ACQUIRE: a key exists, or a notified waiter has its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The time until the key expires or the waiter's turn ends; `None` if the key never expires.
    pub(crate) expires_in: Option<Duration>,
    /// The node's time in microseconds since the Unix epoch.
    pub(crate) clock: u64,
    /// The number of waiters before this client's waiter in the queue; `None` if this waiter is not in the queue.
    pub(crate) rank: Option<u64>,
    /// The name of the holder whose key expires last; `None` if no key exists, or if the token of that key has no name.
    pub(crate) holder: Option<Arc<str>>,
    /// The slots that are free, if permits were refused. Empty for a lock.
    pub(crate) permits: FreePermits,
}

/// What a node reports about the slots of a semaphore when it refuses permits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreePermits {
    /// Slots that this client may try; empty if too few slots are free.
    pub(crate) slots: Vec<u32>,
    /// The number of slots in the node's index, whether free or held.
    pub(crate) known: u32,
}

/// What one node stores about a semaphore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredPermits {
    /// The number of waiters in the queue; `None` if the queue cannot be read.
    pub(crate) waiters: Option<u64>,
    /// The number of slots in the node's index, whether free or held.
    pub(crate) known: u32,
    pub(crate) held: Vec<HeldPermit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldPermit {
    pub(crate) slot: u32,
    pub(crate) holder: Holder,
    /// The time until the key expires; `None` if the key never expires.
    pub(crate) expires_in: Option<Duration>,
    /// The last fence of the slot; `None` if the node has forgotten the fence.
    pub(crate) fence: Option<u64>,
}

/// Why a node refused TRANSFER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// What a lock key holds instead of the giver's token; `Nobody` if a lock key or the share to upgrade is missing.
    pub(crate) holder: Holder,
    /// The time until the key with the other token expires; `None` if this key never expires, or if `holder` is
    /// `Nobody`.
    pub(crate) expires_in: Option<Duration>,
    /// The node's time in microseconds since the Unix epoch.
    pub(crate) clock: u64,
}

/// What one node stores about a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredLock {
    pub(crate) holder: Holder,
    /// The time until the key expires; `None` if the key never expires, or if there is no key.
    pub(crate) expires_in: Option<Duration>,
    /// The last fence that was granted; `None` if the node has forgotten the fence.
    pub(crate) fence: Option<u64>,
    /// The number of waiters in the queue; `None` if the queue cannot be read.
    pub(crate) waiters: Option<u64>,
    /// The readers, each with the time until its share expires.
    pub(crate) readers: Vec<(Token, Duration)>,
}

impl StoredLock {
    /// How long this token still holds the resource, in either mode; `None` if the token does not hold the resource, or
    /// if the key never expires.
    pub(crate) fn left(&self, token: &Token) -> Option<Duration> {
        let share = self.readers.iter().find(|(reader, _)| reader == token).map(|(_, left)| *left);
        let is_holder = matches!(&self.holder, Holder::Token(holder) if holder == token);
        self.expires_in.filter(|_| is_holder).or(share)
    }
}

/// The value of the lock key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    Token(Token),
    /// A value that is not a string, or not UTF-8.
    Other,
}

impl Reply {
    /// Returns the vote in a reply to ACQUIRE or TRANSFER.
    pub(crate) fn vote(&self) -> Vote {
        match *self {
            Self::Granted { fence, .. } => Vote::Granted { fence },
            Self::Held(Refusal { expires_in, .. }) => Vote::Held { expires_in },
            Self::NotTransferred(_) => Vote::Held { expires_in: None },
            // Another node is the same server, and the round's request has already set the key there through that node.
            // If the round is undone, the UNDO to that node deletes the key, so this node needs no UNDO.
            Self::Own => Vote::Refused,
            Self::Each(_)
            | Self::Healed(_)
            | Self::Seen(_)
            | Self::SeenPermits(_)
            | Self::Page { .. }
            | Self::Published(_)
            | Self::Yes
            | Self::No
            | Self::Uncounted(..) => Vote::Unknown,
        }
    }

    /// Converts a reply to EXTEND or RELEASE for one lock to the protocol's [`Answer`].
    pub(crate) fn answer(&self) -> Answer {
        match self {
            Self::Yes => Answer::Yes,
            Self::No => Answer::No,
            _ => Answer::Unknown,
        }
    }

    /// Returns the reply for one lock, taken from a reply about many locks. `position` is the position of this lock.
    pub(crate) fn about(&self, position: usize) -> Self {
        match self {
            Self::Each(all) if all.get(position) == Some(&true) => Self::Yes,
            Self::Each(_) => Self::No,
            Self::Uncounted(reply, from) => {
                let reply = reply.about(position);
                // Some answers, such as a missing key, count even from a guarded node.
                let counts = reply.answer() == reply.answer().uncounted();
                if counts { reply } else { Self::Uncounted(Box::new(reply), *from) }
            }
            other => other.clone(),
        }
    }

    /// Returns the outcome in the form in which errors and counters show it.
    pub(crate) fn outcome(&self) -> NodeOutcome {
        match self {
            Self::Granted { .. } => NodeOutcome::Granted,
            Self::Seen(StoredLock { holder: Holder::Nobody, .. })
            | Self::NotTransferred(Elsewhere { holder: Holder::Nobody, .. }) => {
                NodeOutcome::Missing
            }
            Self::Held(_) | Self::Seen(_) | Self::NotTransferred(_) => NodeOutcome::Held,
            Self::Own => NodeOutcome::Duplicate,
            Self::Yes
            | Self::Each(_)
            | Self::Healed(_)
            | Self::SeenPermits(_)
            | Self::Page { .. }
            | Self::Published(_) => NodeOutcome::Confirmed,
            Self::No => NodeOutcome::Missing,
            Self::Uncounted(..) => NodeOutcome::Guarded,
        }
    }
}
