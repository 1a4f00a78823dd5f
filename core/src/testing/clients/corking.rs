//! Calls that block on a corked thread.

use crate::Client;
use crate::runtime::cork::{cork, is_corked};
use crate::runtime::drive;
use std::time::Duration;

#[test]
fn a_call_that_blocks_uncorks_the_thread() {
    cork();
    drive(async {}).expect("a runtime");
    assert!(!is_corked());
    let client = Client::builder().nodes(["memory://corked"]).build().expect("a client");
    let _lease = client.lock("r").acquire().block().expect("the lock is free");
    cork();
    let waiting = client.lock("r").wait(Duration::from_millis(1)).acquire();
    waiting.block().expect_err("the lock is held");
    assert!(!is_corked());
}
