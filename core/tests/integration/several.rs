//! Leases of several resources.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ErrorCode};
use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const RESOURCES: [&str; 3] = ["a", "b", "c"];

fn client(servers: &Servers) -> Client {
    let builder = Client::builder().nodes(&servers.urls).ttl(Duration::from_secs(600));
    builder.wait(TIMEOUT).build().unwrap()
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
#[should_panic(expected = "use `fences`")]
fn fence_panics_for_several_resources() {
    let client = Client::builder().nodes(["memory://several-fences"]).build().unwrap();
    let _ = wait(client.lock(["a", "b"]).acquire()).unwrap().fence();
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
