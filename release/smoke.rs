//! Checks that a program can use the crate and acquire a lock. Needs no server.

use quorlock::{Client, ErrorCode};
use std::time::Duration;

fn main() -> Result<(), quorlock::Error> {
    let client = Client::builder().nodes(["memory://a", "memory://b", "memory://c"]).build()?;
    let lease = client.lock("smoke").acquire().block()?;
    assert!(lease.is_valid() && lease.fence() > 0);
    let refused = client.lock("smoke").wait(Duration::ZERO).acquire().block();
    assert_eq!(refused.map_err(|error| error.code()).err(), Some(ErrorCode::Timeout));
    assert!(lease.release().block());
    Ok(())
}
