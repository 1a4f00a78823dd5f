//! The limits of what a node may send. A node that exceeds one fails; it cannot exhaust the memory of this process.
//!
//! All limits are here; `docs/connections.md` tells them to users. `transport/frame.rs` applies those of replies and
//! messages while they arrive.

use redis::{Arg, Cmd};

/// How large a reply or a message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// With all lengths and line ends.
    pub(crate) bytes: u32,
    /// The number of values in it, each of which takes much more memory than the shortest text of one.
    pub(crate) values: u32,
}

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;

/// Everything that has no limit of its own: votes, and most of a handshake. The largest is a refusal of permits, which may
/// name [`MAX_PERMITS`](crate::MAX_PERMITS) slots.
pub(crate) const USUAL: Limit = Limit { bytes: 16 * KIB, values: 2 * KIB };
/// INFO, HELLO, ROLE, CONFIG GET, and what a sentinel reports. Proxies answer INFO with more than what was asked.
pub(crate) const REPORT: Limit = Limit { bytes: 256 * KIB, values: 8 * KIB };
/// INSPECT, which lists all readers of a resource or all permits of a semaphore.
pub(crate) const INSPECTION: Limit = Limit { bytes: 8 * MIB, values: 64 * KIB };
/// LIST: one page of keys.
pub(crate) const PAGE: Limit = Limit { bytes: 16 * MIB, values: 16 * KIB };
/// CLUSTER SLOTS.
pub(crate) const SLOT_MAP: Limit = Limit { bytes: 8 * MIB, values: 512 * KIB };
/// A message on a channel. It names a lock, or has the text of a lease of one resource, with two digits for each byte.
pub(crate) const MESSAGE: Limit = Limit { bytes: 128 * KIB, values: 8 };
/// A single line, such as an error, in bytes.
pub(crate) const LINE: usize = 4 * 1024;
/// The deepest nesting of values. CLUSTER SLOTS has the deepest one that is understood.
pub(crate) const DEPTH: usize = 8;

/// The number of characters of a server's text that errors and reports show.
pub(crate) const SHOWN_TEXT: usize = 300;
/// The masters of a cluster, each of which gets a connection. Redis Cluster is made for up to a thousand.
pub(crate) const MASTERS: usize = 1_000;
/// The messages that may wait for one waiter or one candidate. Further ones are dropped: they only speed things up.
pub(crate) const WAITING_MESSAGES: usize = 64;

/// The limit of the reply to a command of the handshake or of the doctor.
pub(crate) fn of_command(command: &Cmd) -> Limit {
    match command.args_iter().next() {
        Some(Arg::Simple(b"INFO" | b"HELLO" | b"ROLE" | b"CONFIG" | b"SENTINEL")) => REPORT,
        Some(Arg::Simple(b"CLUSTER")) => SLOT_MAP,
        _ => USUAL,
    }
}

/// Cuts a server's text, if it is longer than what is shown.
pub(crate) fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text
}
