//! The contender quorlock in Rust with several resources in one lock. The first argument is their
//! number. `bench/README.md` describes the protocol.

use quorlock::{Client, Lock};
use quorlock_bench::{Request, serve, time};
use std::time::Duration;

/// Longer than the `wait` option, so that the library gives up first.
const LIMIT: Duration = Duration::from_secs(60);

fn cycle(lock: &Lock) -> Result<(), String> {
    let lease =
        lock.acquire().block_for(LIMIT).ok_or("hangs")?.map_err(|error| error.to_string())?;
    if lease.release().block_for(LIMIT) == Some(true) { Ok(()) } else { Err("not released".into()) }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().and_then(|text| text.parse().ok()).expect("a number");
    let builder = Client::builder().nodes(arguments).auto_extend(false);
    let client = builder.build().expect("a client");
    let resources: Vec<_> = (0..count).map(|number| format!("{count}-{number:02}")).collect();
    let lock = client.lock(resources);
    serve(|Request { cycles, .. }| time(cycles, || cycle(&lock)));
}
