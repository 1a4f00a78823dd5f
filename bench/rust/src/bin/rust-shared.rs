//! Cycles of shared and exclusive leases, as a contender: `rust-shared KIND URL...`. `bench/README.md` describes the
//! protocol. KIND is how the loops lock: `exclusive` or `shared`, each its own resource, or `readers`, all of them the
//! same resource in shared mode.

use quorlock::Client;
use quorlock_bench::serve_loops;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().expect("a kind");
    let client = Client::builder().nodes(arguments).auto_extend(false).build().expect("a client");
    serve_loops(|key| {
        let lock = match &*kind {
            "exclusive" => client.lock(format!("exclusive {key}")),
            "shared" => client.lock(format!("shared {key}")).shared(),
            "readers" => client.lock("read by all").shared(),
            other => panic!("{other} is not a kind"),
        };
        move || lock.acquire()
    });
}
