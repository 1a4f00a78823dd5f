//! The keys of a resource on the nodes, and their slots in a Redis Cluster. `client` uses this module to check the
//! names of resources. `client`, `lock` and `doctor` create keys.

use crate::config::quoted::Quoted;
use crate::config::resources::Resources;
use crate::error::{Error, Result};
use crc::{CRC_16_XMODEM, Crc};
use quorlock_protocol::node::readers;

/// The number of slots of a Redis Cluster.
pub(crate) const SLOTS: u16 = 16384;
static CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The endings of fence keys, of queue keys, of the keys that contain readers, and of the indexes of semaphores.
pub(crate) const FENCE: &str = ":fence";
const QUEUE: &str = ":queue";
const SHARED: &str = ":shared";
const PERMITS: &str = ":permits";
/// The lock key of a permit has this text before the number of its slot.
const PERMIT: &str = ":permit:";

/// The keys of one resource, and the mode in which a request locks the resource. The keys are the lock key, the fence
/// key and the queue key, and those that the mode contains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Keys {
    pub(crate) lock: String,
    pub(crate) fence: String,
    pub(crate) queue: String,
    pub(crate) mode: KeyMode,
}

/// The mode in which a resource is locked, and the keys that only this mode uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyMode {
    Exclusive,
    /// Any number of readers hold the resource together.
    Shared {
        readers: String,
    },
    /// For an upgrade: the only reader becomes the exclusive holder.
    Upgraded {
        readers: String,
    },
    /// One permit of a semaphore, which has one holder. `index` is the key of the semaphore's index, which shows the
    /// free slots. All slots share one queue.
    Permit {
        index: String,
        slot: u32,
        /// The client's limit on the number of permits of the semaphore.
        limit: u32,
    },
}

/// What [`Keys`] say about a permit.
#[derive(Clone, Copy)]
pub(crate) struct Permit<'a> {
    pub(crate) index: &'a String,
    pub(crate) slot: u32,
    pub(crate) limit: u32,
    /// The lock key of a permit without the number of its slot: the same for all permits of the semaphore.
    pub(crate) base: &'a str,
}

impl KeyMode {
    pub(crate) fn protocol(&self) -> readers::LockMode {
        match self {
            Self::Exclusive | Self::Permit { .. } => readers::LockMode::Exclusive,
            Self::Shared { .. } => readers::LockMode::Shared,
            Self::Upgraded { .. } => readers::LockMode::Upgraded,
        }
    }
}

impl Keys {
    /// The keys of `resource`. The fence and queue keys keep the hash tag of the lock key; if the lock key has no hash
    /// tag, the whole lock key becomes their hash tag. So all keys are in one slot of a Redis Cluster, with the
    /// exception that [`Keys::share_a_slot`] describes.
    ///
    /// No two resources share a key. The fence key of the resource `x` is `{x}:fence`. The resource `{x}` would get the
    /// same fence key, so its fence key is `{x}:fence:fence` instead. For the same reason, a resource cannot have a
    /// [reserved](is_reserved) name.
    pub(crate) fn new(prefix: &str, resource: &str) -> Self {
        let lock = format!("{prefix}{resource}");
        let fence = companion(&lock, FENCE);
        let queue = companion(&lock, QUEUE);
        Self { fence, queue, lock, mode: KeyMode::Exclusive }
    }

    /// The same keys, to be locked in shared mode.
    pub(crate) fn shared(self) -> Self {
        Self { mode: KeyMode::Shared { readers: companion(&self.lock, SHARED) }, ..self }
    }

    /// The same keys, for an upgrade: a new token replaces the token of the only reader, and locks the resource
    /// exclusively.
    pub(crate) fn upgraded(self) -> Self {
        Self { mode: KeyMode::Upgraded { readers: companion(&self.lock, SHARED) }, ..self }
    }

    /// The keys of one permit of the semaphore `resource`.
    pub(crate) fn permit(prefix: &str, resource: &str, slot: u32, limit: u32) -> Self {
        let semaphore = Self::semaphore(prefix, resource);
        let lock = format!("{}{slot}", semaphore.fence);
        let fence = format!("{lock}{FENCE}");
        let queue = semaphore.queue;
        Self { lock, fence, queue, mode: KeyMode::Permit { index: semaphore.lock, slot, limit } }
    }

    /// Returns what the permits of the semaphore `resource` have in common. The fields have other meanings here: `lock`
    /// is the key of the index, `queue` is the key of the queue, and `fence` is the beginning of the lock keys.
    pub(crate) fn semaphore(prefix: &str, resource: &str) -> Self {
        let key = format!("{prefix}{resource}");
        let lock = companion(&key, PERMITS);
        let fence = companion(&key, PERMIT);
        let queue = format!("{lock}{QUEUE}");
        Self { lock, fence, queue, mode: KeyMode::Exclusive }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.mode, KeyMode::Shared { .. })
    }

    /// Returns what the keys say about a permit; `None` for a lock.
    pub(crate) fn as_permit(&self) -> Option<Permit<'_>> {
        let KeyMode::Permit { index, slot, limit } = &self.mode else { return None };
        let digits = self.lock.bytes().rev().take_while(u8::is_ascii_digit).count();
        Some(Permit {
            index,
            slot: *slot,
            limit: *limit,
            base: &self.lock[..self.lock.len() - digits],
        })
    }

    /// In shared mode, the key of the readers. In the other modes, the lock key, so that a script can tell the modes
    /// apart.
    pub(crate) fn readers(&self) -> &String {
        if let KeyMode::Shared { readers } = &self.mode { readers } else { &self.lock }
    }

    /// In shared mode and for an upgrade, the key of the readers. In the other modes, the lock key, so that a script
    /// can tell the modes apart.
    pub(crate) fn former_readers(&self) -> &String {
        if let KeyMode::Upgraded { readers } = &self.mode { readers } else { self.readers() }
    }

    /// Whether a lease with these keys prevents others from locking `wanted`.
    pub(crate) fn excludes(&self, wanted: &Self) -> bool {
        self.lock == wanted.lock && !(self.is_shared() && wanted.is_shared())
    }

    /// Whether all keys have the same slot in a Redis Cluster. `false` only if the name of the resource has braces that
    /// are not a hash tag.
    pub(crate) fn share_a_slot(&self) -> bool {
        [&self.fence, &self.queue].iter().all(|key| slot(key) == self.slot())
    }

    pub(crate) fn slot(&self) -> u16 {
        slot(&self.lock)
    }
}

/// Returns the key with the ending `what` that belongs to a lock key.
fn companion(lock: &str, what: &str) -> String {
    match tag(lock) {
        Some(_) if lock.starts_with('{') && lock.ends_with('}') => format!("{lock}{what}{what}"),
        Some(_) => format!("{lock}{what}"),
        None => format!("{{{lock}}}{what}"),
    }
}

/// Whether a lock key has the form of a key that quorlock stores for another resource, such as a fence key.
pub(crate) fn is_reserved(lock: &str) -> bool {
    let (rest, number) = lock.rsplit_once(':').unwrap_or((lock, ""));
    let is_number = number.bytes().all(|digit| digit.is_ascii_digit());
    let permit = rest.strip_suffix(":permit").filter(|_| is_number);
    let ending = [FENCE, QUEUE, SHARED, PERMITS].iter().find_map(|what| lock.strip_suffix(what));
    let base = ending.or(permit);
    base.is_some_and(|base| tag(base).is_some() || (base.starts_with('{') && base.ends_with('}')))
}

/// The hash tag of a key: the text within its first pair of braces. `None` if there is no such text, or if it is empty.
pub(crate) fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

/// The slot of a key in a Redis Cluster, computed from its hash tag if it has one.
pub(crate) fn slot(key: &str) -> u16 {
    CRC.checksum(tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

impl Resources {
    /// Fails if a key of these resources could belong to another resource or, on a Redis Cluster,
    /// if the keys are not all in one slot.
    pub(crate) fn check_keys(&self, prefix: &str, is_cluster: bool) -> Result<()> {
        for resource in self.iter().filter(|name| name.contains('{') || prefix.contains('{')) {
            let key = format!("{prefix}{resource}");
            if is_reserved(&key) {
                let resource = Quoted(resource);
                let key = Quoted(&key);
                return Err(Error::config(format!(
                    "the resource {resource} is reserved: its key would be {key}, and keys with a hash \
                     tag that end in \":fence\", \":queue\", \":shared\", \":permits\" or \":permit:\" and a number are those that \
                     quorlock keeps beside a lock"
                )));
            }
        }
        if is_cluster { self.check_slots(prefix) } else { Ok(()) }
    }

    /// Fails if the keys are in more than one slot of a Redis Cluster, because one request cannot have keys in several
    /// slots.
    fn check_slots(&self, prefix: &str) -> Result<()> {
        let keys = |resource: &String| Keys::new(prefix, resource);
        if let Some(resource) = self.iter().find(|resource| !keys(resource).share_a_slot()) {
            let resource = Quoted(resource);
            return Err(Error::config(format!(
                "the resource {resource} cannot be locked on a Redis Cluster: its braces make no hash \
                 tag, such as that of {{orders}}:1"
            )));
        }
        let mut slots = self.iter().map(|resource| (resource, keys(resource).slot()));
        let Some((first, slot)) = slots.next() else { return Ok(()) };
        match slots.find(|(_, other)| *other != slot) {
            Some((other, _)) => {
                let first = Quoted(first);
                let other = Quoted(other);
                Err(Error::config(format!(
                    "the resources {first} and {other} are in different slots of the Redis Cluster, \
                     so they cannot be locked together: give all of them the same hash tag, such \
                     as {{orders}}:1 and {{orders}}:2"
                )))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Keys, is_reserved, slot};
    use std::collections::HashMap;

    #[test]
    fn no_two_names_share_a_key() {
        // All names that consist of at most four of these parts.
        let parts = ["{", "}", "x", ":", ":fence", ":queue", ":shared"];
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
            let keys = Keys::new("", name).shared();
            if is_reserved(&keys.lock) {
                continue;
            }
            for key in [&keys.lock, &keys.fence, &keys.queue, keys.readers()] {
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
    fn keys_of_a_resource_share_a_cluster_slot() {
        // Values from the Redis Cluster specification and from CLUSTER KEYSLOT.
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
