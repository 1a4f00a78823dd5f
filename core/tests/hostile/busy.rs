//! Callers that keep the runtime busy: renewals come before everything else.

use crate::servers::Servers;
use crate::{acquire, client, hold, wait};
use quorlock::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(2);

/// Acquires and releases a lock of its own until the test is over.
async fn cycles(client: Client, number: usize, is_over: Arc<AtomicBool>) {
    let lock = client.lock(format!("busy-{number}"));
    while !is_over.load(Ordering::Relaxed) {
        // The acquire may fail, because the nodes are busy too.
        if let Ok(lease) = lock.acquire().await {
            lease.release().await;
        }
    }
}

#[test]
fn thousands_of_operations_delay_no_renewal() {
    let servers = Servers::start(3);
    let client = client(&servers.urls, TTL);
    let lease = acquire(&client.lock("held"));
    let is_over = Arc::new(AtomicBool::new(false));
    let busy = client.clone();
    let over = Arc::clone(&is_over);
    let callers = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let cycles = (0..3000)
                .map(|number| tokio::spawn(cycles(busy.clone(), number, Arc::clone(&over))));
            for task in cycles.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        });
    });
    hold(&lease, 3 * TTL);
    is_over.store(true, Ordering::Relaxed);
    callers.join().unwrap();
    assert!(wait(lease.release()));
}
