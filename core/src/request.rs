//! The requests to a node, and its replies. What a server does with them is in `script.rs`, what an
//! in-memory node does in `memory.rs`.

use crate::error::NodeOutcome;
use crate::protocol::{Answer, Healed, Moment, Turns, Vote};
use crc::{CRC_16_XMODEM, Crc};
use std::sync::Arc;
use std::time::Duration;

/// The slots of a Redis Cluster.
pub(crate) const SLOTS: u16 = 16384;
static CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// What the names of fence keys and of queues end with.
const FENCE: &str = ":fence";
const QUEUE: &str = ":queue";

/// The key of a resource, that of its fence counter, and that of its queue of waiters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Keys {
    pub(crate) lock: String,
    pub(crate) fence: String,
    pub(crate) queue: String,
}

impl Keys {
    /// All share the lock key's hash slot in a Redis Cluster: by the hash tag of the lock key if it
    /// has one, else by making the lock key the hash tag.
    ///
    /// No two names share a key: since `{x}:fence` belongs to `x`, the name `{x}` has
    /// `{x}:fence:fence`; and a [reserved](is_reserved) name is no resource.
    pub(crate) fn new(prefix: &str, resource: &str) -> Self {
        let lock = format!("{prefix}{resource}");
        let beside = |what: &str| match tag(&lock) {
            Some(_) if lock.starts_with('{') && lock.ends_with('}') => {
                format!("{lock}{what}{what}")
            }
            Some(_) => format!("{lock}{what}"),
            None => format!("{{{lock}}}{what}"),
        };
        Self { fence: beside(FENCE), queue: beside(QUEUE), lock }
    }

    /// Whether all have one slot in a Redis Cluster. They have, unless braces in the name make no tag.
    pub(crate) fn share_a_slot(&self) -> bool {
        [&self.fence, &self.queue].iter().all(|key| slot(key) == self.slot())
    }

    /// Their slot in a Redis Cluster.
    pub(crate) fn slot(&self) -> u16 {
        slot(&self.lock)
    }
}

/// Whether a lock key would be the fence key or the queue of another name.
pub(crate) fn is_reserved(lock: &str) -> bool {
    let base = lock.strip_suffix(FENCE).or_else(|| lock.strip_suffix(QUEUE));
    base.is_some_and(|base| tag(base).is_some() || (base.starts_with('{') && base.ends_with('}')))
}

/// The hash tag of a key: what stands in its first braces, if that is not empty.
pub(crate) fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

/// The slot of a key in a Redis Cluster: that of its hash tag, if it has one.
pub(crate) fn slot(key: &str) -> u16 {
    CRC.checksum(tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

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

#[cfg(test)]
mod tests {
    use super::{Keys, Reply, is_reserved, slot};
    use crate::answer::answer;
    use crate::protocol::{Answer, Moment};
    use std::collections::HashMap;

    #[test]
    fn a_guarded_node_confirms_none_of_the_leases_that_an_extension_is_about() {
        let each = Box::new(Reply::Each(vec![true, false]));
        let guarded = Reply::Uncounted(each, Moment::from_origin(std::time::Duration::MAX));
        let [held, missing] = [0, 1].map(|position| guarded.about(position));
        assert!(matches!(held, Reply::Uncounted(..)), "an error tells that it is guarded");
        assert_eq!(answer(&Ok(held)), Answer::Unknown);
        // What is missing is missing.
        assert_eq!(answer(&Ok(missing)), Answer::No);
    }

    #[test]
    fn no_two_names_share_a_key() {
        // All texts of these parts that are no longer than four.
        let parts = ["{", "}", "x", ":", ":fence", ":queue"];
        let mut names = vec![String::new()];
        for length in 1..=4 {
            let longer: Vec<_> = names
                .iter()
                .filter(|name| name.len() >= length - 1)
                .flat_map(|name| parts.map(|part| format!("{name}{part}")))
                .collect();
            names.extend(longer);
        }
        names.sort();
        names.dedup();
        let mut owners = HashMap::new();
        for name in names.iter().filter(|name| !name.is_empty()) {
            let keys = Keys::new("", name);
            if is_reserved(&keys.lock) {
                continue;
            }
            for key in [keys.lock, keys.fence, keys.queue] {
                if let Some(other) = owners.insert(key.clone(), name) {
                    panic!("{name:?} and {other:?} share {key:?}");
                }
            }
        }
        assert!(owners.len() > 1_000);
        for name in ["orders:fence", "}{a:fence", "{a}:fence:1", "{a"] {
            assert!(!is_reserved(name), "{name}");
        }
    }

    #[test]
    fn the_keys_of_a_resource_share_the_slot_that_a_cluster_gives_them() {
        // As the specification of Redis Cluster and CLUSTER KEYSLOT tell.
        assert_eq!(slot("123456789"), 0x31c3);
        assert_eq!((slot("foo"), slot("bar")), (12182, 5061));
        for name in ["foo", "{foo}", "{foo}{bar}", "x{foo}y", "{{foo}}", "{foo", "foo}{bar}{zap}"] {
            assert!(Keys::new("p", name).share_a_slot(), "{name}");
        }
        for name in ["{}foo", "foo}"] {
            assert!(!Keys::new("p", name).share_a_slot(), "{name}");
        }
        assert_eq!(slot("x{foo}y"), slot("foo"));
    }
}
