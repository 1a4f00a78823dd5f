//! Tests of a client whose machine was suspended.

use crate::runtime::clock::move_ahead;
use crate::{Client, ErrorCode, Lease};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);

fn hold() -> Lease {
    let nodes = ["memory://suspend-1", "memory://suspend-2", "memory://suspend-3"];
    let client = Client::builder().nodes(nodes).ttl(TTL).build().expect("valid");
    client.lock("r").acquire().block_for(PATIENCE).expect("in time").expect("free")
}

#[test]
fn a_suspension_renews_or_ends_a_lease() {
    // The machine is suspended for a part of the validity: the overdue renewal is sent immediately.
    let lease = hold();
    let before = lease.remaining();
    move_ahead(TTL / 2);
    assert!(lease.is_valid() && lease.remaining() <= before - TTL / 2);
    let began = Instant::now();
    while lease.remaining() < before - TTL / 12 {
        assert!(began.elapsed() < PATIENCE, "not renewed: {:?}", lease.remaining());
        std::thread::sleep(Duration::from_millis(5));
    }

    // The machine is suspended beyond the validity end: `is_valid` is `false` immediately, before any timer
    // fires.
    let mut lost = lease.lost();
    move_ahead(TTL);
    assert!(!lease.is_valid());
    let error = lease.check().expect_err("the lease has ended");
    assert_eq!(error.code(), ErrorCode::LeaseLost);
    assert!(lost.block_for(PATIENCE).expect("in time").is_some());
    assert!(!lease.is_valid());
    assert!(!lease.release().block_for(PATIENCE).expect("in time"));

    // The keys have expired, so another acquire gets the lock.
    assert!(hold().fence() > lease.fence());
}
