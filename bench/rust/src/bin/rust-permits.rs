//! Holders of one semaphore that come and go: `rust-permits LIMIT URL...`. `bench/README.md` describes the
//! protocol.

use quorlock::{Client, ErrorCode, Semaphore};
use quorlock_bench::{about, now, parse, rounds};
use serde_json::{Value, json};
use std::io::stdin;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::time::sleep;

/// Acquires, holds and releases. Returns the times at which the acquire began, the permit was granted, the release
/// began and it returned; the last three are null if there was no permit within the semaphore's `wait`.
async fn turn(semaphore: &Semaphore, hold: Duration) -> Value {
    let began = now();
    match semaphore.acquire().await {
        Ok(lease) => {
            let granted = now();
            sleep(hold).await;
            let ended = now();
            assert!(lease.release().await, "not released");
            json!([began, granted, ended, now()])
        }
        Err(error) if error.code() == ErrorCode::Timeout => json!([began, null, null, null]),
        Err(error) => panic!("{error}"),
    }
}

async fn loop_until(
    end: Instant,
    semaphore: Semaphore,
    hold: Duration,
    spread: Duration,
) -> Vec<Value> {
    let mut turns = Vec::new();
    // The tasks do not all begin at once.
    sleep(about(hold / 2, hold / 2)).await;
    while Instant::now() < end {
        turns.push(turn(&semaphore, about(hold, spread)).await);
    }
    turns
}

fn main() {
    rounds::record();
    let mut arguments = std::env::args().skip(1);
    let limit = arguments.next().and_then(|limit| limit.parse().ok()).expect("a limit");
    let client = Client::builder().nodes(arguments).build().expect("a client");
    let semaphore = client.semaphore("held by many", limit).wait(Duration::from_secs(10));
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    for line in stdin().lines() {
        let request = parse(&line.expect("standard input"));
        let seconds =
            |name: &str| Duration::from_secs_f64(request[name].as_f64().expect("seconds"));
        let (hold, spread) = (seconds("hold"), seconds("spread"));
        let end = Instant::now() + seconds("seconds");
        let start = |_| runtime.spawn(loop_until(end, semaphore.clone(), hold, spread));
        let tasks: Vec<_> = (0..request["tasks"].as_u64().expect("a number")).map(start).collect();
        let turns = runtime.block_on(async {
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.expect("no panic"));
            }
            all
        });
        println!("{}", json!({ "turns": turns, "rounds": rounds::take() }));
    }
}
