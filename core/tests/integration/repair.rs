//! Leases whose key is missing on some nodes: the client repairs these nodes. If another client has held the lock in
//! the meantime, the client learns of this.

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

/// Sets the key to a contender's token on these nodes.
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

/// Three of five nodes hold the lease. One of them loses the key, so another client can acquire the lock on this node
/// and the other two. The other client releases the lock before the first client repairs these nodes. The first client
/// must still learn that its lease was lost.
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

/// A node loses the key, so only two of five nodes hold the lease when it is released. Another client could
/// have held the lock, so the release must return `false`.
#[test]
fn a_release_does_not_confirm_a_lease_that_was_overtaken() {
    let servers = Servers::start(5);
    let client = Client::builder().nodes(&servers.urls).ttl(TTL).build().unwrap();
    contend(&servers, [3, 4], "100000");
    let lease = wait(client.lock("r").acquire()).unwrap();
    servers.command(2, &["FLUSHALL"]);
    assert!(!wait(lease.release()));
}

/// A contender that did not win the lock has left larger fences on two nodes. This must not end the lease.
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
    // Nodes 3 and 4 count towards the majority again, so two other nodes may lose the key.
    for node in [0, 1] {
        servers.command(node, &["FLUSHALL"]);
    }
    wait(lease.extend(None)).unwrap();
    wait_until("all nodes hold the lease again", || holders(&servers, lease.token()) == 5);
    assert!(wait(lease.release()));
}
