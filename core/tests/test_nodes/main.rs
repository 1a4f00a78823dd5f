//! `TestNodes`: faults of in-memory nodes, and the clock. These tests are a separate program, because they move the
//! clock of the whole process. No test sleeps. Each test takes milliseconds, even if it covers hours.
#![allow(clippy::unwrap_used, reason = "tests")]

mod adoption;
mod heartbeat;
mod semaphores;

use quorlock::{
    Client, Diagnosis, Error, ErrorCode, Fault, Lease, Level, NodeOutcome, Pending, TestNodes,
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest time that a test may take. The tests move the clock much further than this.
const PATIENCE: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(600);
const MINUTE: Duration = Duration::from_secs(60);

/// The tests share a clock, so they run one after another.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn client(nodes: &TestNodes) -> Client {
    let builder = Client::builder().nodes(nodes.urls()).ttl(TTL).wait(MINUTE);
    builder.connect_timeout(MINUTE).unlimited_hold().build().unwrap()
}

fn done<T>(mut pending: Pending<T>) -> T {
    pending.block_for(PATIENCE).expect("in time")
}

fn acquire(client: &Client) -> Result<Lease, Error> {
    done(client.lock("r").acquire())
}

fn advance(nodes: &TestNodes, time: Duration) {
    done(nodes.advance(time)).unwrap();
}

fn outcomes(error: &Error) -> Vec<NodeOutcome> {
    error.nodes().iter().map(|node| node.outcome).collect()
}

/// Returns the level of each node's finding of this check.
fn levels(diagnosis: &Diagnosis, check: &str) -> Vec<Level> {
    let findings = diagnosis.nodes.iter().flat_map(|node| &node.findings);
    findings.filter(|finding| finding.check == check).map(|finding| finding.level).collect()
}

#[test]
fn advancing_renews_leases_and_suspending_loses_them() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let lease = acquire(&client).unwrap();

    advance(&nodes, 60 * MINUTE);
    assert!(lease.is_valid() && lease.remaining() <= TTL && lease.remaining() > TTL / 2);

    let lost = lease.lost();
    done(nodes.suspend(TTL)).unwrap();
    assert!(!lease.is_valid());
    assert_eq!(done(lost).unwrap().code(), ErrorCode::LeaseLost);
    assert!(acquire(&client).unwrap().fence() > lease.fence());
}

#[test]
fn max_hold_limits_the_ttl_and_its_default_does_not() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    for auto_extend in [true, false] {
        let lock = client.lock("r").auto_extend(auto_extend).max_hold(2 * MINUTE);
        let lease = done(lock.acquire()).unwrap();
        assert_eq!(lease.ttl(), 2 * MINUTE);
        advance(&nodes, 3 * MINUTE);
        assert!(!lease.is_valid());
        // The nodes forget the lease too, although the client has not released it.
        assert!(done(acquire(&client).unwrap().release()));
    }

    let default = Client::builder().nodes(nodes.urls()).ttl(120 * MINUTE).auto_extend(false);
    let default = default.build().unwrap();
    let lease = acquire(&default).unwrap();
    advance(&nodes, 100 * MINUTE);
    assert!(lease.is_valid());
}

#[test]
fn advancing_ends_waits_and_leases_that_are_not_renewed() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let one = client(&nodes);
    let other = client(&nodes);
    let lease = done(one.lock("r").auto_extend(false).acquire()).unwrap();

    let waiting = other.lock("r").wait(TTL / 2).acquire();
    advance(&nodes, TTL / 2);
    assert_eq!(done(waiting).unwrap_err().code(), ErrorCode::Timeout);

    let waiting = other.lock("r").wait(TTL).acquire();
    advance(&nodes, TTL / 2);
    assert!(!lease.is_valid());
    assert!(done(waiting).unwrap().is_valid());
}

#[test]
fn fast_forward_ends_every_wait() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let one = client(&nodes);
    let other = client(&nodes);
    let lease = acquire(&one).unwrap();
    let flying = nodes.fast_forward().unwrap();

    assert_eq!(acquire(&other).unwrap_err().code(), ErrorCode::Timeout);
    assert!(lease.is_valid(), "it was renewed meanwhile");

    done(nodes.apply(None, Fault::Cut));
    let error = acquire(&other).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum);
    assert_eq!(outcomes(&error), [NodeOutcome::Unreachable; 3]);
    drop(flying);
}

#[test]
fn cut_node_is_unreachable_until_it_is_mended() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    assert!(done(acquire(&client).unwrap().release()));

    done(nodes.apply(Some(0), Fault::Cut));
    assert!(done(acquire(&client).unwrap().release()), "two of three are enough");
    done(nodes.apply(Some(1), Fault::Cut));
    let error = done(client.lock("r").wait(Duration::ZERO).acquire()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum);
    assert_eq!(outcomes(&error)[..2], [NodeOutcome::Unreachable; 2]);
    let diagnosis = done(client.doctor()).unwrap();
    let reachable: Vec<_> = diagnosis.nodes.iter().map(|node| node.reachable).collect();
    assert_eq!(reachable, [false, false, true]);
    assert_eq!(levels(&diagnosis, "connection"), [Level::Error, Level::Error, Level::Ok]);

    // The clients connect again at once, not after their backoff.
    done(nodes.apply(None, Fault::Mend));
    let lease = done(client.lock("r").wait(Duration::ZERO).acquire()).unwrap();
    assert!(done(lease.release()));
}

#[test]
fn frozen_node_answers_once_it_is_thawed() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    assert!(done(acquire(&client).unwrap().release()));

    done(nodes.apply(None, Fault::Freeze));
    let failing = client.lock("r").wait(Duration::from_secs(1)).acquire();
    advance(&nodes, Duration::from_secs(2));
    let error = done(failing).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum);
    assert!(outcomes(&error).contains(&NodeOutcome::Timeout), "{error}");

    let waiting = client.lock("r").acquire();
    done(nodes.apply(None, Fault::Thaw));
    advance(&nodes, Duration::from_secs(10));
    let lease = done(waiting).unwrap();
    // The client has undone the late grants of the nodes.
    assert!(lease.is_valid() && done(lease.release()));
    assert!(!done(client.lock("r").locked()).unwrap());
}

#[test]
fn node_that_forgets_has_restarted() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let builder = Client::builder().nodes(nodes.urls()).ttl(TTL).wait(Duration::ZERO);
    let guarded = builder.clone().restart_guard(TTL).build().unwrap();
    let other = builder.build().unwrap();
    let lease = acquire(&guarded).unwrap();

    // After a majority has restarted, a client without the restart guard gets the lock although it is held.
    done(nodes.apply(Some(0), Fault::Forget));
    done(nodes.apply(Some(1), Fault::Forget));
    let error = acquire(&guarded).unwrap_err();
    assert_eq!(outcomes(&error), [NodeOutcome::Guarded, NodeOutcome::Guarded, NodeOutcome::Held]);
    let diagnosis = done(guarded.doctor()).unwrap();
    assert_eq!(levels(&diagnosis, "restart"), [Level::Warning, Level::Warning, Level::Ok]);
    let majority = diagnosis.findings.iter().find(|finding| finding.check == "majority").unwrap();
    assert_eq!(majority.level, Level::Error);
    let votes: Vec<_> = done(guarded.votes(3)).unwrap().iter().map(|node| node.outcome).collect();
    assert_eq!(votes, [NodeOutcome::Guarded, NodeOutcome::Guarded, NodeOutcome::Granted]);
    assert!(acquire(&other).is_ok() && lease.is_valid());

    done(nodes.verify_leases());
    assert_eq!(lease.check().unwrap_err().code(), ErrorCode::LeaseLost);
    done(nodes.suspend(2 * TTL)).unwrap();
    assert!(acquire(&guarded).is_ok());
}

#[test]
fn deleted_key_loses_the_lease() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let one = client(&nodes);
    let other = client(&nodes);
    let lease = acquire(&one).unwrap();
    let lost = lease.lost();
    nodes.delete_keys(["r"]);
    assert!(lease.is_valid());
    let thief = acquire(&other).unwrap();
    done(nodes.verify_leases());
    assert!(!lease.is_valid() && thief.is_valid());
    assert_eq!(done(lost).unwrap().code(), ErrorCode::LeaseLost);
}

#[test]
fn clock_of_clients_of_real_nodes_cannot_be_moved() {
    let _turn = turn();
    let nodes = TestNodes::new(1).unwrap();
    let real =
        Client::builder().nodes(["redis://127.0.0.1:1"]).wait(Duration::ZERO).build().unwrap();
    // The client of a real node has not used its node yet, so the clock can still be moved.
    advance(&nodes, Duration::from_secs(1));
    assert_eq!(acquire(&real).unwrap_err().code(), ErrorCode::NoQuorum);
    let own = client(&nodes);
    let lease = acquire(&own).unwrap();
    let before = lease.remaining();
    for refused in
        [done(nodes.advance(TTL)), done(nodes.suspend(TTL)), nodes.fast_forward().map(drop)]
    {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config);
        assert!(error.to_string().contains("redis://127.0.0.1:1"), "{error}");
    }
    assert!(lease.remaining() > before - TTL / 2);
    done(real.close());
    done(nodes.suspend(TTL)).unwrap();
    assert!(!lease.is_valid());
}

#[test]
fn the_clock_cannot_be_moved_by_centuries() {
    let _turn = turn();
    let nodes = TestNodes::new(1).unwrap();
    for refused in [done(nodes.advance(Duration::MAX)), done(nodes.suspend(Duration::MAX))] {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config);
        assert!(error.to_string().contains("100 years"), "{error}");
    }
}

#[test]
fn readers_are_no_leaders() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let reader = done(client.lock("r").shared().acquire()).unwrap();
    let watch = client.watch("r");
    let mut next = watch.after(0);
    // The observer looks at the nodes every few seconds.
    advance(&nodes, MINUTE);
    assert!(next.block_for(Duration::ZERO).is_none());
    assert!(done(reader.release()));
    let leader = acquire(&client).unwrap();
    advance(&nodes, MINUTE);
    assert_eq!(done(next).unwrap().fence, leader.fence());
}

#[test]
fn doctor_waits_for_a_frozen_node() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    done(nodes.apply(Some(2), Fault::Freeze));
    let _flying = nodes.fast_forward().unwrap();
    let diagnosis = done(client.doctor()).unwrap();
    assert!(diagnosis.nodes[0].reachable && !diagnosis.nodes[2].reachable);
    assert!(diagnosis.findings.iter().any(|finding| finding.level >= Level::Warning));
}

#[test]
fn names_are_fresh_and_dropped() {
    let _turn = turn();
    let one = TestNodes::new(2).unwrap();
    let other = TestNodes::new(2).unwrap();
    assert!(one.urls().iter().all(|url| !other.urls().contains(url)));
    assert_eq!(TestNodes::new(0).unwrap_err().code(), ErrorCode::Config);
    assert_eq!(TestNodes::new(33).unwrap_err().code(), ErrorCode::Config);
}
