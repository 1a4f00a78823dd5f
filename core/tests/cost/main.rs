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
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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

/// One test at a time: the counters are the process's.
static ALONE: Mutex<()> = Mutex::new(());

/// An acquire and release over five nodes takes about 58, of which the parser makes 15. One more for each
/// of the ten requests would show.
const MOST_ALLOCATIONS: f64 = 66.0;
/// About 950; the goal is 2 KiB.
const MOST_BYTES: i64 = 1200;

fn acquire(lock: &Lock) -> Lease {
    lock.acquire().wait(TIMEOUT).expect("in time").expect("free")
}

fn cycle(lock: &Lock) {
    assert!(acquire(lock).release().wait(TIMEOUT).expect("in time"));
}

fn client(servers: &Servers) -> Client {
    // Nothing is to time out on a loaded machine: what follows a timeout would be counted as well.
    let builder = Client::builder().nodes(&servers.urls).node_timeout(Duration::from_secs(2));
    builder.ttl(Duration::from_secs(60)).build().expect("valid")
}

#[test]
fn an_acquire_and_release_takes_few_allocations() {
    const CYCLES: u64 = 500;
    let _alone = ALONE.lock().unwrap();
    let servers = Servers::start(5);
    let lock = client(&servers).lock("r");
    (0..100).for_each(|_| cycle(&lock));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..CYCLES).for_each(|_| cycle(&lock));
    let allocations = (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / CYCLES as f64;
    println!("{allocations:.1} allocations");
    assert!(allocations < MOST_ALLOCATIONS, "{allocations}");
}

#[test]
fn an_acquire_and_release_takes_two_requests_to_each_node() {
    const CYCLES: usize = 200;
    let _alone = ALONE.lock().unwrap();
    let servers = Servers::start(5);
    let client = client(&servers);
    let threads: Vec<_> = (0..4).map(|number| client.lock(format!("r{number}"))).collect();
    std::thread::scope(|scope| {
        for lock in &threads {
            scope.spawn(move || (0..CYCLES).for_each(|_| cycle(lock)));
        }
    });
    // Each node gets the last ones before its connection is closed.
    client.close().wait(TIMEOUT).expect("in time");
    for server in 0..5 {
        let stats = servers.command(server, &["INFO", "commandstats"]);
        let calls = stats.as_str().unwrap().split("cmdstat_evalsha:calls=").nth(1).unwrap();
        let calls: usize = calls.split(',').next().unwrap().parse().unwrap();
        assert_eq!(calls, 2 * threads.len() * CYCLES);
    }
}

#[test]
fn what_is_released_takes_no_memory() {
    const THREADS: usize = 8;
    const CYCLES: usize = 500;
    let _alone = ALONE.lock().unwrap();
    let servers = Servers::start(5);
    let client = client(&servers);
    let cycles = || {
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let lock = client.lock(format!("r{number}"));
                scope.spawn(move || (0..CYCLES).for_each(|_| cycle(&lock)));
            }
        });
    };
    // A buffer may grow once, but what leaks does so every time.
    let mut grown = Vec::new();
    for _ in 0..5 {
        let before = BYTES.load(Ordering::Relaxed);
        cycles();
        let more = || BYTES.load(Ordering::Relaxed) - before;
        // A leak of 8 bytes in a cycle would be as much.
        let is_little = || more() <= 8 * (THREADS * CYCLES) as i64;
        // The last late answers are still to come.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !is_little() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if is_little() {
            return;
        }
        grown.push(more());
    }
    panic!("{grown:?} bytes more after {THREADS} x {CYCLES} cycles each");
}

#[test]
fn a_held_lease_takes_little_memory() {
    const LEASES: i64 = 2000;
    let _alone = ALONE.lock().unwrap();
    let servers = Servers::start(5);
    let client = client(&servers);
    let hold = |number| acquire(&client.lock(format!("held-{number}")));
    // What the client itself takes is there before.
    (0..100).for_each(|number| drop(hold(number)));
    let before = BYTES.load(Ordering::Relaxed);
    let leases: Vec<_> = (100..100 + LEASES).map(hold).collect();
    let bytes = (BYTES.load(Ordering::Relaxed) - before) / LEASES;
    println!("{bytes} bytes");
    assert!(bytes < MOST_BYTES, "{bytes}");
    drop(leases);
}
