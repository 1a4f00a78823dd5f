//! Tests of an upgrade that stops in the middle, and of other events that happen to the lease during an upgrade.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::client::test_nodes::TestNodes;
use crate::config::mode::{Mode, Modes};
use crate::lock::claim::upgrade::{Upgrading, upgrade};
use crate::lock::lease::Lease;
use crate::memory::node::Fault;
use crate::runtime;
use crate::runtime::clock;
use crate::{Client, ErrorCode};
use quorlock_protocol::NodeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

/// Other tests advance the clock of this process, but by less than this ttl.
const TTL: Duration = Duration::from_secs(60 * 60);

fn reader(nodes: &TestNodes) -> (Client, Lease) {
    let builder = Client::builder().nodes(nodes.urls()).ttl(TTL).node_timeout(PATIENCE);
    let client = builder.build().unwrap();
    let mut lease = client.lock("r").shared().unlimited_hold().acquire();
    let lease = lease.block_for(PATIENCE).unwrap().unwrap();
    (client, lease)
}

#[test]
fn upgrade_that_panics_ends_and_leaves_the_lease() {
    let nodes = TestNodes::new(3).unwrap();
    let (client, lease) = reader(&nodes);
    let before = lease.remaining();
    // The TRANSFER is still waiting on all nodes when the code that sent it panics.
    nodes.apply(None, Fault::Freeze).block_for(PATIENCE).unwrap();
    let upgrading = Upgrading::begin(&lease).unwrap();
    let crashed = catch_unwind(AssertUnwindSafe(|| {
        let (sender, _receiver) = oneshot::channel();
        let _ = runtime::drive(async {
            let upgrading = pin!(upgrade(upgrading, sender));
            assert!(futures_util::poll!(upgrading).is_pending());
            panic!("a bug");
        });
    }));
    assert!(crashed.is_err());
    let held = lease.held().unwrap();
    assert!(held.state().claim.lease().is_upgrading(), "its keys are not given back yet");
    assert!(lease.is_valid() && lease.remaining() <= before);
    nodes.apply(None, Fault::Thaw).block_for(PATIENCE).unwrap();
    lease.extend(Some(2 * TTL)).block_for(PATIENCE).unwrap().unwrap();
    assert!(lease.remaining() > TTL);
    assert!(lease.release().block_for(PATIENCE).unwrap());
    let writer = client.lock("r").wait(PATIENCE).acquire().block_for(PATIENCE).unwrap().unwrap();
    assert!(writer.release().block_for(PATIENCE).unwrap());
}

#[test]
fn release_waits_for_the_end_of_an_upgrade_and_no_longer() {
    let nodes = TestNodes::new(3).unwrap();
    let (_client, lease) = reader(&nodes);
    let upgrading = Upgrading::begin(&lease).unwrap();
    let mut released = lease.release();
    assert!(!lease.is_valid(), "the lease ends at once");
    assert!(released.block_for(Duration::from_millis(20)).is_none());
    drop(upgrading);
    assert!(released.block_for(PATIENCE).unwrap());
}

#[test]
fn nothing_else_is_sent_for_a_lease_that_is_being_upgraded() {
    let nodes = TestNodes::new(3).unwrap();
    let (_client, lease) = reader(&nodes);
    let held = lease.held().unwrap();
    let before = lease.remaining();
    let upgrading = Upgrading::begin(&lease).unwrap();
    let now = clock::now();
    let term = held.grant.term;
    assert!(held.state().claim.extend(now, term, SHORT).is_none());
    assert!(held.begin_renewal(now).is_none());
    assert!(held.state().claim.verify(now, SHORT).is_none());
    assert!(held.begin_repair(NodeSet::from_iter([0])).is_none());
    let mut extending = lease.extend(Some(2 * TTL));
    let second = lease.try_upgrade().block_for(PATIENCE).unwrap().unwrap_err();
    let downgraded = lease.downgrade().block_for(PATIENCE).unwrap().unwrap_err();
    let detached = lease.detach(TTL).block_for(PATIENCE).unwrap().unwrap_err();
    for error in [second, downgraded, detached] {
        assert_eq!(error.code(), ErrorCode::Config);
        assert!(error.message().contains("it is being upgraded"), "{error}");
    }
    lease.check().unwrap();
    assert!(extending.block_for(Duration::from_millis(20)).is_none(), "it waits");
    assert!(lease.remaining() <= before);
    drop(upgrading);
    extending.block_for(PATIENCE).unwrap().unwrap();
    assert!(lease.remaining() > TTL);
    assert_eq!(lease.mode(), Some(Mode::Shared));
    let writer = lease.try_upgrade().block_for(PATIENCE).unwrap().unwrap().unwrap();
    assert!(writer.release().block_for(PATIENCE).unwrap());
}

/// The first node grants the upgrade, another client holds the resource in shared mode on the second node, and the
/// third node answers late.
#[test]
fn late_answer_to_a_failed_upgrade_deletes_no_detached_lease() {
    let nodes = TestNodes::new(3).unwrap();
    let urls = nodes.urls();
    let only = |node: usize| Client::builder().nodes([&urls[node]]).ttl(TTL).build().unwrap();
    let second = only(1);
    let other = second.lock("r").shared().unlimited_hold().acquire();
    let _other = { other }.block_for(PATIENCE).unwrap().unwrap();
    let client =
        Client::builder().nodes(urls.clone()).ttl(TTL).node_timeout(SHORT).build().unwrap();
    let mut lease = client.lock("r").shared().unlimited_hold().acquire();
    let lease = lease.block_for(PATIENCE).unwrap().unwrap();
    nodes.apply(Some(2), Fault::Freeze).block_for(PATIENCE).unwrap();
    let upgraded = lease.try_upgrade().block_for(PATIENCE).unwrap();
    assert!(!matches!(upgraded, Ok(Some(_))));
    let text = lease.detach(TTL).block_for(PATIENCE).unwrap().unwrap().into_text();
    drop(lease);
    nodes.apply(Some(2), Fault::Thaw).block_for(PATIENCE).unwrap();
    // The third node has the keys of the upgrade until the client has handled the late answer.
    let third = only(2);
    let reader = third.lock("r").shared().wait(PATIENCE).acquire();
    let _reader = { reader }.block_for(PATIENCE).unwrap().unwrap();
    let adopted = client.adopt(&text).acquire().block_for(PATIENCE).unwrap().unwrap();
    assert!(adopted.release().block_for(PATIENCE).unwrap());
}

/// Returns nodes, and a lease that was won on two of them after waiting. The first node refused, and then became free.
fn waited(mode: Mode) -> (TestNodes, Client, Lease) {
    let nodes = TestNodes::new(3).unwrap();
    let urls = nodes.urls();
    let [first, second] = [0, 1].map(|node| {
        let only = Client::builder().nodes([&urls[node]]).ttl(TTL).build().unwrap();
        let lease = only.lock("r").unlimited_hold().acquire().block_for(PATIENCE).unwrap().unwrap();
        (only, lease)
    });
    let client = Client::builder().nodes(urls).ttl(TTL).node_timeout(PATIENCE).build().unwrap();
    let mut waiting =
        client.lock("r").modes(Modes::All(mode)).unlimited_hold().wait(PATIENCE).acquire();
    while waiters(&second.0) == 0 || waiters(&first.0) == 0 {
        assert!(waiting.block_for(Duration::from_millis(1)).is_none());
    }
    assert!(second.1.release().block_for(PATIENCE).unwrap());
    let lease = waiting.block_for(PATIENCE).unwrap().unwrap();
    assert!(first.1.release().block_for(PATIENCE).unwrap());
    assert_eq!(waiters(&first.0), 1, "the winner is still in the queue");
    (nodes, client, lease)
}

fn waiters(client: &Client) -> u64 {
    client.status("r").block_for(PATIENCE).unwrap().unwrap().waiters
}

#[test]
fn upgraded_lease_leaves_the_queues_that_its_reader_joined() {
    let (_nodes, client, reader) = waited(Mode::Shared);
    let lease = reader.try_upgrade().block_for(PATIENCE).unwrap().unwrap().unwrap();
    assert!(lease.release().block_for(PATIENCE).unwrap());
    assert_eq!(waiters(&client), 0);
}

#[test]
fn downgrade_leaves_the_queues_that_its_writer_joined() {
    let (_nodes, client, lease) = waited(Mode::Exclusive);
    lease.downgrade().block_for(PATIENCE).unwrap().unwrap();
    assert_eq!(waiters(&client), 0);
}

#[test]
fn release_after_a_downgrade_that_did_not_arrive_leaves_the_queues() {
    let (nodes, client, lease) = waited(Mode::Exclusive);
    nodes.apply(Some(0), Fault::Cut).block_for(PATIENCE).unwrap();
    lease.downgrade().block_for(PATIENCE).unwrap().unwrap();
    nodes.apply(Some(0), Fault::Mend).block_for(PATIENCE).unwrap();
    assert!(lease.release().block_for(PATIENCE).unwrap());
    while waiters(&client) > 0 {
        std::thread::yield_now();
    }
}
