//! Limits on what a node may send. A node that exceeds a limit counts as failed, so a faulty node cannot exhaust the
//! memory of this process.
//!
//! All limits are here; `docs/connections.md` lists them for users. `transport/frame.rs` applies the limits of replies
//! and messages while the data arrives.

use redis::{Arg, Cmd};

/// The largest size of a reply or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The number of bytes on the wire, including the lengths and line ends of RESP.
    pub(crate) bytes: u32,
    /// The number of values. It has its own limit, because a value of a few bytes takes much more memory after it is
    /// parsed.
    pub(crate) values: u32,
}

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;

/// For replies without a limit of their own, such as votes and most replies of a handshake. The largest such reply is a
/// refusal of permits, which may name [`MAX_PERMITS`](crate::MAX_PERMITS) slots.
pub(crate) const USUAL: Limit = Limit { bytes: 16 * KIB, values: 2 * KIB };
/// For the reply to a batch. Each request of the batch may be refused with the name of the holder.
pub(crate) const BATCH: Limit = Limit { bytes: 64 * KIB, values: 2 * KIB };
/// For the replies to INFO, HELLO, ROLE and CONFIG GET, and the replies of sentinels. Proxies answer INFO
/// with more than the requested section.
pub(crate) const REPORT: Limit = Limit { bytes: 256 * KIB, values: 8 * KIB };
/// For the reply to INSPECT, which lists all readers of a resource or all held permits of a semaphore.
pub(crate) const INSPECTION: Limit = Limit { bytes: 8 * MIB, values: 64 * KIB };
/// For the reply to LIST: one page of keys.
pub(crate) const PAGE: Limit = Limit { bytes: 16 * MIB, values: 16 * KIB };
/// For the reply to CLUSTER SLOTS.
pub(crate) const SLOT_MAP: Limit = Limit { bytes: 8 * MIB, values: 512 * KIB };
/// For a message on a channel. A message names a lock, or contains a lease of one resource as text. The text needs two
/// hexadecimal digits for each byte of the lease.
pub(crate) const MESSAGE: Limit = Limit { bytes: 128 * KIB, values: 8 };
/// The largest length of a single line, such as an error, in bytes.
pub(crate) const LINE: usize = 4 * 1024;
/// The largest depth of nested values. The reply to CLUSTER SLOTS has the deepest nesting of all replies that quorlock
/// parses.
pub(crate) const DEPTH: usize = 8;

/// The largest number of characters of a server's text that errors and reports show.
pub(crate) const SHOWN_TEXT: usize = 300;
/// The largest number of masters of a cluster, each of which gets a connection. Redis Cluster is designed for up to a
/// thousand masters.
pub(crate) const MASTERS: usize = 1_000;
/// The largest number of messages that may be pending for one waiter or for one candidate of an election. Further
/// messages are dropped. This is safe, because messages only make waiters and candidates try sooner.
pub(crate) const WAITING_MESSAGES: usize = 64;

/// Returns the size limit of the reply to a command of the handshake or of the doctor.
pub(crate) fn of_command(command: &Cmd) -> Limit {
    match command.args_iter().next() {
        Some(Arg::Simple(b"INFO" | b"HELLO" | b"ROLE" | b"CONFIG" | b"SENTINEL")) => REPORT,
        Some(Arg::Simple(b"CLUSTER")) => SLOT_MAP,
        _ => USUAL,
    }
}

/// Cuts a server's text to at most [`SHOWN_TEXT`] characters.
pub(crate) fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text
}
