//! Tests of the moment at which a renewal begins without a heartbeat.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::Client;
use crate::client::test_nodes::TestNodes;
use crate::runtime::clock;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Other tests advance the clock of this process, but by less than the times of these tests.
const TTL: Duration = Duration::from_secs(60 * 60);

#[test]
fn renewal_that_begins_after_the_timeout_is_not_sent() {
    let nodes = TestNodes::new(3).unwrap();
    let client = Client::builder().nodes(nodes.urls()).ttl(TTL).build().unwrap();
    for (timeout, is_renewed) in [(Duration::ZERO, true), (TTL, true), (TTL / 2, false)] {
        let lock = client.lock("r").unlimited_hold().heartbeat_timeout(timeout);
        let lease = lock.acquire().block_for(PATIENCE).unwrap().unwrap();
        let held = lease.held().unwrap();
        // The renewer found that a renewal was due, but begins it later.
        let later = clock::now().plus(TTL * 3 / 4);
        assert_eq!(held.begin_renewal(later).is_some(), is_renewed, "{timeout:?}");
        assert!(lease.release().block_for(PATIENCE).unwrap());
    }
}
