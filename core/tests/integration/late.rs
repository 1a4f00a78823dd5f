//! Requests that a node applies late: after their deadline, or after requests that were sent later.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ErrorCode, Lock, NodeState};
use serde_json::json;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);
const NOW: Duration = Duration::ZERO;
/// The ttl of the locks. It must be longer than the longest pause before the client connects again, because the client
/// stops trying to deliver an UNDO a little after the ttl.
const TTL: Duration = Duration::from_secs(3);

/// The number of locks that a test acquires: enough that the connections are replaced while some of the
/// requests are in flight.
const RESOURCES: usize = 6;

fn client(servers: &Servers, connect_timeout: Duration) -> Client {
    let builder = Client::builder().nodes(&servers.urls).ttl(TTL).auto_extend(false);
    builder.node_timeout(TTL / 4).connect_timeout(connect_timeout).build().unwrap()
}

fn locks(client: &Client) -> Vec<Lock> {
    (0..RESOURCES).map(|number| client.lock(format!("r{number}")).wait(NOW)).collect()
}

/// Waits until all nodes are connected, and for at least half of the ttl, so that an unresponsive connection is
/// replaced before the test.
fn warm_up(client: &Client, servers: &Servers) {
    let began = Instant::now();
    wait_until("all nodes answer", || {
        let lease = wait(client.lock("warm").ttl(LONG).wait(TIMEOUT).acquire()).unwrap();
        let nodes = 0..servers.urls.len();
        let all = nodes.filter(|node| servers.keys(*node) == ["warm"]).count();
        assert!(wait(lease.release()));
        all == servers.urls.len()
    });
    wait_until("no request is in flight", || servers.are_empty() && began.elapsed() > TTL / 2);
}

/// Freezes some nodes, lets `work` send requests to them, and waits until the client has given up and no longer
/// retries. Then thaws the nodes. The nodes must become free although this function prevents every key from expiring.
fn frozen(servers: &Servers, client: &Client, nodes: &[usize], work: impl FnOnce()) {
    let before: Vec<_> = nodes.iter().map(|node| servers.scripts(*node)).collect();
    nodes.iter().for_each(|node| drop(servers.ask(json!({ "freeze": node }))));
    work();
    let is_down = |node: &usize| client.stats().nodes[*node].state == NodeState::Down;
    wait_until("the connections are replaced", || nodes.iter().all(is_down));
    std::thread::sleep(2 * TTL);
    nodes.iter().for_each(|node| drop(servers.ask(json!({ "thaw": node }))));
    for (node, before) in nodes.iter().zip(before) {
        let keeps = || {
            for key in servers.keys(*node) {
                servers.command(*node, &["PERSIST", &key]);
            }
        };
        wait_until("the requests are applied", || {
            keeps();
            servers.scripts(*node) >= before + RESOURCES
        });
        keeps();
        wait_until("no key is left", || servers.keys(*node).is_empty());
    }
}

#[test]
fn late_grants_of_a_frozen_majority_are_undone() {
    let servers = Servers::start(3);
    let client = client(&servers, TTL / 4);
    warm_up(&client, &servers);
    frozen(&servers, &client, &[0, 1], || {
        let trying: Vec<_> = locks(&client).iter().map(Lock::acquire).collect();
        for tried in trying {
            assert_eq!(wait(tried).unwrap_err().code(), ErrorCode::NoQuorum);
        }
    });
    for lock in locks(&client) {
        let lease = wait(lock.ttl(LONG).wait(TIMEOUT).acquire());
        assert!(wait(lease.unwrap_or_else(|error| panic!("{error}")).release()));
    }
}

#[test]
fn late_grant_of_a_frozen_node_is_undone_after_the_release() {
    let servers = Servers::start(3);
    let client = client(&servers, TTL / 4);
    warm_up(&client, &servers);
    frozen(&servers, &client, &[2], || {
        let trying: Vec<_> = locks(&client).iter().map(Lock::acquire).collect();
        let leases = trying.into_iter().map(|tried| wait(tried).unwrap());
        let leases: Vec<_> = leases.collect();
        // Release only now: an earlier release would follow the ACQUIRE on the same connection and could
        // not overtake it.
        wait_until("the connection is replaced", || {
            client.stats().nodes[2].state == NodeState::Down
        });
        drop(leases);
    });
}

#[test]
fn closing_a_client_does_not_wait_for_a_frozen_node() {
    let servers = Servers::start(3);
    // `close` waits for the client's tasks for at most the connect timeout. This timeout is longer than the test's time
    // limit, so the test fails if `close` waits for the frozen node.
    let client = client(&servers, 4 * TIMEOUT);
    warm_up(&client, &servers);
    servers.ask(json!({ "freeze": 0 }));
    let trying: Vec<_> = locks(&client).iter().map(Lock::acquire).collect();
    for tried in trying {
        wait(wait(tried).unwrap().release());
    }
    wait_until("requests to the frozen node time out", || {
        client.stats().nodes[0].outcomes.get("timeout") >= Some(&(2 * RESOURCES as u64))
    });
    wait(client.close());
    servers.ask(json!({ "thaw": 0 }));
    for server in 0..3 {
        wait_until("no connection is left", || servers.connections(server) == 1);
    }
}

/// A slow node does not know the script of ACQUIRE, so the client sends the ACQUIRE again. The node runs this second
/// ACQUIRE after the RELEASE.
#[test]
fn acquire_sent_again_after_the_release_leaves_no_key() {
    let servers = Servers::start(3);
    for server in 0..3 {
        // Prevent the client from loading the scripts when it connects.
        servers.command(server, &["ACL", "SETUSER", "default", "-script|load"]);
    }
    let proxy = servers.proxy(1);
    let urls = [&servers.urls[0], &proxy.url, &servers.urls[2]];
    let builder = Client::builder().nodes(urls).ttl(LONG).node_timeout(TIMEOUT / 10);
    let client = builder.build().unwrap();
    for round in 0..5 {
        let lease = wait(client.lock("warm").wait(TIMEOUT).acquire()).unwrap();
        wait_until("the node holds the lock", || servers.keys(1) == ["warm"]);
        servers.command(1, &["SCRIPT", "FLUSH"]);
        // After this release, the node knows the script of RELEASE only.
        assert!(wait(lease.release()));
        wait_until("all nodes are free", || servers.are_empty());
        let before = servers.scripts(1);
        proxy.delay(0.1);
        let lease = wait(client.lock("r").wait(NOW).acquire()).unwrap();
        assert!(wait(lease.release()), "{round}");
        // The three scripts are ACQUIRE, RELEASE and ACQUIRE again.
        wait_until("ACQUIRE was sent again", || servers.scripts(1) >= before + 3);
        proxy.delay(0.0);
        wait_until("no key is left", || servers.are_empty());
    }
}
