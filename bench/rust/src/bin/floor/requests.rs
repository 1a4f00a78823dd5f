//! The requests: the scripts of the core, with the parameters of `core/src/command/script.rs`.
//!
//! The parameters are repeated here, because the floor must not depend on the code that it is compared with.
//! `bench/commands.py` checks that quorlock sends the same.

use std::fmt::Write;
use std::time::SystemTime;

const ACQUIRE: &str = include_str!("../../../../../core/src/command/scripts/acquire.lua");
const RELEASE: &str = include_str!("../../../../../core/src/command/scripts/release.lua");
const QUEUE: &str = include_str!("../../../../../core/src/command/scripts/queue.lua");
const CONSTANTS: [(&str, &str); 4] = [
    ("FENCE_LIMIT", "9007199254740992"),
    ("FENCE_WINDOW", "2000000"),
    ("MOST_GONE", "16"),
    ("LONGEST_CALL", "60000000"),
];
/// The ttl of the lock and the minimum ttl of the fence counter, in milliseconds.
const TTL: &str = "10000";
const FENCE_MEMORY: &str = "70000";
/// Parameters of a release: how long a notified waiter has priority (µs), and the ttl of the queue (ms).
const CALL: &str = "50000";
const QUEUE_MEMORY: &str = "5200";

/// Returns the scripts of acquire and release.
pub fn scripts() -> [String; 2] {
    [ACQUIRE, RELEASE].map(|source| {
        let source = source.replace("--- queue.lua\n", QUEUE);
        CONSTANTS.iter().fold(source, |source, (name, value)| source.replace(name, value))
    })
}

/// Encodes a command in the protocol of the server.
pub fn encode(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        // Writing to a string cannot fail.
        let _ = write!(text, "${}\r\n{word}\r\n", word.len());
    }
    text.into_bytes()
}

/// The keys of a resource.
pub struct Keys {
    lock: String,
    fence: String,
    queue: String,
}

impl Keys {
    pub fn new(lock: String) -> Self {
        Self { fence: format!("{{{lock}}}:fence"), queue: format!("{{{lock}}}:queue"), lock }
    }
}

pub fn acquire(hash: &str, keys: &Keys, token: &str) -> Vec<u8> {
    let Keys { lock, fence, queue } = keys;
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970");
    let proposal = now.as_micros().to_string();
    encode(&["EVALSHA", hash, "3", lock, fence, queue, token, TTL, &proposal, FENCE_MEMORY])
}

pub fn release(hash: &str, keys: &Keys, token: &str) -> Vec<u8> {
    encode(&["EVALSHA", hash, "2", &keys.lock, &keys.queue, token, CALL, QUEUE_MEMORY])
}

/// Returns 20 random bytes as hexadecimal digits.
pub fn token() -> String {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).expect("random numbers");
    let mut token = String::with_capacity(40);
    for byte in bytes {
        let _ = write!(token, "{byte:02x}");
    }
    token
}
