//! Releases that keep the key on the nodes for a time.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ClientBuilder, ErrorCode, Lease, State};
use serde_json::json;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(4);

fn builder(servers: &Servers) -> ClientBuilder {
    Client::builder().nodes(&servers.urls).ttl(LONG)
}

/// Acquires `r`, and waits until all nodes have the key.
fn acquired(client: &Client, servers: &Servers) -> Lease {
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_until("all nodes have the key", || {
        (0..3).all(|node| value(servers, node) == lease.token())
    });
    lease
}

fn value(servers: &Servers, node: usize) -> String {
    servers.command(node, &["GET", "r"]).as_str().unwrap_or_default().to_owned()
}

fn ttl(servers: &Servers, node: usize) -> Option<Duration> {
    servers.command(node, &["PTTL", "r"]).as_u64().map(Duration::from_millis)
}

#[test]
fn the_key_expires_when_the_time_is_over() {
    let servers = Servers::start(3);
    let client = builder(&servers).holder("cron-1").build().unwrap();
    // One time is shorter and the other is longer than 10 min, the ttl that the key has unless the release changes it.
    for keep in [60, 3_600].map(Duration::from_secs) {
        let lease = acquired(&client, &servers);
        let began = Instant::now();
        let releasing = lease.release_and_keep(keep).unwrap();
        assert!(!lease.is_valid() && lease.check().is_err());
        assert!(wait(releasing));
        assert_eq!(wait(lease.extend(None)).unwrap_err().code(), ErrorCode::LeaseLost);
        for node in 0..3 {
            // The nodes keep the key for longer than `keep`: 1 % for clocks that run at different rates, and 2 ms for
            // the resolution of the clocks. The third millisecond is for rounding.
            let most = keep.mul_f64(1.01) + Duration::from_millis(3);
            let left = ttl(&servers, node).unwrap();
            assert!(left <= most && left + began.elapsed() >= keep.mul_f64(1.01), "{left:?}");
            assert_eq!(value(&servers, node), lease.token());
        }
        let status = wait(client.status("r")).unwrap();
        assert_eq!((status.state, status.holder.as_deref()), (State::Held, Some("cron-1")));
        assert!(status.expires_in_ms.unwrap() > keep.as_millis() as u64 * 9 / 10);
        wait(client.force_release(&status)).unwrap();
    }
    wait(client.close());
}

#[test]
fn a_waiter_gets_the_lock_when_the_key_expires_and_not_before() {
    let servers = Servers::start(3);
    let holder = builder(&servers).holder("cron-1").build().unwrap();
    let waiter = builder(&servers).wait(LONG).build().unwrap();
    let lease = acquired(&holder, &servers);
    // The waiter has learned that the key expires in 10 min. Nothing tells the waiter that the key now expires sooner.
    let waiting = waiter.lock("r").acquire();
    let is_queued = |node| servers.command(node, &["ZCARD", "{r}:queue"]) == json!(1);
    wait_until("the waiter is queued", || (0..3).all(is_queued));
    let released = Instant::now();
    assert!(wait(lease.release_and_keep(SHORT).unwrap()));
    let error = wait(waiter.lock("r").wait(Duration::ZERO).acquire()).unwrap_err();
    assert_eq!((error.code(), error.holder()), (ErrorCode::Timeout, Some("cron-1")));
    // The waiter gets the lock long before the lease's original ttl has passed: `wait` has a shorter time limit.
    let next = wait(waiting).unwrap();
    assert!(released.elapsed() >= SHORT, "{:?}", released.elapsed());
    assert!(next.fence() > lease.fence());
    assert!(wait(next.release()));
    wait_until("nothing is left", || servers.are_empty());
}

#[test]
fn a_node_that_was_away_keeps_the_key_too() {
    let servers = Servers::start(3);
    let client = builder(&servers).node_timeout(Duration::from_millis(200)).build().unwrap();
    wait(wait(client.lock("warm").acquire()).unwrap().release());
    let timeouts = || client.stats().nodes[2].outcomes.get("timeout").copied().unwrap_or_default();
    for freezes_first in [false, true] {
        let before = timeouts();
        let lease = if freezes_first {
            servers.ask(json!({ "freeze": 2 }));
            wait(client.lock("r").acquire()).unwrap()
        } else {
            acquired(&client, &servers)
        };
        servers.ask(json!({ "freeze": 2 }));
        assert!(wait(lease.release_and_keep(LONG / 2).unwrap()));
        if freezes_first {
            // The acquire must undo what its late request may store on the third node.
            wait_until("the third node misses the deadline", || timeouts() > before);
        }
        servers.ask(json!({ "thaw": 2 }));
        let most = (LONG / 2).mul_f64(1.01) + Duration::from_millis(3);
        wait_until("the third node keeps it", || ttl(&servers, 2).is_some_and(|left| left <= most));
        // By now, the client has sent every request that follows from the third node's late answers. The following
        // requests reach the node after those.
        let other = wait(client.lock("other").acquire()).unwrap();
        let has_other = || servers.command(2, &["EXISTS", "other"]) == json!(1);
        wait_until("the third node grants", has_other);
        wait(other.release());
        wait_until("the third node has released", || !has_other());
        assert!((0..3).all(|node| value(&servers, node) == lease.token()), "{freezes_first}");
        wait(client.force_release(&wait(client.status("r")).unwrap())).unwrap();
    }
    wait(client.close());
}

#[test]
fn only_a_lease_that_reached_its_holder_is_kept_when_it_is_dropped() {
    let servers = Servers::start(3);
    let client = builder(&servers).keep(LONG).build().unwrap();
    // The acquire has succeeded, but nobody takes its result.
    let acquiring = client.lock("r").acquire();
    wait_until("the lock is held", || client.stats().held == 1);
    drop(acquiring);
    wait_until("nothing is left", || client.stats().held == 0 && servers.are_empty());
    // A lease that ends because its client is closed is not kept either.
    let lease = acquired(&client, &servers);
    let other = builder(&servers).keep(LONG).build().unwrap();
    let also = wait(other.lock("s").acquire()).unwrap();
    wait(other.close());
    assert!(also.loss().is_some());
    wait_until("the other client's key is gone", || {
        servers.command(0, &["EXISTS", "s"]) == json!(0)
    });
    drop(lease);
    assert!(wait(client.lock("r").locked()).unwrap());
    let tried = wait(client.lock("t").try_acquire()).unwrap();
    drop(tried.expect("it is free"));
    assert!(wait(client.lock("t").locked()).unwrap());
    wait(client.close());
}

#[test]
fn an_adopted_lease_is_kept_when_it_is_dropped_unless_its_adoption_was_cancelled() {
    let servers = Servers::start(3);
    let client = builder(&servers).build().unwrap();
    let text = || wait(acquired(&client, &servers).detach(LONG)).unwrap().into_text();
    let adopting = client.adopt(&text()).keep(LONG).acquire();
    wait_until("the lock is held", || client.stats().held == 1);
    drop(adopting);
    wait_until("nothing is left", || client.stats().held == 0 && servers.are_empty());

    let adopted = wait(client.adopt(&text()).keep(LONG).acquire()).unwrap();
    let token = adopted.token().to_owned();
    wait_until("all nodes have the key", || (0..3).all(|node| value(&servers, node) == token));
    drop(adopted);
    wait_until("the lease is released", || client.stats().held == 0);
    // This request follows the releases on each node's connection.
    assert!(wait(client.lock("r").locked()).unwrap());
    assert!((0..3).all(|node| value(&servers, node) == token));
    wait(client.close());
}

#[test]
fn a_time_out_of_range_releases_nothing() {
    let client = Client::builder().nodes(["memory://keep-range"]).build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    let error = lease.release_and_keep(Duration::from_secs(100_000)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Config);
    assert!(error.message().contains("keep must be a duration from 10 ms to 24 h"), "{error}");
    assert!(lease.is_valid());
    // No client relies on a kept key, so the restart guard does not limit the time for which the key is kept.
    let guarded = Client::builder().nodes(["memory://keep-guard"]).restart_guard(TIMEOUT);
    let guarded = guarded.ttl(TIMEOUT).keep(2 * TIMEOUT).build().unwrap();
    assert!(guarded.lock("r").keep(3 * TIMEOUT).checked().is_ok());
}

#[test]
fn dropping_an_upgraded_lease_keeps_the_key() {
    let servers = Servers::start(3);
    let client = builder(&servers).build().unwrap();
    let reader = wait(client.lock("r").shared().keep(LONG).acquire()).unwrap();
    let writer = wait(reader.try_upgrade()).unwrap().unwrap();
    let token = writer.token().to_owned();
    let all_have_it = || (0..3).all(|node| value(&servers, node) == token);
    wait_until("all nodes have the key", all_have_it);
    drop(writer);
    wait(client.close());
    assert!(all_have_it());
}

#[test]
fn a_status_of_other_nodes_releases_nothing() {
    let servers = Servers::start(3);
    let client = builder(&servers).build().unwrap();
    let other = Client::builder().nodes(&servers.urls[..1]).build().unwrap();
    let lease = acquired(&client, &servers);
    let status = wait(client.status("r")).unwrap();
    let reversed = Client::builder().nodes(servers.urls.iter().rev()).build().unwrap();
    for other in [other, reversed] {
        let error = wait(other.force_release(&status)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config, "{error}");
        assert!(error.message().contains("in another order"), "{error}");
    }
    assert!(lease.is_valid() && value(&servers, 0) == lease.token());
}
