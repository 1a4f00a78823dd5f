//! The cost of a lock in allocations, bytes and requests, which do not depend on the speed or load of the
//! machine. `make bench` measures times.
//!
//! A count above its limit means that the hot path has become more expensive. The limits allow for random
//! variation, such as which answers arrive together, but not for additional work.
#![allow(clippy::unwrap_used, reason = "tests")]
#![expect(unsafe_code, reason = "a counting allocator needs it")]

#[allow(dead_code, reason = "the integration tests use more of it")]
#[path = "../integration/servers.rs"]
mod servers;

use quorlock::{Client, Lease, Lock};
use servers::Servers;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The system allocator with counters.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);
/// The largest value of `BYTES` so far.
static PEAK: AtomicI64 = AtomicI64::new(0);

fn allocated(bytes: i64) {
    let all = BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(all, Ordering::Relaxed);
}

// SAFETY: every call is forwarded to the system allocator. The counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        allocated(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        allocated(size as i64 - layout.size() as i64);
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Locked by each test while it runs: the counters belong to the process, so tests must not run
/// concurrently.
static ALONE: Mutex<()> = Mutex::new(());

/// The limit for an acquire and release over five nodes. They take about 56 allocations, 15 of them in the
/// parser. One more allocation for each of the ten requests would exceed the limit.
const MOST_ALLOCATIONS: f64 = 64.0;
/// The limit for a held lease, in bytes. A lease takes about 1,170; the goal is 2 KiB.
const MOST_BYTES: i64 = 1200;
/// The limit for the additional memory per lease while all leases are renewed, in bytes.
const MOST_BYTES_TO_RENEW: i64 = 600;

fn alone() -> MutexGuard<'static, ()> {
    // A test that has failed must not fail the others.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `value` falls to `most` soon. The last requests may not be answered yet: their memory is freed when
/// the answers arrive.
fn falls_to(most: i64, value: impl Fn() -> i64) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while value() > most {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn acquire(lock: &Lock) -> Lease {
    lock.acquire().block_for(TIMEOUT).expect("in time").expect("free")
}

fn cycle(lock: &Lock) {
    assert!(acquire(lock).release().block_for(TIMEOUT).expect("in time"));
}

fn client(servers: &Servers) -> Client {
    // A long `node_timeout` prevents timeouts on a loaded machine. A timeout leads to further work, which would be
    // counted.
    let builder = Client::builder().nodes(&servers.urls).node_timeout(Duration::from_secs(2));
    builder.ttl(Duration::from_secs(60)).build().expect("valid")
}

#[test]
fn an_acquire_and_release_takes_few_allocations() {
    const CYCLES: u64 = 500;
    let _alone = alone();
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
fn heartbeats_take_no_memory() {
    const HEARTBEATS: u64 = 10_000_000;
    let _alone = alone();
    let servers = Servers::start(1);
    let lock = client(&servers).lock("r").heartbeat_timeout(Duration::from_secs(3_600));
    let lease = acquire(&lock);
    // Other threads of the process may allocate meanwhile, but not once for every thousand heartbeats.
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..HEARTBEATS).for_each(|_| lease.heartbeat().unwrap());
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert!(allocations < HEARTBEATS / 1_000, "{allocations}");
}

#[test]
fn an_acquire_and_release_takes_at_most_two_commands_to_each_node() {
    const CYCLES: usize = 200;
    let _alone = alone();
    let servers = Servers::start(5);
    let client = client(&servers);
    let threads: Vec<_> = (0..4).map(|number| client.lock(format!("r{number}"))).collect();
    std::thread::scope(|scope| {
        for lock in &threads {
            scope.spawn(move || (0..CYCLES).for_each(|_| cycle(lock)));
        }
    });
    // `close` returns after each node has received its last requests.
    client.close().block_for(TIMEOUT).expect("in time");
    for server in 0..5 {
        // Requests that wait to be written share a command.
        let most = 2 * threads.len() * CYCLES;
        let scripts = servers.scripts(server);
        assert!((most / 2..=most).contains(&scripts), "{scripts} scripts");
    }
}

#[test]
fn requests_in_flight_share_commands() {
    const LOCKS: usize = 64;
    const ROUNDS: usize = 20;
    let _alone = alone();
    let servers = Servers::start(5);
    let client = client(&servers);
    let locks: Vec<_> = (0..LOCKS).map(|number| client.lock(format!("r{number}"))).collect();
    for _ in 0..ROUNDS {
        let acquiring: Vec<_> = locks.iter().map(Lock::acquire).collect();
        let leases = acquiring
            .into_iter()
            .map(|mut acquiring| acquiring.block_for(TIMEOUT).expect("in time").expect("free"));
        let releasing: Vec<_> = leases.collect::<Vec<_>>().iter().map(Lease::release).collect();
        for mut releasing in releasing {
            assert!(releasing.block_for(TIMEOUT).expect("in time"));
        }
    }
    client.close().block_for(TIMEOUT).expect("in time");
    for server in 0..5 {
        let scripts = servers.scripts(server) as f64 / (LOCKS * ROUNDS) as f64;
        println!("{scripts:.2} commands per lock");
        assert!(scripts < 1.0, "{scripts} commands per lock");
    }
}

#[test]
fn later_locks_cost_no_more_after_a_contended_acquire() {
    const CYCLES: usize = 100;
    let _alone = alone();
    let servers = Servers::start(1);
    let client = client(&servers);
    let lock = client.lock("r");
    // Returns how many commands the scripts run for an acquire and release, on average.
    let commands = || {
        servers.command(0, &["CONFIG", "RESETSTAT"]);
        (0..CYCLES).for_each(|_| cycle(&lock));
        let stats = servers.command(0, &["INFO", "commandstats"]);
        let lines = stats.as_str().unwrap().lines();
        let of_scripts = lines.filter(|line| {
            let others = ["evalsha", "info", "config", "ping", "client", "subscribe"];
            !others.iter().any(|other| line.contains(&format!("cmdstat_{other}")))
        });
        let calls = of_scripts.filter_map(|line| line.split("calls=").nth(1)?.split(',').next());
        let calls: usize = calls.map(|calls| calls.parse::<usize>().unwrap()).sum();
        calls as f64 / CYCLES as f64
    };
    cycle(&lock);
    let before = commands();
    let held = acquire(&lock);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cycle(&lock));
        while servers.command(0, &["ZCARD", "{r}:queue"]).as_u64() != Some(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(held.release().block_for(TIMEOUT).expect("in time"));
        waiting.join().unwrap();
    });
    let after = commands();
    println!("{before} commands before, {after} after");
    assert!(after <= before + 0.1, "{before} commands before, {after} after");
}

#[test]
fn released_leases_leak_no_memory() {
    check_leak(|_, lock| cycle(lock));
}

#[test]
fn detached_leases_leak_no_memory() {
    check_leak(|client, lock| {
        let lease = acquire(lock);
        let mut detaching = lease.detach(Duration::from_secs(60));
        let text = detaching.block_for(TIMEOUT).expect("in time").expect("valid").into_text();
        let adopted = client.adopt(&text).acquire().block_for(TIMEOUT).expect("in time");
        assert!(adopted.expect("detached").release().block_for(TIMEOUT).expect("in time"));
    });
}

/// Fails if the memory of the process grows with the number of cycles.
fn check_leak(cycle: impl Fn(&Client, &Lock) + Sync) {
    const THREADS: usize = 8;
    const CYCLES: usize = 500;
    let _alone = alone();
    let servers = Servers::start(5);
    let client = client(&servers);
    let cycles = || {
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let lock = client.lock(format!("r{number}"));
                let (cycle, client) = (&cycle, &client);
                scope.spawn(move || (0..CYCLES).for_each(|_| cycle(client, &lock)));
            }
        });
    };
    // A buffer may grow once, but a leak grows every time.
    let mut grown = Vec::new();
    for _ in 0..5 {
        let before = BYTES.load(Ordering::Relaxed);
        cycles();
        let more = || BYTES.load(Ordering::Relaxed) - before;
        // The limit is a leak of 8 bytes per cycle.
        if falls_to(8 * (THREADS * CYCLES) as i64, more) {
            return;
        }
        grown.push(more());
    }
    panic!("{grown:?} bytes more after {THREADS} x {CYCLES} cycles each");
}

#[test]
fn a_held_lease_takes_little_memory() {
    const LEASES: i64 = 2000;
    let _alone = alone();
    let servers = Servers::start(5);
    let client = client(&servers);
    let hold = |number| acquire(&client.lock(format!("held-{number}")));
    // The client's own memory must be allocated before the measurement.
    (0..100).for_each(|number| drop(hold(number)));
    let before = BYTES.load(Ordering::Relaxed);
    let leases: Vec<_> = (100..100 + LEASES).map(hold).collect();
    let bytes = || (BYTES.load(Ordering::Relaxed) - before) / LEASES;
    println!("{} bytes", bytes());
    assert!(falls_to(MOST_BYTES, bytes), "{}", bytes());
    drop(leases);
}

#[test]
fn the_memory_for_renewals_grows_in_proportion_to_the_leases() {
    const LEASES: i64 = 20_000;
    let _alone = alone();
    let nodes = (0..3).map(|number| format!("memory://{number}"));
    let client = Client::builder().nodes(nodes).ttl(Duration::from_secs(6)).build().expect("valid");
    let acquiring: Vec<_> =
        (0..LEASES).map(|number| client.lock(format!("renewed-{number}")).acquire()).collect();
    let leases: Vec<_> = acquiring
        .into_iter()
        .map(|mut acquiring| acquiring.block_for(TIMEOUT).expect("in time").expect("free"))
        .collect();
    let before = BYTES.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let extensions = client.stats().extensions;
    let deadline = Instant::now() + TIMEOUT;
    while client.stats().extensions < extensions + LEASES as u64 {
        assert!(Instant::now() < deadline, "{:?}", client.stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    let bytes = (PEAK.load(Ordering::Relaxed) - before) / LEASES;
    println!("{bytes} bytes at the peak");
    assert!(bytes < MOST_BYTES_TO_RENEW, "{bytes}");
    drop(leases);
}
