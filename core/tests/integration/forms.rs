//! Tests of the ways to use the interface: dropping, cancelling, sharing, blocking, awaiting, and nodes in
//! memory.

use crate::servers::Servers;
use crate::{wait, wait_until};
use quorlock::{Client, ErrorCode, Lock};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(60);

fn client(servers: &Servers) -> Client {
    Client::builder().nodes(&servers.urls).ttl(Duration::from_secs(600)).build().unwrap()
}

#[test]
fn a_dropped_lease_is_released() {
    let servers = Servers::start(3);
    let client = client(&servers);
    for lock in [client.lock("r"), client.lock("r").shared(), client.lock(["a", "b"])] {
        drop(wait(lock.acquire()).unwrap());
        wait_until("the lease is released", || servers.are_empty());
    }
}

#[test]
fn acquires_dropped_at_any_moment_leave_no_key() {
    let servers = Servers::start(5);
    let client = client(&servers);
    for round in 0..1_000_u64 {
        let mut pending = client.lock(format!("r{round}")).acquire();
        let moment = Duration::from_micros(round * 7_919 % 800);
        let won = pending.block_for(moment);
        drop(pending);
        drop(won);
    }
    wait_until("every acquire is undone", || servers.are_empty());
}

#[test]
fn a_dropped_release_or_extension_completes() {
    let servers = Servers::start(5);
    let client = client(&servers);
    for round in 0..100_u64 {
        let lease = wait(client.lock(format!("r{round}")).ttl(SHORT).acquire()).unwrap();
        drop(lease.extend(Some(Duration::from_secs(600))));
        wait_until("the lease is extended", || lease.remaining() > SHORT);
        let mut release = lease.release();
        let moment = Duration::from_micros(round * 37 % 300);
        let released = release.block_for(moment);
        drop(release);
        assert_ne!(released, Some(false));
    }
    wait_until("all leases are released", || servers.are_empty());
}

#[test]
fn a_dropped_waiter_leaves_no_key() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let lease = wait(client.lock("r").acquire()).unwrap();
    let mut waiting = client.lock("r").wait_forever().acquire();
    assert!(waiting.block_for(Duration::from_millis(100)).is_none());
    assert!(waiting.block_for(Duration::from_millis(1)).is_none(), "a second wait must work");
    drop(waiting);
    assert!(wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn a_try_makes_one_round() {
    let client = Client::builder().nodes(["memory://forms-try"]).build().unwrap();
    let lock = client.lock("r").wait_forever();
    let _lease = wait(lock.try_acquire()).unwrap().expect("the lock is free");
    assert!(wait(lock.try_acquire()).unwrap().is_none());
    let stats = client.stats();
    assert_eq!((stats.attempts, stats.timeouts, stats.rounds), (2, 1, 2));
}

#[test]
fn dropped_tries_leave_no_key() {
    let servers = Servers::start(3);
    let client = client(&servers);
    for round in 0..300_u64 {
        let mut pending = client.lock(format!("r{round}")).try_acquire();
        let won = pending.block_for(Duration::from_micros(round * 7_919 % 800));
        drop(pending);
        drop(won);
    }
    wait_until("every try is undone", || servers.are_empty());
}

#[test]
fn a_lease_knows_its_resource_and_the_ttl_of_its_acquire() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let lease = wait(client.lock(["b", "a"]).ttl(SHORT).acquire()).unwrap();
    assert_eq!((lease.resource(), lease.ttl()), ("b", SHORT));
    wait(lease.extend(Some(SHORT * 2))).unwrap();
    assert_eq!(lease.ttl(), SHORT);
    let lease = wait(client.lock("c").acquire()).unwrap();
    assert_eq!((lease.resource(), lease.ttl()), ("c", Duration::from_secs(600)));
}

#[test]
fn threads_that_share_a_lock_exclude_each_other() {
    let servers = Servers::start(3);
    let lock: Lock = client(&servers).lock("r").wait(Duration::from_secs(60));
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let lease = wait(lock.acquire()).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert!(wait(lease.release()));
                }
            });
        }
    });
}

#[tokio::test]
async fn any_executor_can_await() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let lease = client.lock("r").acquire().await.unwrap();
    assert!(client.lock("r").locked().await.unwrap());
    lease.extend(None).await.unwrap();
    assert!(lease.release().await);
    client.close().await;
    let error = client.lock("r").acquire().await.unwrap_err();
    assert_eq!((error.code(), error.resources()), (ErrorCode::Closed, &["r".to_owned()][..]));
}

#[test]
fn memory_nodes_expire_and_are_shared_by_name() {
    let nodes = ["memory://forms-1", "memory://forms-2", "memory://forms-3"];
    let open = || Client::builder().nodes(nodes).wait(Duration::ZERO).build().unwrap();
    let first = open();
    let second = open();
    let lock = first.lock("r").ttl(Duration::from_millis(200)).auto_extend(false);
    let lease = wait(lock.acquire()).unwrap();
    let error = wait(second.lock("r").acquire()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
    wait_until("the key expires", || !wait(second.lock("r").locked()).unwrap());
    assert!(!lease.is_valid(), "a key must not expire before the lease ends");
    let next = wait(second.lock("r").acquire()).unwrap();
    assert!(next.fence() > lease.fence());
    assert!(!wait(lease.release()));
    assert!(wait(next.release()));
    let other = Client::builder().nodes(["memory://forms-4"]).build().unwrap();
    assert!(!wait(other.lock("r").locked()).unwrap());
}
