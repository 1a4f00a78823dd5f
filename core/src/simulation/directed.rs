//! Stories that are too rare for seeds to find.

use super::network::Link;
use super::node::Node;
use super::process::{Process, within};
use super::world::{World, in_virtual_time};
use crate::{Client, ErrorCode, Lease};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// One round of an acquire, released at once.
async fn round(process: &Arc<Process>, client: &Client) -> crate::Result<()> {
    let lock = within(process, || client.lock("r").wait(Duration::ZERO));
    let round = async move {
        let lease: Lease = lock.acquire().await?;
        assert!(lease.release().await);
        Ok(())
    };
    process.spawn(round).await.expect("it does not panic")
}

/// Restarts the node, empty, and returns for how long the client is not granted anything.
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
fn a_node_does_not_count_for_a_round_that_began_before_it_did() {
    in_virtual_time(async {
        let random = fastrand::Rng::with_seed(1);
        let world = World::new(vec![Node::new(0, 1.0, 0)], random, false);
        let link = Link::new();
        link.set_delay(0..1);
        let links = vec![Arc::clone(&link)];
        let process = Process::new(&world, "process".to_owned(), 1.0, 0, links);
        let client = within(&process, || {
            let builder = Client::builder().nodes(["memory://0"]).ttl(TTL).restart_guard(TTL);
            builder.node_timeout(TTL / 2).build().expect("the options are valid")
        });
        round(&process, &client).await.expect("it is free");
        let guarded = guarded_for(&world, &process, &client).await;
        assert!(guarded > TTL, "{guarded:?}");

        // The same again, but for a round that begins just before, and is answered well after.
        let began = world.elapsed();
        world.nodes[0].kill();
        world.nodes[0].start(true);
        round(&process, &client).await.expect_err("the connection is broken");
        sleep(guarded - 50 * MILLISECOND - (world.elapsed() - began)).await;
        link.set_delay(100..101);
        let error = round(&process, &client).await.expect_err("its vote does not count");
        assert_eq!(error.code(), ErrorCode::NoQuorum);
        assert_eq!(error.nodes()[0].outcome.as_str(), "guarded");
        round(&process, &client).await.expect("now it counts");
    });
}

/// What hangs in a seed's world is mended some time, and answers then: that hides who waits for it.
#[test]
fn nodes_that_never_answer_hold_nobody_up() {
    let (node_timeout, connect_timeout) = (100 * MILLISECOND, 500 * MILLISECOND);
    let limit = 4 * (node_timeout + connect_timeout);
    in_virtual_time(async {
        let nodes = (0..3).map(|number| Node::new(number, 1.0, 0)).collect();
        let world = World::new(nodes, fastrand::Rng::with_seed(1), false);
        let links = (0..3).map(|_| Link::new()).collect();
        let process = Process::new(&world, "process".to_owned(), 1.0, 0, links);
        let client = within(&process, || {
            let nodes = (0..3).map(|number| format!("memory://{number}"));
            let builder = Client::builder().nodes(nodes).ttl(1_000 * TTL);
            let builder = builder.node_timeout(node_timeout).connect_timeout(connect_timeout);
            builder.build().expect("the options are valid")
        });
        round(&process, &client).await.expect("it is free");
        world.nodes[0].freeze();
        timeout(limit, round(&process, &client)).await.expect("in time").expect("it is free");
        world.nodes[1].freeze();
        let lost = timeout(limit, round(&process, &client)).await.expect("in time");
        assert_eq!(lost.expect_err("a majority is frozen").code(), ErrorCode::NoQuorum);
    });
}
