//! Cycles of permits and of exclusive leases, as a contender: `rust-semaphore KIND URL...`. `bench/README.md` describes
//! the protocol. KIND is `lock`, or the limit of the semaphores. Each loop has a resource of its own.

use quorlock::{Client, Lease, Lock, Pending, Result, Semaphore};
use quorlock_bench::{Micros, Request, micros_since, serve};
use std::time::Instant;
use tokio::runtime::Builder;

enum Kind {
    Lock(Lock),
    Semaphore(Semaphore),
}

impl Kind {
    fn acquire(&self) -> Pending<Result<Lease>> {
        match self {
            Self::Lock(lock) => lock.acquire(),
            Self::Semaphore(semaphore) => semaphore.acquire(),
        }
    }
}

async fn run(kind: Kind, cycles: usize) -> Micros {
    let mut micros = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let start = Instant::now();
        let lease = kind.acquire().await.map_err(|error| error.to_string())?;
        if !lease.release().await {
            return Err("not released".into());
        }
        micros.push(micros_since(start));
    }
    Ok(micros)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().expect("a kind");
    let client = Client::builder().nodes(arguments).auto_extend(false).build().expect("a client");
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let kind = |key: usize| {
        let resource = format!("{name} {key}");
        match &*name {
            "lock" => Kind::Lock(client.lock(resource)),
            limit => Kind::Semaphore(client.semaphore(resource, limit.parse().expect("a limit"))),
        }
    };
    serve(|Request { cycles, concurrency }| {
        let tasks: Vec<_> =
            (0..concurrency).map(|key| runtime.spawn(run(kind(key), cycles))).collect();
        runtime.block_on(async {
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.expect("no panic")?);
            }
            Ok(all)
        })
    });
}
