//! A thread of low priority waits for a lock while the processor is busy.

use crate::servers::Servers;
use crate::{acquire, alone, client, hold, wait_until};
use rustix::process::nice;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(4);

/// Restricts all threads started from now on to one processor.
fn use_one_processor() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|processor| allowed.is_set(*processor)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
}

#[test]
fn a_nice_waiter_on_a_busy_processor_costs_no_lease() {
    if !alone("priorities::a_nice_waiter_on_a_busy_processor_costs_no_lease", &[]) {
        return;
    }
    let servers = Servers::start(3);
    use_one_processor();
    let client = client(&servers.urls, TTL);
    let lease = acquire(&client.lock("held"));
    let is_over = Arc::new(AtomicBool::new(false));
    let lock = client.lock("held").wait_forever();
    let waiter = thread::spawn(move || {
        nice(19).unwrap();
        lock.acquire().block_for(10 * TTL)
    });
    wait_until("the thread waits", || client.stats().waiting == 1);
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || while !is_over.load(Ordering::Relaxed) {})
        })
        .collect();
    hold(&lease, 2 * TTL);
    is_over.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    drop(lease);
    assert!(waiter.join().unwrap().unwrap().is_ok());
}
