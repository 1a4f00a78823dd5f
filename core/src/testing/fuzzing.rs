//! Properties that hold for any URL, option, reply and lease text: the bodies of the fuzz targets in `fuzz/`.
//!
//! `fuzzing/tests.rs` runs the same functions on the committed corpus and on random input. Each function panics if its
//! property is violated.

use crate::client::Client;
use crate::client::kept::Kept;
use crate::config::endpoint::Endpoint;
use crate::config::options::{self, Options, PER_CLIENT, PER_LOCK, Scope};
use crate::config::permits::MAX_PERMITS;
use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, ErrorCode, NodeOutcome};
use crate::lock::claim::handover::{Giver, Leased, Namespace};
use crate::printable;
use crate::transport::handshake::{failure, server_info};
use crate::wire::answer::{self, Answered, Failure, report, vote};
use crate::wire::keys::Keys;
use crate::wire::reply::{Elsewhere, HeldPermit, Holder, Refusal, Reply, StoredLock};
use crate::wire::request::{Request, Subject};
use crate::wire::text::{self, TextKind};
use crate::wire::token::{MAX_TOKEN, Token};
use quorlock_protocol::{
    Answer, FENCE_LIMIT, FENCE_WINDOW, Healed, Lease, Moment, NodeSet, Quorum, Turns, Vote,
};
use redis::{RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// A text that is part of every password in these tests and occurs nowhere else.
const SECRET: &str = "s3cr3t";

/// Checks that `text` either is a URL or yields an error that names the node, and that the crate never shows a
/// password.
///
/// For the check of passwords, the lines of `text` become the user, the beginning of the password, the end of the
/// password, and the rest of a URL.
pub fn url(text: &str) {
    if text.contains(SECRET) {
        return;
    }
    shown(text);
    let mut parts = text.splitn(4, '\n');
    let mut part = || parts.next().unwrap_or_default();
    let user = part();
    let before = part();
    let after = part();
    let rest = part();
    let password = format!("{before}{SECRET}{after}");
    let unix = format!("unix:///{rest}?user={user}&pass={password}");
    let mut urls = vec![
        format!("redis://{user}:{password}@{rest}"),
        format!("rediss://{user}:{password}@{rest}"),
        format!("redis-sentinel://{user}:{password}@{rest}"),
        format!("redis-sentinel://h/s?sentinel_user={user}&sentinel_password={password}"),
        format!("rediss-cluster://{user}:{password}@{rest}"),
        format!("{user}:{password}@{rest}"),
    ];
    // In a path or the name of an in-memory node, these parts are no password, so the crate may show them.
    urls.retain(|url| !["unix://", "memory://"].iter().any(|path| url.trim().starts_with(path)));
    for url in urls.into_iter().chain([unix]) {
        let shown = shown(&url);
        assert!(!shown.contains(SECRET), "{url:?} is shown as {shown}");
    }
}

/// Returns every text in which the crate shows a URL.
fn shown(url: &str) -> String {
    let builder = Client::builder().nodes([url]);
    let parsed = match Endpoint::parse(7, url) {
        Ok(endpoint) => {
            assert!(endpoint.is_same_server(&endpoint));
            format!("{} {endpoint:?}", endpoint.address)
        }
        Err(error) => {
            assert!(error.to_string().starts_with("node 7 ("), "{error}");
            format!("{} {error:?}", config_error(&error))
        }
    };
    format!("{builder:?} {:?} {parsed}", builder.clone().build())
}

fn config_error(error: &Error) -> String {
    assert_eq!(error.code(), ErrorCode::Config);
    assert!(error.nodes().is_empty());
    error.to_string()
}

/// The number of bytes that [`options`] uses for one option.
pub const OPTION_LENGTH: usize = 19;

/// Sets one option from every [`OPTION_LENGTH`] bytes of `bytes`. Checks that each option either gets a value within
/// its range or yields an error that names the option.
pub fn options(bytes: &[u8]) {
    let mut options = Options::default();
    for option in bytes.chunks_exact(OPTION_LENGTH) {
        let (selectors, rest) = option.split_at(3);
        let dialect = match selectors[0] % 4 {
            0 => Dialect::Rust,
            1 => Dialect::Python,
            2 => Dialect::Resp,
            _ => Dialect::JavaScript,
        };
        let text = String::from_utf8_lossy(rest);
        // Use the name of an option, either in this dialect or in Rust. If the selector does not select an option, use
        // an arbitrary text.
        let known = [&PER_CLIENT[..], &PER_LOCK].concat();
        let name = match known.get(usize::from(selectors[1] % 24)) {
            Some(known) if selectors[0] < 128 => dialect.name(known),
            Some(known) => (*known).to_owned(),
            None => text.into_owned(),
        };
        let name = name.as_str();
        let value = option_value(selectors[2], rest);
        let mut outcomes = vec![
            (name, options.set(dialect, name, &value)),
            ("timeout", options::timeout(dialect, &value).map(drop)),
        ];
        // If the restart guard is invalid, no client can be built, so the options of its locks need no check.
        if options.check_ttl().is_ok() {
            outcomes.push((name, options.clone().set_per_lock(Scope::Lock, dialect, name, &value)));
            outcomes.push(("ttl", options.extension_ttl(dialect, &value).map(drop)));
        }
        for (name, outcome) in outcomes {
            let Err(error) = outcome else { continue };
            let text = config_error(&error);
            let shown = |name: &str| text.contains(printable(name).trim_start());
            let is_named = shown(name) || shown(&dialect.name(name));
            assert!(is_named, "{text:?} does not name {name:?}");
        }
        within_ranges(&options);
    }
}

fn option_value(kind: u8, bytes: &[u8]) -> OptionValue {
    let bits = |at: usize| {
        let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    // `small` is likely to be within the range of an option.
    let any = |at| f64::from_bits(bits(at));
    let small = |at| (bits(at) % 1_000_000) as f64 / 1e3;
    let pair = |one, other| OptionValue::List([one, other].map(OptionValue::Number).into());
    let text = || OptionValue::Text(String::from_utf8_lossy(bytes).into_owned());
    match kind % 10 {
        0 => OptionValue::Null,
        1 => OptionValue::Bool(bits(0) & 1 == 1),
        2 => OptionValue::Number(any(0)),
        3 => OptionValue::Number(small(0)),
        4 => pair(any(0), any(8)),
        5 => pair(small(0), small(8)),
        6 => text(),
        7 => OptionValue::Text(["shared", "exclusive"][usize::from(bytes[0] % 2)].to_owned()),
        8 => OptionValue::Map(vec![(String::from_utf8_lossy(bytes).into_owned(), text())]),
        _ => OptionValue::Other(String::from_utf8_lossy(bytes).into_owned()),
    }
}

/// Checks that the options are within the ranges that the protocol relies on, and that the protocol's time arithmetic
/// does not overflow.
fn within_ranges(options: &Options) {
    let millisecond = Duration::from_millis(1);
    assert!((10 * millisecond..=Duration::from_secs(24 * 3600)).contains(&options.ttl));
    assert!((0.0..=0.5).contains(&options.drift_factor));
    assert!(options.connect_timeout >= millisecond);
    assert!(options.node_timeout(options.ttl) >= millisecond);
    assert!(options.max_hold.is_none_or(|hold| hold >= 10 * millisecond));
    assert!(options.restart_guard.is_none_or(|guard| guard >= 10 * millisecond));
    let delay = options.retry_delay;
    assert!(delay.shortest >= millisecond && delay.shortest <= delay.longest);
    assert!(delay.draw(u32::MAX) <= delay.longest);
    let now = Moment::from_origin(Duration::from_secs(1));
    let term = options.term(options.ttl);
    assert!(term.end(now) < now.plus(options.ttl) && term.gone(now) > now.plus(options.ttl));
    let latest = [options.wait, options.max_hold].into_iter().flatten().max().unwrap_or_default();
    assert_eq!(now.plus(latest).since(now), latest);
}

/// Checks lease texts with the contents `json`, which may be forged. Each text must either be refused, or contain only
/// numbers that quorlock can write. If a text is refused, the error must not show the text. The same holds for `json`
/// itself as a complete lease text.
pub fn texts(json: &[u8]) {
    const ADDRESSES: [&str; 3] = ["redis://a", "redis://b", "redis://c"];
    const PREFIX: &str = "p:";
    const FINGERPRINT: u32 = 7;
    let namespace = Namespace { addresses: ADDRESSES.to_vec(), key_prefix: PREFIX };
    let mut texts = vec![String::from_utf8_lossy(json).into_owned()];
    if let Ok(serde_json::Value::Object(mut contents)) = serde_json::from_slice(json) {
        contents.insert("nodes".to_owned(), FINGERPRINT.into());
        texts.push(text::write(TextKind::Kept, &contents));
        let sorted = ADDRESSES.join("\n");
        contents.insert("nodes".to_owned(), text::checksum(&sorted).into());
        contents.insert("prefix".to_owned(), text::checksum(PREFIX).into());
        texts.push(text::write(TextKind::Detached, &contents));
    }
    for text in &texts {
        match Kept::read(text, ADDRESSES.len(), FINGERPRINT) {
            Ok(Kept { ttl, fence, sound, .. }) => {
                can_be_held(ttl);
                assert!((1..FENCE_LIMIT).contains(&fence));
                assert!(sound.iter().all(|node| *node < ADDRESSES.len()));
            }
            Err(error) => assert!(text.len() < 20 || !config_error(&error).contains(&**text)),
        }
        match namespace.read(text) {
            Ok((Leased { resources, permits, .. }, Giver { given, voters, .. })) => {
                can_be_held(given.within);
                assert!(voters.iter().all(|node| node < ADDRESSES.len()));
                let token = given.token.as_str();
                assert!(given.token.is_own() && token.len() <= MAX_TOKEN, "{token:?}");
                if let Some((limit, slots)) = permits {
                    assert!(resources.len() == 1 && slots.iter().all(|slot| *slot < limit));
                    assert!((1..=MAX_PERMITS).contains(&limit) && !slots.is_empty());
                }
            }
            Err(error) => assert!(text.len() < 20 || !config_error(&error).contains(&**text)),
        }
    }
}

/// Checks that a lease can have this ttl, and that the arithmetic of leases does not overflow with this ttl.
fn can_be_held(ttl: Duration) {
    let options = Options { ttl, ..Options::default() };
    within_ranges(&options);
    let quorum = Quorum::over(1).expect("valid");
    let now = Moment::from_origin(Duration::from_secs(1));
    let term = options.term(ttl);
    let mut lease = Lease::new(quorum, NodeSet::from_iter([0]), 1, term.end(now), None);
    let extension = lease.extend(now, term).map(|extension| extension.term());
    assert!(extension.is_none_or(|extended| extended.ttl <= ttl));
    assert!(lease.heal(now, term).is_none_or(|healed| healed <= 2 * ttl));
    let release = lease.release(now);
    assert!(release.keep(now, term).is_none_or(|keep| keep.ttl(now) >= Some(ttl)));
}

/// Checks arbitrary bytes as a server's reply: parses the bytes and checks the result with [`value`].
pub fn reply(bytes: &[u8]) {
    match redis::parse_redis_value(bytes) {
        Ok(answer) => value(answer),
        Err(error) => failed(&error),
    }
}

/// Checks `value` as the reply to every kind of request: the reply must either be decoded exactly or count as no
/// answer.
pub(crate) fn value(value: Value) {
    let info = server_info(vec![value.clone(), value.clone()]);
    let short = server_info(vec![value.clone()]);
    assert!(short.is_none() && info.is_none_or(|info| info.memory.starts_with(&info.run_id)));
    for request in requests() {
        let understood = request.understand(&value);
        if let Some(reply) = &understood {
            assert!(
                is_encoding_of(&value, &request, reply),
                "{value:?} was understood as {reply:?}"
            );
        }
        let answered: Answered =
            understood.ok_or(Failure::timeout("no answer", Duration::ZERO, true));
        // Three kinds of grants and confirmations need not contain a 1: a node answers its time to an ACQUIRE; it may
        // answer 0 to an undo with a ticket, and a larger count to EXISTS.
        let confirms = matches!(
            (&request, &value),
            (Request::Acquire { .. }, Value::Int(_))
                | (Request::Release { ticket: Some(_), .. }, _)
                | (Request::Exists(_), Value::Int(2..))
        );
        harmless(&answered, &value, confirms);
    }
    if let Err(error) = value.extract_error() {
        failed(&error);
    }
}

/// Checks that an error never counts as a vote or an answer about a lock.
fn failed(error: &RedisError) {
    for sent in [true, false] {
        let failure = failure(error, sent);
        assert_eq!(failure.sent, sent);
        let answered = Err(failure);
        assert!(matches!(vote(&answered), Vote::Unknown | Vote::Refused));
        assert_eq!(answer::answer(&answered), Answer::Unknown);
        assert!(!answer::is_counted(&answered));
        assert!(report("node", Some(&answered)).to_string().starts_with("node: "));
    }
}

/// Checks that a reply without a 1 counts neither as a grant nor as a confirmation, unless it `confirms`.
fn harmless(answered: &Answered, value: &Value, confirms: bool) {
    let ones = matches!(value, Value::Int(1))
        || matches!(value, Value::Array(parts) if parts.contains(&Value::Int(1)));
    let confirms = ones || confirms;
    assert!(confirms || !matches!(vote(answered), Vote::Granted { .. }));
    for position in 0..3 {
        let one = answer::about(answered, position);
        assert!(confirms || answer::answer(&one) != Answer::Yes);
        assert!(confirms || answer::outcome(&one) != NodeOutcome::Granted);
        assert!(!report("node", Some(&one)).to_string().is_empty());
    }
}

/// Whether `value` is exactly what the scripts send for `reply`.
fn is_encoding_of(value: &Value, request: &Request, reply: &Reply) -> bool {
    let array = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Int).collect());
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MIN);
    let is_fence = |fence: &u64| (1..FENCE_LIMIT).contains(fence);
    let is_clock = |clock: &u64| (1..2 * FENCE_LIMIT).contains(clock);
    let number = |at: usize| match value {
        Value::Array(parts) => match parts.get(at) {
            Some(Value::Int(number)) => *number,
            _ => 0,
        },
        _ => 0,
    };
    match reply {
        Reply::Granted { fence, clock } => {
            let is_proposed =
                matches!(request, Request::Acquire { proposal, .. } if proposal == fence);
            let is_near = clock.abs_diff(*fence) <= FENCE_WINDOW.as_micros() as u64;
            let is_time = *value == Value::Int(signed(*clock)) && is_proposed && is_near;
            is_fence(fence)
                && is_clock(clock)
                && (is_time || *value == array(&[1, signed(*fence), signed(*clock)]))
        }
        Reply::Held(Refusal { expires_in, clock, rank, holder, permits }) => {
            let left = u64::try_from(number(1)).ok().map(Duration::from_millis);
            let before = u64::try_from(number(3)).ok();
            let Value::Array(parts) = value else { return false };
            let (numbers, token) = match &parts[..] {
                [numbers @ .., Value::BulkString(token)] => (numbers, token),
                [numbers @ .., Value::BulkString(token), Value::Array(free), Value::Int(known)] => {
                    let slots = permits.slots.iter().map(|slot| Value::Int(i64::from(*slot)));
                    if *free != slots.collect::<Vec<_>>() || *known != i64::from(permits.known) {
                        return false;
                    }
                    (numbers, token)
                }
                _ => return false,
            };
            let is_named = holder.as_ref().is_none_or(|name| token.ends_with(name.as_bytes()));
            Value::Array(numbers.to_vec()) == array(&[0, number(1), signed(*clock), number(3)])
                && *expires_in == left
                && *rank == before
                && is_named
        }
        Reply::NotTransferred(Elsewhere { holder, expires_in, clock }) => {
            let Value::Array(parts) = value else { return false };
            let [numbers @ .., Value::BulkString(token)] = &parts[..] else { return false };
            let is_known = match holder {
                Holder::Nobody => number(1) == -2,
                Holder::Token(other) => number(1) != -2 && other.as_str().as_bytes() == token,
                Holder::Other => number(1) != -2,
            };
            Value::Array(numbers.to_vec()) == array(&[0, number(1), signed(*clock)])
                && *expires_in == u64::try_from(number(1)).ok().map(Duration::from_millis)
                && is_known
        }
        Reply::Own => *value == array(&[2, 0]),
        Reply::Each(done) => {
            let asked = match request {
                Request::Extend(locks) => locks.len(),
                _ => 0,
            };
            let encoded = done.iter().map(|done| Value::Int((*done).into())).collect();
            done.len() == asked && *value == Value::Array(encoded)
        }
        Reply::Healed(healed) => {
            let asked = match request {
                Request::Heal(locks) => locks.len(),
                _ => 0,
            };
            let number = |healed: &Healed| match healed {
                Healed::Held => 0,
                Healed::Clean => 1,
                Healed::Passed => 2,
            };
            let encoded: Vec<_> = healed.iter().map(number).collect();
            healed.len() == asked && *value == array(&encoded)
        }
        Reply::Yes => match request {
            Request::Release { ticket: Some(_), .. } => {
                matches!(value, Value::Int(0 | 1))
            }
            Request::Exists(_) => matches!(value, Value::Int(1..)),
            _ => *value == Value::Int(1),
        },
        Reply::No => *value == Value::Int(0),
        Reply::Seen(StoredLock { holder, expires_in, fence, waiters, readers }) => {
            let token = match holder {
                Holder::Token(token) => Value::BulkString(token.as_str().into()),
                Holder::Nobody | Holder::Other => match value {
                    Value::Array(parts) => parts.get(1).cloned().unwrap_or(Value::Nil),
                    _ => Value::Nil,
                },
            };
            let decoded = |at: usize| u64::try_from(number(at)).ok();
            let rest = [number(2), number(3), number(4)].map(Value::Int);
            let reader = |(token, left): &(Token, Duration)| {
                let left = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
                [Value::BulkString(token.as_str().into()), Value::Int(left)]
            };
            let readers = Value::Array(readers.iter().flat_map(reader).collect());
            let encoded = [Value::Int(number(0)), token].into_iter().chain(rest).chain([readers]);
            let encoded = encoded.collect();
            *value == Value::Array(encoded)
                && (0..=2).contains(&number(0))
                && *expires_in == decoded(2).map(Duration::from_millis)
                && *fence == decoded(3).filter(is_fence)
                && *waiters == decoded(4)
        }
        Reply::SeenPermits(seen) => {
            let Value::Array(parts) = value else { return false };
            let decoded = |at: usize| u64::try_from(number(at)).ok();
            let is_right = |(position, held): (usize, &HeldPermit)| {
                let at = 2 + 4 * position;
                let is_token = match &held.holder {
                    Holder::Token(token) => {
                        parts.get(at + 1) == Some(&Value::BulkString(token.as_str().into()))
                    }
                    Holder::Other => true,
                    Holder::Nobody => false,
                };
                decoded(at) == Some(held.slot.into())
                    && is_token
                    && held.expires_in == decoded(at + 2).map(Duration::from_millis)
                    && held.fence == decoded(at + 3).filter(is_fence)
            };
            parts.len() == 2 + 4 * seen.held.len()
                && (seen.waiters, Some(u64::from(seen.known))) == (decoded(0), decoded(1))
                && seen.held.iter().enumerate().all(is_right)
        }
        Reply::Published(listeners) => *value == Value::Int(signed(*listeners)),
        Reply::Page { cursor, keys } => {
            // The decoded reply lacks keys that are not UTF-8.
            let Value::Array(parts) = value else { return false };
            let text = |part: &Value| match part {
                Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
                _ => None,
            };
            let mut texts = parts.iter().filter_map(text);
            texts.next().and_then(|first| first.parse().ok()) == Some(*cursor)
                && texts.eq(keys.iter().cloned())
        }
        Reply::Uncounted(..) => false,
    }
}

/// One request of each kind.
pub(crate) fn requests() -> [Request; 18] {
    let keys: Arc<[Keys]> = [Keys::new("", "r"), Keys::new("", "s")].into();
    let subject = || Arc::new(Subject::new(Arc::clone(&keys), "t".into(), None));
    let shared = || Arc::new(Subject::new([Keys::new("", "r").shared()].into(), "t".into(), None));
    let ttl = Duration::from_secs(1);
    let turns = Turns::default();
    let ticket = Some(1);
    [
        Request::Acquire { subject: subject(), ttl, proposal: 1, ticket: None, turns },
        Request::Acquire { subject: subject(), ttl, proposal: 1, ticket, turns },
        Request::Acquire { subject: shared(), ttl, proposal: 1, ticket: None, turns },
        Request::Downgrade { subject: shared(), turns },
        Request::Transfer { subject: subject(), ttl, proposal: 1 },
        Request::GiveBack(subject()),
        Request::Raise { subject: subject(), ttl, fence: 1 },
        Request::Extend([(subject(), ttl)].into()),
        Request::Extend([(subject(), ttl), (subject(), ttl)].into()),
        Request::Heal([(subject(), ttl, 1)].into()),
        Request::release(&subject(), turns),
        Request::release_queued(&subject(), ticket, turns),
        Request::Release { subject: subject(), ticket: None, turns, keep: Some(ttl) },
        Request::Exists(Arc::clone(&keys)),
        Request::Inspect(Arc::clone(&keys)),
        Request::Forget(Arc::clone(&keys)),
        Request::List { prefix: "r".into(), cursor: 0 },
        Request::Publish { keys, channel: "c".into(), message: "m".into() },
    ]
}

#[cfg(test)]
mod tests;
