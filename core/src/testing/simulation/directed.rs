//! Hand-written scenarios that are too rare for random seeds to find.

use super::link::Link;
use super::network;
use super::node::Node;
use super::process::{Preemption, Process, within};
use super::world::{World, in_virtual_time};
use crate::{Client, ClientBuilder, ErrorCode, Lease, Pending};
use quorlock_protocol::Term;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A process with a client that uses three nodes. Messages arrive without delay.
struct Trio {
    world: Arc<World>,
    process: Arc<Process>,
    client: Client,
}

impl Trio {
    fn new(options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let nodes = (0..3).map(|number| Node::new(number, 1.0, 0)).collect();
        let world = World::new(nodes, fastrand::Rng::with_seed(1), None, false);
        let link = |_| {
            let link = Link::new();
            link.set_delay(0..1);
            link
        };
        let links = (0..3).map(link).collect();
        let process = network::start(&world, "process".to_owned(), 1.0, 0, links);
        let client = within(&process, || {
            let nodes = (0..3).map(|number| format!("memory://{number}"));
            options(Client::builder().nodes(nodes)).build().expect("valid options")
        });
        Self { world, process, client }
    }

    /// Runs an operation in the process.
    async fn run<T>(&self, begin: impl FnOnce(&Client) -> Pending<T>) -> T {
        within(&self.process, || begin(&self.client)).await
    }

    /// Acquires a lock without automatic renewal.
    async fn acquire(&self, resource: &str) -> Lease {
        let acquiring = self.run(|client| client.lock(resource).auto_extend(false).acquire());
        acquiring.await.expect("it is free")
    }

    fn remaining(&self, lease: &Lease) -> Duration {
        within(&self.process, || lease.remaining())
    }

    fn has_key(&self, node: usize) -> bool {
        !self.world.nodes[node].tokens().is_empty()
    }
}

/// Returns the validity of a lease, counted from the moment before its first request is sent.
fn validity(ttl: Duration) -> Duration {
    ttl - Term { ttl, drift_factor: 0.01 }.drift()
}

/// Performs one round of an acquire and releases the lease immediately.
async fn round(process: &Arc<Process>, client: &Client) -> crate::Result<()> {
    let lock = within(process, || client.lock("r").wait(Duration::ZERO));
    let round = async move {
        let lease: Lease = lock.acquire().await?;
        assert!(lease.release().await);
        Ok(())
    };
    process.spawn(round).await.expect("no panic")
}

/// Restarts the only node without its data, and returns the time for which the client gets no lock.
async fn guarded_for(world: &World, process: &Arc<Process>, client: &Client) -> Duration {
    let began = world.elapsed();
    world.nodes[0].kill();
    world.nodes[0].start(true);
    while let Err(error) = round(process, client).await {
        assert_eq!(error.code(), ErrorCode::NoQuorum);
        sleep(MILLISECOND).await;
    }
    world.elapsed() - began
}

#[test]
fn a_node_does_not_count_in_a_round_begun_before_it_counts() {
    in_virtual_time(async {
        let random = fastrand::Rng::with_seed(1);
        let world = World::new(vec![Node::new(0, 1.0, 0)], random, None, false);
        let link = Link::new();
        link.set_delay(0..1);
        let links = vec![Arc::clone(&link)];
        let process = network::start(&world, "process".to_owned(), 1.0, 0, links);
        let client = within(&process, || {
            let builder = Client::builder().nodes(["memory://0"]).ttl(TTL).restart_guard(TTL);
            builder.node_timeout(TTL / 2).build().expect("valid options")
        });
        round(&process, &client).await.expect("it is free");
        let guarded = guarded_for(&world, &process, &client).await;
        assert!(guarded > TTL, "{guarded:?}");

        // Restart the node again. This time, a round begins just before the votes of the node start to count, and the
        // node answers well after that moment.
        let began = world.elapsed();
        world.nodes[0].kill();
        world.nodes[0].start(true);
        round(&process, &client).await.expect_err("the connection is broken");
        sleep(guarded - 50 * MILLISECOND - (world.elapsed() - began)).await;
        link.set_delay(100..101);
        let error = round(&process, &client).await.expect_err("its vote does not count");
        assert_eq!(error.code(), ErrorCode::NoQuorum);
        assert_eq!(error.nodes()[0].outcome.as_str(), "guarded");
        round(&process, &client).await.expect("the node counts now");
    });
}

/// Random seeds cannot test this, because their frozen nodes always resume. A caller that waits for a frozen node would
/// go unnoticed.
#[test]
fn nodes_that_never_answer_do_not_delay_callers() {
    let node_timeout = 100 * MILLISECOND;
    let connect_timeout = 500 * MILLISECOND;
    let limit = 4 * (node_timeout + connect_timeout);
    in_virtual_time(async {
        let nodes = (0..3).map(|number| Node::new(number, 1.0, 0)).collect();
        let world = World::new(nodes, fastrand::Rng::with_seed(1), None, false);
        let links = (0..3).map(|_| Link::new()).collect();
        let process = network::start(&world, "process".to_owned(), 1.0, 0, links);
        let client = within(&process, || {
            let nodes = (0..3).map(|number| format!("memory://{number}"));
            let builder = Client::builder().nodes(nodes).ttl(1_000 * TTL);
            let builder = builder.node_timeout(node_timeout).connect_timeout(connect_timeout);
            builder.build().expect("valid options")
        });
        round(&process, &client).await.expect("it is free");
        world.nodes[0].freeze();
        timeout(limit, round(&process, &client)).await.expect("in time").expect("it is free");
        world.nodes[1].freeze();
        let lost = timeout(limit, round(&process, &client)).await.expect("in time");
        assert_eq!(lost.expect_err("a majority is frozen").code(), ErrorCode::NoQuorum);
    });
}

/// The answer of a slow node must count, because the node has applied the release. A frozen node must not
/// delay the caller.
#[test]
fn a_release_waits_for_slow_nodes_but_not_for_frozen_ones() {
    let ttl = 6 * TTL;
    in_virtual_time(async {
        let nodes = (0..3).map(|number| Node::new(number, 1.0, 0)).collect();
        let world = World::new(nodes, fastrand::Rng::with_seed(1), None, false);
        let links: Vec<_> = (0..3).map(|_| Link::new()).collect();
        let process = network::start(&world, "process".to_owned(), 1.0, 0, links.clone());
        let client = within(&process, || {
            let nodes = (0..3).map(|number| format!("memory://{number}"));
            let builder = Client::builder().nodes(nodes).ttl(ttl).auto_extend(false);
            builder.node_timeout(100 * MILLISECOND).build().expect("valid options")
        });
        let acquire = || {
            let acquiring = within(&process, || client.lock("r").acquire());
            async { process.spawn(acquiring).await.expect("no panic").expect("it is free") }
        };
        let release = async |lease: Lease| {
            let began = world.elapsed();
            let releasing = within(&process, || lease.release());
            (releasing.await, world.elapsed() - began)
        };

        let lease = acquire().await;
        links.iter().for_each(|link| link.set_delay(800..801));
        let (released, took) = release(lease).await;
        assert!(released && took >= 1_600 * MILLISECOND, "{released} after {took:?}");

        links.iter().for_each(|link| link.set_delay(0..2));
        let lease = acquire().await;
        world.nodes[0].freeze();
        let (released, took) = release(lease).await;
        assert!(released && took < 10 * MILLISECOND, "{released} after {took:?}");

        world.nodes[0].thaw();
        sleep(TTL).await;
        let lease = acquire().await;
        world.nodes[0].freeze();
        world.nodes[1].freeze();
        let (released, took) = release(lease).await;
        assert!(!released && took >= ttl / 3 && took < ttl / 3 + 10 * MILLISECOND, "{took:?}");
    });
}

/// The operating system preempts the process each time the process has sent a request.
#[test]
fn validity_counts_from_before_the_first_request_is_sent() {
    const PREEMPTED: Duration = SECOND;
    in_virtual_time(async {
        let ttl = 20 * SECOND;
        let trio = Trio::new(|builder| builder.ttl(ttl).node_timeout(5 * SECOND));
        let warm = trio.acquire("warm").await;
        within(&trio.process, || drop(warm));
        let after_sending = PREEMPTED;
        trio.process.set_preemption(Preemption { after_sending, ..Preemption::default() });
        let lease = trio.acquire("r").await;
        let remaining = trio.remaining(&lease);
        // A node may have granted the lock before the process resumed.
        assert!(remaining <= ttl - 3 * PREEMPTED, "acquired: {remaining:?}");

        trio.run(|_| lease.extend(None)).await.expect("it is held");
        let remaining = trio.remaining(&lease);
        assert!(remaining <= ttl - 3 * PREEMPTED, "extended: {remaining:?}");
        assert!(remaining > validity(ttl) - 4 * PREEMPTED, "extended: {remaining:?}");
    });
}

/// An extension keeps the key for much longer than the ttl of the acquire. The client must retry the release for as
/// long as the key is kept.
#[test]
fn a_release_is_delivered_for_as_long_as_an_extension_keeps_the_key() {
    in_virtual_time(async {
        let trio = Trio::new(|builder| builder.ttl(SECOND));
        let lease = trio.acquire("r").await;
        trio.run(|_| lease.extend(Some(1_000 * SECOND))).await.expect("it is held");
        sleep(SECOND).await;
        trio.world.nodes[2].kill();
        assert!(trio.run(|_| lease.release()).await, "two nodes must confirm the release");
        sleep(100 * SECOND).await;
        trio.world.nodes[2].start(false);
        assert!(trio.has_key(2), "the restarted node must remember the key");
        sleep(5 * SECOND).await;
        assert!(!trio.has_key(2), "the release was not delivered to the restarted node");
    });
}

#[test]
fn a_loss_during_a_suspension_is_reported_soon_after_it() {
    in_virtual_time(async {
        let ttl = 1_000 * SECOND;
        let trio = Trio::new(|builder| builder.ttl(ttl));
        let lease = trio.acquire("r").await;
        let lost = within(&trio.process, || lease.lost());
        let lost = trio.process.spawn(lost);
        sleep(SECOND).await;
        trio.process.stop();
        sleep(2 * ttl).await;
        trio.process.go_on(2 * ttl);
        let resumed = trio.world.elapsed();
        let loss = lost.await.expect("no panic").expect("it is lost");
        assert_eq!(loss.code(), ErrorCode::LeaseLost);
        let took = trio.world.elapsed() - resumed;
        assert!(took < 2 * SECOND, "reported after {took:?}");
    });
}

/// A node restarts without its data, and the lease is repaired on this node. Before the restart, the node may have
/// granted the lock to another client. The node has forgotten this grant, so its confirmation of the lease must not
/// count.
#[test]
fn a_node_does_not_confirm_an_extension_begun_before_it_counts() {
    const READING: Duration = Duration::from_millis(20);
    const TTL: Duration = Duration::from_secs(20);
    let new = || {
        let options = |builder: ClientBuilder| builder.ttl(TTL).restart_guard(TTL);
        Trio::new(|builder| options(builder).connect_timeout(2 * SECOND))
    };
    let restart = |trio: &Trio| {
        trio.world.nodes[0].kill();
        trio.world.nodes[0].start(true);
        trio.world.elapsed()
    };
    // The time for which a node does not count after a restart. The first world measures this time, which is the same
    // in all worlds of this test.
    let guarded = Cell::new(Duration::ZERO);
    in_virtual_time(async {
        let trio = new();
        round(&trio.process, &trio.client).await.expect("it is free");
        trio.world.nodes[1].kill();
        let restarted = restart(&trio);
        round(&trio.process, &trio.client).await.expect_err("one node is no majority");
        sleep(TTL).await;
        while let Err(error) = round(&trio.process, &trio.client).await {
            assert_eq!(error.code(), ErrorCode::NoQuorum);
            sleep(MILLISECOND).await;
        }
        guarded.set(trio.world.elapsed() - restarted);
    });

    // The steps are shorter than a preemption, so one of these extensions begins just before the node starts to count.
    for early in (0..30).map(|step| step * READING / 2) {
        in_virtual_time(async {
            let trio = new();
            let lease = trio.acquire("r").await;
            let counts = restart(&trio) + guarded.get();
            round(&trio.process, &trio.client).await.expect_err("it is held");
            sleep(TTL / 2).await;
            trio.run(|_| lease.extend(None)).await.expect("a majority holds the key");
            sleep(SECOND).await;
            assert!(trio.has_key(0), "node 0 must be repaired");
            trio.world.nodes[1].kill();
            sleep(counts - early - trio.world.elapsed()).await;
            let after_reading = READING;
            trio.process.set_preemption(Preemption { after_reading, ..Preemption::default() });
            trio.run(|_| lease.extend(None)).await.expect("the node counts in time");
            trio.process.set_preemption(Preemption::default());
            sleep(trio.process.ahead()).await;
            // The moment at which the confirmed extension began, computed from the validity end.
            let asked = trio.world.elapsed() + trio.remaining(&lease) - validity(TTL);
            assert!(asked + 5 * MILLISECOND >= counts, "{:?} too early", counts - asked);
        });
    }
}

/// If all renewals were sent together, they would delay every acquire of every client.
#[test]
fn renewals_of_many_leases_do_not_reach_a_node_all_at_once() {
    const LEASES: usize = 1_500;
    in_virtual_time(async {
        let ttl = 10 * SECOND;
        let trio = Trio::new(|builder| builder.ttl(ttl));
        let mut leases = Vec::new();
        for number in 0..LEASES {
            let lock = trio.run(|client| client.lock(format!("r{number}")).acquire());
            leases.push(lock.await.expect("it is free"));
        }
        let node = &trio.world.nodes[0];
        let began = trio.world.elapsed();
        let before = node.requests();
        let mut last = before;
        let mut most = 0;
        while trio.world.elapsed() < began + 2 * ttl {
            sleep(MILLISECOND).await;
            most = most.max(node.requests() - last);
            last = node.requests();
        }
        let held = |lease: &Lease| within(&trio.process, || lease.is_valid());
        assert!(leases.iter().all(held));
        // Each lease is renewed about six times in 2 ttl. A request renews up to 64 leases.
        assert!(last - before >= 100, "{} renewals", last - before);
        assert!(most <= 2, "{most} requests within a millisecond");
    });
}
