//! Tests what happens if a HEAL is under way when the lease is released.

use crate::lock::claim::heal::send_heal;
use crate::lock::claim::held::HeldLease;

use crate::{Client, Fault, TestNodes, runtime};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_key_repaired_after_the_release_is_released_again() {
    // Another test advances the clock of this process, but by less than this ttl, so the key does
    // not expire.
    let builder = Client::builder().nodes(["memory://healed-late"]).ttl(60 * PATIENCE);
    let client = builder.build().expect("valid");
    let lock = client.lock("r");
    let lease = lock.acquire().block_for(PATIENCE).expect("in time").expect("free");
    let held = Arc::clone(lease.held().expect("the lease belongs to this process"));
    assert!(lease.release().block_for(PATIENCE).expect("in time"));

    heal(&held, 0);
    wait_until("the key is deleted", || {
        !lock.locked().block_for(PATIENCE).expect("in time").expect("a node")
    });
}

#[test]
fn a_release_is_not_repeated_where_a_heal_could_not_be_sent() {
    let nodes = TestNodes::new(3).expect("valid");
    nodes.apply(Some(2), Fault::Cut).block_for(PATIENCE).expect("in time");
    let client = Client::builder().nodes(nodes.urls()).ttl(60 * PATIENCE).build().expect("valid");
    let lease = client.lock("r").acquire().block_for(PATIENCE).expect("in time").expect("free");
    let held = Arc::clone(lease.held().expect("the lease belongs to this process"));
    heal(&held, 2);

    assert!(lease.release().block_for(PATIENCE).expect("in time"));
    wait_until("no task of the client is left", || held.driver.tasks.is_empty());
}

/// Sends HEAL to one node, and waits for the answer or the failure.
fn heal(held: &Arc<HeldLease>, node: usize) {
    let ttl = held.begin_repair([node].into_iter().collect()).unwrap_or(held.grant.term.ttl);
    let healing = send_heal(Arc::clone(&held.driver), node, vec![(Arc::clone(held), ttl)]);
    let (done, is_done) = std::sync::mpsc::channel();
    let healing = async move {
        healing.await;
        let _ = done.send(());
    };
    runtime::spawn(healing).expect("a runtime");
    is_done.recv_timeout(PATIENCE).expect("in time");
}

fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_met() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
