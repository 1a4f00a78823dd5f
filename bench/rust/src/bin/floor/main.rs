//! The floor: the cost of a lock on raw sockets, in one thread, without a library.
//!
//! `floor NAME COMMANDS [--all] URL...` sends the given commands to all nodes, and waits for the answers of a
//! majority, or of all nodes with `--all`. `bench/commands.py` writes COMMANDS. The floor has no timeouts, no
//! undo, no reconnects and no waiters. `bench/README.md` describes the protocol of contenders.

mod client;
mod node;
mod reply;
mod requests;

use client::Client;
use requests::Commands;

fn main() {
    let (flags, arguments): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let [name, commands, urls @ ..] = arguments.as_slice() else { panic!("no name or commands") };
    let commands = Commands::parse(commands);
    let mut client = Client::new(name, commands, urls, flags == ["--all"]).expect("nodes");
    quorlock_bench::serve(|request| client.run(request));
}
