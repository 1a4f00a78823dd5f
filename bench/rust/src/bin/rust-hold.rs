//! Holds leases, and counts their heap memory. `bench/holders.py` describes the protocol.

use cap::Cap;
use quorlock::{Client, Lease};
use quorlock_bench::{cpu_time, parse};
use serde_json::json;
use std::alloc::System;
use std::io::stdin;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Counts allocated bytes. The limit is never reached.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const LIMIT: Duration = Duration::from_secs(60);
/// The number of leases that are acquired concurrently.
const BATCH: usize = 100;
/// The time after which temporary memory of acquires is freed.
const SETTLE: Duration = Duration::from_secs(1);

fn main() {
    let client = Client::builder().nodes(std::env::args().skip(1)).build().expect("a client");
    let acquire = |count: usize, ttl: Duration, leases: &mut Vec<Lease>| {
        let lock = |number| client.lock(format!("Rust-held-{number}")).ttl(ttl).acquire();
        for first in (0..count).step_by(BATCH) {
            let pending: Vec<_> = (first..count.min(first + BATCH)).map(lock).collect();
            for mut lease in pending {
                leases.push(lease.block_for(LIMIT).expect("an answer").expect("a lease"));
            }
        }
    };
    // Allocates what a client needs only once, so that it is not counted for the leases.
    acquire(BATCH, LIMIT, &mut Vec::new());
    sleep(SETTLE);

    let mut leases = Vec::new();
    for line in stdin().lines() {
        let request = parse(&line.expect("standard input"));
        let answer = if let Some(count) = request["hold"].as_u64() {
            let count = count as usize;
            leases = Vec::with_capacity(count);
            let before = HEAP.allocated();
            let ttl = request["ttl"].as_f64().expect("seconds");
            let began = Instant::now();
            acquire(count, Duration::from_secs_f64(ttl), &mut leases);
            let seconds = began.elapsed().as_secs_f64();
            sleep(SETTLE);
            // The vector of the leases was allocated before, so add the size of its elements.
            let bytes = HEAP.allocated() - before + count * size_of::<Lease>();
            json!({ "seconds": seconds, "heap": bytes })
        } else if let Some(rest) = request["rest"].as_f64() {
            let (began, cpu) = (Instant::now(), cpu_time());
            sleep(Duration::from_secs_f64(rest));
            let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_time() - cpu);
            let valid = leases.iter().all(Lease::is_valid);
            json!({ "seconds": seconds, "cpu": cpu.as_secs_f64(), "valid": valid })
        } else {
            json!({})
        };
        println!("{answer}");
    }
}
