//! Leases that are detached and adopted while nodes fail and time passes.

use crate::{MINUTE, TTL, acquire, advance, client, done, outcomes, turn};
use quorlock::{Client, ErrorCode, Fault, Lease, NodeOutcome, TestNodes};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

fn detach(lease: &Lease, within: Duration) -> String {
    done(lease.detach(within)).unwrap().into_text()
}

#[test]
fn lease_can_be_adopted_until_its_time_is_over() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let lock = client.lock("r").ttl(MINUTE).auto_extend(false);
    let lease = done(lock.acquire()).unwrap();
    let text = detach(&lease, 10 * MINUTE);
    advance(&nodes, 9 * MINUTE);
    let adopted = done(client.adopt(&text).ttl(MINUTE).auto_extend(false).acquire()).unwrap();
    assert!(adopted.is_valid() && adopted.fence() > lease.fence());

    // Nobody adopts the detached lease in time. The clock of the adopter does not matter, because the nodes decide.
    let text = detach(&adopted, 2 * MINUTE);
    advance(&nodes, 3 * MINUTE);
    let error = done(client.adopt(&text).acquire()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LeaseLost, "{error}");
    assert_eq!(outcomes(&error), [NodeOutcome::Missing; 3]);
    let next = acquire(&client).unwrap();
    assert!(next.fence() > adopted.fence());
    assert_eq!(done(client.adopt(&text).acquire()).unwrap_err().code(), ErrorCode::LeaseLost);
    assert!(next.is_valid());
}

#[test]
fn detached_lease_is_not_renewed_and_not_beyond_max_hold() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let lease = acquire(&client).unwrap();
    let text = detach(&lease, MINUTE);
    advance(&nodes, 2 * TTL);
    assert!(done(client.adopt(&text).acquire()).is_err(), "it has expired");

    let lease = done(client.lock("r").ttl(MINUTE).max_hold(2 * MINUTE).acquire()).unwrap();
    let text = detach(&lease, 10 * MINUTE);
    advance(&nodes, 3 * MINUTE);
    assert!(done(client.adopt(&text).acquire()).is_err(), "it may be held for 2 minutes");
}

#[test]
fn restarted_nodes_do_not_vote_on_an_adoption() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let guarded = Client::builder().nodes(nodes.urls()).ttl(TTL).restart_guard(TTL);
    let client = guarded.wait(NOW).build().unwrap();
    advance(&nodes, 2 * TTL);
    let lease = acquire(&client).unwrap();
    let text = detach(&lease, TTL);
    for node in 0..2 {
        done(nodes.apply(Some(node), Fault::Forget));
    }
    // The two nodes have forgotten the lease, but that does not count as evidence that it is gone.
    let error = done(client.adopt(&text).acquire()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
    assert_eq!(outcomes(&error)[..2], [NodeOutcome::Guarded; 2]);

    // One restarted node does no harm.
    done(nodes.suspend(2 * TTL)).unwrap();
    let lease = acquire(&client).unwrap();
    let text = detach(&lease, TTL);
    done(nodes.apply(Some(2), Fault::Forget));
    let adopted = done(client.adopt(&text).acquire()).unwrap();
    assert!(adopted.fence() > lease.fence());
    done(nodes.verify_leases());
    assert!(adopted.is_valid());
}

#[test]
fn adoption_waits_for_adopters_that_fail() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let giver = client(&nodes);
    let failing = client(&nodes);
    let adopter = client(&nodes);
    assert!(done(acquire(&failing).unwrap().release()));
    assert!(done(acquire(&adopter).unwrap().release()));
    let text = detach(&acquire(&giver).unwrap(), TTL);
    // An adopter gets the key on one node, and no answers from the other nodes.
    for node in 1..3 {
        done(nodes.apply(Some(node), Fault::Freeze));
    }
    let abandoned = failing.adopt(&text).wait(NOW).acquire();
    advance(&nodes, Duration::from_millis(100));
    drop(abandoned);
    let adopting = adopter.adopt(&text).acquire();
    for node in 1..3 {
        done(nodes.apply(Some(node), Fault::Thaw));
    }
    advance(&nodes, Duration::from_secs(10));
    assert!(done(adopting).unwrap().is_valid());
}

/// Lets an adopter with this ttl get the keys on all nodes, but too late, so that the adopter gives the keys back.
fn fail_to_adopt(nodes: &TestNodes, adopter: &Client, text: &str, ttl: Duration) {
    for node in 1..3 {
        done(nodes.apply(Some(node), Fault::Freeze));
    }
    let adopting = adopter.adopt(text).ttl(ttl).wait(NOW).acquire();
    advance(nodes, Duration::from_secs(5));
    let error = done(adopting).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
    for node in 1..3 {
        done(nodes.apply(Some(node), Fault::Thaw));
    }
    advance(nodes, Duration::from_secs(5));
}

#[test]
fn failed_adoption_does_not_prolong_the_time_to_adopt() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let giver = client(&nodes);
    let adopter = client(&nodes);
    assert!(done(acquire(&adopter).unwrap().release()));
    let lease = done(giver.lock("r").ttl(MINUTE).acquire()).unwrap();
    let text = detach(&lease, MINUTE);
    fail_to_adopt(&nodes, &adopter, &text, TTL);
    advance(&nodes, 2 * MINUTE);
    let acquired = done(giver.lock("r").wait(NOW).acquire());
    assert!(acquired.is_ok(), "the time to adopt is over: {acquired:?}");
}

#[test]
fn adoption_ends_when_too_few_of_the_nodes_that_may_vote_have_the_key() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let giver = client(&nodes);
    let adopter = client(&nodes);
    for client in [&giver, &adopter] {
        assert!(done(acquire(client).unwrap().release()));
    }
    done(nodes.apply(Some(2), Fault::Freeze));
    let lease = acquire(&giver).unwrap();
    let detaching = lease.detach(MINUTE);
    advance(&nodes, Duration::from_secs(5));
    let text = done(detaching).unwrap().into_text();
    done(nodes.apply(Some(2), Fault::Thaw));
    // Node 2 must not vote, because it may get a late request of the giver. Node 1 has lost the key, and waiting does
    // not bring the key back.
    done(nodes.apply(Some(1), Fault::Forget));
    let adopting = adopter.adopt(&text).ttl(MINUTE).wait_forever().acquire();
    advance(&nodes, 2 * TTL);
    assert_eq!(done(adopting).unwrap_err().code(), ErrorCode::LeaseLost);
}

#[test]
fn released_adopted_lease_leaves_no_key_on_a_node_that_was_away() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let text = detach(&acquire(&client).unwrap(), TTL);
    done(nodes.apply(Some(2), Fault::Cut));
    let adopted = done(client.adopt(&text).acquire()).unwrap();
    assert!(done(adopted.release()));
    done(nodes.apply(Some(2), Fault::Mend));
    advance(&nodes, Duration::from_secs(5));
    done(nodes.apply(Some(0), Fault::Cut));
    let waiting = client.lock("r").acquire();
    advance(&nodes, MINUTE);
    assert!(done(waiting).is_ok(), "two of three nodes are up, and nobody holds the lock");
}
