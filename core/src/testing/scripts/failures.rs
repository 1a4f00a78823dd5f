//! Requests that a server aborts halfway with an error: because of its ACL, because a key has an unexpected type, or
//! because memory is full. After the error, all valid keys and shares must be unchanged, and every key must have a ttl.

use super::server::{Content, EPOCH, Keyspace, Server};
use crate::wire::batch::{self, Batch, Batchable};
use crate::wire::commands::By;
use crate::wire::keys::Keys;
use crate::wire::reply::Reply;
use crate::wire::request::{Given, Request, Subject};
use crate::wire::script;
use quorlock_protocol::{Healed, Turns};
use redis::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(100);
/// A ttl that is shorter than the pauses of the server in `pauses.rs`.
const SHORTER: Duration = Duration::from_millis(300);
const MILLISECOND: Duration = Duration::from_millis(1);
const TURNS: Turns = Turns { call: TTL, reserve: TTL, memory: TTL };

/// All commands that the scripts use.
const COMMANDS: [&str; 22] = [
    "del",
    "eval",
    "exists",
    "get",
    "getrange",
    "pexpire",
    "pexpireat",
    "pttl",
    "publish",
    "scan",
    "set",
    "time",
    "zadd",
    "zcard",
    "zcount",
    "zrange",
    "zrangebyscore",
    "zrank",
    "zrem",
    "zremrangebyscore",
    "zrevrank",
    "zscore",
];

/// Commands that set a key to a value that quorlock never stores there.
const FOREIGN: [&[&str]; 5] = [
    &["SET", "KEY", "a text"],
    &["RPUSH", "KEY", "an item"],
    &["HSET", "KEY", "field", "value"],
    &["SADD", "KEY", "a member"],
    &["ZADD", "KEY", "1", "a member"],
];

/// What a test locks: some resources, each in a mode, or permits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Locked {
    Exclusively,
    Shared,
    /// One resource exclusively, and another one shared.
    Both,
    /// One permit of a semaphore.
    Permit,
    /// Two permits of a semaphore.
    Permits,
}

impl Locked {
    const ALL: [Self; 5] =
        [Self::Exclusively, Self::Shared, Self::Both, Self::Permit, Self::Permits];

    fn keys(self) -> Arc<[Keys]> {
        let shared = |resource| Keys::new("p-", resource).shared();
        let permit = |slot| Keys::permit("p-", "s", slot, 4);
        match self {
            Self::Exclusively => [Keys::new("p-", "r")].into(),
            Self::Shared => [shared("r")].into(),
            Self::Both => [Keys::new("p-", "q"), shared("r")].into(),
            Self::Permit => [permit(0)].into(),
            Self::Permits => [permit(0), permit(1)].into(),
        }
    }
}

fn subject(keys: Arc<[Keys]>, token: u8, waiter: Option<&str>) -> Subject {
    Subject::new(keys, format!("{token:040x}").into(), waiter.map(Arc::from))
}

fn acquire(subject: &Arc<Subject>, ttl: Duration) -> Request {
    let ticket = subject.waiter.is_some().then_some(4);
    let subject = Arc::clone(subject);
    Request::Acquire { subject, ttl, proposal: EPOCH, ticket, turns: TURNS }
}

/// Requests under test, and the requests that are sent before each of them.
#[derive(Debug)]
pub(super) struct Situation {
    pub(super) name: &'static str,
    pub(super) before: Vec<Request>,
    pub(super) requests: Vec<Request>,
}

/// Returns every request that changes a lease, in each situation in which the request acts differently.
fn situations(locked: Locked) -> Vec<Situation> {
    let keys = locked.keys();
    let own = Arc::new(subject(Arc::clone(&keys), 1, None));
    let other = Arc::new(subject(Arc::clone(&keys), 2, None));
    let waiting = Arc::new(subject(Arc::clone(&keys), 3, Some("quorlock:c#1")));
    let given = |subject: &Subject| Given {
        token: Arc::new(subject.token.clone()),
        until: EPOCH + 50_000_000,
        within: TTL,
    };
    let adopter = |keys: Arc<[Keys]>| {
        Arc::new(Subject { giver: Some(given(&own)), ..subject(keys, 4, None) })
    };
    let transfer = |subject: &Arc<Subject>| Request::Transfer {
        subject: Arc::clone(subject),
        ttl: 2 * TTL,
        proposal: EPOCH,
    };
    let release = |subject: &Arc<Subject>, keep| Request::Release {
        subject: Arc::clone(subject),
        ticket: None,
        turns: TURNS,
        keep,
    };
    let adopting = adopter(Arc::clone(&keys));
    let fence = EPOCH + 1_000_000;
    let held = || vec![acquire(&own, TTL)];
    let of_holder = vec![
        acquire(&own, TTL),
        acquire(&other, 2 * TTL),
        acquire(&other, TTL - SHORTER),
        acquire(&waiting, 2 * TTL),
        Request::Raise { subject: Arc::clone(&own), ttl: TTL, fence },
        Request::Extend([(Arc::clone(&own), 2 * TTL)].into()),
        Request::Extend([(Arc::clone(&own), TTL - SHORTER)].into()),
        Request::Heal([(Arc::clone(&own), 2 * TTL, fence)].into()),
        Request::Heal([(Arc::clone(&adopting), 2 * TTL, fence)].into()),
        release(&own, None),
        release(&own, Some(TTL / 2)),
        transfer(&adopting),
        Request::Exists(Arc::clone(&keys)),
    ];
    let mut all = vec![
        Situation {
            name: "free",
            before: Vec::new(),
            requests: vec![
                acquire(&own, TTL),
                acquire(&waiting, TTL),
                Request::Heal([(Arc::clone(&own), TTL, fence)].into()),
                release(&own, None),
            ],
        },
        Situation { name: "held", before: held(), requests: of_holder.clone() },
        Situation {
            name: "held, with a waiter",
            before: vec![acquire(&own, TTL), acquire(&waiting, TTL)],
            requests: of_holder,
        },
        Situation {
            name: "held by two",
            before: vec![acquire(&own, 2 * TTL), acquire(&other, TTL)],
            requests: vec![
                release(&own, None),
                release(&other, None),
                release(&own, Some(TTL / 2)),
            ],
        },
        Situation {
            name: "handed over",
            before: vec![acquire(&own, TTL), transfer(&adopting)],
            requests: vec![Request::GiveBack(Arc::clone(&adopting))],
        },
        Situation {
            name: "released",
            before: vec![acquire(&own, TTL), release(&own, None)],
            requests: vec![acquire(&other, TTL)],
        },
    ];
    if matches!(locked, Locked::Shared | Locked::Both) {
        let exclusive: Arc<[Keys]> =
            keys.iter().map(|keys| Keys::new("p-", resource(keys))).collect();
        let writer = Arc::new(subject(exclusive, 1, None));
        let upgraded = keys.iter().map(|keys| match keys.is_shared() {
            true => keys.clone().upgraded(),
            false => keys.clone(),
        });
        let upgrading = adopter(upgraded.collect());
        let downgrade =
            || Request::Downgrade { subject: Arc::new(writer.downgraded()), turns: TURNS };
        all.extend([
            Situation {
                name: "held by a writer",
                before: vec![acquire(&writer, TTL)],
                requests: vec![
                    downgrade(),
                    Request::Extend([(Arc::new(writer.downgraded()), 2 * TTL)].into()),
                    Request::Heal([(Arc::new(writer.downgraded()), 2 * TTL, fence)].into()),
                    Request::Heal([(Arc::new(writer.downgraded()), TTL - SHORTER, fence)].into()),
                    Request::Extend([(Arc::new(writer.downgraded()), TTL - SHORTER)].into()),
                    release(&Arc::new(writer.downgraded()), None),
                ],
            },
            Situation { name: "to upgrade", before: held(), requests: vec![transfer(&upgrading)] },
            Situation {
                name: "upgraded",
                before: vec![acquire(&own, TTL), transfer(&upgrading)],
                requests: vec![Request::GiveBack(Arc::clone(&upgrading))],
            },
        ]);
    }
    all
}

/// The resource of these keys.
fn resource(keys: &Keys) -> &str {
    keys.lock.strip_prefix("p-").unwrap()
}

pub(super) async fn begin(server: &Server, situation: &Situation) {
    server.run(&["FLUSHALL"]).await.unwrap();
    for request in &situation.before {
        let (replied, _) = server.ask(request).await;
        replied.unwrap();
    }
}

/// Returns what is stored, without the shares that have expired at `now`. Expired shares have no effect.
fn live(stored: &Keyspace, now: u64) -> Keyspace {
    let mut stored = stored.clone();
    for (_, stored) in stored.iter_mut().filter(|(key, _)| key.ends_with(":shared")) {
        if let Content::Sorted(shares) = &mut stored.value {
            shares.retain(|(_, till)| *till > (now / 1_000) as i64);
        }
    }
    stored
}

/// Returns the keys that a successful request has locked, extended or repaired, and the shortest time for which the
/// lock keys must last. Returns `None` for all other requests and replies.
pub(super) fn promised(
    request: &Request,
    replied: &Result<Reply, String>,
) -> Option<(Arc<[Keys]>, Duration)> {
    let (subject, ttl) = match (request, replied) {
        (
            Request::Acquire { subject, ttl, .. } | Request::Transfer { subject, ttl, .. },
            Ok(Reply::Granted { .. }),
        ) => (subject, *ttl),
        (Request::Extend(leases), Ok(Reply::Each(each))) if each[0] => (&leases[0].0, leases[0].1),
        (Request::Heal(leases), Ok(Reply::Healed(each))) if each[0] != Healed::Held => {
            (&leases[0].0, Duration::ZERO)
        }
        _ => return None,
    };
    Some((Arc::clone(&subject.keys), ttl))
}

/// Checks what a server stores after a request that has run at the time `now`. `foreign` is a key that another program
/// has set.
fn check(
    (request, replied): (&Request, &Result<Reply, String>),
    (before, after): (&Keyspace, &Keyspace),
    now: u64,
    foreign: Option<&str>,
    what: &str,
) {
    for (key, stored) in after.iter().filter(|(key, _)| Some(&***key) != foreign) {
        assert!(stored.expires_in.is_some(), "{what}: {key} never expires: {replied:?} {after:?}");
    }
    if replied.is_err() {
        let mut after = live(after, now);
        let before = live(before, now);
        for (key, stored) in &mut after {
            // A key in its last millisecond may be extended by one millisecond: before a script changes anything, it
            // runs PEXPIRE to test whether PEXPIRE is permitted.
            let old = before.get(key).and_then(|stored| stored.expires_in);
            if (old, stored.expires_in) == (Some(Duration::ZERO), Some(MILLISECOND)) {
                stored.expires_in = old;
            }
        }
        assert_eq!(after, before, "{what}: {replied:?}");
    }
    if let Some((keys, ttl)) = promised(request, replied) {
        for Keys { lock, .. } in keys.iter() {
            let lasts = after.get(lock).is_some_and(|stored| stored.expires_in >= Some(ttl));
            assert!(lasts, "{what}: {lock} does not last: {replied:?} {after:?}");
        }
    }
}

/// Runs `test` for every situation. Returns the sum of its results.
pub(super) fn each(test: impl AsyncFn(&Server, &Situation, Locked) -> usize) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::start().await;
        let mut refused = 0;
        for locked in Locked::ALL {
            for situation in situations(locked) {
                refused += test(&server, &situation, locked).await;
            }
        }
        refused
    })
}

#[test]
fn the_list_of_commands_has_all_commands_of_the_scripts() {
    for source in script::all() {
        for part in
            ["call('", "{'", "read('"].iter().flat_map(|before| source.split(before).skip(1))
        {
            let command = part.split('\'').next().unwrap().to_lowercase();
            assert!(COMMANDS.contains(&&*command), "{command}");
        }
    }
}

#[test]
fn a_request_that_lacks_a_permission_changes_nothing_and_leaves_no_key_for_ever() {
    let refused = each(async |server, situation, locked| {
        let mut refused = 0;
        // Also test each request in the last millisecond before the first lock expires.
        for now in [EPOCH, EPOCH + TTL.as_micros() as u64] {
            for (request, denied) in
                situation.requests.iter().flat_map(|r| COMMANDS.map(|c| (r, c)))
            {
                server.set_clock(EPOCH);
                begin(server, situation).await;
                server.set_clock(now);
                let before = server.keyspace().await;
                let replied = server.reply_without(denied, request).await;
                let after = server.keyspace().await;
                let what =
                    format!("{locked:?}, {}, {now}, without {denied}: {request:?}", situation.name);
                check((request, &replied), (&before, &after), now, None, &what);
                refused += usize::from(replied.is_err());
                if let (Request::Extend(_), "zscore") = (request, denied) {
                    // EXTEND must not report the lease as lost while the token holds the resource.
                    let is_held =
                        |r: &Result<Reply, String>| matches!(r, Ok(Reply::Each(each)) if each[0]);
                    server.set_clock(EPOCH);
                    begin(server, situation).await;
                    server.set_clock(now);
                    let allowed = server.reply(request).await;
                    assert!(replied.is_err() || is_held(&replied) == is_held(&allowed), "{what}");
                }
            }
        }
        server.set_clock(EPOCH);
        refused
    });
    assert!(refused > 500, "only {refused} requests were refused");
}

#[test]
fn a_request_that_finds_a_foreign_type_changes_nothing_and_leaves_no_key_for_ever() {
    let refused = each(async |server, situation, locked| {
        let keys = locked.keys();
        let all = keys.iter().flat_map(|keys| {
            let common = match locked {
                Locked::Permit | Locked::Permits => keys.as_permit().unwrap().index.clone(),
                _ => keys.former_readers().clone(),
            };
            [keys.lock.clone(), keys.fence.clone(), keys.queue.clone(), common]
        });
        let all: BTreeSet<_> = all.collect();
        let mut refused = 0;
        for request in &situation.requests {
            for (key, command) in all.iter().flat_map(|key| FOREIGN.map(|command| (key, command))) {
                begin(server, situation).await;
                server.run(&["DEL", key]).await.unwrap();
                let words: Vec<_> =
                    command.iter().map(|word| if *word == "KEY" { key } else { *word }).collect();
                server.run(&words).await.unwrap();
                let before = server.keyspace().await;
                let (replied, after) = server.ask(request).await;
                let what = format!("{locked:?}, {}, {words:?}: {request:?}", situation.name);
                check((request, &replied), (&before, &after), EPOCH, Some(key), &what);
                let is_set = [":queue", ":shared", ":permits"].iter().any(|end| key.ends_with(end));
                if !is_set || command[0] != "ZADD" {
                    assert_eq!(after.get(key), before.get(key), "{what}");
                }
                refused += usize::from(replied.is_err());
            }
        }
        refused
    });
    assert!(refused > 200, "only {refused} requests were refused");
}

/// Returns a batch, and the ACQUIREs that must run before it. The batch releases two locks that are held and one that
/// is not, and acquires two free locks and one lock that another token holds. Each request of the batch has its own
/// token.
fn batch() -> (Batch<Request>, Vec<Request>) {
    let of = |(resource, token)| Arc::new(subject([Keys::new("p-", resource)].into(), token, None));
    let [a, b, other] = [("a", 1), ("b", 2), ("c", 3)].map(of);
    let held = [&a, &b, &other].map(|subject| acquire(subject, TTL)).to_vec();
    let [missing, d, e, c] = [("f", 4), ("d", 5), ("e", 6), ("c", 7)].map(of);
    let released = [a, b, missing].map(|subject| Request::release(&subject, TURNS));
    let acquired = [d, e, c].map(|subject| acquire(&subject, TTL));
    let requests = released.into_iter().chain(acquired).map(|request| {
        let batchable = Batchable::new(&Arc::new(request.clone()), false);
        (batchable.unwrap(), request)
    });
    let [batch] = Batch::plan(requests.collect()).try_into().ok().unwrap();
    (batch, held)
}

/// Runs the commands `trouble`, and then the batch as a user who lacks permission for the command `denied`. Checks that
/// each request was applied completely or not at all. Returns how many requests were not applied.
async fn check_batch(server: &Server, denied: &str, trouble: &[&[&str]]) -> usize {
    let (batch, held) = batch();
    server.run(&["FLUSHALL"]).await.unwrap();
    for request in &held {
        server.reply(request).await.unwrap();
    }
    for command in trouble {
        server.run(command).await.unwrap();
    }
    let before = server.keyspace().await;
    let command = batch.command(By::Source);
    let requests: Vec<_> = batch.into_items().into_iter().map(|(_, request)| request).collect();
    let replied = server.execute_without(denied, command).await;
    let after = server.keyspace().await;
    let replies = match replied {
        Ok(reply) => batch::replies(reply, requests.len()).expect("a reply for each request"),
        Err(_) => vec![None; requests.len()],
    };
    let what = format!("{trouble:?}, without {denied}: {replies:?}");
    let is_full = trouble.iter().any(|words| words.contains(&"maxmemory"));
    for (request, reply) in requests.iter().zip(&replies) {
        let (Request::Acquire { subject, .. } | Request::Release { subject, .. }) = request else {
            unreachable!("a batch has no other requests")
        };
        let Keys { lock, fence, queue, .. } = &subject.keys[0];
        let token = Content::Text(subject.token.as_str().to_owned());
        match (request, reply) {
            (Request::Release { .. }, Some(Value::Int(1))) => {
                assert_eq!(before[lock].value, token, "{what}");
                assert!(!after.contains_key(lock), "{what}");
            }
            (Request::Acquire { .. }, Some(Value::Int(_))) => {
                assert!(!is_full, "a full server grants nothing: {what}");
                assert!(!before.contains_key(lock), "{what}");
                let stored = &after[lock];
                assert!(stored.value == token && stored.expires_in >= Some(TTL), "{what}");
                assert_eq!(after[fence].value, Content::Text(EPOCH.to_string()), "{what}");
                assert!(after[fence].expires_in > stored.expires_in, "{what}");
            }
            _ => assert_eq!(after.get(lock), before.get(lock), "{what}"),
        }
        let is_granted = matches!((request, reply), (Request::Acquire { .. }, Some(Value::Int(_))));
        assert!(is_granted || after.get(fence) == before.get(fence), "{what}");
        assert_eq!(after.get(queue), before.get(queue), "{what}");
    }
    replies.iter().filter(|reply| !matches!(reply, Some(Value::Int(_)))).count()
}

#[test]
fn a_batch_does_each_request_completely_or_not_at_all() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::start().await;
        assert_eq!(check_batch(&server, "", &[]).await, 1, "one lock is held by another");
        let mut unapplied = 0;
        for denied in COMMANDS {
            unapplied += check_batch(&server, denied, &[]).await;
        }
        for resource in ["a", "b", "c", "d", "e", "f"] {
            let Keys { lock, fence, queue, .. } = Keys::new("p-", resource);
            for (key, command) in
                [lock, fence, queue].iter().flat_map(|key| FOREIGN.map(|command| (key, command)))
            {
                let word =
                    |word: &&str| if *word == "KEY" { key.clone() } else { (*word).to_owned() };
                let words: Vec<_> = command.iter().map(word).collect();
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                unapplied += check_batch(&server, "", &[&["DEL", key], &words]).await;
            }
        }
        unapplied += check_batch(&server, "", &[&["CONFIG", "SET", "maxmemory", "1"]]).await;
        server.run(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
        assert!(unapplied > 150, "only {unapplied} requests were not applied");
    });
}

#[test]
fn a_request_without_memory_changes_nothing_and_leaves_no_key_for_ever() {
    let refused = each(async |server, situation, locked| {
        let mut refused = 0;
        for request in &situation.requests {
            begin(server, situation).await;
            let before = server.keyspace().await;
            server.run(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
            let replied = server.reply(request).await;
            server.run(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
            let after = server.keyspace().await;
            let what = format!("{locked:?}, {}, without memory: {request:?}", situation.name);
            check((request, &replied), (&before, &after), EPOCH, None, &what);
            if situation.name == "free" && request.creates() {
                assert!(replied.is_err(), "{what}: {replied:?}");
            }
            // Even without memory, a lease that is already held can be extended, downgraded and released.
            if let Request::Release { .. } | Request::Extend(_) | Request::Downgrade { .. } =
                request
            {
                assert!(replied.is_ok(), "{what}: {replied:?}");
            }
            refused += usize::from(replied.is_err());
        }
        refused
    });
    assert!(refused > 30, "only {refused} requests were refused");
}
