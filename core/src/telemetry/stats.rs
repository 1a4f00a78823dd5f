//! Counts of what became of locks and of requests.

use crate::error::{ErrorCode, NodeOutcome};
use crate::telemetry::histogram::{Histogram, Timings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a client has counted in this process since it was first used here. The counts are read one
/// after the other while others go on, so they need not add up to the last one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Acquires that were begun.
    pub attempts: u64,
    /// Acquires that won: leases.
    pub wins: u64,
    /// Acquires that ended with [`ErrorCode::Timeout`]: others held it for the whole `wait`.
    pub timeouts: u64,
    /// Acquires that ended with [`ErrorCode::NoQuorum`].
    pub no_quorum: u64,
    /// Acquires that ended otherwise: cancelled, by the end of the client, or by a mistake in its nodes.
    pub cancelled: u64,
    /// Rounds of requests that acquires took. As many as attempts if nobody had to wait.
    pub rounds: u64,
    /// Leases that were valid until they were released. In Rust, dropping a lease releases it.
    pub releases: u64,
    /// Leases that were valid until their client was closed.
    pub closed: u64,
    /// Leases that were valid when they were dropped without being released: see
    /// [`Lease::abandon`](crate::Lease::abandon).
    pub dropped: u64,
    /// Leases that were lost.
    pub losses: u64,
    /// Extensions that a majority confirmed.
    pub extensions: u64,
    /// Extensions that a majority did not confirm. Another one may have been tried.
    pub extension_failures: u64,
    /// Leases that are held now.
    pub held: u64,
    /// Acquires that are under way now and wait for others, or will if they do not win at once: the
    /// length of all lines together.
    pub waiting: u64,
    /// How long acquires that won took, in all.
    pub acquire_seconds: Histogram,
    /// How long acquires took that others kept waiting, won or not.
    pub wait_seconds: Histogram,
    /// How long leases were held, until they were released, dropped or lost.
    pub hold_seconds: Histogram,
    /// How long extensions took that a majority confirmed.
    pub extension_seconds: Histogram,
    /// The nodes, in the order in which the client was given them.
    pub nodes: Vec<NodeStats>,
}

/// What became of the requests to one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeStats {
    /// The node's URL, without user and password.
    pub address: String,
    /// Its connection, now.
    pub state: NodeState,
    /// How often it was connected again after a connection had broken or was given up.
    pub reconnects: u64,
    /// How many requests had this outcome, by [`NodeOutcome::as_str`]; those that none had are left
    /// out. An extension of many leases is one request.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// How long answers took. Requests that had none are in `outcomes` only.
    pub answer_seconds: Histogram,
}

/// The connection to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NodeState {
    /// Nothing was asked of the node yet.
    Idle,
    /// Being made, with a chance of success.
    Connecting,
    /// In use.
    Up,
    /// The last attempt failed, or the node does not answer; it is tried again.
    Down,
    /// The client is closed.
    Closed,
}

impl Stats {
    /// The counts as JSON, with the names of the fields.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("there is nothing in it that JSON can't hold")
    }
}

/// A number that any thread may change.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted for all of a client.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) attempts: Count,
    wins: Count,
    timeouts: Count,
    no_quorum: Count,
    cancelled: Count,
    pub(crate) rounds: Count,
    pub(crate) releases: Count,
    pub(crate) closed: Count,
    pub(crate) dropped: Count,
    pub(crate) losses: Count,
    pub(crate) extensions: Count,
    pub(crate) extension_failures: Count,
    pub(crate) held: Count,
    acquiring: Timings,
    pub(crate) contended: Timings,
    pub(crate) holding: Timings,
    pub(crate) extending: Timings,
}

impl Totals {
    /// An acquire took so long to win, or to end in an error.
    pub(crate) fn acquired(&self, result: Result<(), ErrorCode>, took: Duration) {
        match result {
            Ok(()) => {
                self.wins.up();
                self.acquiring.add(took);
            }
            Err(ErrorCode::Timeout) => self.timeouts.up(),
            Err(ErrorCode::NoQuorum) => self.no_quorum.up(),
            Err(_) => self.cancelled.up(),
        }
    }

    pub(crate) fn read(&self, waiting: u64, nodes: Vec<NodeStats>) -> Stats {
        Stats {
            attempts: self.attempts.read(),
            wins: self.wins.read(),
            timeouts: self.timeouts.read(),
            no_quorum: self.no_quorum.read(),
            cancelled: self.cancelled.read(),
            rounds: self.rounds.read(),
            releases: self.releases.read(),
            closed: self.closed.read(),
            dropped: self.dropped.read(),
            losses: self.losses.read(),
            extensions: self.extensions.read(),
            extension_failures: self.extension_failures.read(),
            held: self.held.read(),
            waiting,
            acquire_seconds: self.acquiring.read(),
            wait_seconds: self.contended.read(),
            hold_seconds: self.holding.read(),
            extension_seconds: self.extending.read(),
            nodes,
        }
    }
}

/// One node's counts. The masters of a cluster count together.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    outcomes: [Count; NodeOutcome::ALL.len()],
    pub(crate) reconnects: Count,
    pub(crate) answers: Timings,
}

impl Counters {
    pub(crate) fn count(&self, outcome: NodeOutcome) {
        self.outcomes[outcome as usize].up();
    }

    pub(crate) fn outcomes(&self) -> BTreeMap<&'static str, u64> {
        let all = NodeOutcome::ALL.into_iter();
        let counted = all.map(|outcome| (outcome.as_str(), self.outcomes[outcome as usize].read()));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}
