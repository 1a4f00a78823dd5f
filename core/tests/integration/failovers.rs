//! Failovers and slot migrations: leases on a Sentinel deployment and on a cluster.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ErrorCode, Lease};
use serde_json::json;
use std::time::Duration;

const NEVER: Duration = Duration::from_secs(600);
const NOW: Duration = Duration::ZERO;

fn connect(url: String) -> Client {
    Client::builder().nodes([url]).ttl(NEVER).wait(NEVER).build().unwrap()
}

fn field<'a>(servers: &'a Servers, server: usize, name: &str) -> &'a str {
    servers.all[server][name].as_str().unwrap()
}

/// Extends the lease. Returns `false` if too few nodes answer.
fn is_extended(lease: &Lease) -> bool {
    match wait(lease.extend(None)) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
            false
        }
    }
}

fn is_refused(client: &Client, resource: &str) -> bool {
    let refused = wait(client.lock(resource).wait(NOW).acquire()).unwrap_err();
    refused.code() == ErrorCode::Timeout
}

#[test]
fn a_lease_survives_a_sentinel_failover() {
    let servers = Servers::start_with(json!({"start_sentinel": true}));
    let client = connect(format!("redis-sentinel://{}/orders", field(&servers, 0, "seeds")));
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_until("the lock is replicated", || servers.command(1, &["EXISTS", "r", "{r}:fence"]) == 2);
    servers.ask(json!({"kill": 0}));
    assert_eq!(servers.ask(json!({"fail_over": true})), 1);
    wait_until("the lease is extended", || is_extended(&lease));
    assert_eq!(servers.command(1, &["GET", "r"]), lease.token());
    assert!(wait(lease.release()));
    let following = wait(client.lock("r").acquire()).unwrap();
    assert!(following.fence() > lease.fence());
    assert!(wait(following.release()));
}

/// Makes a sentinel report a master that the other sentinels do not know: the server `other`.
fn mislead(servers: &Servers, sentinel: usize, other: &Servers) {
    let port = other.ports[0].to_string();
    assert_eq!(servers.command(sentinel, &["SENTINEL", "REMOVE", "orders"]), "OK");
    let monitor = ["SENTINEL", "MONITOR", "orders", "127.0.0.1", &port, "2"];
    assert_eq!(servers.command(sentinel, &monitor), "OK");
}

/// The stale sentinel behaves like one that was partitioned during a failover.
#[test]
fn a_stale_sentinel_that_answers_first_is_outvoted() {
    let servers = Servers::start_with(json!({"start_sentinel": true}));
    let stale = Servers::start(1);
    servers.ask(json!({"kill": 0}));
    assert_eq!(servers.ask(json!({"fail_over": true})), 1);
    mislead(&servers, 2, &stale);
    let proxies = [3, 4].map(|sentinel| servers.proxy(sentinel));
    proxies.iter().for_each(|proxy| proxy.delay(0.1));
    let first = format!("127.0.0.1:{}", servers.ports[2]);
    let others = proxies.iter().map(|proxy| proxy.url.trim_start_matches("redis://").to_owned());
    let sentinels: Vec<_> = [first].into_iter().chain(others).collect();
    let builder =
        Client::builder().nodes([format!("redis-sentinel://{}/orders", sentinels.join(","))]);
    let client = builder.connect_timeout(TIMEOUT).build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    assert_eq!((servers.keys(1), stale.keys(0)), (vec!["r".to_owned()], vec![]));
    assert!(wait(lease.release()));
}

#[test]
fn the_master_is_the_one_that_a_majority_of_sentinels_names() {
    let servers = Servers::start_with(json!({"start_sentinel": true}));
    let other = Servers::start(1);
    let url = format!("redis-sentinel://{}/orders", field(&servers, 0, "seeds"));
    let builder = Client::builder().nodes([url]).wait(NOW).connect_timeout(TIMEOUT / 4);
    // The client asks the sentinels for the master's address once a second.
    let guard = Duration::from_secs(2);
    let client = builder.ttl(guard).restart_guard(guard).build().unwrap();
    let is_locked_on = |servers: &Servers, server| match wait(client.lock("r").acquire()) {
        Ok(lease) => {
            let is_there = servers.keys(server) == ["r"];
            wait(lease.release());
            is_there
        }
        Err(error) => {
            assert_ne!(error.code(), ErrorCode::Config, "{error}");
            false
        }
    };
    wait_until("the lock is on the master", || is_locked_on(&servers, 0));
    // Two sentinels now report the other server. Both servers are masters.
    mislead(&servers, 2, &other);
    mislead(&servers, 3, &other);
    wait_until("the lock is on the new master", || is_locked_on(&other, 0));
    // The remaining sentinel still reports the old master.
    servers.ask(json!({"kill": 2}));
    servers.ask(json!({"kill": 3}));
    wait_until("the master is given up", || {
        let refused = wait(client.lock("r").acquire()).err();
        let detail = refused.map(|error| error.nodes()[0].detail.clone());
        detail.is_some_and(|detail| detail.contains("2 of 3 sentinels named no master"))
    });
    servers.ask(json!({"restart": 2}));
    mislead(&servers, 2, &other);
    wait_until("the lock is on the new master again", || is_locked_on(&other, 0));
}

#[test]
fn a_lease_survives_a_cluster_failover_and_a_slot_migration() {
    let servers = Servers::start_with(json!({"start_cluster": true, "replicas": 1}));
    let client = connect(format!("redis-cluster://{}", field(&servers, 0, "seeds")));
    let other = connect(format!("redis-cluster://{}", field(&servers, 0, "last_seed")));

    let lease = wait(client.lock("k").acquire()).unwrap();
    servers.ask(json!({"begin_move": ["k", 2]}));
    wait(lease.extend(None)).unwrap();
    servers.ask(json!({"end_move": ["k", 2]}));
    wait(lease.extend(None)).unwrap();
    assert!(is_refused(&other, "k"));
    assert!(wait(lease.release()));
    let apart = wait(client.lock(["bar", "foo"]).acquire()).unwrap_err();
    assert_eq!(apart.code(), ErrorCode::Config, "{apart}");

    let held = wait(client.lock("bar").acquire()).unwrap();
    wait_until("the lock is replicated", || servers.keys(3).contains(&"bar".to_owned()));
    servers.ask(json!({"kill": 0}));
    assert_eq!(servers.ask(json!({"fail_over": 0})), 3);
    wait_until("the lease is extended", || is_extended(&held));
    assert_eq!(servers.command(3, &["GET", "bar"]), held.token());
    assert!(wait(held.release()));
}
