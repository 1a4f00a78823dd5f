//! The contender quorlock in Rust with tasks of a tokio runtime. `bench/README.md` describes the protocol.

use quorlock::{Client, Lock};
use quorlock_bench::{Micros, Request, micros_since, serve};
use std::time::Instant;
use tokio::runtime::Builder;

async fn cycle(lock: &Lock) -> Result<(), String> {
    let lease = lock.acquire().await.map_err(|error| error.to_string())?;
    if lease.release().await { Ok(()) } else { Err("not released".into()) }
}

async fn run(lock: Lock, cycles: usize) -> Micros {
    let mut micros = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let start = Instant::now();
        cycle(&lock).await?;
        micros.push(micros_since(start));
    }
    Ok(micros)
}

fn main() {
    let builder = Client::builder().nodes(std::env::args().skip(1)).auto_extend(false);
    let client = builder.build().expect("a client");
    // One thread, like an event loop. quorlock also has a runtime of its own.
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    serve(|Request { cycles, concurrency }| {
        let lock = |key| client.lock(format!("quorlock Rust (async)-{key}"));
        if concurrency == 1 {
            return runtime.block_on(run(lock(0), cycles));
        }
        let start = |key| runtime.spawn(run(lock(key), cycles));
        let tasks: Vec<_> = (0..concurrency).map(start).collect();
        runtime.block_on(async {
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.expect("no panic")?);
            }
            Ok(all)
        })
    });
}
