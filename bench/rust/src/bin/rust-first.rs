//! Prints how many microseconds the first lock of a process takes, including creating the client.

use quorlock::Client;
use quorlock_bench::micros_since;
use std::time::Instant;

fn main() {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let start = Instant::now();
    let client = Client::builder().nodes(urls).build().expect("a client");
    let lease = client.lock("first").acquire().block().expect("a lease");
    println!("{}", micros_since(start));
    lease.release().block();
}
