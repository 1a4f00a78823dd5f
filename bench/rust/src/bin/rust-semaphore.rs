//! Cycles of permits and of exclusive leases, as a contender: `rust-semaphore KIND URL...`. `bench/README.md` describes
//! the protocol. KIND is `lock`, or the limit of the semaphores. Each loop has a resource of its own.

use quorlock::Client;
use quorlock_bench::serve_loops;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().expect("a kind");
    let client = Client::builder().nodes(arguments).auto_extend(false).build().expect("a client");
    let limit = (name != "lock").then(|| name.parse().expect("a limit"));
    serve_loops(|key| {
        let resource = format!("{name} {key}");
        let semaphore = limit.map(|limit| client.semaphore(&resource, limit));
        let lock = client.lock(resource);
        move || semaphore.as_ref().map_or_else(|| lock.acquire(), |semaphore| semaphore.acquire())
    });
}
