//! Readers and a writer of one resource: `rust-turns URL...`. `bench/README.md` describes the protocol.

use quorlock::{Client, ErrorCode, Lock};
use quorlock_bench::{about, now, parse};
use serde_json::{Value, json};
use std::io::stdin;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::time::sleep;

/// Acquires, holds and releases. Returns the times at which the acquire began, the lease was granted and the release
/// began; the last two are null if there was no lease within the lock's `wait`.
async fn turn(lock: &Lock, hold: Duration) -> Value {
    let began = now();
    match lock.acquire().await {
        Ok(lease) => {
            let granted = now();
            sleep(hold).await;
            let ended = now();
            assert!(lease.release().await, "not released");
            json!([began, granted, ended])
        }
        Err(error) if error.code() == ErrorCode::Timeout => json!([began, null, null]),
        Err(error) => panic!("{error}"),
    }
}

/// Takes turns until the end. A writer rests before each of its turns.
async fn loop_until(end: Instant, lock: Lock, kind: Kind, hold: Duration) -> Vec<Value> {
    let mut turns = Vec::new();
    while Instant::now() < end {
        match kind {
            Kind::Reader => turns.push(turn(&lock, about(hold, hold / 2)).await),
            Kind::Writer => {
                sleep(about(hold * 5, hold * 5 / 2)).await;
                turns.push(turn(&lock, Duration::from_millis(1)).await);
            }
        }
    }
    turns
}

#[derive(Clone, Copy)]
enum Kind {
    Reader,
    Writer,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = match arguments.next().as_deref() {
        Some("reader") => Kind::Reader,
        Some("writer") => Kind::Writer,
        other => panic!("{other:?} is neither reader nor writer"),
    };
    let client = Client::builder().nodes(arguments).build().expect("a client");
    let exclusive = client.lock("read by many").wait(Duration::from_secs(10));
    let lock = match kind {
        Kind::Reader => exclusive.shared(),
        Kind::Writer => exclusive,
    };
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    for line in stdin().lines() {
        let request = parse(&line.expect("standard input"));
        let seconds =
            |name: &str| Duration::from_secs_f64(request[name].as_f64().expect("seconds"));
        let (end, hold) = (Instant::now() + seconds("seconds"), seconds("hold"));
        let start = |_| runtime.spawn(loop_until(end, lock.clone(), kind, hold));
        let tasks: Vec<_> = (0..request["tasks"].as_u64().expect("a number")).map(start).collect();
        let turns = runtime.block_on(async {
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.expect("no panic"));
            }
            all
        });
        println!("{}", json!({ "turns": turns }));
    }
}
