//! Cycles of shared and exclusive leases, as a contender: `rust-shared KIND URL...`. `bench/README.md` describes the
//! protocol. KIND is how the loops lock: `exclusive` or `shared`, each its own resource, or `readers`, all of them the
//! same resource in shared mode.

use quorlock::{Client, Lock};
use quorlock_bench::{Micros, Request, micros_since, serve};
use std::time::Instant;
use tokio::runtime::Builder;

async fn run(lock: Lock, cycles: usize) -> Micros {
    let mut micros = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let start = Instant::now();
        let lease = lock.acquire().await.map_err(|error| error.to_string())?;
        if !lease.release().await {
            return Err("not released".into());
        }
        micros.push(micros_since(start));
    }
    Ok(micros)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().expect("a kind");
    let client = Client::builder().nodes(arguments).auto_extend(false).build().expect("a client");
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let lock = |key: usize| match &*kind {
        "exclusive" => client.lock(format!("exclusive {key}")),
        "shared" => client.lock(format!("shared {key}")).shared(),
        "readers" => client.lock("read by all").shared(),
        other => panic!("{other} is not a kind"),
    };
    serve(|Request { cycles, concurrency }| {
        let tasks: Vec<_> =
            (0..concurrency).map(|key| runtime.spawn(run(lock(key), cycles))).collect();
        runtime.block_on(async {
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.expect("no panic")?);
            }
            Ok(all)
        })
    });
}
