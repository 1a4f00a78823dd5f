//! Tests what happens if a node applies a HEAL after the lease was released.

use crate::lock::claim::heal::send_heal;
use crate::{Client, runtime};
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

    let healing = send_heal(Arc::clone(&held.driver), 0, vec![(held, 60 * PATIENCE)]);
    let (done, is_done) = std::sync::mpsc::channel();
    let healing = async move {
        healing.await;
        let _ = done.send(());
    };
    runtime::spawn(healing).expect("a runtime");
    is_done.recv_timeout(PATIENCE).expect("in time");
    let began = Instant::now();
    while lock.locked().block_for(PATIENCE).expect("in time").expect("a node") {
        assert!(began.elapsed() < PATIENCE, "the key is left behind");
        std::thread::sleep(Duration::from_millis(1));
    }
}
