//! Many concurrent requests, and many threads and tasks that share the runtime.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, Lease};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

fn client(servers: &Servers, node_timeout: Duration) -> Client {
    let builder = Client::builder().nodes(&servers.urls).ttl(TIMEOUT);
    builder.auto_extend(false).node_timeout(node_timeout).build().unwrap()
}

/// Acquires `count` locks concurrently.
fn acquire(client: &Client, count: usize) -> Vec<Lease> {
    let pending: Vec<_> = (0..count).map(|key| client.lock(format!("r{key}")).acquire()).collect();
    pending.into_iter().map(|pending| wait(pending).unwrap()).collect()
}

fn release(leases: &[Lease]) {
    let pending: Vec<_> = leases.iter().map(Lease::release).collect();
    for (lease, pending) in leases.iter().zip(pending) {
        assert!(wait(pending), "{lease:?}: {:?}", lease.loss());
    }
}

#[test]
fn more_requests_than_a_connection_takes_are_queued() {
    let servers = Servers::start(3);
    let client = client(&servers, TIMEOUT);
    let leases = acquire(&client, 10_000);
    wait_until("each lock has a key and a fence", || {
        (0..3).all(|node| servers.command(node, &["DBSIZE"]) == 20_000)
    });
    release(&leases);
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn a_frozen_node_delays_none_of_many_requests() {
    let servers = Servers::start(3);
    let client = client(&servers, Duration::from_secs(5));
    release(&acquire(&client, 1));
    servers.ask(json!({ "freeze": 2 }));
    // These are more requests than the connection and its queue can take.
    for _ in 0..3 {
        release(&acquire(&client, 5_000));
    }
    servers.ask(json!({ "thaw": 2 }));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn threads_and_tasks_share_the_runtime() {
    let servers = Servers::start(3);
    let client = client(&servers, TIMEOUT);
    let stop = Instant::now() + Duration::from_secs(2);
    let cycles = thread::scope(|scope| {
        let threads = (0..6).map(|number| {
            let lock = client.lock(format!("thread-{number}"));
            scope.spawn(move || {
                let mut cycles = 0;
                while Instant::now() < stop {
                    assert!(wait(wait(lock.acquire()).unwrap().release()));
                    cycles += 1;
                    // Some threads return immediately, others pause for longer than it takes the fallback
                    // driver to take over.
                    thread::sleep(Duration::from_millis(number * number / 5));
                }
                cycles
            })
        });
        let mut workers: Vec<_> = threads.collect();
        let lock = client.lock("task");
        workers.push(scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut cycles = 0;
                while Instant::now() < stop {
                    assert!(lock.acquire().await.unwrap().release().await);
                    cycles += 1;
                }
                cycles
            })
        }));
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(cycles.iter().all(|cycles| *cycles > 0), "{cycles:?}");
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn a_lease_is_renewed_whichever_thread_drives_the_runtime() {
    const TTL: Duration = Duration::from_secs(3);
    let servers = Servers::start(3);
    let client = Client::builder().nodes(&servers.urls).ttl(TTL).build().unwrap();
    let held = wait(client.lock("held").acquire()).unwrap();
    let lock = client.lock("r");
    // At first, short-lived threads drive the runtime, one after another and concurrently.
    let stop = Instant::now() + TTL;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < stop {
                    let lock = lock.clone();
                    let cycle = move || wait(wait(lock.acquire()).unwrap().release());
                    assert!(thread::spawn(cycle).join().unwrap());
                }
            });
        }
    });
    assert!(held.is_valid());
    // Then only the fallback driver drives the runtime.
    thread::sleep(TTL);
    assert!(held.is_valid());
    // Then a thread that blocks for a long time drives the client's runtime.
    assert!(held.lost().block_for(TTL).is_none());
    assert!(held.is_valid());
    assert!(wait(held.release()));
}
