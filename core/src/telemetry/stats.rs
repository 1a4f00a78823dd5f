//! Counters for locks, requests and connections. Any thread may increment a counter, which does not block. `lock` and
//! `node` increment the counters; `client` reads them.

use crate::error::{ErrorCode, NodeOutcome};
use crate::telemetry::histogram::{Histogram, Timings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of a client since this process first used the client. The counters are not read at one instant, so a sum of
/// several counters may be off by the operations in progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Acquires that were started.
    pub attempts: u64,
    /// Acquires that succeeded.
    pub wins: u64,
    /// Acquires that ended with [`ErrorCode::Timeout`]: other leases held the lock for the whole `wait`.
    pub timeouts: u64,
    /// Acquires that ended with [`ErrorCode::NoQuorum`].
    pub no_quorum: u64,
    /// Acquires that ended in any other way: they were cancelled, the client was closed, or its nodes are
    /// misconfigured.
    pub cancelled: u64,
    /// Rounds of requests that acquires needed: one per acquire if no acquire had to wait or retry.
    pub rounds: u64,
    /// Leases that were released while valid. In Rust, dropping a lease releases it.
    pub releases: u64,
    /// Leases that were valid when their client was closed.
    pub closed: u64,
    /// Leases that were valid when they were dropped without being released: see
    /// [`Lease::abandon`](crate::Lease::abandon).
    pub dropped: u64,
    /// Leases that were detached while valid, for another client to adopt: see
    /// [`Lease::detach`](crate::Lease::detach).
    pub detached: u64,
    /// Elections that candidates of this client have won: see [`Client::elect`](crate::Client::elect).
    pub elections: u64,
    /// Leases of this client that a successor has adopted: see [`Lease::hand_over`](crate::Lease::hand_over).
    pub handed_over: u64,
    /// Leases that were lost: they expired, or a majority of the nodes did not hold their keys any more.
    pub losses: u64,
    /// Lost leases that were not renewed because there was no heartbeat. `losses` includes them.
    pub no_heartbeat: u64,
    /// Extensions that a majority confirmed.
    pub extensions: u64,
    /// Extensions that a majority did not confirm. Each may have been followed by another attempt.
    pub extension_failures: u64,
    /// Leases that are currently held.
    pub held: u64,
    /// The acquires in progress that wait for other holders or waiters, or will wait if they lose their first round.
    pub waiting: u64,
    /// The latency of successful acquires.
    pub acquire_seconds: Histogram,
    /// The latency of acquires that had to wait for other holders or waiters, whether the acquires succeeded or not.
    pub wait_seconds: Histogram,
    /// How long leases were held before they ended, for example by a release or a loss.
    pub hold_seconds: Histogram,
    /// The latency of extensions that a majority confirmed.
    pub extension_seconds: Histogram,
    /// The counts for each node, in the order of the client's list.
    pub nodes: Vec<NodeStats>,
}

/// The counts of a client for one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeStats {
    /// The node's URL, without user and password.
    pub address: String,
    /// The current state of the connection to the node.
    pub state: NodeState,
    /// How often the client connected to the node again after the connection was lost.
    pub reconnects: u64,
    /// The number of requests by outcome, as in [`NodeOutcome::as_str`]; outcomes that have not occurred are omitted. A
    /// request that extends many leases counts as one request.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The latency of answers. Requests without an answer are counted in `outcomes` only.
    pub answer_seconds: Histogram,
}

/// The state of the connection to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NodeState {
    /// The node has not been used yet, so there is no connection.
    Idle,
    /// The client is connecting, and no attempt has failed since the node was last connected.
    Connecting,
    /// The client is connected to the node.
    Up,
    /// The last attempt to connect failed, or the node does not answer. Another attempt follows.
    Down,
    /// The client is closed.
    Closed,
}

impl Stats {
    /// Returns the statistics as JSON. The keys are the names of the fields.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it contains only values that JSON can represent")
    }
}

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

/// The counters of one client, without the counters of its nodes.
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
    pub(crate) detached: Count,
    pub(crate) elections: Count,
    pub(crate) handed_over: Count,
    pub(crate) losses: Count,
    pub(crate) no_heartbeat: Count,
    pub(crate) extensions: Count,
    pub(crate) extension_failures: Count,
    pub(crate) held: Count,
    acquiring: Timings,
    pub(crate) contended: Timings,
    pub(crate) holding: Timings,
    pub(crate) extending: Timings,
}

impl Totals {
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
            detached: self.detached.read(),
            elections: self.elections.read(),
            handed_over: self.handed_over.read(),
            losses: self.losses.read(),
            no_heartbeat: self.no_heartbeat.read(),
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

/// The counters of one node. If the node is a Redis Cluster, all its masters share these counters.
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
