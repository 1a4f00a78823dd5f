//! What a lock costs, as far as it can be counted: allocations and bytes, which do not depend on how
//! fast or loaded a machine is. Times are for `make bench`.
//!
//! A count above its limit means that something on the hot path has become dearer. The limits leave room
//! for chance (which answers come in together), not for new work.
#![allow(clippy::unwrap_used, reason = "tests")]
#![expect(unsafe_code, reason = "an allocator cannot be counted without")]

#[allow(dead_code, reason = "the integration tests use more of it")]
#[path = "../integration/servers.rs"]
mod servers;

use quorlock::{Client, Lease, Lock};
use servers::Servers;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Counts what goes through it.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: it is the system's allocator; the counters are not memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn acquire(lock: &Lock) -> Lease {
    lock.acquire().wait(TIMEOUT).expect("in time").expect("free")
}

fn cycle(lock: &Lock) {
    assert!(acquire(lock).release().wait(TIMEOUT).expect("in time"));
}

#[test]
fn acquire_and_release() {
    const CYCLES: u64 = 500;
    let servers = Servers::start(5);
    let client = Client::builder().nodes(&servers.urls).build().expect("valid");
    let lock = client.lock("r");
    (0..100).for_each(|_| cycle(&lock));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..CYCLES).for_each(|_| cycle(&lock));
    let allocations = (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / CYCLES as f64;
    println!("{allocations:.1} allocations for an acquire and release, N = 5");

    const LEASES: i64 = 2000;
    let before = BYTES.load(Ordering::Relaxed);
    let leases: Vec<_> =
        (0..LEASES).map(|number| acquire(&client.lock(format!("held-{number}")))).collect();
    let bytes = (BYTES.load(Ordering::Relaxed) - before) / LEASES;
    println!("{bytes} bytes for a lease that is held and extended");
    drop(leases);
}
