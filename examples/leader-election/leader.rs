//! A leader among several candidates. When it loses the lease it is a candidate again. Unix only,
//! for its signal.
//!
//! `QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 cargo run --example leader`

use quorlock::{Client, ErrorCode, Lease};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// Leads whenever it is elected.
async fn campaign<F: AsyncFn(&Lease)>(
    client: &Client,
    role: &str,
    lead: F,
) -> quorlock::Result<()> {
    // It waits for as long as another one leads, and may lead for ever.
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
            // Looked at first: `lead` is dropped when the lease ends, before another one can be
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

/// What only the leader does.
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
    // It leaves office when it is asked to end, and the next one is elected at once.
    client.close().await;
    Ok(())
}
