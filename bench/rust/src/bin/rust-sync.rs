//! The contender quorlock in Rust with plain threads. `bench/README.md` describes the protocol.

use quorlock::{Client, Lock};
use quorlock_bench::{Micros, Request, serve, time};
use std::thread;
use std::time::Duration;

/// Longer than the `wait` option, so that the library gives up first.
const LIMIT: Duration = Duration::from_secs(60);

fn cycle(lock: &Lock) -> Result<(), String> {
    let lease =
        lock.acquire().block_for(LIMIT).ok_or("hangs")?.map_err(|error| error.to_string())?;
    if lease.release().block_for(LIMIT) == Some(true) { Ok(()) } else { Err("not released".into()) }
}

fn main() {
    let builder = Client::builder().nodes(std::env::args().skip(1)).auto_extend(false);
    let client = builder.build().expect("a client");
    let lock = |key: usize| client.lock(format!("quorlock Rust-{key}"));
    serve(|Request { cycles, concurrency }| {
        if concurrency == 1 {
            let lock = lock(0);
            return time(cycles, || cycle(&lock));
        }
        let locks: Vec<_> = (0..concurrency).map(lock).collect();
        thread::scope(|scope| {
            let start = |lock| scope.spawn(move || time(cycles, || cycle(lock)));
            let threads: Vec<_> = locks.iter().map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<Micros>| thread.join().expect("no panic");
            threads.into_iter().map(join).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
        })
    });
}
