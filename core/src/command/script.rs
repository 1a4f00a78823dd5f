//! Requests as Lua scripts (`scripts/`), and the parsing of their replies. An in-memory node does
//! the same in Rust (`memory.rs`); tests compare both.
//!
//! Keys and values are always passed as parameters, never spliced into the source of a script.

use crate::command::keys::Keys;
use crate::command::reply::{Elsewhere, Holder, Refusal, Reply, StoredLock};
use crate::command::request::{Request, Subject, Ticket};
use crate::command::token::{MAX_TOKEN, Token};
use once_cell::sync::Lazy;
use quorlock_protocol::node::queue::MOST_GONE;
use quorlock_protocol::{FENCE_LIMIT, FENCE_MEMORY, FENCE_WINDOW, Healed, LONGEST_CALL, Turns};
use redis::{Cmd, Value};
use std::sync::Arc;
use std::time::Duration;

/// The largest number of arguments, besides the keys, of a request about one lock, and their size
/// in bytes. Used to allocate commands.
const MAX_ARGUMENTS: usize = 12;
const ARGUMENT_BYTES: usize = 160 + MAX_TOKEN;

/// About how many keys a server looks at for one page of LIST. It serves no other client meanwhile, for about a
/// millisecond.
const PAGE: usize = 500;

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

    /// Inserts the constants, the fence at the marker `--- fence.lua`, and the queue functions at the marker
    /// `--- queue.lua`. In each script, the latter comes after the fast path, because defining a function costs time on
    /// every call.
    fn with_constants(source: &str) -> Self {
        let source = source
            .replace("--- fence.lua\n", include_str!("scripts/fence.lua"))
            .replace("--- queue.lua\n", include_str!("scripts/queue.lua"));
        let constants = [
            ("FENCE_LIMIT", FENCE_LIMIT),
            ("FENCE_WINDOW", microseconds(FENCE_WINDOW)),
            ("MOST_GONE", MOST_GONE as u64),
            ("LONGEST_CALL", microseconds(LONGEST_CALL)),
            ("MAX_TOKEN", MAX_TOKEN as u64),
        ];
        let fill =
            |source: String, (name, value): (&str, u64)| source.replace(name, &value.to_string());
        Self::new(constants.into_iter().fold(source, fill))
    }
}

static ACQUIRE: Lazy<Script> =
    Lazy::new(|| Script::with_constants(include_str!("scripts/acquire.lua")));
static RAISE: Lazy<Script> =
    Lazy::new(|| Script::with_constants(include_str!("scripts/raise.lua")));
static EXTEND: Lazy<Script> = Lazy::new(|| Script::new(include_str!("scripts/extend.lua")));
static HEAL: Lazy<Script> = Lazy::new(|| Script::with_constants(include_str!("scripts/heal.lua")));
static RELEASE: Lazy<Script> =
    Lazy::new(|| Script::with_constants(include_str!("scripts/release.lua")));
// Rarely used, so connections do not load these scripts in advance.
static TRANSFER: Lazy<Script> =
    Lazy::new(|| Script::with_constants(include_str!("scripts/transfer.lua")));
static GIVE_BACK: Lazy<Script> = Lazy::new(|| Script::new(include_str!("scripts/give_back.lua")));
static INSPECT: Lazy<Script> = Lazy::new(|| Script::new(include_str!("scripts/inspect.lua")));
static FORGET: Lazy<Script> = Lazy::new(|| Script::new(include_str!("scripts/forget.lua")));
static LIST: Lazy<Script> = Lazy::new(|| Script::new(include_str!("scripts/list.lua")));

/// The sources of the scripts that locking uses, to be loaded when a connection opens.
pub(crate) fn sources() -> [&'static str; 5] {
    Lazy::force(&TRANSFER);
    Lazy::force(&GIVE_BACK);
    Lazy::force(&INSPECT);
    Lazy::force(&FORGET);
    Lazy::force(&LIST);
    [&ACQUIRE.source, &RAISE.source, &EXTEND.source, &HEAL.source, &RELEASE.source]
}

/// A script that does nothing if the keys do not exist: its source, hash and parameters. The doctor
/// runs it to check permissions.
pub(crate) fn harmless(keys: &Keys) -> (&'static str, &'static str, [&str; 6]) {
    let arguments = ["2", &keys.lock, &keys.queue, "x", "0", "0"];
    (&RELEASE.source, &RELEASE.hash, arguments)
}

/// The ttl in milliseconds, the nodes' unit. Rounded up, so that the key never expires before the
/// lease ends.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// How a command refers to its script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// EVALSHA: short, but fails if the server has not loaded the script.
    Hash,
    /// EVAL: with the whole source.
    Source,
}

impl Request {
    /// The Redis command for this request.
    pub(crate) fn command(&self, by: By) -> Cmd {
        match self {
            Self::Acquire { subject, ttl, proposal, ticket, turns } => {
                let keys: Vec<_> = subject.keys.iter().flat_map(all).collect();
                let mut cmd = invoke(&ACQUIRE, by, &keys);
                cmd.arg(subject.token.as_str()).arg(milliseconds(*ttl)).arg(proposal);
                cmd.arg(milliseconds(*ttl + FENCE_MEMORY));
                if subject.waiter.is_some() {
                    add_queue_arguments(&mut cmd, subject, *ticket, *turns);
                    cmd.arg(microseconds(turns.keep));
                }
                cmd
            }
            Self::Transfer { subject, ttl, proposal } => {
                let keys: Vec<_> = subject.keys.iter().flat_map(all).collect();
                let mut cmd = invoke(&TRANSFER, by, &keys);
                cmd.arg(subject.token.as_str()).arg(milliseconds(*ttl)).arg(proposal);
                cmd.arg(milliseconds(*ttl + FENCE_MEMORY)).arg(subject.giver().as_str());
                cmd
            }
            Self::GiveBack(subject) => {
                let keys: Vec<_> = subject.keys.iter().map(|keys| &keys.lock).collect();
                let mut cmd = invoke(&GIVE_BACK, by, &keys);
                cmd.arg(subject.token.as_str()).arg(subject.giver().as_str());
                let (until, within) = subject
                    .giver
                    .as_ref()
                    .map_or((0, Duration::ZERO), |given| (given.until, given.within));
                cmd.arg(until).arg(milliseconds(within));
                cmd
            }
            Self::Raise { subject, ttl, fence } => {
                let keys: Vec<_> = subject.keys.iter().flat_map(counted).collect();
                let mut cmd = invoke(&RAISE, by, &keys);
                cmd.arg(subject.token.as_str()).arg(fence).arg(milliseconds(*ttl + FENCE_MEMORY));
                cmd
            }
            Self::Extend(leases) => {
                let mut cmd = many(&EXTEND, by, leases.iter().map(|(subject, _)| &**subject));
                for (subject, ttl) in leases.iter() {
                    cmd.arg(subject.keys.len()).arg(subject.token.as_str());
                    cmd.arg(milliseconds(*ttl)).arg(milliseconds(*ttl + FENCE_MEMORY));
                }
                cmd
            }
            Self::Heal(leases) => {
                let mut cmd = many(&HEAL, by, leases.iter().map(|(subject, ..)| &**subject));
                for (subject, ttl, fence) in leases.iter() {
                    cmd.arg(subject.keys.len()).arg(subject.token.as_str());
                    cmd.arg(milliseconds(*ttl)).arg(fence).arg(milliseconds(*ttl + FENCE_MEMORY));
                    cmd.arg(subject.giver().as_str());
                }
                cmd
            }
            Self::Release { subject, ticket, turns, keep } => {
                let keys: Vec<_> = subject.keys.iter().flat_map(queued).collect();
                let mut cmd = invoke(&RELEASE, by, &keys);
                cmd.arg(subject.token.as_str());
                add_queue_arguments(&mut cmd, subject, *ticket, *turns);
                if let Some(ttl) = keep {
                    if subject.waiter.is_none() {
                        cmd.arg("").arg("");
                    }
                    cmd.arg(milliseconds(*ttl));
                }
                cmd
            }
            Self::Exists(keys) => {
                let mut cmd = redis::cmd("EXISTS");
                cmd.arg(keys.iter().map(|keys| &keys.lock).collect::<Vec<_>>());
                cmd
            }
            Self::Inspect(keys) => {
                invoke(&INSPECT, by, &keys.iter().flat_map(all).collect::<Vec<_>>())
            }
            Self::Forget(keys) => {
                invoke(&FORGET, by, &keys.iter().flat_map(all).collect::<Vec<_>>())
            }
            Self::List { prefix, cursor } => {
                let mut cmd = invoke(&LIST, by, &[]);
                cmd.arg(cursor).arg(pattern(prefix)).arg(PAGE);
                cmd
            }
            Self::Publish { channel, message, .. } => {
                let mut cmd = redis::cmd("PUBLISH");
                cmd.arg(&**channel).arg(&**message);
                cmd
            }
        }
    }

    /// Parses the server's reply to [`Request::command`]; `None` if it is not a valid reply.
    pub(crate) fn understand(&self, value: &Value) -> Option<Reply> {
        match (self, value) {
            (Self::Acquire { .. }, Value::Array(parts)) => match parts[..] {
                [
                    Value::Int(0),
                    Value::Int(left),
                    Value::Int(clock),
                    Value::Int(rank),
                    Value::BulkString(ref holder),
                ] => Some(Reply::Held(Refusal {
                    expires_in: u64::try_from(left).ok().map(Duration::from_millis),
                    clock: u64::try_from(clock).ok()?,
                    rank: u64::try_from(rank).ok(),
                    holder: stored_token(holder).and_then(|token| token.holder().map(Arc::from)),
                })),
                _ => granted(parts),
            },
            (Self::Transfer { .. }, Value::Array(parts)) => match parts[..] {
                [
                    Value::Int(0),
                    Value::Int(left),
                    Value::Int(clock),
                    Value::BulkString(ref other),
                ] => {
                    Some(Reply::NotTransferred(elsewhere(left, u64::try_from(clock).ok()?, other)))
                }
                _ => granted(parts),
            },
            (Self::Extend(locks), Value::Array(parts)) => {
                let done = |part: &Value| match part {
                    Value::Int(0) => Some(false),
                    Value::Int(1) => Some(true),
                    _ => None,
                };
                let done: Vec<_> = parts.iter().map(done).collect::<Option<_>>()?;
                (done.len() == locks.len()).then_some(Reply::Each(done))
            }
            (Self::Heal(locks), Value::Array(parts)) => {
                let healed = |part: &Value| match part {
                    Value::Int(0) => Some(Healed::Held),
                    Value::Int(1) => Some(Healed::Clean),
                    Value::Int(2) => Some(Healed::Passed),
                    _ => None,
                };
                let healed: Vec<_> = parts.iter().map(healed).collect::<Option<_>>()?;
                (healed.len() == locks.len()).then_some(Reply::Healed(healed))
            }
            (Self::Inspect(_), Value::Array(parts)) => stored_lock(parts).map(Reply::Seen),
            (Self::List { .. }, Value::Array(parts)) => page(parts),
            (Self::Publish { .. }, Value::Int(listeners)) => {
                u64::try_from(*listeners).ok().map(Reply::Published)
            }
            (
                Self::Acquire { .. }
                | Self::Transfer { .. }
                | Self::Extend(_)
                | Self::Heal(_)
                | Self::Inspect(_)
                | Self::List { .. }
                | Self::Publish { .. },
                _,
            ) => None,
            // A request with a ticket joins the queue, so it succeeds even if the token held
            // nothing.
            (Self::Release { ticket: Some(_), .. }, Value::Int(0)) => Some(Reply::Yes),
            (Self::Exists(_), Value::Int(2..)) => Some(Reply::Yes),
            (_, Value::Int(1)) => Some(Reply::Yes),
            (_, Value::Int(0)) => Some(Reply::No),
            _ => None,
        }
    }
}

/// Parses the value of a lock key; `None` if it is not text.
fn stored_token(value: &[u8]) -> Option<Token> {
    std::str::from_utf8(value).ok().map(Token::from)
}

/// Parses a reply to ACQUIRE or TRANSFER that is no refusal.
fn granted(parts: &[Value]) -> Option<Reply> {
    match parts[..] {
        [Value::Int(1), Value::Int(fence), Value::Int(clock)] => {
            let fence = u64::try_from(fence).ok().filter(|fence| *fence < FENCE_LIMIT)?;
            Some(Reply::Granted { fence, clock: u64::try_from(clock).ok()? })
        }
        [Value::Int(2), Value::Int(0)] => Some(Reply::Own),
        _ => None,
    }
}

/// Parses a refusal of TRANSFER. `left` is -2 if a key is missing.
fn elsewhere(left: i64, clock: u64, other: &[u8]) -> Elsewhere {
    let token = stored_token(other).filter(|_| !other.is_empty());
    let holder = match left {
        -2 => Holder::Nobody,
        _ => token.map_or(Holder::Other, Holder::Token),
    };
    Elsewhere { holder, expires_in: u64::try_from(left).ok().map(Duration::from_millis), clock }
}

/// Parses the reply to INSPECT.
fn stored_lock(parts: &[Value]) -> Option<StoredLock> {
    let [Value::Int(kind), token, Value::Int(left), Value::Int(fence), Value::Int(waiters)] = parts
    else {
        return None;
    };
    let holder = match (kind, token) {
        (0, _) => Holder::Nobody,
        (1, Value::BulkString(value)) => stored_token(value).map_or(Holder::Other, Holder::Token),
        (2, _) => Holder::Other,
        _ => return None,
    };
    Some(StoredLock {
        holder,
        expires_in: u64::try_from(*left).ok().map(Duration::from_millis),
        fence: u64::try_from(*fence).ok(),
        waiters: u64::try_from(*waiters).ok(),
    })
}

/// Parses the reply to LIST. Leaves out keys that are not UTF-8, because no resource has such a name.
fn page(parts: &[Value]) -> Option<Reply> {
    let text = |part: &Value| match part {
        Value::BulkString(bytes) => Some(String::from_utf8(bytes.clone()).ok()),
        _ => None,
    };
    let (cursor, keys) = parts.split_first()?;
    let keys: Vec<_> = keys.iter().map(text).collect::<Option<_>>()?;
    let cursor = text(cursor)??.parse().ok()?;
    Some(Reply::Page { cursor, keys: keys.into_iter().flatten().collect() })
}

/// Returns the pattern of SCAN for keys that begin with `prefix`, which may contain the signs of patterns.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::new();
    for letter in prefix.chars() {
        if ['*', '?', '[', ']', '^', '-', '\\'].contains(&letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "*"
}

fn all(keys: &Keys) -> [&String; 3] {
    [&keys.lock, &keys.fence, &keys.queue]
}

fn counted(keys: &Keys) -> [&String; 2] {
    [&keys.lock, &keys.fence]
}

fn queued(keys: &Keys) -> [&String; 2] {
    [&keys.lock, &keys.queue]
}

/// A command for a script about many leases.
fn many<'a>(script: &Script, by: By, subjects: impl Iterator<Item = &'a Subject>) -> Cmd {
    let keys: Vec<_> = subjects.flat_map(|subject| subject.keys.iter().flat_map(counted)).collect();
    invoke(script, by, &keys)
}

/// Appends the parameters for the queue functions.
fn add_queue_arguments(cmd: &mut Cmd, subject: &Subject, ticket: Option<Ticket>, turns: Turns) {
    cmd.arg(microseconds(turns.call)).arg(milliseconds(turns.memory));
    if let Some(waiter) = &subject.waiter {
        cmd.arg(&**waiter).arg(ticket.map_or_else(String::new, |ticket| ticket.to_string()));
    }
}

fn invoke(script: &Script, by: By, keys: &[&String]) -> Cmd {
    let (name, script) = match by {
        By::Hash => ("EVALSHA", &script.hash),
        By::Source => ("EVAL", &script.source),
    };
    // Reserves room for the arguments that follow, to avoid reallocation.
    let bytes = script.len() + keys.iter().map(|key| key.len()).sum::<usize>() + ARGUMENT_BYTES;
    let mut cmd = Cmd::with_capacity(keys.len() + MAX_ARGUMENTS, bytes);
    cmd.arg(name).arg(script).arg(keys.len()).arg(keys);
    cmd
}
