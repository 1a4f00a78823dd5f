//! Tests of a semaphore on a real server after the semaphore's index was lost or became wrong. The index becomes wrong
//! if something other than a client of this version changes which permits are held. The in-memory node has no index, so
//! these tests need a real server.

use super::server::{EPOCH, Server};
use crate::wire::keys::Keys;
use crate::wire::reply::{Refusal, Reply};
use crate::wire::request::{Request, Subject};
use quorlock_protocol::Turns;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: u32 = 3;
const TTL: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(3_600);
const TURN: Duration = Duration::from_secs(1);

fn acquire(slot: u32, token: u32, waiter: Option<&str>, ttl: Duration) -> Request {
    let keys = [Keys::permit("p-", "s", slot, LIMIT)].into();
    let subject = Subject::new(keys, format!("{token:040x}").into(), waiter.map(Arc::from));
    Request::Acquire {
        ticket: waiter.map(|_| 4),
        subject: Arc::new(subject),
        ttl,
        proposal: EPOCH,
        turns: Turns { call: TURN, reserve: TURN, memory: LONG },
    }
}

async fn granted(server: &Server, slot: u32, token: u32, ttl: Duration) {
    let reply = server.reply(&acquire(slot, token, None, ttl)).await;
    assert!(matches!(reply, Ok(Reply::Granted { .. })), "{reply:?}");
}

/// Acquires a permit as a waiter does: each round tries the first slot that the last refusal offered. Returns the
/// number of rounds that the acquire takes.
async fn rounds(server: &Server, waiter: &str) -> u32 {
    let mut slot = 1;
    for round in 1..20 {
        let request = acquire(slot, 100 + round, Some(waiter), TTL);
        match server.reply(&request).await.unwrap() {
            Reply::Granted { .. } => return round,
            Reply::Held(Refusal { permits, .. }) => {
                slot = permits.slots.first().copied().unwrap_or(0)
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("it was refused again and again");
}

fn run(test: impl AsyncFn(&Server)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::start().await;
        test(&server).await;
    });
}

#[test]
fn a_waiter_finds_the_free_slot_although_others_look_free() {
    run(async |server| {
        for slot in 0..LIMIT {
            granted(server, slot, slot, TTL).await;
        }
        // Extend two locks without changing their times in the index, as a client of another version may do.
        for slot in 0..2 {
            let lock = Keys::permit("p-", "s", slot, LIMIT).lock;
            server.run(&["PEXPIRE", &lock, "1000000"]).await.unwrap();
        }
        server.set_clock(EPOCH + 2 * TTL.as_micros() as u64);
        let rounds = rounds(server, "c#8*1*3").await;
        assert!(rounds <= LIMIT, "{rounds}");
    });
}

#[test]
fn a_short_lease_does_not_shorten_the_life_of_the_index() {
    run(async |server| {
        granted(server, 0, 0, LONG).await;
        granted(server, 1, 1, TTL).await;
        let index = Keys::semaphore("p-", "s").lock;
        let left = server.keyspace().await[&index].expires_in;
        assert!(left >= Some(LONG), "{left:?}");
    });
}

#[test]
fn a_lost_index_is_corrected_by_tries() {
    run(async |server| {
        for slot in 0..LIMIT - 1 {
            granted(server, slot, slot, LONG).await;
        }
        server.run(&["DEL", &Keys::semaphore("p-", "s").lock]).await.unwrap();
        let rounds = rounds(server, "c#8*1*3").await;
        assert!(rounds <= LIMIT, "{rounds}");
    });
}
