//! Servers that take one another's place: of sentinels, and of a cluster.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ErrorCode, NodeOutcome};
use serde_json::json;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);
const NOW: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// All of them as one node.
fn url(servers: &Servers, scheme: &str, path: &str) -> String {
    format!("{scheme}://{}{path}", servers.all[0]["seeds"].as_str().unwrap())
}

#[test]
fn after_a_failover_the_new_master_is_guarded() {
    let servers = Servers::start_with(json!({ "start_sentinel": true }));
    let builder = Client::builder().nodes([url(&servers, "redis-sentinel", "/orders")]);
    let client = builder.ttl(SECOND).restart_guard(SECOND).auto_extend(false).build().unwrap();
    wait_until("it counts", || wait(client.lock("r").wait(NOW).acquire()).is_ok());
    servers.ask(json!({ "kill": 0 }));
    servers.ask(json!({ "fail_over": true }));
    let mut was_guarded = false;
    wait_until("it counts again", || {
        match wait(client.lock(format!("new-{was_guarded}")).wait(NOW).acquire()) {
            Ok(_) => was_guarded,
            Err(error) => {
                was_guarded |= error.nodes()[0].outcome == NodeOutcome::Guarded;
                false
            }
        }
    });
}

#[test]
fn a_frozen_master_of_a_cluster_is_no_trouble_for_the_others() {
    let servers = Servers::start_with(json!({ "start_cluster": true }));
    let client =
        Client::builder().nodes([url(&servers, "redis-cluster", "")]).ttl(LONG).build().unwrap();
    // One on each master.
    let leases = ["bar", "k", "foo"].map(|key| wait(client.lock(key).acquire()).unwrap());
    servers.ask(json!({ "freeze": 0 }));
    for lease in &leases[1..] {
        wait(lease.extend(None)).unwrap();
        assert!(wait(lease.release()));
    }
    let error = wait(client.lock("bar").wait(NOW).acquire()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
    // Another client finds the cluster by the others.
    let other =
        Client::builder().nodes([url(&servers, "redis-cluster", "")]).ttl(LONG).build().unwrap();
    assert!(wait(wait(other.lock("foo").acquire()).unwrap().release()));
    servers.ask(json!({ "thaw": 0 }));
    wait_until("it is extended", || wait(leases[0].extend(None)).is_ok());
    assert!(wait(leases[0].release()));
}

#[test]
fn a_lease_outlives_the_failover_of_a_cluster_and_the_move_of_its_slot() {
    let servers = Servers::start_with(json!({ "start_cluster": true, "replicas": 1 }));
    let builder = Client::builder()
        .nodes([url(&servers, "redis-cluster", "")])
        .ttl(LONG)
        .connect_timeout(TIMEOUT);
    let client = builder.build().unwrap();
    let (lease, moved) =
        (wait(client.lock("bar").acquire()).unwrap(), wait(client.lock("foo").acquire()).unwrap());
    servers.ask(json!({ "begin_move": ["foo", 1] }));
    wait(moved.extend(None)).unwrap();
    servers.ask(json!({ "end_move": ["foo", 1] }));
    wait(moved.extend(None)).unwrap();
    let held = wait(client.lock("foo").wait(NOW).acquire()).unwrap_err();
    assert_eq!(held.code(), ErrorCode::Timeout, "{held}");
    assert!(wait(moved.release()));
    assert!(wait(wait(client.lock("foo").acquire()).unwrap().release()));

    wait_until("the replica knows it", || {
        servers.command(3, &["KEYS", "*"]).to_string().contains("\"bar\"")
    });
    servers.ask(json!({ "kill": 0 }));
    servers.ask(json!({ "fail_over": 0 }));
    wait(lease.extend(None)).unwrap();
    assert!(wait(lease.release()));
}
