//! Leases of several resources.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ErrorCode, Lease, NodeOutcome};
use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const RESOURCES: [&str; 3] = ["a", "b", "c"];

fn client(servers: &Servers) -> Client {
    let builder = Client::builder().nodes(&servers.urls).ttl(Duration::from_secs(600));
    builder.wait(TIMEOUT).build().unwrap()
}

fn fences(lease: &Lease) -> HashMap<String, u64> {
    lease.fences().map(|(resource, fence)| (resource.to_owned(), fence)).collect()
}

/// Whether every node has exactly these keys, apart from fence counters.
fn have(servers: &Servers, expected: &[&str]) -> bool {
    (0..servers.urls.len()).all(|server| {
        let mut keys = servers.keys(server);
        keys.sort_unstable();
        keys == expected
    })
}

#[test]
fn resources_are_accepted_in_many_forms() {
    let client = Client::builder().nodes(["memory://several-forms"]).build().unwrap();
    let text = "r".to_owned();
    let list = vec!["r".to_owned(), "s".to_owned()];
    for lock in [client.lock("r"), client.lock(&text), client.lock(text.clone())] {
        assert_eq!(lock.resources(), ["r"]);
    }
    let several = [client.lock(["r", "s"]), client.lock(&list[..]), client.lock(list.clone())];
    for lock in several {
        assert_eq!(lock.resources(), list);
        assert!(format!("{lock:?}").contains(r#""r", "s""#), "{lock:?}");
        let lease = wait(lock.acquire()).unwrap();
        assert_eq!(lease.resources(), list);
        assert!(wait(lease.release()));
    }
}

#[test]
fn mistakes_are_reported_without_contacting_a_node() {
    // No server listens on this port, so a request would fail with another error.
    let client = Client::builder().nodes(["redis://127.0.0.1:1"]).build().unwrap();
    let none: [&str; 0] = [];
    for lock in [client.lock(none), client.lock(["a", ""]), client.lock(["a", "a"])] {
        let error = wait(lock.acquire()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config, "{error}");
        assert_eq!(wait(lock.locked()).unwrap_err().code(), ErrorCode::Config);
        assert_eq!(lock.checked().unwrap_err().to_string(), error.to_string());
    }
}

#[test]
fn each_resource_has_a_fence() {
    let servers = Servers::start(3);
    let client = client(&servers);
    // The fence counters of `a` and `b` are far apart, and both differ much from the current time.
    servers.command(0, &["SET", "{a}:fence", "5000000000000000"]);
    servers.command(1, &["SET", "{b}:fence", "6000000000000000"]);
    let mut last = HashMap::new();
    let orders: [&[&str]; 6] = [&["a"], &["b"], &["a", "b"], &["c", "a"], &["b", "c"], &["a"]];
    for resources in orders {
        let lease = wait(client.lock(resources).acquire()).unwrap();
        assert_eq!(lease.fences().map(|(name, _)| name).collect::<Vec<_>>(), resources);
        for (resource, fence) in fences(&lease) {
            let before = last.insert(resource.clone(), fence);
            assert!(before < Some(fence), "{resource}: {fence} after {before:?}");
        }
        if resources.len() == 1 {
            assert_eq!(lease.only_fence().unwrap(), lease.fence());
        } else {
            let error = lease.only_fence().unwrap_err();
            assert_eq!((error.code(), error.resources().len()), (ErrorCode::Config, 2));
        }
        assert!(wait(lease.release()));
    }
}

#[test]
#[should_panic(expected = "use `fences`")]
fn fence_panics_for_several_resources() {
    let client = Client::builder().nodes(["memory://several-fences"]).build().unwrap();
    let _ = wait(client.lock(["a", "b"]).acquire()).unwrap().fence();
}

#[test]
fn several_resources_are_granted_all_or_none() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let held = wait(client.lock("b").acquire()).unwrap();
    wait_until("all nodes hold the lock", || have(&servers, &["b"]));
    for patience in [Duration::ZERO, Duration::from_millis(300)] {
        let error = wait(client.lock(RESOURCES).wait(patience).acquire()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
        assert_eq!(error.resources(), RESOURCES);
        assert!(error.nodes().iter().any(|node| node.outcome == NodeOutcome::Held), "{error}");
        wait_until("no other key is left", || have(&servers, &["b"]));
    }
    let others = wait(client.lock(["c", "a"]).wait(Duration::ZERO).acquire()).unwrap();
    assert!(wait(others.release()));
    assert!(wait(held.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn a_lease_of_two_resources_excludes_leases_of_each() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let both = wait(client.lock(["a", "b"]).acquire()).unwrap();
    let orders: [&[&str]; 4] = [&["a"], &["b"], &["b", "a"], &["c", "b"]];
    for resources in orders {
        let lock = client.lock(resources).wait(Duration::ZERO);
        assert_eq!(wait(lock.acquire()).unwrap_err().code(), ErrorCode::Timeout);
        assert!(wait(lock.locked()).unwrap());
    }
    assert!(wait(client.lock("c").wait(Duration::ZERO).acquire()).is_ok());
    // Dropping the lease releases all of its resources.
    drop(both);
    wait_until("all resources are free", || servers.are_empty());
    assert!(!wait(client.lock(RESOURCES).locked()).unwrap());
}

#[test]
fn clients_with_opposite_orders_neither_deadlock_nor_overlap() {
    let servers = Servers::start(3);
    // For each resource: whether a thread holds it now, and the fence of its last lease.
    let state = Mutex::new(HashMap::from(RESOURCES.map(|resource| (resource, (false, 0)))));
    let orders: [&[&str]; 4] = [&["a", "b"], &["b", "a"], &["b", "c"], &["c", "b", "a"]];
    thread::scope(|scope| {
        for resources in orders {
            let client = client(&servers);
            let state = &state;
            scope.spawn(move || {
                for _ in 0..50 {
                    let lease = wait(client.lock(resources).acquire()).unwrap();
                    for (resource, fence) in lease.fences() {
                        let mut state = state.lock().unwrap();
                        let (is_inside, last) = state.get_mut(resource).unwrap();
                        assert!(!*is_inside && fence > *last, "{resource}: {fence}, {last}");
                        (*is_inside, *last) = (true, fence);
                    }
                    thread::yield_now();
                    for resource in resources {
                        state.lock().unwrap().get_mut(resource).unwrap().0 = false;
                    }
                    assert!(wait(lease.release()));
                }
            });
        }
    });
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn the_resources_of_a_lease_are_extended_together() {
    let servers = Servers::start(3);
    let lease = wait(client(&servers).lock(["a", "b"]).acquire()).unwrap();
    wait_until("all nodes hold both", || have(&servers, &["a", "b"]));
    // A node that has lost one of the keys is repaired.
    servers.command(2, &["DEL", "b"]);
    wait(lease.extend(Some(Duration::from_secs(3_000)))).unwrap();
    assert!(lease.remaining() > Duration::from_secs(2_000));
    wait_until("the node is repaired", || have(&servers, &["a", "b"]));
    let kept = |node, key| servers.command(node, &["PTTL", key]).as_i64().unwrap();
    for key in ["a", "b"] {
        wait_until("the keys are extended", || (0..2).all(|node| kept(node, key) > 2_000_000));
    }
    assert!(wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn losing_one_resource_loses_the_lease() {
    let servers = Servers::start(3);
    let lease = wait(client(&servers).lock(["a", "b"]).acquire()).unwrap();
    wait_until("all nodes hold both", || have(&servers, &["a", "b"]));
    for node in 0..2 {
        servers.command(node, &["DEL", "b"]);
    }
    let error = wait(lease.extend(None)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LeaseLost, "{error}");
    assert_eq!(error.resources(), ["a", "b"]);
    assert!(!lease.is_valid());
    assert!(!wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}
