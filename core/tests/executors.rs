//! The client on the executors that programs use: tokio in both flavours, smol, async-std, and none.
#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "the integration tests use more of it")]
#[path = "integration/servers.rs"]
mod servers;

use quorlock::{Client, ErrorCode, Lease, Result};
use servers::Servers;
use std::time::Duration;

/// The maximum time that a test waits for an operation. It is far longer than any operation takes, even on a
/// loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Longer than a test, so that a waiter that gets the lock must have been notified.
const NEVER: Duration = Duration::from_secs(600);

fn client(servers: &Servers) -> Client {
    let builder = Client::builder().nodes(&servers.urls).retry_delay(NEVER, NEVER);
    builder.node_timeout(Duration::from_secs(5)).wait(TIMEOUT).build().unwrap()
}

/// Acquires a lock. The other client is refused, then waits for the lock, acquires it and loses it. Closes both
/// clients.
async fn use_locks(client: Client, other: Client) {
    let first = client.lock("r").acquire().await.unwrap();
    let refused = other.lock("r").wait(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Timeout);
    // The acquire starts at once, without being polled.
    let waiting = other.lock("r").acquire();
    assert!(first.release().await);
    let second = waiting.await.unwrap();
    assert!(second.fence() > first.fence());
    second.extend(None).await.unwrap();
    client.force_release(&client.status("r").await.unwrap()).await.unwrap();
    assert_eq!(second.extend(None).await.unwrap_err().code(), ErrorCode::LeaseLost);
    let loss = second.lost().await;
    assert!(!second.is_valid(), "{loss:?}");
    client.close().await;
    other.close().await;
}

/// A future that any executor can run on any of its threads.
fn work(servers: &Servers) -> impl Future<Output = ()> + Send + 'static {
    use_locks(client(servers), client(servers))
}

#[test]
fn locks_work_on_the_current_thread_of_tokio() {
    let servers = Servers::start(3);
    // This runtime enables neither tokio's IO nor its timers, because the client uses a runtime of its own.
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work(&servers));
}

#[test]
fn locks_work_on_many_threads_of_tokio() {
    let servers = Servers::start(3);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(runtime.spawn(work(&servers))).unwrap();
}

#[test]
fn locks_work_on_smol() {
    let servers = Servers::start(3);
    smol::block_on(smol::spawn(work(&servers)));
}

#[test]
fn locks_work_on_async_std() {
    let servers = Servers::start(3);
    async_std::task::block_on(async_std::task::spawn(work(&servers)));
}

#[test]
fn locks_work_without_an_executor() {
    let servers = Servers::start(3);
    let (client, other) = (client(&servers), client(&servers));
    let acquire = |client: &Client| client.lock("r").acquire().block_for(TIMEOUT).unwrap();
    let first: Result<Lease> = acquire(&client);
    let mut waiting = other.lock("r").acquire();
    assert!(waiting.block_for(Duration::ZERO).is_none());
    assert!(first.unwrap().release().block_for(TIMEOUT).unwrap());
    let second = waiting.block_for(TIMEOUT).unwrap().unwrap();
    assert!(second.release().block_for(TIMEOUT).unwrap());
    client.close().block_for(TIMEOUT).unwrap();
}
