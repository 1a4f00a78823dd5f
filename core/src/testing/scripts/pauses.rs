//! A server that is paused between any two readings of its clock. The pause must not make a key or a share expire
//! earlier than the server has promised to a lease.

use super::failures::{Locked, begin, each, promised};
use super::server::{Content, EPOCH, Keyspace};
use crate::wire::request::Request;
use crate::wire::token::MARKER;
use std::collections::BTreeMap;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(600);
const LONG_PAUSE: Duration = Duration::from_secs(300);

/// More than the number of times that a script reads the clock.
const READINGS: u64 = 40;

/// Returns when each lock key expires, and when what each token holds expires: a lock key or a share. In milliseconds
/// since the Unix epoch. The name of what a token holds is the lock key, a space, and the token: the same before and
/// after a lease is downgraded.
fn ends(stored: &Keyspace, now: u64) -> BTreeMap<String, u64> {
    let mut ends = BTreeMap::new();
    for (key, stored) in stored {
        match &stored.value {
            Content::Text(token) if !key.ends_with(":fence") => {
                let end = now / 1_000 + stored.expires_in.unwrap().as_millis() as u64;
                ends.insert(key.clone(), end);
                if token != MARKER {
                    ends.insert(format!("{key} {token}"), end);
                }
            }
            Content::Sorted(shares) if key.ends_with(":shared") => {
                let lock = key.trim_start_matches('{').trim_end_matches("}:shared");
                let share =
                    |(token, till): &(String, i64)| (format!("{lock} {token}"), *till as u64);
                ends.extend(shares.iter().map(share));
            }
            _ => {}
        }
    }
    ends
}

/// Whether every key and share must last at least as long as without the request.
fn keeps_all(request: &Request) -> bool {
    match request {
        Request::Release { .. } => false,
        Request::GiveBack(subject) => subject.is_upgraded(),
        _ => true,
    }
}

#[test]
fn a_pause_of_the_server_shortens_nothing_that_was_promised() {
    let tried = each(async |server, situation, locked| {
        if matches!(locked, Locked::Permit | Locked::Permits) {
            return 0;
        }
        let mut tried = 0;
        for request in situation.requests.iter().filter(|request| keeps_all(request)) {
            for readings in 0..READINGS {
                server.set_clock(EPOCH);
                begin(server, situation).await;
                let before = ends(&server.keyspace().await, EPOCH);
                server.pause(EPOCH, readings, PAUSE);
                let replied = server.reply(request).await;
                let now = EPOCH + PAUSE.as_micros() as u64;
                server.set_clock(now);
                let after = ends(&server.keyspace().await, now);
                let what =
                    format!("{locked:?}, {}, {readings} readings: {request:?}", situation.name);
                for (key, end) in &before {
                    let Some(later) = after.get(key) else {
                        // Only a share may be gone: the giver's share, or the share of the only reader, whose lease is
                        // being upgraded.
                        let is_given = matches!(
                            request,
                            Request::Transfer { .. } | Request::Heal(_) | Request::GiveBack(_)
                        );
                        assert!(
                            is_given && key.contains(' '),
                            "{what}: {key} is gone: {replied:?}"
                        );
                        continue;
                    };
                    assert!(
                        later >= end,
                        "{what}: {key} ends {} ms earlier: {replied:?}",
                        end - later
                    );
                }
                // The ttl of a lease counts from a moment before its request was sent.
                if let Some((keys, ttl)) = promised(request, &replied) {
                    let until = EPOCH / 1_000 + ttl.as_millis() as u64;
                    for keys in keys.iter() {
                        let lasts = after.get(&keys.lock).is_some_and(|end| *end >= until);
                        assert!(lasts, "{what}: {} ends too early: {after:?}", keys.lock);
                    }
                }
                tried += before.len();
            }
        }
        tried
    });
    assert!(tried > 1_000, "only {tried} times were compared");
}

#[test]
fn a_pause_beyond_all_ttls_leaves_no_key_for_ever() {
    let tried = each(async |server, situation, locked| {
        let mut tried = 0;
        for (request, readings) in
            situation.requests.iter().flat_map(|r| (0..READINGS).map(move |n| (r, n)))
        {
            server.set_clock(EPOCH);
            begin(server, situation).await;
            server.pause(EPOCH, readings, LONG_PAUSE);
            let replied = server.reply(request).await;
            server.set_clock(EPOCH + LONG_PAUSE.as_micros() as u64);
            for (key, stored) in server.keyspace().await {
                let what =
                    format!("{locked:?}, {}, {readings} readings: {request:?}", situation.name);
                assert!(stored.expires_in.is_some(), "{what}: {key} never expires: {replied:?}");
            }
            tried += 1;
        }
        tried
    });
    assert!(tried > 1_000, "only {tried} requests were tried");
}
