//! Leases that not all nodes hold: the missing nodes are repaired, and a holder learns if another client
//! won in between.

use crate::servers::Servers;
use crate::{wait, wait_until};
use quorlock::{Client, ErrorCode};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(3_000);

/// The number of nodes that hold this token.
fn holders(servers: &Servers, token: &str) -> usize {
    let holds = |node: &usize| servers.command(*node, &["GET", "r"]).as_str() == Some(token);
    (0..5).filter(holds).count()
}

/// Sets the key of a contender on these nodes.
fn contend(servers: &Servers, nodes: [usize; 2], milliseconds: &str) {
    for node in nodes {
        servers.command(node, &["SET", "r", "a contender", "PX", milliseconds]);
    }
}

#[test]
fn a_lease_is_repaired_until_all_nodes_hold_it() {
    let servers = Servers::start(5);
    let client =
        Client::builder().nodes(&servers.urls).ttl(TTL).auto_extend(false).build().unwrap();
    // The contender's keys last longer than the pause before the first repair.
    contend(&servers, [3, 4], "400");
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_until("all nodes hold the lease", || holders(&servers, lease.token()) == 5);
    assert!(wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}

/// A bare majority holds the lease. One of its nodes forgets it, and another client wins with that node and
/// the other two, and releases. The repair then makes all nodes hold the first lease again.
#[test]
fn a_holder_learns_that_another_client_won() {
    let servers = Servers::start(5);
    // The first repair must happen after the other client has released.
    let pause = Duration::from_secs(3);
    let builder = || Client::builder().nodes(&servers.urls).ttl(TTL);
    let client = builder().retry_delay(pause, pause).build().unwrap();
    contend(&servers, [3, 4], "100000");
    let lease = wait(client.lock("r").acquire()).unwrap();
    assert_eq!(holders(&servers, lease.token()), 3);

    servers.command(2, &["FLUSHALL"]);
    for node in [3, 4] {
        servers.command(node, &["DEL", "r"]);
    }
    let other = builder().build().unwrap();
    let overtaking = wait(other.lock("r").wait(Duration::ZERO).acquire()).unwrap();
    assert!(overtaking.fence() > lease.fence());
    assert!(wait(overtaking.release()));

    wait_until("the holder learns of the loss", || !lease.is_valid());
    let error = lease.check().unwrap_err();
    assert_eq!(error.code(), ErrorCode::LeaseLost);
    assert!(error.to_string().contains("a majority of the nodes"), "{error}");
    assert!(!wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}

/// A node forgets the lease, which is released before any repair.
#[test]
fn a_release_does_not_confirm_a_lease_that_was_overtaken() {
    let servers = Servers::start(5);
    let client = Client::builder().nodes(&servers.urls).ttl(TTL).build().unwrap();
    contend(&servers, [3, 4], "100000");
    let lease = wait(client.lock("r").acquire()).unwrap();
    servers.command(2, &["FLUSHALL"]);
    assert!(!wait(lease.release()));
}

/// A contender that lost has left larger fences on two nodes. The lease is not lost.
#[test]
fn a_contender_that_lost_does_not_end_the_lease() {
    let servers = Servers::start(5);
    let client = Client::builder().nodes(&servers.urls).ttl(TTL).build().unwrap();
    contend(&servers, [3, 4], "100000");
    let lease = wait(client.lock("r").acquire()).unwrap();
    for node in [3, 4] {
        let fence = (lease.fence() + 1_000_000).to_string();
        servers.command(node, &["SET", "{r}:fence", &fence, "PX", "100000"]);
        servers.command(node, &["DEL", "r"]);
    }
    wait_until("all nodes hold the lease", || holders(&servers, lease.token()) == 5);
    wait(lease.extend(None)).unwrap();
    // Nodes 3 and 4 count again, so two other nodes may forget the lease.
    for node in [0, 1] {
        servers.command(node, &["FLUSHALL"]);
    }
    wait(lease.extend(None)).unwrap();
    wait_until("all nodes hold the lease again", || holders(&servers, lease.token()) == 5);
    assert!(wait(lease.release()));
}
