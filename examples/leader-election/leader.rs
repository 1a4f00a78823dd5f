//! Elects a leader among several candidates. A leader that loses its lease becomes a candidate again.
//! Unix only, because it handles SIGTERM.
//!
//! `QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run --example leader`

use quorlock::{Client, ErrorCode, Lease};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// Calls `lead` whenever it is elected, until `lead` returns.
async fn campaign<F: AsyncFn(&Lease)>(
    client: &Client,
    role: &str,
    lead: F,
) -> quorlock::Result<()> {
    // Wait for as long as another candidate leads, and lead without a time limit.
    let office = client.lock(format!("leader:{role}")).wait_forever().unlimited_hold();
    loop {
        let lease = match office.acquire().await {
            Ok(lease) => lease,
            Err(error) if error.code() == ErrorCode::NoQuorum => {
                println!("no election: {error}");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        println!("elected with fence {}", lease.fence());
        tokio::select! {
            // Polled first: `lead` is dropped when the lease ends, before another candidate can be
            // elected.
            biased;
            loss = lease.lost() => {
                if let Some(loss) = loss {
                    println!("stepped down: {loss}");
                }
            }
            () = lead(&lease) => return Ok(()),
        }
    }
}

/// The work of the leader.
async fn lead(lease: &Lease) {
    loop {
        println!("wrote a report with fence {}", lease.fence());
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::builder().ttl(Duration::from_secs(3)).build()?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = campaign(&client, "reports", lead) => result?,
        _ = terminate.recv() => {}
    }
    // On SIGTERM the lease is released, so the next leader is elected immediately.
    client.close().await;
    Ok(())
}
