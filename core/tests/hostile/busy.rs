//! Callers that keep the runtime busy, or their wakers: renewals come before everything else.

use crate::servers::Servers;
use crate::{acquire, client, hold, wait, wait_until};
use quorlock::Client;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(2);

struct SlowWaker(AtomicBool);

impl Wake for SlowWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
        thread::sleep(2 * TTL);
    }
}

#[test]
fn a_slow_waker_delays_no_renewal() {
    let servers = Servers::start(3);
    let client = client(&servers.urls, TTL);
    let (taken, kept) = (acquire(&client.lock("taken")), acquire(&client.lock("kept")));
    let waker = Arc::new(SlowWaker(AtomicBool::new(false)));
    let mut lost = pin!(taken.lost());
    let polled = lost.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waker))));
    assert!(polled.is_pending());
    (0..3).for_each(|node| drop(servers.command(node, &["DEL", "taken"])));
    wait_until("the waker is called", || waker.0.load(Ordering::SeqCst));
    hold(&kept, 2 * TTL);
    assert!(wait(kept.release()));
}

/// Acquires and releases a lock of its own until the test is over.
async fn cycles(client: Client, number: usize, is_over: Arc<AtomicBool>) {
    let lock = client.lock(format!("busy-{number}"));
    while !is_over.load(Ordering::Relaxed) {
        // It may fail: the nodes are busy, too.
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
    let (busy, over) = (client.clone(), Arc::clone(&is_over));
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
