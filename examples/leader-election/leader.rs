//! Elects a leader among several candidates. A leader that loses its lease becomes a candidate again.
//! Unix only, because it handles SIGTERM.
//!
//! `QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run --example leader`

use quorlock::{Client, Lease};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tracing::Level;

/// The work of the leader. It is dropped when the lease ends, before another candidate can be elected.
async fn lead(lease: Arc<Lease>) -> Infallible {
    println!("elected with fence {}", lease.fence());
    let lost = lease.lost();
    tokio::spawn(async {
        if let Some(loss) = lost.await {
            println!("stepped down: {loss}");
        }
    });
    loop {
        println!("wrote a report with fence {}", lease.fence());
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Shows warnings, such as those of an outage.
    tracing_subscriber::fmt().with_max_level(Level::WARN).init();
    let client = Client::builder().ttl(Duration::from_secs(3)).build()?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        led = client.elect("leader:reports").run(lead) => match led? {},
        _ = terminate.recv() => {}
    }
    // On SIGTERM the lease is released, so the next leader is elected immediately.
    client.close().await;
    Ok(())
}
