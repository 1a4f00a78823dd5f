//! The requests as Lua scripts. A script takes only parameters; none is built from texts. The
//! in-memory node does the same in Rust (`memory.rs`).

use crate::protocol::{FENCE_LIMIT, MAX_CLOCK_LEAD_MICROS};
use crate::request::{Keys, Reply, Request, Subject};
use once_cell::sync::Lazy;
use redis::{Cmd, Value};
use std::time::Duration;

/// How long a node keeps a resource's fence counter after the last lease of it would have expired.
const FENCE_MEMORY: Duration = Duration::from_secs(24 * 3600);

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
           if redis.pcall('GET', KEYS[1]) == ARGV[1] then return {{2, 0}} end
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
// For each lock there are two keys and three parameters.
static EXTEND: Lazy<Script> = Lazy::new(|| {
    Script::new(
        "local done = {}
         for i = 1, #KEYS / 2 do
           local key, fence = KEYS[2 * i - 1], KEYS[2 * i]
           local token, ttl, memory = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
           if redis.pcall('GET', key) ~= token then
             done[i] = 0
           else
             if redis.call('PTTL', key) < tonumber(ttl) then
               redis.call('PEXPIRE', key, ttl)
               redis.call('PEXPIRE', fence, memory)
             end
             done[i] = 1
           end
         end
         return done",
    )
});

// For each lock there are two keys and four parameters. A foreign value under the fence's name is
// not touched, and then neither is the key.
static HEAL: Lazy<Script> = Lazy::new(|| {
    Script::new(
        "local done = {}
         for i = 1, #KEYS / 2 do
           local key, counter = KEYS[2 * i - 1], KEYS[2 * i]
           local token, ttl, fence, memory = unpack(ARGV, 4 * i - 3, 4 * i)
           local last = redis.pcall('GET', counter) or '0'
           last = type(last) == 'string' and tonumber(last)
           done[i] = 0
           if last and redis.call('SET', key, token, 'NX', 'PX', ttl) then
             if last < tonumber(fence) then redis.call('SET', counter, fence, 'PX', memory) end
             done[i] = 1
           end
         end
         return done",
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
pub(crate) fn sources() -> [&'static str; 5] {
    [&ACQUIRE.source, &RAISE.source, &EXTEND.source, &HEAL.source, &RELEASE.source]
}

/// A script that does nothing to a key that does not exist: its source and its hash.
pub(crate) fn harmless() -> (&'static str, &'static str) {
    (&RELEASE.source, &RELEASE.hash)
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
        match self {
            Self::Acquire { subject, ttl, proposal } => {
                let mut cmd = about(&ACQUIRE, by, subject);
                cmd.arg(milliseconds(*ttl)).arg(proposal).arg(milliseconds(*ttl + FENCE_MEMORY));
                cmd
            }
            Self::Raise { subject, ttl, fence } => {
                let mut cmd = about(&RAISE, by, subject);
                cmd.arg(fence).arg(milliseconds(*ttl + FENCE_MEMORY));
                cmd
            }
            Self::Extend(locks) => {
                let keys: Vec<_> = locks.iter().flat_map(|(lock, _)| both(&lock.keys)).collect();
                let mut cmd = invoke(&EXTEND, by, &keys);
                for (lock, ttl) in locks.iter() {
                    cmd.arg(&lock.token);
                    cmd.arg(milliseconds(*ttl)).arg(milliseconds(*ttl + FENCE_MEMORY));
                }
                cmd
            }
            Self::Heal(locks) => {
                let keys: Vec<_> = locks.iter().flat_map(|(lock, ..)| both(&lock.keys)).collect();
                let mut cmd = invoke(&HEAL, by, &keys);
                for (lock, ttl, fence) in locks.iter() {
                    cmd.arg(&lock.token).arg(milliseconds(*ttl)).arg(fence);
                    cmd.arg(milliseconds(*ttl + FENCE_MEMORY));
                }
                cmd
            }
            Self::Release(subject) => {
                let mut cmd = invoke(&RELEASE, by, &[&subject.keys.lock]);
                cmd.arg(&subject.token);
                cmd
            }
            Self::Look(keys) => {
                let mut cmd = redis::cmd("EXISTS");
                cmd.arg(&keys.lock);
                cmd
            }
        }
    }

    /// Understands the server's answer to [`Request::command`]; `None` if it makes no sense.
    pub(crate) fn understand(&self, value: &Value) -> Option<Reply> {
        match (self, value) {
            (Self::Acquire { .. }, Value::Array(parts)) => match parts[..] {
                [Value::Int(1), Value::Int(fence)] => {
                    let fence = u64::try_from(fence).ok().filter(|fence| *fence < FENCE_LIMIT)?;
                    Some(Reply::Granted(fence))
                }
                [Value::Int(0), Value::Int(pttl)] => {
                    Some(Reply::Held(u64::try_from(pttl).ok().map(Duration::from_millis)))
                }
                [Value::Int(2), Value::Int(_)] => Some(Reply::Own),
                _ => None,
            },
            (Self::Extend(_) | Self::Heal(_), Value::Array(parts)) => {
                let done = |part: &Value| match part {
                    Value::Int(0) => Some(false),
                    Value::Int(1) => Some(true),
                    _ => None,
                };
                let asked = match self {
                    Self::Extend(locks) => locks.len(),
                    Self::Heal(locks) => locks.len(),
                    _ => 0,
                };
                let done: Vec<bool> = parts.iter().map(done).collect::<Option<_>>()?;
                (done.len() == asked).then_some(Reply::Each(done))
            }
            (Self::Acquire { .. } | Self::Extend(_) | Self::Heal(_), _) => None,
            (_, Value::Int(1)) => Some(Reply::Yes),
            (_, Value::Int(0)) => Some(Reply::No),
            _ => None,
        }
    }
}

fn both(keys: &Keys) -> [&String; 2] {
    [&keys.lock, &keys.fence]
}

/// A script with both keys of a resource, and the token as its first parameter.
fn about(script: &Script, by: By, subject: &Subject) -> Cmd {
    let mut cmd = invoke(script, by, &both(&subject.keys));
    cmd.arg(&subject.token);
    cmd
}

fn invoke(script: &Script, by: By, keys: &[&String]) -> Cmd {
    let (name, script) = match by {
        By::Hash => ("EVALSHA", &script.hash),
        By::Source => ("EVAL", &script.source),
    };
    let mut cmd = redis::cmd(name);
    cmd.arg(script).arg(keys.len()).arg(keys);
    cmd
}
