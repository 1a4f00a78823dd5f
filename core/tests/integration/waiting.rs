//! Waiting on real servers: waiters are notified instead of polling, acquire in order, and leave no keys
//! behind.

use crate::servers::Servers;
use crate::{wait, wait_until};
use quorlock::{Client, ClientBuilder, ErrorCode};
use serde_json::json;
use std::time::Duration;

/// Longer than a test, so that a waiter that gets the lock must have been notified.
const NEVER: Duration = Duration::from_secs(600);

fn builder(servers: &Servers) -> ClientBuilder {
    Client::builder().nodes(&servers.urls).retry_delay(NEVER, NEVER).wait(NEVER).ttl(NEVER)
}

fn waiters(servers: &Servers, node: usize) -> u64 {
    servers.command(node, &["ZCARD", "{r}:queue"]).as_u64().unwrap()
}

#[test]
fn waiters_are_notified_in_order_and_leave_nothing() {
    let servers = Servers::start(3);
    let holder = builder(&servers).build().unwrap();
    let lease = wait(holder.lock("r").acquire()).unwrap();
    let connections: Vec<_> = (0..3).map(|node| servers.connections(node)).collect();
    let clients: Vec<_> = (0..5).map(|_| builder(&servers).build().unwrap()).collect();
    let mut waiting = Vec::new();
    for client in &clients {
        waiting.push(client.lock("r").acquire());
        // A second waiter of the same client joins the local wait queue only.
        waiting.push(client.lock("r").acquire());
        let count = waiting.len() as u64 / 2;
        wait_until("the first is queued", || (0..3).all(|node| waiters(&servers, node) == count));
    }
    assert!(wait(lease.release()));
    let mut fence = 0;
    for (position, pending) in waiting.into_iter().enumerate() {
        // Waiters acquire in order of arrival. A client's second waiter arrived before the next client's
        // first one.
        let lease = wait(pending).unwrap();
        let left = 5 - (position as u64).div_ceil(2);
        // The third node may have refused this acquire while the previous lease was being released. It
        // keeps this waiter's entry until the lease is repaired, which `NEVER` puts off.
        wait_until("the client's next is queued", || {
            (0..3).filter(|node| waiters(&servers, *node) == left).count() >= 2
        });
        assert!(lease.fence() > fence);
        fence = lease.fence();
        assert!(wait(lease.release()));
    }
    wait_until("the queues are gone", || servers.are_empty());
    clients.iter().for_each(|client| wait(client.close()));
    wait_until("the connections are closed", || {
        (0..3).all(|node| servers.connections(node) <= connections[node])
    });
    wait(holder.close());
}

#[test]
fn a_dropped_waiter_leaves_the_queue() {
    let servers = Servers::start(3);
    let holder = builder(&servers).build().unwrap();
    let lease = wait(holder.lock("r").acquire()).unwrap();
    let clients: Vec<_> = (0..2).map(|_| builder(&servers).build().unwrap()).collect();
    let first = clients[0].lock("r").acquire();
    wait_until("one waiter is queued", || (0..3).all(|node| waiters(&servers, node) == 1));
    let second = clients[1].lock("r").acquire();
    wait_until("two waiters are queued", || (0..3).all(|node| waiters(&servers, node) == 2));
    drop(first);
    wait_until("one waiter has left", || (0..3).all(|node| waiters(&servers, node) == 1));
    let third = clients[0].lock("r").acquire();
    assert!(wait(lease.release()));
    let lease = wait(second).unwrap();
    assert!(wait(lease.release()));
    assert!(wait(wait(third).unwrap().release()));
    wait_until("the queues are gone", || servers.are_empty());
}

#[test]
fn memory_nodes_notify_waiters() {
    let client = || {
        let builder = Client::builder().nodes(["memory://w1", "memory://w2", "memory://w3"]);
        builder.retry_delay(NEVER, NEVER).wait(NEVER).ttl(NEVER).build().unwrap()
    };
    let holder = client();
    let waiter = client();
    for _ in 0..100 {
        let lease = wait(holder.lock("r").acquire()).unwrap();
        let waiting = waiter.lock("r").acquire();
        assert!(wait(lease.release()));
        assert!(wait(wait(waiting).unwrap().release()));
    }
}

#[test]
fn waiters_of_a_client_report_that_no_node_answers() {
    let servers = Servers::start(3);
    (0..3).for_each(|node| drop(servers.ask(json!({ "freeze": node }))));
    let client = Client::builder().nodes(&servers.urls).build().unwrap();
    // The wait is shorter than `connect_timeout`, so the waits end before any connection attempt does.
    let wait_for = Duration::from_millis(300);
    let waiting: Vec<_> = (0..5).map(|_| client.lock("r").wait(wait_for).acquire()).collect();
    for waiting in waiting {
        let error = wait(waiting).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
    }
    (0..3).for_each(|node| drop(servers.ask(json!({ "thaw": node }))));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn slow_nodes_get_no_batches_and_a_held_lock_is_refused_in_time() {
    let servers = Servers::start(3);
    let _lease = wait(builder(&servers).build().unwrap().lock("r").acquire()).unwrap();
    let proxies = [0, 1, 2].map(|server| servers.proxy(server));
    let urls = proxies.each_ref().map(|proxy| &proxy.url);
    // In this time, a node answers once but not twice.
    let node_timeout = Duration::from_secs(3);
    let builder = Client::builder().nodes(urls).node_timeout(node_timeout).ttl(NEVER);
    let client = builder.wait(Duration::ZERO).build().unwrap();
    let acquire_all = || {
        let locks = (0..32).map(|number| client.lock(format!("r{number}")));
        let acquiring: Vec<_> = locks.map(|lock| lock.acquire()).collect();
        let held = client.lock("r").acquire();
        let leases: Vec<_> = acquiring.into_iter().map(|one| wait(one).unwrap()).collect();
        let releasing: Vec<_> = leases.iter().map(|lease| lease.release()).collect();
        assert!(releasing.into_iter().all(wait));
        wait(held).unwrap_err().code()
    };
    assert_eq!(acquire_all(), ErrorCode::Timeout);
    proxies.iter().for_each(|proxy| proxy.delay(2.0));
    // The first answers show that the nodes are slow. From then on, no ACQUIRE is sent as part of a batch, which
    // would leave out the one of the held lock.
    assert!(wait(wait(client.lock("r0").acquire()).unwrap().release()));
    assert_eq!(acquire_all(), ErrorCode::Timeout);
}
