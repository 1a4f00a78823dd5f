//! Detects duplicate nodes: two nodes that are one server would have two votes but only one memory,
//! so a majority that includes both would prove nothing.
//!
//! Owns what is known about the identity of each node. `connect.rs` and `routing.rs` report server
//! ids; `lock` reports duplicates that its rounds reveal.

use crate::error::{Error, NodeOutcome, NodeReport};
use crate::telemetry::events;
use crate::wire::answer::Failure;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The server ids of all nodes of one client, and the known duplicates.
#[derive(Debug)]
pub(crate) struct Identities {
    addresses: Vec<String>,
    known: Mutex<Vec<Identity>>,
    /// Whether any duplicates are known. Checked first, so that the normal case is cheap.
    has_duplicates: AtomicBool,
    /// Whether some node reports no server id and is not `proven` yet. While this is `true`, server ids cannot
    /// rule out duplicates; only a round with the answers of all nodes can.
    needs_proof: AtomicBool,
}

#[derive(Clone, Debug, PartialEq)]
enum Identity {
    /// The node has never been reached.
    Unknown,
    /// The server does not report an id. `proven`: whether the server granted a token that no other node held.
    Unreported { proven: bool },
    /// The id of the server process, or the ids of all servers of a cluster.
    Servers(Vec<String>),
    /// The same server as another node. `of`: the position of that node, if known. `by_id`: whether both
    /// report the same id; otherwise, a round has revealed the duplicate.
    Duplicate { of: Option<usize>, by_id: bool },
}

impl Identities {
    pub(crate) fn new(addresses: Vec<String>) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::new(vec![Identity::Unknown; addresses.len()]),
            addresses,
            has_duplicates: AtomicBool::new(false),
            needs_proof: AtomicBool::new(false),
        })
    }

    /// Records that a node was reached. `ids`: the ids of its servers; empty if the node does not
    /// report any. Fails if the node is the same server as another node. Of two duplicate nodes, the
    /// one that was reached first remains valid.
    pub(crate) fn reached(&self, node: usize, ids: Vec<String>) -> Result<(), Failure> {
        self.change(|known| {
            known[node] = match ids.is_empty() {
                true => Identity::Unreported { proven: false },
                false => {
                    let is_duplicate = |other: &usize| match &known[*other] {
                        Identity::Servers(others) if *other != node => {
                            ids.iter().any(|id| others.contains(id))
                        }
                        _ => false,
                    };
                    let duplicate = (0..known.len()).find(is_duplicate);
                    duplicate.map_or(Identity::Servers(ids), |duplicate| Identity::Duplicate {
                        of: Some(duplicate),
                        by_id: true,
                    })
                }
            };
            // `node` may be another server now. So forget the duplicates of `node` that a round has found.
            // Also forget the duplicates of an unknown node, because `node` may be that node.
            for identity in known.iter_mut() {
                if let Identity::Duplicate { of, by_id: false } = identity
                    && of.is_none_or(|of| of == node)
                {
                    *identity = Identity::Unreported { proven: false };
                }
            }
        });
        self.check(node)
    }

    /// Records that `node` is the same server as `duplicate`, or as an unknown node if `duplicate` is
    /// `None`. The proof: `node` already held a token that was sent to it only once.
    pub(crate) fn found_duplicate(&self, node: usize, duplicate: Option<usize>) {
        self.change(|known| known[node] = Identity::Duplicate { of: duplicate, by_id: false });
    }

    /// Records that the node has voted in a round without proving to be a duplicate, so that no further proof is
    /// needed.
    pub(crate) fn proven(&self, node: usize) {
        self.change(|known| {
            if let Identity::Unreported { proven } = &mut known[node] {
                *proven = true;
            }
        });
    }

    pub(crate) fn needs_proof(&self) -> bool {
        self.needs_proof.load(Ordering::Acquire)
    }

    /// Fails if the node is a duplicate of another node.
    pub(crate) fn check(&self, node: usize) -> Result<(), Failure> {
        if !self.has_duplicates.load(Ordering::Acquire) {
            return Ok(());
        }
        let Identity::Duplicate { of: duplicate, .. } = self.known()[node] else { return Ok(()) };
        let other = duplicate.map_or("another node", |duplicate| &self.addresses[duplicate]);
        let detail = format!("the same server as {other}");
        Err(Failure { outcome: NodeOutcome::Duplicate, detail, sent: false })
    }

    /// The configuration error for duplicate nodes, if there are any.
    pub(crate) fn mistake(&self) -> Option<Error> {
        if !self.has_duplicates.load(Ordering::Acquire) {
            return None;
        }
        let known = self.known();
        let duplicate = |node: usize| match known[node] {
            Identity::Duplicate { of, .. } => Some((node, of)),
            _ => None,
        };
        let (node, duplicate) = (0..known.len()).find_map(duplicate)?;
        // The message may be shown to anyone, so it must not contain addresses: the message names nodes by their
        // positions. The addresses are only in the reports, which must not be shown to everyone.
        let message = match duplicate {
            Some(duplicate) => format!(
                "nodes {} and {} are the same server, whose vote would count twice",
                node.min(duplicate) + 1,
                node.max(duplicate) + 1,
            ),
            None => format!(
                "node {} is the same server as another one, whose vote would count twice",
                node + 1,
            ),
        };
        let report = |node: usize| NodeReport {
            address: self.addresses[node].clone(),
            outcome: NodeOutcome::Duplicate,
            detail: String::new(),
        };
        let nodes = BTreeSet::from_iter([Some(node), duplicate].into_iter().flatten());
        Some(Error::config(message).with_nodes(nodes.into_iter().map(report).collect()))
    }

    fn known(&self) -> MutexGuard<'_, Vec<Identity>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Identity>)) {
        let mut known = self.known();
        let is_duplicate = |identity: &Identity| matches!(identity, Identity::Duplicate { .. });
        let before: Vec<_> = known.iter().map(is_duplicate).collect();
        change(&mut known);

        self.has_duplicates.store(known.iter().any(is_duplicate), Ordering::Release);
        let needs_proof = known.contains(&Identity::Unreported { proven: false });
        self.needs_proof.store(needs_proof, Ordering::Release);
        let found = before.into_iter().zip(known.clone()).enumerate();
        drop(known);
        for (node, (was_duplicate, identity)) in found {
            if let Identity::Duplicate { of, .. } = identity
                && !was_duplicate
            {
                let other = of.map_or("another node", |other| &*self.addresses[other]);
                events::duplicate(&self.addresses[node], other);
            }
        }
    }
}
