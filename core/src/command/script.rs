//! Requests as Lua scripts (`scripts/`), and the parsing of their replies. An in-memory node does
//! the same in Rust (`memory.rs`); tests compare both.
//!
//! Keys and values are always passed as parameters, never spliced into the source of a script.

use crate::command::keys::{FENCE, Keys};
use crate::command::reply::{
    Elsewhere, FreePermits, HeldPermit, Holder, Refusal, Reply, StoredLock, StoredPermits,
};
use crate::command::request::{Request, Subject, Ticket};
use crate::command::token::{MARKER, MAX_TOKEN, Token};
use crate::config::permits::MAX_PERMITS;
use once_cell::sync::Lazy;
use quorlock_protocol::node::permits::SPARE;
use quorlock_protocol::node::queue::{LONGEST_SILENCE, MOST_GONE};
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

    /// Inserts the constants, and the functions at the markers: those of fences at `--- fence.lua`, what remains of each
    /// key at `--- pttl.lua`, the functions of readers at `--- readers.lua`, of permits at `--- permits.lua` and `--- free_from.lua`, and of queues at `--- queue.lua`. In
    /// each script, the latter come after the fast path, because defining a function costs time on every call.
    ///
    /// `each`: the number of keys of each resource, where the script inserts the fence.
    fn with_constants(source: &str, each: u64) -> Self {
        let source = source
            .replace("--- fence.lua\n", include_str!("scripts/fence.lua"))
            .replace("--- pttl.lua\n", include_str!("scripts/pttl.lua"))
            .replace("--- readers.lua\n", include_str!("scripts/shared/readers.lua"))
            .replace("--- permits.lua\n", include_str!("scripts/permits/permits.lua"))
            .replace("--- free_from.lua\n", include_str!("scripts/permits/free_from.lua"))
            .replace("--- queue.lua\n", include_str!("scripts/queue.lua"))
            .replace("MARKER", &format!("'{MARKER}'"));
        let constants = [
            ("FENCE_LIMIT", FENCE_LIMIT),
            ("FENCE_WINDOW", microseconds(FENCE_WINDOW)),
            ("MOST_GONE", MOST_GONE as u64),
            ("LONGEST_CALL", microseconds(LONGEST_CALL)),
            ("LONGEST_SILENCE", microseconds(LONGEST_SILENCE)),
            ("MAX_TOKEN", MAX_TOKEN as u64),
            ("SPARE", SPARE as u64),
            ("MAX_PERMITS", MAX_PERMITS.into()),
            ("EACH", each),
        ];
        let fill =
            |source: String, (name, value): (&str, u64)| source.replace(name, &value.to_string());
        Self::new(constants.into_iter().fold(source, fill))
    }
}

/// A script of the directory `scripts`, with the number of keys of each resource.
macro_rules! script {
    ($name:ident, $file:literal, $each:literal) => {
        static $name: Lazy<Script> = Lazy::new(|| {
            Script::with_constants(include_str!(concat!("scripts/", $file, ".lua")), $each)
        });
    };
}

script!(ACQUIRE, "acquire", 3);
script!(RAISE, "raise", 2);
script!(EXTEND, "extend", 2);
script!(HEAL, "heal", 2);
script!(RELEASE, "release", 2);
script!(SHARED_ACQUIRE, "shared/acquire", 4);
script!(SHARED_EXTEND, "shared/extend", 3);
script!(SHARED_RELEASE, "shared/release", 3);
// Rarely used, so connections do not load these scripts in advance.
script!(SHARED_RAISE, "shared/raise", 3);
script!(SHARED_HEAL, "shared/heal", 3);
script!(SHARED_EXISTS, "shared/exists", 2);
script!(DOWNGRADE, "shared/downgrade", 3);
script!(SHARED_TRANSFER, "shared/transfer", 4);
script!(SHARED_GIVE_BACK, "shared/give_back", 2);
script!(PERMITS_ACQUIRE, "permits/acquire", 4);
script!(PERMITS_RELEASE, "permits/release", 3);
script!(PERMITS_INSPECT, "permits/inspect", 2);
script!(PERMITS_TRANSFER, "transfer", 4);
script!(PERMITS_GIVE_BACK, "give_back", 2);
script!(TRANSFER, "transfer", 3);
script!(GIVE_BACK, "give_back", 1);
script!(INSPECT, "inspect", 4);
script!(FORGET, "forget", 4);
script!(LIST, "list", 0);

/// The sources of the scripts that locking uses, to be loaded when a connection opens.
pub(crate) fn sources() -> [&'static str; 8] {
    Lazy::force(&TRANSFER);
    Lazy::force(&GIVE_BACK);
    Lazy::force(&INSPECT);
    Lazy::force(&FORGET);
    Lazy::force(&LIST);
    Lazy::force(&SHARED_RAISE);
    Lazy::force(&SHARED_HEAL);
    Lazy::force(&SHARED_EXISTS);
    Lazy::force(&DOWNGRADE);
    Lazy::force(&SHARED_TRANSFER);
    Lazy::force(&SHARED_GIVE_BACK);
    Lazy::force(&PERMITS_ACQUIRE);
    Lazy::force(&PERMITS_RELEASE);
    Lazy::force(&PERMITS_INSPECT);
    Lazy::force(&PERMITS_TRANSFER);
    Lazy::force(&PERMITS_GIVE_BACK);
    let scripts = [
        &ACQUIRE,
        &RAISE,
        &EXTEND,
        &HEAL,
        &RELEASE,
        &SHARED_ACQUIRE,
        &SHARED_EXTEND,
        &SHARED_RELEASE,
    ];
    scripts.map(|script| &*script.source)
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

/// The minimum ttl of a fence counter for a lock of this ttl, in milliseconds.
fn counter_ttl(ttl: Duration) -> u64 {
    milliseconds(ttl.saturating_add(FENCE_MEMORY))
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
            Self::Acquire { subject, ttl, proposal, ticket, turns }
                if subject.permit().is_some() =>
            {
                let mut cmd = invoke_for(&PERMITS_ACQUIRE, by, subject, of_permit);
                cmd.arg(subject.token.as_str()).arg(milliseconds(*ttl)).arg(proposal);
                cmd.arg(counter_ttl(*ttl));
                cmd.arg(subject.permit().map(|permit| (permit.base, permit.limit)));
                if subject.waiter.is_some() {
                    add_queue_arguments(&mut cmd, subject, *ticket, *turns);
                }
                cmd
            }
            Self::Acquire { subject, ttl, proposal, ticket, turns } => {
                let mut cmd = match subject.is_shared() {
                    true => invoke_for(&SHARED_ACQUIRE, by, subject, with_readers),
                    false => invoke_for(&ACQUIRE, by, subject, all),
                };
                cmd.arg(subject.token.as_str()).arg(milliseconds(*ttl)).arg(proposal);
                cmd.arg(counter_ttl(*ttl));
                if subject.waiter.is_some() {
                    add_queue_arguments(&mut cmd, subject, *ticket, *turns);
                    cmd.arg(microseconds(turns.keep));
                }
                cmd
            }
            Self::Transfer { subject, ttl, proposal } => {
                let is_shared = subject.is_shared() || subject.is_upgraded();
                let mut cmd = match is_shared {
                    true => invoke_for(&SHARED_TRANSFER, by, subject, with_readers),
                    false if subject.permit().is_some() => {
                        invoke_for(&PERMITS_TRANSFER, by, subject, of_permit)
                    }
                    false => invoke_for(&TRANSFER, by, subject, all),
                };
                cmd.arg(subject.token.as_str()).arg(milliseconds(*ttl)).arg(proposal);
                cmd.arg(counter_ttl(*ttl)).arg(subject.giver().as_str());
                if is_shared {
                    cmd.arg(u8::from(subject.is_upgraded()));
                }
                cmd.arg(subject.permit().map(|permit| permit.base));
                cmd
            }
            Self::GiveBack(subject) => {
                let is_shared = subject.is_shared() || subject.is_upgraded();
                let mut cmd = match is_shared {
                    true => invoke_for(&SHARED_GIVE_BACK, by, subject, |keys| {
                        [&keys.lock, keys.former_readers()]
                    }),
                    false if subject.permit().is_some() => {
                        invoke_for(&PERMITS_GIVE_BACK, by, subject, |keys| {
                            [&keys.lock, keys.index()]
                        })
                    }
                    false => invoke_for(&GIVE_BACK, by, subject, |keys| [&keys.lock]),
                };
                cmd.arg(subject.token.as_str()).arg(subject.giver().as_str());
                let (until, within) = subject
                    .giver
                    .as_ref()
                    .map_or((0, Duration::ZERO), |given| (given.until, given.within));
                cmd.arg(until).arg(milliseconds(within));
                if is_shared {
                    cmd.arg(u8::from(subject.is_upgraded()));
                }
                cmd.arg(subject.permit().map(|permit| permit.base));
                cmd
            }
            Self::Downgrade { subject, turns } => {
                let mut cmd = invoke_for(&DOWNGRADE, by, subject, queued_with_readers);
                cmd.arg(subject.token.as_str());
                cmd.arg(microseconds(turns.call)).arg(milliseconds(turns.memory));
                cmd
            }
            Self::Raise { subject, ttl, fence } => {
                let mut cmd = match subject.is_shared() {
                    true => invoke_for(&SHARED_RAISE, by, subject, counted_with_readers),
                    false => invoke_for(&RAISE, by, subject, counted),
                };
                cmd.arg(subject.token.as_str()).arg(fence).arg(counter_ttl(*ttl));
                cmd
            }
            Self::Extend(leases) => {
                let subjects = leases.iter().map(|(subject, _)| &**subject);
                let mut cmd = match subjects.clone().any(Subject::is_shared) {
                    true => invoke_many(&SHARED_EXTEND, by, subjects, |keys| {
                        [&keys.lock, &keys.fence, keys.readers()]
                    }),
                    false => invoke_many(&EXTEND, by, subjects, counted),
                };
                for (subject, ttl) in leases.iter() {
                    cmd.arg(subject.keys.len()).arg(subject.token.as_str());
                    cmd.arg(milliseconds(*ttl)).arg(counter_ttl(*ttl));
                }
                cmd
            }
            Self::Heal(leases) => {
                let subjects = leases.iter().map(|(subject, ..)| &**subject);
                let is_shared =
                    subjects.clone().any(|subject| subject.is_shared() || subject.is_upgraded());
                let mut cmd = match is_shared {
                    true => invoke_many(&SHARED_HEAL, by, subjects, counted_with_readers),
                    false => invoke_many(&HEAL, by, subjects, counted),
                };
                for (subject, ttl, fence) in leases.iter() {
                    cmd.arg(subject.keys.len()).arg(subject.token.as_str());
                    cmd.arg(milliseconds(*ttl)).arg(fence).arg(counter_ttl(*ttl));
                    cmd.arg(subject.giver().as_str());
                    if is_shared {
                        cmd.arg(u8::from(subject.is_upgraded()));
                    }
                }
                cmd
            }
            Self::Release { subject, ticket, turns, keep } => {
                let mut cmd = match subject.is_shared() {
                    true => invoke_for(&SHARED_RELEASE, by, subject, queued_with_readers),
                    false if subject.permit().is_some() => {
                        invoke_for(&PERMITS_RELEASE, by, subject, queued_with_index)
                    }
                    false => invoke_for(&RELEASE, by, subject, queued),
                };
                cmd.arg(subject.token.as_str()).arg(subject.permit().map(|permit| permit.base));
                add_queue_arguments(&mut cmd, subject, *ticket, *turns);
                if let Some(ttl) = keep {
                    if subject.waiter.is_none() {
                        cmd.arg("").arg("");
                    }
                    cmd.arg(milliseconds(*ttl));
                }
                cmd
            }
            Self::Exists(keys) if keys.iter().any(Keys::is_shared) => {
                let keys = keys.iter().flat_map(|keys| [&keys.lock, keys.readers()]);
                invoke(&SHARED_EXISTS, by, &keys.collect::<Vec<_>>())
            }
            Self::Exists(keys) => {
                let mut cmd = redis::cmd("EXISTS");
                cmd.arg(keys.iter().map(|keys| &keys.lock).collect::<Vec<_>>());
                cmd
            }
            Self::Inspect(keys) => {
                let keys: Vec<_> = keys.iter().map(|keys| keys.clone().shared()).collect();
                invoke(&INSPECT, by, &keys.iter().flat_map(with_readers).collect::<Vec<_>>())
            }
            Self::InspectPermits { semaphore } => {
                let mut cmd = invoke(&PERMITS_INSPECT, by, &[&semaphore.queue, &semaphore.lock]);
                cmd.arg(&semaphore.fence).arg(FENCE);
                cmd
            }
            Self::Forget(keys) => {
                let keys: Vec<_> = keys.iter().map(|keys| keys.clone().shared()).collect();
                invoke(&FORGET, by, &keys.iter().flat_map(with_readers).collect::<Vec<_>>())
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
            (Self::Acquire { subject, .. }, Value::Array(parts)) => match parts[..] {
                [
                    Value::Int(0),
                    Value::Int(left),
                    Value::Int(clock),
                    Value::Int(rank),
                    Value::BulkString(ref holder),
                    ref permits @ ..,
                ] => Some(Reply::Held(Refusal {
                    expires_in: remaining(left, -1)?,
                    clock: clock_reading(clock)?,
                    rank: unless_unknown(rank)?,
                    holder: cut_token(holder)?.and_then(|token| token.holder().map(Arc::from)),
                    permits: free_permits(permits, subject.permit().is_some())?,
                })),
                _ => granted(parts),
            },
            (Self::Transfer { .. }, Value::Array(parts)) => match parts[..] {
                [
                    Value::Int(0),
                    Value::Int(left),
                    Value::Int(clock),
                    Value::BulkString(ref other),
                ] => elsewhere(left, clock, other).map(Reply::NotTransferred),
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
            (Self::InspectPermits { .. }, Value::Array(parts)) => {
                stored_permits(parts).map(Reply::SeenPermits)
            }
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
                | Self::InspectPermits { .. }
                | Self::List { .. }
                | Self::Publish { .. },
                _,
            ) => None,
            // A request with a ticket joins the queue, so it succeeds even if the token held
            // nothing.
            (Self::Release { ticket: Some(_), .. }, Value::Int(0)) => Some(Reply::Yes),
            (Self::Exists(keys), Value::Int(count @ 2..)) => {
                usize::try_from(*count).is_ok_and(|count| count <= keys.len()).then_some(Reply::Yes)
            }
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

/// Parses a token that a script has cut off after the longest one of quorlock. The outer value is `None` if it is longer than
/// that.
fn cut_token(value: &[u8]) -> Option<Option<Token>> {
    (value.len() <= MAX_TOKEN + 1).then(|| stored_token(value))
}

/// Parses a fence.
fn stamp(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (1..FENCE_LIMIT).contains(number))
}

/// Parses a node's clock in microseconds. A node whose clock is beyond the largest fence by more than the window of proposals
/// answers with an error.
fn clock_reading(number: i64) -> Option<u64> {
    let most = FENCE_LIMIT + microseconds(FENCE_WINDOW);
    u64::try_from(number).ok().filter(|number| (1..=most).contains(number))
}

/// Parses a remaining time in milliseconds. It is `None` for a negative number, of which `least` is the least possible one.
fn remaining(number: i64, least: i64) -> Option<Option<Duration>> {
    (number >= least).then(|| u64::try_from(number).ok().map(Duration::from_millis))
}

/// Parses a count that is -1 if it is unknown.
fn unless_unknown(number: i64) -> Option<Option<u64>> {
    (number >= -1).then(|| u64::try_from(number).ok())
}

/// Parses the number of a slot.
fn slot(value: &Value) -> Option<u32> {
    match value {
        Value::Int(slot) => u32::try_from(*slot).ok().filter(|slot| *slot < MAX_PERMITS),
        _ => None,
    }
}

/// Parses what a refusal says of the permits of a semaphore; that is nothing for a lock. Slots beyond the limit of the client
/// can be among them, if other clients have a larger one.
fn free_permits(parts: &[Value], is_permit: bool) -> Option<FreePermits> {
    match parts {
        [] if !is_permit => Some(FreePermits::default()),
        [Value::Array(free), Value::Int(known)]
            if is_permit && free.len() <= MAX_PERMITS as usize =>
        {
            let slots = free.iter().map(slot).collect::<Option<_>>()?;
            // Another program may have written the index, which has more slots then.
            Some(FreePermits { slots, known: u32::try_from(*known).ok()? })
        }
        _ => None,
    }
}

/// Parses a reply to ACQUIRE or TRANSFER that is no refusal.
fn granted(parts: &[Value]) -> Option<Reply> {
    match parts[..] {
        [Value::Int(1), Value::Int(fence), Value::Int(clock)] => {
            Some(Reply::Granted { fence: stamp(fence)?, clock: clock_reading(clock)? })
        }
        [Value::Int(2), Value::Int(0)] => Some(Reply::Own),
        _ => None,
    }
}

/// Parses a refusal of TRANSFER. `left` is -2 if a key is missing.
fn elsewhere(left: i64, clock: i64, other: &[u8]) -> Option<Elsewhere> {
    let token = cut_token(other)?.filter(|_| !other.is_empty());
    let holder = match left {
        -2 => Holder::Nobody,
        _ => token.map_or(Holder::Other, Holder::Token),
    };
    Some(Elsewhere { holder, expires_in: remaining(left, -2)?, clock: clock_reading(clock)? })
}

/// Parses the reply to INSPECT.
fn stored_lock(parts: &[Value]) -> Option<StoredLock> {
    let [
        Value::Int(kind),
        token,
        Value::Int(left),
        Value::Int(fence),
        Value::Int(waiters),
        Value::Array(readers),
    ] = parts
    else {
        return None;
    };
    let reader = |pair: &[Value]| match pair {
        [Value::BulkString(token), Value::Int(left)] => {
            Some((stored_token(token)?, remaining(*left, 0)??))
        }
        _ => None,
    };
    let holder = match (kind, token) {
        (0, _) => Holder::Nobody,
        (1, Value::BulkString(value)) => stored_token(value).map_or(Holder::Other, Holder::Token),
        (2, _) => Holder::Other,
        _ => return None,
    };
    Some(StoredLock {
        holder,
        expires_in: remaining(*left, -2)?,
        // Another program may have written the counter.
        fence: stamp(*fence),
        waiters: unless_unknown(*waiters)?,
        readers: readers.chunks(2).map(reader).collect::<Option<_>>()?,
    })
}

/// Parses the reply to INSPECT of a semaphore.
fn stored_permits(parts: &[Value]) -> Option<StoredPermits> {
    let [Value::Int(waiters), Value::Int(known), held @ ..] = parts else { return None };
    let permit = |part: &[Value]| match part {
        [number, Value::BulkString(token), Value::Int(left), Value::Int(fence)] => {
            let token = stored_token(token).filter(|_| !token.is_empty());
            Some(HeldPermit {
                slot: slot(number)?,
                holder: token.map_or(Holder::Other, Holder::Token),
                expires_in: remaining(*left, -2)?,
                fence: stamp(*fence),
            })
        }
        _ => None,
    };
    let held: Vec<_> = held.chunks(4).map(permit).collect::<Option<_>>()?;
    // A slot that is named twice would count twice.
    held.is_sorted_by(|one, other| one.slot < other.slot).then_some(())?;
    Some(StoredPermits {
        waiters: unless_unknown(*waiters)?,
        known: u32::try_from(*known).ok()?,
        held,
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

fn with_readers(keys: &Keys) -> [&String; 4] {
    [&keys.lock, &keys.fence, &keys.queue, keys.former_readers()]
}

fn counted_with_readers(keys: &Keys) -> [&String; 3] {
    [&keys.lock, &keys.fence, keys.former_readers()]
}

fn of_permit(keys: &Keys) -> [&String; 4] {
    [&keys.lock, &keys.fence, &keys.queue, keys.index()]
}

fn queued_with_index(keys: &Keys) -> [&String; 3] {
    [&keys.lock, &keys.queue, keys.index()]
}

fn queued_with_readers(keys: &Keys) -> [&String; 3] {
    [&keys.lock, &keys.queue, keys.former_readers()]
}

/// A command for a script about one lease.
fn invoke_for<'a, const N: usize>(
    script: &Script,
    by: By,
    subject: &'a Subject,
    keys: impl Fn(&'a Keys) -> [&'a String; N],
) -> Cmd {
    invoke(script, by, &subject.keys.iter().flat_map(keys).collect::<Vec<_>>())
}

/// A command for a script about many leases.
fn invoke_many<'a, const N: usize>(
    script: &Script,
    by: By,
    subjects: impl Iterator<Item = &'a Subject>,
    keys: impl Fn(&'a Keys) -> [&'a String; N],
) -> Cmd {
    let keys: Vec<_> = subjects.flat_map(|subject| subject.keys.iter().flat_map(&keys)).collect();
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
