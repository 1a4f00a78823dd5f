//! What a client does after its machine was suspended.

use crate::runtime::clock::suspended::suspend;
use crate::{Client, ErrorCode, Lease};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);

fn hold() -> Lease {
    let nodes = ["memory://suspend-1", "memory://suspend-2", "memory://suspend-3"];
    let client = Client::builder().nodes(nodes).ttl(TTL).build().expect("valid");
    client.lock("r").acquire().wait(PATIENCE).expect("in time").expect("free")
}

#[test]
fn a_suspended_machine_wakes_up_to_the_truth() {
    // Suspended for a part of the validity: the extension that is overdue is made up for.
    let lease = hold();
    let before = lease.remaining();
    suspend(TTL / 2);
    assert!(lease.is_valid() && lease.remaining() <= before - TTL / 2);
    let began = Instant::now();
    while lease.remaining() < before - TTL / 12 {
        assert!(began.elapsed() < PATIENCE, "it is not extended: {:?}", lease.remaining());
        std::thread::sleep(Duration::from_millis(5));
    }

    // Suspended for longer: the first look tells the truth, before any timer has fired.
    let mut lost = lease.lost();
    suspend(TTL);
    assert!(!lease.is_valid());
    let error = lease.check().expect_err("it is over");
    assert_eq!(error.code(), ErrorCode::LeaseLost);
    assert!(lost.wait(PATIENCE).expect("it is told").is_some());
    assert!(!lease.is_valid());
    assert!(!lease.release().wait(PATIENCE).expect("in time"));

    // The nodes have forgotten it, and somebody else may have the lock.
    assert!(hold().fence() > lease.fence());
}
