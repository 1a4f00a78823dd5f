//! Held leases are renewed in time, and losses are reported in time.

use crate::servers::Servers;
use crate::{wait, wait_until};
use quorlock::{Client, ErrorCode, Lease, NodeOutcome};
use serde_json::json;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

fn client(servers: &Servers, ttl: Duration) -> Client {
    Client::builder().nodes(&servers.urls).ttl(ttl).build().unwrap()
}

fn hold(lease: &Lease, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        assert!(lease.is_valid(), "{:?} after {:?}", lease.loss(), began.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_lease_with_a_short_ttl_survives_a_long_body_with_few_renewals() {
    let servers = Servers::start(5);
    let ttl = Duration::from_millis(if cfg!(debug_assertions) { 1_500 } else { 50 });
    let lease = wait(client(&servers, ttl).lock("r").acquire()).unwrap();
    let before = servers.scripts(0);
    let began = Instant::now();
    hold(&lease, Duration::from_secs(4));
    let extensions = servers.scripts(0) - before;
    let held = began.elapsed();
    assert!(wait(lease.release()));
    let most = held.as_secs_f64() / (ttl.as_secs_f64() / 3.0) + 1.0;
    assert!(extensions as f64 <= most, "{extensions} extensions in {held:?}");
    assert!(extensions as f64 >= held.as_secs_f64() / ttl.as_secs_f64(), "{extensions}");
}

#[test]
fn many_leases_are_renewed_in_shared_requests() {
    let servers = Servers::start(3);
    let ttl = Duration::from_secs(3);
    let client = client(&servers, ttl);
    let pending: Vec<_> = (0..500).map(|i| client.lock(format!("r{i}")).acquire()).collect();
    let leases: Vec<_> = pending.into_iter().map(|pending| wait(pending).unwrap()).collect();
    let before = servers.scripts(0);
    let began = Instant::now();
    while began.elapsed() < 2 * ttl {
        assert!(leases.iter().all(Lease::is_valid));
        thread::sleep(Duration::from_millis(20));
    }
    let requests = servers.scripts(0) - before;
    // Without batches, the renewals would take 3,000 requests. Full batches take at least 48.
    assert!((40..600).contains(&requests), "{requests} requests");
    drop(leases);
    wait_until("all leases are released", || servers.are_empty());
}

#[test]
fn no_extension_shortens_the_life_of_a_key() {
    let servers = Servers::start(3);
    let lease = wait(client(&servers, Duration::from_secs(60)).lock("r").acquire()).unwrap();
    wait_until("all nodes hold the lock", || (0..3).all(|node| servers.keys(node) == ["r"]));
    wait(lease.extend(Some(Duration::from_secs(600)))).unwrap();
    wait(lease.extend(Some(Duration::from_secs(10)))).unwrap();
    assert!(lease.remaining() > Duration::from_secs(300));
    let kept = |node| servers.command(node, &["PTTL", "r"]).as_i64().unwrap();
    wait_until("no key is shortened", || (0..3).all(|node| kept(node) > 300_000));
    assert!(wait(lease.release()));
}

#[test]
fn the_loss_of_one_lease_does_not_affect_others() {
    let servers = Servers::start(3);
    let client = client(&servers, Duration::from_millis(900));
    let pending: Vec<_> = (0..10).map(|i| client.lock(format!("r{i}")).acquire()).collect();
    let leases: Vec<_> = pending.into_iter().map(|pending| wait(pending).unwrap()).collect();
    (0..3).for_each(|node| drop(servers.command(node, &["SET", "r7", "thief"])));
    let loss = wait(leases[7].lost()).expect("the lease is lost");
    assert_eq!(loss.resources(), ["r7"]);
    let outcomes: Vec<_> = loss.nodes().iter().map(|node| node.outcome).collect();
    assert!(outcomes.contains(&NodeOutcome::Missing), "{outcomes:?}");
    for (number, lease) in leases.iter().enumerate().filter(|(number, _)| *number != 7) {
        hold(lease, Duration::from_millis(200));
        assert!(wait(lease.release()), "{number}");
    }
}

/// Returns the time from `moment` to the report that the lease is lost.
fn lost_after(lease: &Lease, moment: Instant) -> Duration {
    assert_eq!(wait(lease.lost()).expect("the lease is lost").code(), ErrorCode::LeaseLost);
    moment.elapsed()
}

#[test]
fn frozen_nodes_cannot_delay_the_loss_nor_undo_it() {
    let servers = Servers::start(3);
    let client = client(&servers, Duration::from_secs(3));
    let lease = wait(client.lock("r").acquire()).unwrap();
    hold(&lease, Duration::from_millis(3500));
    (0..3).for_each(|node| drop(servers.ask(json!({ "freeze": node }))));
    // From here on no extension can be confirmed, so the end of the validity does not move.
    let reported = mpsc::channel();
    let promised = lease.remaining();
    let began = Instant::now();
    lease.on_lost(move |loss| reported.0.send(loss.to_string()).unwrap());
    let after = lost_after(&lease, began);
    assert!(after >= promised - Duration::from_millis(1), "{after:?} before {promised:?}");
    assert!(after < promised + Duration::from_secs(5), "{after:?} after {promised:?}");
    assert!(!lease.is_valid() && lease.remaining().is_zero());
    assert!(reported.1.recv_timeout(crate::TIMEOUT).unwrap().contains("ended"));
    (0..3).for_each(|node| drop(servers.ask(json!({ "thaw": node }))));
    // The nodes now confirm the extensions that were in flight.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        assert!(!lease.is_valid());
        assert!(lease.check().is_err());
    }
    assert!(wait(lease.extend(None)).is_err());
    assert!(!wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn a_majority_that_comes_back_in_time_saves_the_lease() {
    let servers = Servers::start(3);
    let client = client(&servers, Duration::from_secs(4));
    let lease = wait(client.lock("r").acquire()).unwrap();
    for _ in 0..2 {
        (0..3).for_each(|node| drop(servers.ask(json!({ "freeze": node }))));
        hold(&lease, Duration::from_millis(1700));
        (0..3).for_each(|node| drop(servers.ask(json!({ "thaw": node }))));
        hold(&lease, Duration::from_millis(2200));
    }
    assert!(wait(lease.release()));
}

/// Holds a lease while a firewall that has lost its state silently drops everything on the open connections. If
/// `is_busy`, another acquire waits for votes at the same time.
fn survive_stuck_connections(is_busy: bool) {
    let servers = Servers::start(3);
    let proxies: Vec<_> = (0..3).map(|server| servers.proxy(server)).collect();
    let urls = proxies.iter().map(|proxy| proxy.url.clone());
    let ttl = Duration::from_secs(9);
    let connect_timeout = Duration::from_secs(2);
    let builder = Client::builder().nodes(urls).ttl(ttl).connect_timeout(connect_timeout);
    let client = builder.node_timeout(ttl).build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    // A connection younger than `connect_timeout` is not replaced.
    hold(&lease, connect_timeout + Duration::from_millis(500));
    proxies.iter().for_each(|proxy| proxy.mode("hold_open"));
    let other = is_busy.then(|| client.lock("s").acquire());
    hold(&lease, ttl + Duration::from_secs(1));
    drop(other);
    assert!(wait(lease.release()));
    assert!(client.stats().nodes.iter().all(|node| node.reconnects == 1));
    proxies.iter().for_each(|proxy| proxy.mode("pass"));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn stuck_connections_do_not_end_a_lease() {
    survive_stuck_connections(false);
}

#[test]
fn stuck_connections_with_votes_under_way_do_not_end_a_lease() {
    survive_stuck_connections(true);
}

#[test]
fn constantly_breaking_connections_do_not_end_a_lease() {
    let servers = Servers::start(3);
    let client = client(&servers, Duration::from_secs(3));
    let lease = wait(client.lock("r").acquire()).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        for server in 0..3 {
            servers.command(server, &["CLIENT", "KILL", "TYPE", "normal"]);
        }
        hold(&lease, Duration::from_millis(150));
    }
    assert!(wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn a_dead_minority_does_not_end_a_lease() {
    let servers = Servers::start(5);
    let client = client(&servers, Duration::from_secs(3));
    let lease = wait(client.lock("r").acquire()).unwrap();
    servers.ask(json!({ "kill": 0 }));
    servers.ask(json!({ "freeze": 1 }));
    hold(&lease, Duration::from_secs(4));
    assert!(wait(lease.release()));
}

#[test]
fn a_released_lease_is_neither_reported_lost_nor_renewed() {
    let servers = Servers::start(3);
    let client = client(&servers, Duration::from_millis(200));
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_until("all nodes hold the lock", || (0..3).all(|node| servers.keys(node) == ["r"]));
    let lost = lease.lost();
    let dropped = mpsc::channel::<()>();
    lease.on_lost(move |_| drop(dropped.0));
    assert!(wait(lease.release()));
    assert!(wait(lost).is_none());
    let reported = dropped.1.recv_timeout(crate::TIMEOUT);
    assert_eq!(reported, Err(mpsc::RecvTimeoutError::Disconnected), "the callback is dropped");
    wait_until("the nodes are free", || servers.are_empty());
    let before = servers.scripts(0);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(servers.scripts(0), before);
}

#[test]
fn closing_the_client_reports_the_loss_to_the_holder() {
    let servers = Servers::start(3);
    let client = client(&servers, Duration::from_secs(10));
    let lease = wait(client.lock("r").acquire()).unwrap();
    let lost = lease.lost();
    wait(client.close());
    assert!(wait(lost).expect("the lease is lost").to_string().contains("client was closed"));
    assert!(!lease.is_valid());
    wait_until("the nodes are free", || servers.are_empty());
}

#[test]
fn repeated_short_waits_for_a_loss_do_no_harm() {
    let client = Client::builder().nodes(["memory://again"]).build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    for _ in 0..10_000 {
        assert!(lease.lost().block_for(Duration::ZERO).is_none());
    }
    assert!(lease.is_valid());
}

#[test]
fn release_all_releases_every_lease_of_the_process() {
    // Runs in a process of its own, because `release_all` concerns all clients of a process.
    let servers = Servers::start(3);
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "upkeep::ends_with_held_leases", "--ignored"])
        .env("QUORLOCK_NODES", servers.urls.join(","))
        .status()
        .unwrap();
    assert!(status.success());
    assert!(servers.are_empty(), "released before the process ended, not by expiry");
    assert_eq!(servers.command(0, &["EXISTS", "{r1}:fence"]), 1);
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn ends_with_held_leases() {
    let client = Client::builder().ttl(Duration::from_secs(600)).build().unwrap();
    let leases: Vec<_> =
        (0..20).map(|i| wait(client.lock(format!("r{i}")).acquire()).unwrap()).collect();
    // `release_all` notifies these waiters by releasing the leases. None of these waiters may get a lease.
    let waiting: Vec<_> = (0..20).map(|i| client.lock(format!("r{i}")).acquire()).collect();
    let other = Client::builder().build().unwrap();
    let waiting_elsewhere = other.lock("r0").acquire();
    // Nobody can adopt this lease, because nobody takes the text.
    let detached = wait(client.lock("detached").acquire()).unwrap();
    let _text = wait(detached.detach(Duration::from_secs(600))).unwrap();
    wait_until("all acquires wait", || client.stats().waiting + other.stats().waiting == 21);
    quorlock::release_all(crate::TIMEOUT);
    assert!(!leases.iter().any(Lease::is_valid));
    for waiting in waiting.into_iter().chain([waiting_elsewhere]) {
        assert_eq!(wait(waiting).unwrap_err().code(), ErrorCode::Closed);
    }
    // Later acquires of any client fail too.
    for client in [client, Client::builder().build().unwrap()] {
        assert_eq!(wait(client.lock("late").acquire()).unwrap_err().code(), ErrorCode::Closed);
    }
    quorlock::release_all(crate::TIMEOUT);
}
