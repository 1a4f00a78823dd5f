//! Which servers a client's nodes are. Two nodes that are one server would have two votes with but
//! one memory, which no majority can rely on.

use crate::command::answer::Failure;
use crate::error::{Error, NodeOutcome, same_server};
use crate::telemetry::events;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of the nodes of one client.
#[derive(Debug)]
pub(crate) struct Identities {
    addresses: Vec<String>,
    known: Mutex<Vec<Identity>>,
    /// Whether two are known to be one server; so that the usual case costs nothing.
    has_duplicates: AtomicBool,
    /// Whether it takes the answers of all nodes to a token to find out whether two are one.
    needs_proof: AtomicBool,
}

#[derive(Clone, Debug, PartialEq)]
enum Identity {
    /// It was never reached.
    Unknown,
    /// It does not tell. `proven` once it granted a token that all other nodes answered to.
    Untold { proven: bool },
    /// The server process of this id; or all servers of a cluster.
    Servers(Vec<String>),
    /// The same server as this other node, if it is known which; `told` by itself, or found out.
    Duplicate { of: Option<usize>, told: bool },
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

    /// A node was reached, and told the id of its process, or those of all servers of a cluster, if any.
    /// Fails if it is the same server
    /// as another node: the one that was reached first stays.
    pub(crate) fn reached(&self, node: usize, ids: Vec<String>) -> Result<(), Failure> {
        self.change(|known| {
            known[node] = match ids.is_empty() {
                true => Identity::Untold { proven: false },
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
                        told: true,
                    })
                }
            };
            // Another server may be there now than when this was found out.
            for identity in known.iter_mut() {
                if let Identity::Duplicate { of, told: false } = identity
                    && of.is_none_or(|of| of == node)
                {
                    *identity = Identity::Untold { proven: false };
                }
            }
        });
        self.check(node)
    }

    /// A node answered that it holds a token that was sent to it but once: so did `duplicate`.
    pub(crate) fn found_duplicate(&self, node: usize, duplicate: Option<usize>) {
        self.change(|known| known[node] = Identity::Duplicate { of: duplicate, told: false });
    }

    /// The node granted a token that no other node said to hold already.
    pub(crate) fn proven(&self, node: usize) {
        self.change(|known| {
            if let Identity::Untold { proven } = &mut known[node] {
                *proven = true;
            }
        });
    }

    pub(crate) fn needs_proof(&self) -> bool {
        self.needs_proof.load(Ordering::Acquire)
    }

    /// Fails if the node is the same server as another one.
    pub(crate) fn check(&self, node: usize) -> Result<(), Failure> {
        if !self.has_duplicates.load(Ordering::Acquire) {
            return Ok(());
        }
        let Identity::Duplicate { of: duplicate, .. } = self.known()[node] else { return Ok(()) };
        let other = duplicate.map_or("another node", |duplicate| &self.addresses[duplicate]);
        let detail = format!("the same server as {other}");
        Err(Failure { outcome: NodeOutcome::Duplicate, detail, sent: false })
    }

    /// The error that names two nodes that are one server, if any are.
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
        let address = &self.addresses[node];
        let message = match duplicate {
            Some(duplicate) => {
                same_server((node, address), (duplicate, &self.addresses[duplicate]))
            }
            None => format!(
                "node {} ({address}) is the same server as another one of {}, whose vote would \
                 count twice",
                node + 1,
                self.addresses.join(", "),
            ),
        };
        Some(Error::config(message))
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
        let needs_proof = known.contains(&Identity::Untold { proven: false });
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
