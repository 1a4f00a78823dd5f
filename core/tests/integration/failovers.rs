//! Masters that fail, and slots that move: what becomes of a lease on a service of sentinels or a
//! cluster.

use crate::servers::Servers;
use crate::{wait, wait_until};
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

/// Whether the lease could be extended now.
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
fn a_lease_outlives_a_failover_by_sentinels() {
    let servers = Servers::start_with(json!({"start_sentinel": true}));
    let client = connect(format!("redis-sentinel://{}/orders", field(&servers, 0, "seeds")));
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_until("it is replicated", || servers.command(1, &["EXISTS", "r", "{r}:fence"]) == 2);
    servers.ask(json!({"kill": 0}));
    assert_eq!(servers.ask(json!({"fail_over": true})), 1);
    wait_until("it is extended", || is_extended(&lease));
    assert_eq!(servers.command(1, &["GET", "r"]), lease.token());
    assert!(wait(lease.release()));
    let following = wait(client.lock("r").acquire()).unwrap();
    assert!(following.fence() > lease.fence());
    assert!(wait(following.release()));
}

#[test]
fn a_lease_outlives_a_failover_of_a_cluster_and_a_slot_that_moves() {
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
    wait_until("it is replicated", || servers.keys(3).contains(&"bar".to_owned()));
    servers.ask(json!({"kill": 0}));
    assert_eq!(servers.ask(json!({"fail_over": 0})), 3);
    wait_until("it is extended", || is_extended(&held));
    assert_eq!(servers.command(3, &["GET", "bar"]), held.token());
    assert!(wait(held.release()));
}
