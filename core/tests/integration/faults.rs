//! Faults of nodes and networks.

use crate::servers::{Proxy, Servers};
use crate::{wait, wait_until};
use quorlock::{Client, ErrorCode, NodeOutcome, NodeState};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);
const NOW: Duration = Duration::ZERO;

fn client(urls: impl IntoIterator<Item = impl Into<String>>) -> Client {
    // This timeout is so long that healthy nodes do not time out on a busy machine.
    let patience = Duration::from_millis(700);
    Client::builder().nodes(urls).ttl(LONG).node_timeout(patience).build().unwrap()
}

/// A client that is connected to all servers through proxies.
fn through_proxies(servers: &Servers) -> (Client, Vec<Proxy<'_>>) {
    let proxies: Vec<_> = (0..servers.urls.len()).map(|server| servers.proxy(server)).collect();
    let client = client(proxies.iter().map(|proxy| proxy.url.clone()));
    // Wait until all nodes have answered: no request may be in flight when a fault begins.
    let lease = wait(client.lock("warm").acquire()).unwrap();
    let is_held = |node| servers.keys(node) == ["warm"];
    wait_until("all nodes hold the lock", || (0..proxies.len()).all(is_held));
    assert!(wait(lease.release()));
    wait_until("all nodes are free", || servers.are_empty());
    (client, proxies)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Down,
    Frozen,
    /// The node answers after the validity end.
    Late,
    Taken,
    ReplyLost,
}

const FAULTS: [Fault; 5] =
    [Fault::Down, Fault::Frozen, Fault::Late, Fault::Taken, Fault::ReplyLost];

/// Acquires once while each node has the fault at its index. The acquire must succeed or fail for the right
/// reason, and no key may be left.
fn try_faults(faults: &[Fault]) {
    let servers = Servers::start(faults.len());
    let (client, proxies) = through_proxies(&servers);
    for (node, fault) in faults.iter().enumerate() {
        match fault {
            Fault::None => {}
            Fault::Down => drop(servers.ask(json!({ "kill": node }))),
            Fault::Frozen => drop(servers.ask(json!({ "freeze": node }))),
            Fault::Late => proxies[node].delay(1.0),
            Fault::Taken => drop(servers.command(node, &["SET", "r", "other"])),
            Fault::ReplyLost => proxies[node].mode("lose_reply"),
        }
    }
    // A lost reply closes the connection, so the client repeats the round on the next connection.
    let able = [Fault::None, Fault::ReplyLost];
    let count = |wanted: &[Fault]| faults.iter().filter(|fault| wanted.contains(fault)).count();
    let majority = faults.len() / 2 + 1;
    // The ttl is shorter than the delay of a late node, which therefore answers after the validity end.
    let lock = client.lock("r").wait(NOW).ttl(Duration::from_millis(900));
    match wait(lock.acquire()) {
        Ok(lease) => {
            assert!(count(&able) >= majority, "{faults:?}");
            drop(lease);
        }
        Err(error) => {
            assert!(count(&able) < majority, "{faults:?}: {error}");
            let voters = count(&able) + count(&[Fault::Taken]);
            let contended = error.code() == ErrorCode::Timeout;
            assert_eq!(contended, voters >= majority, "{faults:?}: {error}");
            assert_eq!(error.nodes().len(), faults.len());
        }
    }
    for (node, fault) in faults.iter().enumerate() {
        match fault {
            Fault::Frozen => drop(servers.ask(json!({ "thaw": node }))),
            Fault::Late => proxies[node].delay(0.0),
            _ => {}
        }
    }
    for (node, fault) in faults.iter().enumerate() {
        match fault {
            Fault::Down => {}
            Fault::Taken => assert_eq!(servers.command(node, &["GET", "r"]), "other"),
            _ => wait_until("no key is left", || servers.keys(node).is_empty()),
        }
    }
}

#[test]
fn a_single_node_with_each_fault() {
    FAULTS.iter().for_each(|fault| try_faults(&[*fault]));
}

#[test]
fn two_nodes_with_each_fault_at_one() {
    FAULTS.iter().for_each(|fault| try_faults(&[Fault::None, *fault]));
}

#[test]
fn three_nodes_with_each_pair_of_faults() {
    for first in FAULTS {
        try_faults(&[first, Fault::None, Fault::None]);
        FAULTS.iter().for_each(|second| try_faults(&[first, Fault::None, *second]));
    }
}

#[test]
fn five_nodes_with_two_and_three_faults() {
    for first in FAULTS {
        try_faults(&[Fault::None, first, Fault::None, first, Fault::None]);
        for second in [Fault::Down, Fault::Taken] {
            try_faults(&[first, second, Fault::None, first, Fault::None]);
        }
    }
}

#[test]
fn an_outage_is_reported_long_before_the_wait_ends() {
    let servers = Servers::start(3);
    let client = client(&servers.urls);
    servers.ask(json!({ "kill": 0 }));
    servers.ask(json!({ "kill": 2 }));
    let begun = Instant::now();
    let error = wait(client.lock("r").wait(LONG).acquire()).unwrap_err();
    assert!(begun.elapsed() < LONG / 10);
    assert_eq!(error.code(), ErrorCode::NoQuorum);
    let down: Vec<_> = error
        .nodes()
        .iter()
        .filter(|node| node.outcome == NodeOutcome::Unreachable)
        .map(|node| node.address.clone())
        .collect();
    assert_eq!(down, [servers.urls[0].clone(), servers.urls[2].clone()]);
}

#[test]
fn an_acquire_that_arrives_after_the_release_leaves_no_key() {
    let servers = Servers::start(3);
    let (client, proxies) = through_proxies(&servers);
    proxies[1].mode("hold");
    let lease = wait(client.lock("r").wait(NOW).acquire()).unwrap();
    assert!(wait(lease.release()));
    proxies[1].mode("pass");
    assert!(wait(wait(client.lock("s").acquire()).unwrap().release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn a_release_that_a_node_missed_is_delivered_later() {
    let servers = Servers::start(3);
    let (client, proxies) = through_proxies(&servers);
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_until("all nodes hold the lock", || (0..3).all(|node| servers.keys(node) == ["r"]));
    proxies[2].mode("refuse");
    assert!(wait(lease.release()));
    assert_eq!(servers.keys(2), ["r"]);
    // This drops the last handles of the client.
    drop((lease, client));
    proxies[2].mode("pass");
    wait_until("the release is delivered", || servers.keys(2).is_empty());
}

#[test]
fn a_release_waits_for_nodes_that_are_slow() {
    let servers = Servers::start(3);
    let (client, proxies) = through_proxies(&servers);
    let lease = wait(client.lock("r").acquire()).unwrap();
    // The answers take longer than `node_timeout`; the release must wait for them nevertheless.
    proxies.iter().for_each(|proxy| proxy.delay(1.0));
    assert!(wait(lease.release()));
    wait_until("all nodes are free", || servers.are_empty());
}

#[test]
fn connections_cut_while_idle_cost_no_error() {
    let servers = Servers::start(3);
    let client = client(&servers.urls);
    for round in 0..20 {
        let lease = wait(client.lock("r").wait(NOW).acquire());
        assert!(wait(lease.unwrap_or_else(|error| panic!("{round}: {error}")).release()));
        for server in 0..3 {
            servers.command(server, &["CLIENT", "KILL", "TYPE", "normal"]);
            wait_until("the client has reconnected", || servers.connections(server) == 2);
        }
    }
}

/// An acquire may still wait for votes after its lock was released. Even then, a node that connects late must be
/// available to other requests at once.
#[test]
fn a_node_that_connects_late_is_used_at_once() {
    let servers = Servers::start(5);
    let late = servers.proxy(4);
    let slow = servers.proxy(3);
    let urls = servers.urls[..3].iter().chain([&slow.url, &late.url]);
    let builder = Client::builder().nodes(urls).ttl(LONG).node_timeout(Duration::from_secs(4));
    let client = builder.connect_timeout(Duration::from_secs(20)).build().unwrap();
    late.mode("hold");
    wait(client.status("r")).unwrap();
    slow.delay(1.5);
    // The vote of the slow node arrives after the release.
    assert!(wait(wait(client.lock("r").acquire()).unwrap().release()));
    thread::sleep(Duration::from_millis(1700));
    late.mode("pass");
    wait_until("it is connected", || client.stats().nodes[4].state == NodeState::Up);
    slow.delay(0.0);
    for node in 0..2 {
        servers.ask(json!({ "kill": node }));
    }
    assert!(wait(wait(client.lock("s").wait(NOW).acquire()).unwrap().release()));
}

#[test]
fn a_restarted_and_a_thawed_node_are_used_again() {
    let servers = Servers::start(3);
    let client = client(&servers.urls);
    let cycle = |node| {
        let lease = wait(client.lock("r").acquire()).unwrap();
        // This node may store the key only after the acquire has returned, so look for it for a while.
        let began = Instant::now();
        let mut used = false;
        while !used && began.elapsed() < Duration::from_millis(50) {
            used = servers.keys(node) == ["r"];
        }
        assert!(wait(lease.release()));
        used
    };
    assert!(wait(wait(client.lock("warm").acquire()).unwrap().release()));
    servers.ask(json!({ "kill": 0 }));
    assert!(wait(wait(client.lock("r").acquire()).unwrap().release()));
    servers.ask(json!({ "restart": 0 }));
    wait_until("the restarted node is used", || cycle(0));
    servers.ask(json!({ "freeze": 1 }));
    // Continue for long enough that the client replaces the connection.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        assert!(wait(wait(client.lock("r").acquire()).unwrap().release()));
    }
    servers.ask(json!({ "thaw": 1 }));
    wait_until("the thawed node is used", || cycle(1));
}

#[test]
fn fences_increase_while_nodes_forget() {
    let servers = Servers::start(3);
    let client = Client::builder().nodes(&servers.urls).build().unwrap();
    let mut last = 0;
    for round in 0..100 {
        let lease = wait(client.lock("r").acquire()).unwrap();
        assert!(lease.fence() > last, "{} after {last}", lease.fence());
        last = lease.fence();
        assert!(wait(lease.release()));
        match round % 3 {
            0 => drop(servers.command(round % 2, &["FLUSHALL"])),
            1 if round % 10 == 1 => drop(servers.ask(json!({ "restart": round % 3 }))),
            _ => {}
        }
    }
}
