//! Parses a server's replies to the commands that `commands.rs` makes.

use crate::config::permits::MAX_PERMITS;
use crate::wire::reply::{
    Elsewhere, FreePermits, HeldPermit, Holder, Refusal, Reply, StoredLock, StoredPermits,
};
use crate::wire::request::Request;
use crate::wire::script::microseconds;
use crate::wire::token::{MAX_TOKEN, Token};
use quorlock_protocol::{FENCE_LIMIT, FENCE_WINDOW, Healed};
use redis::Value;
use std::sync::Arc;
use std::time::Duration;

impl Request {
    /// Parses the server's reply to [`Request::command`]; `None` if the value is not a valid reply.
    pub(crate) fn understand(&self, value: &Value) -> Option<Reply> {
        match (self, value) {
            (Self::Acquire { proposal, .. }, Value::Int(clock)) => {
                proposal_granted(*proposal, *clock)
            }
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
            // A RELEASE with a ticket always succeeds, because it puts the waiter into the queue even if no lock key
            // had the token.
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

/// Parses the value of a lock key; `None` if the value is not UTF-8.
fn stored_token(value: &[u8]) -> Option<Token> {
    std::str::from_utf8(value).ok().map(Token::from)
}

/// Parses a value that a script has cut to at most [`MAX_TOKEN`] + 1 bytes. The outer option is `None` if the value is
/// longer than that; the inner option is `None` if the value is not UTF-8.
fn cut_token(value: &[u8]) -> Option<Option<Token>> {
    (value.len() <= MAX_TOKEN + 1).then(|| stored_token(value))
}

/// Parses a fence; `None` if the number is out of range.
fn stamp(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (1..FENCE_LIMIT).contains(number))
}

/// Parses the time of a node's clock, in microseconds. A time above [`FENCE_LIMIT`] + [`FENCE_WINDOW`] is invalid: a
/// node with such a clock answers with an error instead.
fn clock_reading(number: i64) -> Option<u64> {
    let most = FENCE_LIMIT + microseconds(FENCE_WINDOW);
    u64::try_from(number).ok().filter(|number| (1..=most).contains(number))
}

/// Parses a remaining time in milliseconds. The inner option is `None` for a negative number; the outer option is
/// `None` for a number below `least`.
fn remaining(number: i64, least: i64) -> Option<Option<Duration>> {
    (number >= least).then(|| u64::try_from(number).ok().map(Duration::from_millis))
}

/// Parses a count. The inner option is `None` for -1, which means unknown; the outer option is `None` for a smaller
/// number.
fn unless_unknown(number: i64) -> Option<Option<u64>> {
    (number >= -1).then(|| u64::try_from(number).ok())
}

/// Parses the number of a slot; `None` if the number is out of range.
fn slot(value: &Value) -> Option<u32> {
    match value {
        Value::Int(slot) => u32::try_from(*slot).ok().filter(|slot| *slot < MAX_PERMITS),
        _ => None,
    }
}

/// Parses the part of a refusal that describes the permits of a semaphore. Returns `None` if a refusal of a lock has
/// such a part. The free slots may include slots beyond this client's limit, if other clients use a larger limit.
fn free_permits(parts: &[Value], is_permit: bool) -> Option<FreePermits> {
    match parts {
        [] if !is_permit => Some(FreePermits::default()),
        [Value::Array(free), Value::Int(known)]
            if is_permit && free.len() <= MAX_PERMITS as usize =>
        {
            let slots = free.iter().map(slot).collect::<Option<_>>()?;
            // Another program may have changed the index, so `known` may exceed the largest number of permits.
            Some(FreePermits { slots, known: u32::try_from(*known).ok()? })
        }
        _ => None,
    }
}

/// Parses the reply of a node that granted the proposed fence. The node has compared the proposal with its clock, so
/// the reply is invalid if the two differ by more than the node accepts.
fn proposal_granted(proposal: u64, clock: i64) -> Option<Reply> {
    let clock = clock_reading(clock)?;
    let is_near = clock.abs_diff(proposal) <= microseconds(FENCE_WINDOW);
    is_near.then_some(Reply::Granted { fence: proposal, clock })
}

/// Parses a reply to ACQUIRE or TRANSFER that is not a refusal.
fn granted(parts: &[Value]) -> Option<Reply> {
    match parts[..] {
        [Value::Int(1), Value::Int(fence), Value::Int(clock)] => {
            Some(Reply::Granted { fence: stamp(fence)?, clock: clock_reading(clock)? })
        }
        [Value::Int(2), Value::Int(0)] => Some(Reply::Own),
        _ => None,
    }
}

/// Parses a refusal of TRANSFER. `left` is -2 if a lock key or the share to upgrade is missing.
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
        // Another program may have changed the counter, so its value may not be a valid fence.
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
    // Each slot must be larger than the slot before it; otherwise, one slot could count twice.
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
