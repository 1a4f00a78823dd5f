//! The status of a semaphore: the holder of each permit, and the report of each node. No acquire relies on this status.

use crate::client::lock::Lock;
use crate::client::status::{ask, milliseconds};
use crate::error::{NodeOutcome, NodeReport, Result};
use crate::runtime::Pending;
use crate::wire::answer::Answered;
use crate::wire::reply::{HeldPermit, Holder, Reply, StoredPermits};
use crate::wire::request::Request;
use crate::wire::token::Token;
use quorlock_protocol::Quorum;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The holder of a permit: a majority of the nodes stores the holder's token for this permit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PermitHolder {
    /// The number of the permit, from 0.
    pub slot: u32,
    /// The name that the holder has chosen for itself; `None` if the holder has no name.
    pub holder: Option<String>,
    /// The first 8 characters of the holder's token, which tell holders apart. All permits of one lease have the same
    /// token. The rest of the token is secret.
    pub token: String,
    /// The largest fencing token of the permit on the nodes that store the holder's token; `None` if these nodes have
    /// forgotten the fencing token.
    pub fence: Option<u64>,
    /// The time in milliseconds until fewer than a majority of the nodes hold the permit, unless the lease is extended;
    /// `None` if the time is unknown.
    pub expires_in_ms: Option<u64>,
}

/// The status of a semaphore; see [`Semaphore::status`](crate::Semaphore::status).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SemaphoreStatus {
    /// The name of the resource.
    pub resource: String,
    /// The maximum number of permits, as the querying client has it.
    pub limit: u32,
    /// The number of permits that are free on a majority of the nodes. Slots at or above the limit do not count.
    pub free: u32,
    /// The number of waiters: the length of the longest queue on any node.
    pub waiters: u64,
    /// The holders, in the order of their slots. Slots at or above the limit belong to clients that use a larger limit.
    pub holders: Vec<PermitHolder>,
    /// The report of each node, in the order of the client's list.
    pub nodes: Vec<PermitNode>,
}

/// What one node reports about a semaphore.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PermitNode {
    /// The address of the node, without a password.
    pub address: String,
    /// [`NodeOutcome::Confirmed`] if the node answered. Any other outcome says why there is no report, or why the
    /// report does not count.
    pub outcome: NodeOutcome,
    /// Details of a failure; empty if there is none.
    pub detail: String,
    /// The number of permits that are held on this node; `None` if there is no report, or if the report does not count.
    pub held: Option<u32>,
}

impl SemaphoreStatus {
    /// Returns the status as JSON. The keys are the names of the fields.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it contains only values that JSON can represent")
    }

    fn of(
        resource: &str,
        (limit, quorum): (u32, Quorum),
        answers: Vec<(NodeReport, Answered)>,
    ) -> Self {
        let reports: Vec<_> = answers.iter().map(|(_, answered)| stored(answered)).collect();
        let known = || reports.iter().flatten();
        let mut tokens = BTreeMap::<u32, HashMap<&Token, Vec<&HeldPermit>>>::new();
        let mut held = HashMap::<u32, usize>::new();
        for permit in known().flat_map(|report| &report.held) {
            *held.entry(permit.slot).or_default() += 1;
            if let Holder::Token(token) = &permit.holder {
                tokens.entry(permit.slot).or_default().entry(token).or_default().push(permit);
            }
        }
        let answered = known().count();
        let is_free = |slot: &u32| {
            answered.saturating_sub(held.get(slot).copied().unwrap_or_default()) >= quorum.size()
        };
        let of_majority = |(slot, tokens): (u32, HashMap<&Token, Vec<&HeldPermit>>)| {
            let mut all = tokens.into_iter();
            let (token, permits) = all.find(|(_, permits)| permits.len() >= quorum.size())?;
            let mut left: Vec<_> = permits.iter().filter_map(|permit| permit.expires_in).collect();
            left.sort_unstable();
            let last = left.len().checked_sub(quorum.size()).map(|at| left[at]);
            Some(PermitHolder {
                slot,
                holder: token.holder().map(str::to_owned),
                token: token.shown(),
                fence: permits.iter().filter_map(|permit| permit.fence).max(),
                expires_in_ms: last.map(milliseconds),
            })
        };
        let free = u32::try_from((0..limit).filter(is_free).count()).unwrap_or(limit);
        let waiters = known().filter_map(|report| report.waiters).max().unwrap_or_default();
        let holders = tokens.into_iter().filter_map(of_majority).collect();
        let held = reports.iter().map(|report| report.as_ref().map(|it| it.held.len() as u32));
        let node = |((report, _), held): (&(NodeReport, Answered), Option<u32>)| PermitNode {
            address: report.address.clone(),
            outcome: report.outcome,
            detail: report.detail.clone(),
            held,
        };
        let nodes = answers.iter().zip(held).map(node).collect();
        Self { resource: resource.to_owned(), limit, free, waiters, holders, nodes }
    }
}

/// Returns what a node stores about the semaphore; `None` if the node did not answer, or if the answer does not count.
fn stored(answered: &Answered) -> Option<StoredPermits> {
    match answered {
        Ok(Reply::SeenPermits(stored)) => Some(stored.clone()),
        _ => None,
    }
}

/// Queries the status of a semaphore on all nodes. `lock` acquires the permits of the semaphore.
pub(crate) fn status(lock: &Lock, limit: u32) -> Pending<Result<SemaphoreStatus>> {
    lock.query(async move |driver, keys, resources| {
        let semaphore = Arc::new(keys[0].clone());
        let request = |_| Some(Request::InspectPermits { semaphore: Arc::clone(&semaphore) });
        let answers = ask(&driver, request).await;
        let count = answers.iter().filter(|(_, answered)| stored(answered).is_some()).count();
        if count < driver.quorum.size() {
            let answers: Vec<_> = answers.into_iter().map(|(_, answered)| Some(answered)).collect();
            let patience = driver.options.node_timeout(driver.options.ttl);
            return Err(driver.no_quorum(&resources, &answers, patience));
        }
        Ok(SemaphoreStatus::of(&resources[0], (limit, driver.quorum), answers))
    })
}
