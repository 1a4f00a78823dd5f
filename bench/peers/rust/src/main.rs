//! The contender rslock: `peer NAME URL...`. ../../README.md describes the protocol.

use cpu_time::ProcessTime;
use rslock::{LockError, LockManager};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Request {
    cycles: usize,
    concurrency: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Done { micros: Vec<f64>, seconds: f64, cpu: f64 },
    Failed { error: String },
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("no name")?;
    let manager = LockManager::new(arguments.collect());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for line in std::io::stdin().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let cpu = ProcessTime::try_now()?;
        let began = Instant::now();
        let answer = match runtime.block_on(run(&manager, &name, &request)) {
            Ok(micros) => Answer::Done {
                micros,
                seconds: began.elapsed().as_secs_f64(),
                cpu: cpu.try_elapsed()?.as_secs_f64(),
            },
            Err(error) => Answer::Failed { error: error.to_string() },
        };
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}

/// Runs the cycles of each key in a task, and returns the times of all cycles.
async fn run(
    manager: &LockManager,
    name: &str,
    request: &Request,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let tasks: Vec<_> = (0..request.concurrency)
        .map(|number| {
            let key = format!("{name}-{number}");
            tokio::spawn(cycles(manager.clone(), key, request.cycles))
        })
        .collect();
    // Wait for all loops, also when one fails: interrupting them would leave keys on the nodes.
    let mut loops = Vec::new();
    for task in tasks {
        loops.push(task.await?);
    }
    let loops = loops.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(loops.concat())
}

async fn cycles(manager: LockManager, key: String, count: usize) -> Result<Vec<f64>, LockError> {
    let mut micros = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let guard = manager.acquire(key.as_str(), TTL).await?;
        guard.release().await;
        micros.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(micros)
}
