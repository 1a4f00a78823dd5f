//! The floor: the cost of the lock on raw sockets, in one thread, without a library.
//!
//! It sends the same requests as quorlock to all nodes, and waits for the answers of a majority, or of all
//! nodes with `--all`. It has no timeouts, no undo, no reconnects and no waiters. `bench/README.md` describes
//! the protocol of contenders.

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
