//! Foreign values under quorlock's keys: the scripts neither change these values nor mistake them for values of
//! quorlock.

use super::server::{Content, Server};
use crate::wire::keys::Keys;
use crate::wire::reply::{Holder, Reply};
use crate::wire::request::{Given, Request, Subject};
use quorlock_protocol::{Healed, Turns};
use std::sync::Arc;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(100);
const TURNS: Turns = Turns { call: TTL, reserve: TTL, memory: TTL };

/// Commands that set a key to a value that quorlock never stores there.
const FOREIGN: [&[&str]; 4] = [
    &["SET", "KEY", "a text"],
    &["RPUSH", "KEY", "an item"],
    &["HSET", "KEY", "field", "value"],
    &["SADD", "KEY", "a member"],
];

fn keys(resource: &str) -> Keys {
    Keys::new("p-", resource)
}

fn subject(resources: &[&str], waiter: Option<&str>) -> Arc<Subject> {
    let keys = resources.iter().map(|resource| keys(resource)).collect();
    let subject = Subject::new(keys, "token".into(), waiter.map(Arc::from));
    let given = Given { token: Arc::new("giver".into()), until: u64::MAX, within: TTL };
    Arc::new(Subject { giver: Some(given), ..subject })
}

fn acquire(subject: &Arc<Subject>) -> Request {
    let ticket = subject.waiter.is_some().then_some(1);
    Request::Acquire { subject: Arc::clone(subject), ttl: TTL, proposal: 1, ticket, turns: TURNS }
}

fn transfer(subject: &Arc<Subject>) -> Request {
    Request::Transfer { subject: Arc::clone(subject), ttl: TTL, proposal: 1 }
}

fn release(subject: &Arc<Subject>) -> Request {
    Request::release(subject, TURNS)
}

/// Returns RAISE, EXTEND, HEAL and RELEASE: requests that change keys and report whether they did.
fn others(subject: &Arc<Subject>) -> [Request; 4] {
    [
        Request::Raise { subject: Arc::clone(subject), ttl: TTL, fence: 1 << 52 },
        Request::Extend([(Arc::clone(subject), 2 * TTL)].into()),
        Request::Heal([(Arc::clone(subject), TTL, 1 << 52)].into()),
        release(subject),
    ]
}

async fn set(server: &Server, command: &[&str], key: &str) {
    server.run(&["FLUSHALL"]).await.unwrap();
    let words: Vec<_> =
        command.iter().map(|word| if *word == "KEY" { key } else { word }).collect();
    server.run(&words).await.unwrap();
}

fn run(test: impl AsyncFnOnce(Server)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { test(Server::start().await).await });
}

const ORDERS: [&[&str]; 3] = [&["r"], &["r", "s"], &["s", "r"]];

#[test]
fn a_foreign_lock_value_counts_as_held() {
    run(async |server| {
        for (command, resources) in FOREIGN.iter().flat_map(|c| ORDERS.map(|order| (c, order))) {
            set(&server, command, &keys("r").lock).await;
            let before = server.keyspace().await;
            let subject = subject(resources, None);
            let (replied, kept) = server.ask(&acquire(&subject)).await;
            assert!(
                matches!(&replied, Ok(Reply::Held(refusal)) if refusal.expires_in.is_none()),
                "{command:?} {resources:?}: {replied:?}"
            );
            assert_eq!(kept, before, "{command:?} {resources:?}");
            let expected = match command[0] {
                "SET" => Holder::Token("a text".into()),
                _ => Holder::Other,
            };
            let (replied, kept) = server.ask(&transfer(&subject)).await;
            // If one of several keys is missing, the reply does not name the holder of the other keys.
            let holder = if resources.len() > 1 { Holder::Nobody } else { expected.clone() };
            assert!(
                matches!(&replied, Ok(Reply::NotTransferred(other))
                    if other.holder == holder && other.expires_in.is_none()),
                "{command:?} {resources:?}: {replied:?}"
            );
            assert_eq!(kept, before, "{command:?} {resources:?}");
            let give_back = Request::GiveBack(Arc::clone(&subject));
            for request in others(&subject).into_iter().chain([give_back]) {
                let (replied, kept) = server.ask(&request).await;
                assert!(!is_done(replied.unwrap()), "{command:?} {resources:?}: {request:?}");
                assert_eq!(kept, before, "{command:?} {resources:?}: {request:?}");
            }
            let (seen, _) = server.ask(&Request::Inspect([keys("r")].into())).await;
            let Ok(Reply::Seen(seen)) = seen else { panic!("{seen:?}") };
            assert_eq!((seen.holder, seen.expires_in), (expected, None));
        }
    });
}

#[test]
fn a_foreign_fence_prevents_grants_and_repairs() {
    run(async |server| {
        for (command, resources) in FOREIGN.iter().flat_map(|c| ORDERS.map(|order| (c, order))) {
            set(&server, command, &keys("r").fence).await;
            let before = server.keyspace().await;
            let subject = subject(resources, None);
            for request in [acquire(&subject), transfer(&subject)] {
                let (replied, kept) = server.ask(&request).await;
                assert!(replied.is_err(), "{command:?} {resources:?}: {replied:?}");
                assert_eq!(kept, before, "an error must mean that nothing was changed");
            }
            let heal = Request::Heal([(Arc::clone(&subject), TTL, 1 << 52)].into());
            let (replied, kept) = server.ask(&heal).await;
            assert!(!is_done(replied.unwrap()), "{command:?} {resources:?}");
            assert_eq!(kept, before, "{command:?} {resources:?}");
        }
    });
}

#[test]
fn a_foreign_queue_disables_only_the_queue() {
    run(async |server| {
        for (command, resources) in FOREIGN.iter().flat_map(|c| ORDERS.map(|order| (c, order))) {
            set(&server, command, &keys("r").queue).await;
            let before = server.keyspace().await;
            let foreign = &before[&keys("r").queue];
            let holder = subject(resources, None);
            let (replied, kept) = server.ask(&acquire(&holder)).await;
            assert!(matches!(replied, Ok(Reply::Granted { .. })), "{command:?}: {replied:?}");
            assert_eq!(&kept[&keys("r").queue], foreign, "{command:?}");

            let waiter = Some("nobody#1".into());
            let waiter = Arc::new(Subject::new([keys("r")].into(), "another token".into(), waiter));
            let (replied, kept) = server.ask(&acquire(&waiter)).await;
            let Ok(Reply::Held(refusal)) = replied else { panic!("{command:?}: {replied:?}") };
            assert_eq!((refusal.expires_in, refusal.rank), (Some(TTL), None), "{command:?}");
            assert_eq!(&kept[&keys("r").queue], foreign, "{command:?}");

            for request in others(&holder) {
                let (replied, kept) = server.ask(&request).await;
                assert!(is_done(replied.unwrap()), "{command:?}: {request:?}");
                assert_eq!(&kept[&keys("r").queue], foreign, "{command:?}: {request:?}");
            }
            assert!(!server.keyspace().await.contains_key(&keys("r").lock));
        }
    });
}

#[test]
fn a_foreign_fence_that_appears_during_a_lease_is_not_changed() {
    run(async |server| {
        for command in FOREIGN {
            set(&server, command, &keys("r").fence).await;
            server.run(&["SET", &keys("r").lock, "token", "PX", "1000"]).await.unwrap();
            let before = server.keyspace().await;
            let subject = subject(&["r"], None);
            for request in others(&subject) {
                let (replied, kept) = server.ask(&request).await;
                let fence = &kept[&keys("r").fence];
                assert_eq!(fence, &before[&keys("r").fence], "{command:?}: {request:?}");
                if let Request::Raise { .. } = request {
                    assert!(replied.is_err(), "{command:?}: {replied:?}");
                }
            }
            let (seen, _) = server.ask(&Request::Inspect([keys("r")].into())).await;
            assert!(matches!(seen, Ok(Reply::Seen(kept)) if kept.fence.is_none()));
            assert!(!matches!(before[&keys("r").fence].value, Content::Sorted(_)));
        }
    });
}

/// Whether a request about one lease was applied.
fn is_done(reply: Reply) -> bool {
    match reply {
        Reply::Healed(healed) => healed != [Healed::Held],
        reply => reply.about(0) == Reply::Yes,
    }
}
