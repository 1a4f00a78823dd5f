//! The names of a resource's keys on the nodes, and their slots in a Redis Cluster.

use crate::config::resources::Resources;
use crate::error::{Error, Result};
use crc::{CRC_16_XMODEM, Crc};

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

impl Resources {
    /// Fails unless the keys of these resources, with this prefix, are theirs alone and, on a Redis Cluster,
    /// in one slot.
    pub(crate) fn check_keys(&self, prefix: &str, is_cluster: bool) -> Result<()> {
        for resource in self.iter().filter(|name| name.contains('{') || prefix.contains('{')) {
            let key = format!("{prefix}{resource}");
            if is_reserved(&key) {
                return Err(Error::config(format!(
                    "the resource {resource:?} is reserved: its key would be {key:?}, and keys with a hash \
                     tag that end in \":fence\" or \":queue\" are those that quorlock keeps beside a lock"
                )));
            }
        }
        if is_cluster { self.check_slots(prefix) } else { Ok(()) }
    }

    /// Fails if the keys of several resources, with this prefix, are in several slots of a Redis Cluster,
    /// where no request can be about all of them.
    fn check_slots(&self, prefix: &str) -> Result<()> {
        let keys = |resource: &String| Keys::new(prefix, resource);
        if let Some(resource) = self.iter().find(|resource| !keys(resource).share_a_slot()) {
            return Err(Error::config(format!(
                "the resource {resource:?} cannot be locked on a Redis Cluster: its braces make no hash \
                 tag, such as that of {{orders}}:1"
            )));
        }
        let mut slots = self.iter().map(|resource| (resource, keys(resource).slot()));
        let Some((first, slot)) = slots.next() else { return Ok(()) };
        match slots.find(|(_, other)| *other != slot) {
            Some((other, _)) => Err(Error::config(format!(
                "the resources {first:?} and {other:?} are in different slots of the Redis Cluster, \
                 so they cannot be locked together: give all of them the same hash tag, such as \
                 {{orders}}:1 and {{orders}}:2"
            ))),
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
