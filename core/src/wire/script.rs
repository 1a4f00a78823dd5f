//! The Lua scripts (`scripts/`), and the keys that each script gets. `commands.rs` makes the commands that run the
//! scripts. An in-memory node does in Rust what the scripts do (`memory/entries.rs`); tests compare the two.
//!
//! Keys and values are always passed as parameters, never spliced into the source of a script.

use crate::config::options::MAX_TTL;
use crate::wire::keys::Keys;
use crate::wire::token::{MARKER, MAX_TOKEN};
use once_cell::sync::Lazy;
use quorlock_protocol::node::permits::{INDEX_SLACK, SPARE};
use quorlock_protocol::node::queue::{LONGEST_SILENCE, MOST_GONE};
use quorlock_protocol::{FENCE_LIMIT, FENCE_WINDOW, LONGEST_CALL};
use std::borrow::Cow;
use std::time::Duration;

/// A Lua script in the form in which servers get it: with its constants and shared parts inserted.
pub(crate) struct Script {
    pub(super) source: String,
    pub(super) hash: String,
    /// The kinds of keys that the script gets for each resource, in the order of its KEYS.
    pub(super) keys: &'static [Key],
    is_preloaded: bool,
}

/// A kind of key that a script gets for each resource.
#[derive(Clone, Copy)]
pub(super) enum Key {
    Lock,
    Fence,
    Queue,
    /// In shared mode, the key of the readers. In the other modes, the lock key, so that the script can tell the modes
    /// apart.
    Readers,
    /// In shared mode and for an upgrade, the key of the readers. In the other modes, the lock key, so that the script
    /// can tell the modes apart.
    FormerReaders,
    /// The key of the readers, whatever the mode of the request is.
    AnyReaders,
    /// For a permit, the key of the semaphore's index; for a lock, the same key as `Readers`.
    Companion,
    /// For a permit, the key of the semaphore's index; for a lock, the same key as `FormerReaders`.
    FormerCompanion,
}

impl Key {
    pub(super) fn of(self, keys: &Keys) -> Cow<'_, str> {
        let index = keys.as_permit().map(|permit| permit.index);
        Cow::Borrowed(match self {
            Self::Lock => &keys.lock,
            Self::Fence => &keys.fence,
            Self::Queue => &keys.queue,
            Self::Readers => keys.readers(),
            Self::FormerReaders => keys.former_readers(),
            Self::Companion => index.unwrap_or_else(|| keys.readers()),
            Self::FormerCompanion => index.unwrap_or_else(|| keys.former_readers()),
            Self::AnyReaders => return Cow::Owned(keys.clone().shared().readers().clone()),
        })
    }
}

/// The two values of `is_preloaded`: `PRELOADED` scripts are loaded by each connection when it opens, and `RARE`
/// scripts when they are first needed.
const PRELOADED: bool = true;
const RARE: bool = false;

/// Defines a static for each script. Each line gives the name of the static, the script's file in the directory
/// `scripts`, the keys that the script gets for each resource, and whether the script is preloaded.
macro_rules! scripts {
    ($($name:ident = $file:literal [$($key:ident)*] $is_preloaded:ident;)*) => {
        $(pub(super) static $name: Lazy<Script> = Lazy::new(|| {
            let source = include_str!(concat!("scripts/", $file, ".lua"));
            Script::new(source, &[$(Key::$key),*], $is_preloaded)
        });)*
        static ALL: &[&Lazy<Script>] = &[$(&$name),*];
    };
}

scripts! {
    ACQUIRE = "acquire" [Lock Fence Queue] PRELOADED;
    EXTEND = "extend" [Lock Fence] PRELOADED;
    RELEASE = "release" [Lock Queue] PRELOADED;
    SHARED_ACQUIRE = "shared/acquire" [Lock Fence Queue Readers] PRELOADED;
    SHARED_EXTEND = "shared/extend" [Lock Fence Readers] PRELOADED;
    SHARED_RELEASE = "shared/release" [Lock Queue Readers] PRELOADED;
    SHARED_EXISTS = "shared/exists" [Lock Readers] RARE;
    DOWNGRADE = "shared/downgrade" [Lock Queue Readers] RARE;
    PERMITS_ACQUIRE = "permits/acquire" [Lock Fence Queue Companion] RARE;
    PERMITS_EXTEND = "permits/extend" [Lock Fence Companion] RARE;
    PERMITS_RELEASE = "permits/release" [Lock Queue Companion] RARE;
    // `batch.rs` chooses the keys of this script.
    BATCH = "batch" [] PRELOADED;
    // `commands.rs` chooses the keys of this script.
    PERMITS_INSPECT = "permits/inspect" [] RARE;
    RAISE = "raise" [Lock Fence Readers] PRELOADED;
    HEAL = "heal" [Lock Fence FormerReaders] PRELOADED;
    TRANSFER = "transfer" [Lock Fence Queue FormerCompanion] RARE;
    GIVE_BACK = "give_back" [Lock FormerCompanion] RARE;
    INSPECT = "inspect" [Lock Fence Queue AnyReaders] RARE;
    FORGET = "forget" [Lock Fence Queue AnyReaders] RARE;
    LIST = "list" [] RARE;
}

/// The parts that several scripts have in common: for each part, its name and its source. A line such as
/// `--- fence.lua` stands for a part. [`Script::new`] replaces these lines in the order of this list, so a part may
/// contain only lines that stand for later parts.
const PARTS: [(&str, &str); 8] = [
    ("fence", include_str!("scripts/fence.lua")),
    ("pttl", include_str!("scripts/pttl.lua")),
    ("clock", include_str!("scripts/clock.lua")),
    ("readers", include_str!("scripts/shared/readers.lua")),
    ("tries", include_str!("scripts/shared/tries.lua")),
    ("queue", include_str!("scripts/queue.lua")),
    ("index", include_str!("scripts/permits/index.lua")),
    ("permits", include_str!("scripts/permits/permits.lua")),
];

impl Script {
    /// Creates a script from its source. Inserts the constants, and replaces each marker, such as `--- fence.lua`, with
    /// that file of [`PARTS`]. In each script, the markers of parts that define functions must come after the fast path
    /// (the code for the most frequent case), because defining a function costs time on every call.
    ///
    /// Removes comments and indentation to make the script shorter. The length matters because a connection loads the
    /// scripts together with the login. Until a client has logged in, a server accepts no argument of more than 16 KiB.
    fn new(source: &str, keys: &'static [Key], is_preloaded: bool) -> Self {
        let insert = |source: String, (name, part): &(&str, &str)| {
            source.replace(&format!("--- {name}.lua\n"), part)
        };
        let source = PARTS.iter().fold(source.to_owned(), insert);
        let source = source.replace("MARKER", &format!("'{MARKER}'"));
        let constants = [
            ("FENCE_LIMIT", FENCE_LIMIT),
            ("FENCE_WINDOW", microseconds(FENCE_WINDOW)),
            ("MOST_GONE", MOST_GONE as u64),
            ("LONGEST_CALL", microseconds(LONGEST_CALL)),
            ("LONGEST_SILENCE", microseconds(LONGEST_SILENCE)),
            ("LONGEST_TTL", milliseconds(MAX_TTL)),
            ("MAX_TOKEN", MAX_TOKEN as u64),
            ("SPARE", SPARE as u64),
            ("INDEX_SLACK", milliseconds(INDEX_SLACK)),
            ("EACH", keys.len() as u64),
        ];
        let fill =
            |source: String, (name, value): (&str, u64)| source.replace(name, &value.to_string());
        let source = constants.into_iter().fold(source, fill);
        let code = source.lines().map(str::trim).filter(|line| !line.starts_with("--"));
        let source: String = code.flat_map(|line| [line, "\n"]).collect();
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash, keys, is_preloaded }
    }
}

/// Builds all scripts now, so that the first requests need not wait for this.
pub(crate) fn prepare() {
    ALL.iter().for_each(|script| {
        Lazy::force(script);
    });
}

/// The sources of the scripts that a connection loads when it opens.
pub(crate) fn sources() -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(|script| script.is_preloaded).map(|script| &*script.source)
}

#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|script| &*script.source)
}

/// Returns the source, the hash and the parameters of a script call that changes nothing if `keys` do not exist. With
/// this call, the doctor checks permissions.
pub(crate) fn harmless(keys: &Keys) -> (&'static str, &'static str, [&str; 5]) {
    let arguments = ["2", &keys.lock, &keys.queue, "x", "0 0"];
    (&RELEASE.source, &RELEASE.hash, arguments)
}

/// Returns the ttl in milliseconds, the nodes' unit. Rounds up, so that the key never expires before the lease ends.
pub(super) fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(super) fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{ALL, sources};

    /// The longest argument that a server accepts before a client has logged in.
    const LONGEST: usize = 16 * 1_024;

    #[test]
    fn a_script_can_be_loaded_before_the_login() {
        for source in sources() {
            assert!(source.len() <= LONGEST, "{} bytes: {source:.40}", source.len());
        }
        assert!(ALL.iter().any(|script| !script.is_preloaded));
    }

    #[test]
    fn no_name_of_a_constant_and_no_marker_is_left_in_a_script() {
        let is_name = |word: &str| {
            word.len() > 2 && word.bytes().all(|c| c.is_ascii_uppercase() || c == b'_')
        };
        let of_servers = ["KEYS", "ARGV", "ERR"];
        for script in ALL {
            assert!(!script.source.contains("---"), "{}", script.source);
            for line in script.source.lines().filter(|line| !line.contains('\'')) {
                for word in line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                    assert!(!is_name(word) || of_servers.contains(&word), "{word}: {line}");
                }
            }
        }
    }
}
