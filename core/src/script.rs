//! The requests to a node, as Lua scripts. A script takes only parameters; none is built from
//! texts. The in-memory node does the same in Rust (`memory.rs`).

use crate::protocol::{FENCE_LIMIT, MAX_CLOCK_LEAD_MICROS, Vote};
use once_cell::sync::Lazy;
use redis::{Cmd, Value};
use std::sync::Arc;
use std::time::Duration;

/// How long a node keeps a resource's fence counter after the last lease of it would have expired.
const FENCE_MEMORY: Duration = Duration::from_secs(24 * 3600);

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
pub(crate) struct Request {
    pub(crate) subject: Arc<Subject>,
    pub(crate) verb: Verb,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    /// Take the lock for a new token.
    Acquire { ttl: Duration, proposal: u64 },
    /// Store a fence that is at least this.
    Raise { ttl: Duration, fence: u64 },
    /// Keep the lock for at least `ttl` from now on.
    Extend { ttl: Duration },
    /// Delete the token: RELEASE, and UNDO of a round that was lost.
    Release,
    /// Is anything there? The token does not matter.
    Look,
}

/// A node's answer to a request that it understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To ACQUIRE.
    Granted(u64),
    /// To ACQUIRE: the key exists, and expires in so long, or never.
    Held(Option<Duration>),
    /// To all others.
    Yes,
    /// To all others.
    No,
}

impl Reply {
    /// The reply to ACQUIRE as the vote it is.
    pub(crate) fn vote(self) -> Vote {
        match self {
            Self::Granted(fence) => Vote::Granted { fence },
            Self::Held(expires_in) => Vote::Held { expires_in },
            Self::Yes | Self::No => Vote::Unknown,
        }
    }
}

struct Script {
    source: String,
    hash: String,
}

impl Script {
    fn new(source: impl Into<String>) -> Self {
        let source = source.into();
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }
}

// Everything that can fail is read before the first write, so an error means that nothing was
// done. SET NX answers nil for a key of any type, so a foreign value is simply held.
static ACQUIRE: Lazy<Script> = Lazy::new(|| {
    Script::new(format!(
        "local last = redis.pcall('GET', KEYS[2]) or '0'
         if type(last) == 'table' then return last end
         if not tonumber(last) then
           return redis.error_reply('ERR the fence key ' .. KEYS[2] .. ' holds a foreign value')
         end
         local fence = tonumber(last) + 1
         local proposal, time = tonumber(ARGV[3]), redis.call('TIME')
         local latest = time[1] * 1000000 + time[2] + {MAX_CLOCK_LEAD_MICROS}
         if proposal <= latest and proposal > fence then fence = proposal end
         if fence >= {FENCE_LIMIT} then
           return redis.error_reply('ERR the fence key ' .. KEYS[2] .. ' is used up')
         end
         if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
           return {{0, redis.call('PTTL', KEYS[1])}}
         end
         redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[4])
         return {{1, fence}}"
    ))
});

static RAISE: Lazy<Script> = Lazy::new(|| {
    Script::new(
        "if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
         local fence = tonumber(redis.call('GET', KEYS[2]) or '0')
         if fence < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
         return 1",
    )
});

// A key is never shortened: an EXTEND that arrives late, after a longer one, must not undo it.
static EXTEND: Lazy<Script> = Lazy::new(|| {
    Script::new(
        "if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
         if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
           redis.call('PEXPIRE', KEYS[1], ARGV[2])
           redis.call('PEXPIRE', KEYS[2], ARGV[3])
         end
         return 1",
    )
});

static RELEASE: Lazy<Script> = Lazy::new(|| {
    Script::new(
        "if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
         redis.call('DEL', KEYS[1])
         return 1",
    )
});

/// The source of every script.
pub(crate) fn sources() -> [&'static str; 4] {
    [&ACQUIRE.source, &RAISE.source, &EXTEND.source, &RELEASE.source]
}

/// The ttl in the nodes' unit. Rounded up: what the lease relies on is never less than asked for.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// How the script of a request is named to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// EVALSHA: short, but the server may not know it yet.
    Hash,
    /// EVAL.
    Source,
}

impl Request {
    /// The Redis command for this request.
    pub(crate) fn command(&self, by: By) -> Cmd {
        let Keys { lock, fence } = &*self.subject.keys;
        let token = &self.subject.token;
        match self.verb {
            Verb::Acquire { ttl, proposal } => {
                let mut cmd = invoke(&ACQUIRE, by, &[lock, fence], token);
                cmd.arg(milliseconds(ttl)).arg(proposal).arg(milliseconds(ttl + FENCE_MEMORY));
                cmd
            }
            Verb::Raise { ttl, fence: value } => {
                let mut cmd = invoke(&RAISE, by, &[lock, fence], token);
                cmd.arg(value).arg(milliseconds(ttl + FENCE_MEMORY));
                cmd
            }
            Verb::Extend { ttl } => {
                let mut cmd = invoke(&EXTEND, by, &[lock, fence], token);
                cmd.arg(milliseconds(ttl)).arg(milliseconds(ttl + FENCE_MEMORY));
                cmd
            }
            Verb::Release => invoke(&RELEASE, by, &[lock], token),
            Verb::Look => {
                let mut cmd = redis::cmd("EXISTS");
                cmd.arg(lock);
                cmd
            }
        }
    }

    /// Understands the server's answer to [`Request::command`]; `None` if it makes no sense.
    pub(crate) fn understand(&self, value: &Value) -> Option<Reply> {
        match (self.verb, value) {
            (Verb::Acquire { .. }, Value::Array(parts)) => match parts[..] {
                [Value::Int(1), Value::Int(fence)] => {
                    let fence = u64::try_from(fence).ok().filter(|fence| *fence < FENCE_LIMIT)?;
                    Some(Reply::Granted(fence))
                }
                [Value::Int(0), Value::Int(pttl)] => {
                    Some(Reply::Held(u64::try_from(pttl).ok().map(Duration::from_millis)))
                }
                _ => None,
            },
            (Verb::Acquire { .. }, _) => None,
            (_, Value::Int(1)) => Some(Reply::Yes),
            (_, Value::Int(0)) => Some(Reply::No),
            _ => None,
        }
    }
}

fn invoke(script: &Script, by: By, keys: &[&str], token: &str) -> Cmd {
    let (name, script) = match by {
        By::Hash => ("EVALSHA", &script.hash),
        By::Source => ("EVAL", &script.source),
    };
    let mut cmd = redis::cmd(name);
    cmd.arg(script).arg(keys.len()).arg(keys).arg(token);
    cmd
}
