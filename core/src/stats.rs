//! Counts of what became of requests.

use crate::error::NodeOutcome;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a client has counted in this process since it was first used here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// The nodes, in the order in which the client was given them.
    pub nodes: Vec<NodeStats>,
}

/// What became of the requests to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStats {
    /// The node's URL, without user and password.
    pub address: String,
    /// How many requests had this outcome, by [`NodeOutcome::as_str`]; those that none had are left
    /// out. An extension of many leases is one request.
    pub outcomes: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// The counts as JSON, with the names of the fields.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("there is nothing in it that JSON can't hold")
    }
}

/// One node's counts.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; NodeOutcome::ALL.len()]);

impl Counters {
    pub(crate) fn count(&self, outcome: NodeOutcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn outcomes(&self) -> BTreeMap<&'static str, u64> {
        let all = NodeOutcome::ALL.into_iter();
        let counted =
            all.map(|outcome| (outcome.as_str(), self.0[outcome as usize].load(Ordering::Relaxed)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}
