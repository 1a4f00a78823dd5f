//! The files that the daemon may open, each client being one. Some are reserved, so that clients cannot keep the daemon from
//! connecting to nodes, without which it loses all leases.

use crate::output::{Failure, Output};
use quorlock::Client;
use rustix::process::{Resource, getrlimit, setrlimit};

/// What a node may need at the same time: a connection, its replacement, a subscription, its replacement, and what a
/// look-up of the host reads.
const NODE: u64 = 8;
/// The same for a URL that leads to many servers.
const SERVERS: u64 = 128;
/// What is needed apart from that, such as for the client that is refused.
const OTHERS: u64 = 8;
/// How many files the daemon has open at most before it has clients.
const FEW: u64 = 64;

/// Returns how many clients there can be at the same time, at most `wanted`. Call it when everything else is open. Fails if
/// not even one is possible.
pub(crate) fn clients(wanted: u32, client: &Client, output: &Output) -> Result<usize, Failure> {
    let limit = raise_limit();
    let servers = |address: &str| {
        let scheme = address.split("://").next().unwrap_or_default();
        if scheme.contains("cluster") || scheme.contains("sentinel") { SERVERS } else { NODE }
    };
    let reserved = open_files() + OTHERS + client.addresses().map(servers).sum::<u64>();
    let room = limit.saturating_sub(reserved);
    if room == 0 {
        let message = format!(
            "the limit of open files, {limit}, is too low: the daemon needs {reserved}, and one for each client"
        );
        return Err(Failure::own(&message, &rustix::io::Errno::MFILE.into()));
    }
    if room < u64::from(wanted) {
        output.note(format_args!(
            "the limit of open files, {limit}, has room for {room} clients, not for --max-clients {wanted}"
        ));
    }
    Ok(usize::try_from(room.min(wanted.into())).unwrap_or(usize::MAX))
}

/// Raises the limit of open files as far as it goes. Returns the limit.
fn raise_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if setrlimit(Resource::Nofile, limit).is_err() {
            limit.current = before;
        }
    }
    limit.current.unwrap_or(u64::MAX)
}

/// Returns how many files this process has open, or an estimate where that cannot be seen.
fn open_files() -> u64 {
    // One of them is the directory itself.
    std::fs::read_dir("/dev/fd").map_or(FEW, |files| (files.count() as u64).saturating_sub(1))
}
