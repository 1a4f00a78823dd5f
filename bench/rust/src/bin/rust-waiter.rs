//! One client of many that contend for a lock. `bench/scale/processes.py` describes the protocol.

use quorlock::{Client, Lease};
use quorlock_bench::{cpu_time, now, parse};
use serde_json::json;
use std::io::stdin;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(600);

fn main() {
    let builder = Client::builder().nodes(std::env::args().skip(1)).wait(LIMIT);
    let client = builder.build().expect("a client");
    let acquire = |resource: &str| {
        client.lock(resource).acquire().block_for(LIMIT).expect("an answer").expect("a lease")
    };
    let release = |lease: Lease| {
        assert!(lease.release().block_for(LIMIT) == Some(true), "not released");
    };
    release(acquire(&format!("own-{}", std::process::id())));

    let mut held = None;
    for line in stdin().lines() {
        let request = parse(&line.expect("standard input"));
        let answer = if let Some(resource) = request["hold"].as_str() {
            held = Some(acquire(resource));
            json!({})
        } else if let Some(resource) = request["take"].as_str() {
            let lease = acquire(resource);
            let acquired = now();
            release(lease);
            json!({ "acquired": acquired })
        } else if let Some(rest) = request["rest"].as_f64() {
            let (began, cpu) = (Instant::now(), cpu_time());
            sleep(Duration::from_secs_f64(rest));
            let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_time() - cpu);
            json!({ "seconds": seconds, "cpu": cpu.as_secs_f64() })
        } else {
            held.take().map(release);
            json!({})
        };
        println!("{answer}");
    }
}
