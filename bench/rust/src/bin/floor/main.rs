//! The floor: what the lock costs on raw sockets, in one thread, without a library.
//!
//! It sends what quorlock sends, its scripts with the same parameters, to all nodes, and waits for the
//! answers of a majority; with `--all`, of all. It has no timeouts, no undo and no reconnects, and nobody
//! ever waits for its locks. `bench/README.md` says what a contender does.

mod client;
mod node;
mod reply;
mod requests;

use client::Client;

fn main() {
    let (flags, urls): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let mut client = Client::new(&urls, flags == ["--all"]).expect("nodes");
    quorlock_bench::serve(|request| client.run(request));
}
