//! quorlock in Rust, as a contender of `bench/`; see `bench/contender.py` for what one does.
#![allow(clippy::unwrap_used, reason = "a program for developers")]

use quorlock::Client;
use std::io::{BufRead, stdin};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut builder = Client::builder().nodes(std::env::args().skip(1));
    if std::env::var_os("RESTART_GUARD").is_some() {
        builder = builder.ttl(SECOND).restart_guard(SECOND);
    }
    let client = builder.build().unwrap();
    for line in stdin().lock().lines() {
        let request: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        let cycles = request["cycles"].as_u64().unwrap();
        let began = Instant::now();
        let mut loops = JoinSet::new();
        for key in 0..request["concurrency"].as_u64().unwrap() {
            let lock = client.lock(format!("rust-{key}"));
            loops.spawn(async move {
                let mut micros = Vec::new();
                for _ in 0..cycles {
                    let start = Instant::now();
                    assert!(lock.acquire().await.unwrap().release().await, "not released");
                    micros.push(start.elapsed().as_secs_f64() * 1e6);
                }
                micros
            });
        }
        let micros: Vec<f64> = loops.join_all().await.concat();
        let seconds = began.elapsed().as_secs_f64();
        println!("{}", serde_json::json!({ "micros": micros, "seconds": seconds }));
    }
}
