//! Sends EXTEND: one request to all nodes, for one or more leases. Also repairs the leases of won rounds.
//!
//! The protocol decides whether an extension is confirmed; `held/extension.rs` records the decision. The renewer
//! extends many leases, `Lease::extend` extends one lease, and [`verify`] checks which nodes hold the key of a lease.
//!
//! If only a bare majority of the nodes holds a lease's key, the lease is lost when one of these nodes loses its
//! memory. So a finished round sets the keys on the nodes that did not grant the round, with [`repair`]. Later, each
//! extension repairs the nodes that report a missing key. Only the protocol decides which nodes count towards the
//! majority.

use crate::error::Result;
use crate::lock::claim::heal::send_heal;
use crate::lock::claim::held::extension::PendingExtension;
use crate::lock::claim::held::{HeldLease, answer_caller};
use crate::lock::driver::Driver;
use crate::node::exchange::PackedRequest;
use crate::node::fanout::FanOut;
use crate::runtime::clock;
use crate::runtime::random;
use crate::runtime::timer::{sleep, timeout};
use crate::wire::answer::{Answered, about, answer};
use crate::wire::request::Request;
use futures_util::future::join_all;
use quorlock_protocol::{Answer, Extended, Extension, Loss, Next, Term, Waiting};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The extensions of one or more leases of a client, which share one EXTEND to each node.
pub(crate) struct ExtensionBatch {
    driver: Arc<Driver>,
    items: Vec<PendingExtension>,
    fan_out: FanOut,
    answers: Vec<Option<Answered>>,
    /// For each item, whether the result of its extension is known.
    is_decided: Vec<bool>,
    /// Whether any node has answered that it lacks a key.
    some_missing: bool,
}

impl ExtensionBatch {
    /// Sends EXTEND to all nodes. `is_renewal`: whether the renewer sends it. All items must belong to the same client. All must have the same ttl, because the ttl
    /// determines how long the request waits for answers.
    ///
    /// # Panics
    ///
    /// If `items` is empty.
    pub(crate) fn start(items: Vec<PendingExtension>, is_renewal: bool) -> Self {
        let driver = Arc::clone(&items[0].lease.driver);
        let ttl = |item: &PendingExtension| item.lease.grant.term.ttl;
        debug_assert!(items.iter().all(|item| ttl(item) == ttl(&items[0])));
        let lock = |item: &PendingExtension| (item.lease.subject(), item.extension.term().ttl);
        let request = Request::Extend(items.iter().map(lock).collect());
        #[cfg(test)]
        crate::lock::steps::sending(&request, items.iter().map(|item| &item.extension));
        let request = match is_renewal {
            true => PackedRequest::renewal(request),
            false => request.into(),
        };
        let extensions = || items.iter().map(|item| &item.extension);
        let began = extensions().map(Extension::sent).min().unwrap_or_else(clock::now);
        let patience = extensions().map(Extension::patience).max().unwrap_or_default();
        Self {
            fan_out: driver.broadcast(request, began, patience),
            answers: vec![None; driver.nodes.len()],
            is_decided: vec![false; items.len()],
            some_missing: false,
            driver,
            items,
        }
    }

    /// Waits for one node's answer, and records the answer for each item. Returns the positions and results of the
    /// items that this answer decides; `None` if every node has already answered or timed out.
    pub(crate) async fn step(&mut self) -> Option<Vec<(usize, Extended)>> {
        let (node, answered) = self.fan_out.next().await?;
        self.answers[node] = Some(answered.clone());
        let mut decided = Vec::new();
        for position in 0..self.items.len() {
            let answer = answer(&about(&answered, position));
            self.some_missing |= answer == Answer::No;
            let PendingExtension { lease, extension } = &mut self.items[position];
            // After the decision, an answer matters only in two cases: a key is missing and must be repaired, or the
            // lease was released and the node may need a second RELEASE.
            if self.is_decided[position] && answer != Answer::No && !lease.is_released() {
                continue;
            }
            let Some(extended) = lease.record_answer(extension, node, answer) else { continue };
            if !std::mem::replace(&mut self.is_decided[position], true) {
                let lease = Arc::clone(lease);
                let sent = extension.sent();
                let failure_reports = match extended {
                    Extended::Confirmed => Vec::new(),
                    _ => self.driver.reports(&self.answers(position)),
                };
                lease.record_decision(extended, sent, failure_reports);
                decided.push((position, extended));
            }
        }
        if self.some_missing {
            self.repair_missing();
        }
        Some(decided)
    }

    /// Starts to repair nodes that lack the keys of leases whose extensions are confirmed.
    fn repair_missing(&mut self) {
        let mut batches = vec![Vec::new(); self.driver.nodes.len()];
        for PendingExtension { lease, extension } in &mut self.items {
            let nodes = extension.take_missing();
            if !nodes.is_empty()
                && let Some(ttl) = lease.begin_repair(nodes)
            {
                nodes.iter().for_each(|node| batches[node].push((Arc::clone(lease), ttl)));
            }
        }
        let batches = batches.into_iter().enumerate().filter(|(_, leases)| !leases.is_empty());
        for (node, leases) in batches {
            let repair = send_heal(Arc::clone(&self.driver), node, leases);
            self.driver.detach(async move {
                repair.await;
            });
        }
    }

    /// Returns the nodes' answers so far for the item at this position.
    pub(crate) fn answers(&self, position: usize) -> Vec<Option<Answered>> {
        let about = |answered: &Option<Answered>| answered.as_ref().map(|a| about(a, position));
        self.answers.iter().map(about).collect()
    }
}

/// Extends a lease for a caller, and sends the result to `caller`. While too few nodes confirm, retries for up to
/// `connect_timeout`.
pub(crate) async fn extend(lease: Arc<HeldLease>, term: Term, caller: oneshot::Sender<Result<()>>) {
    let mut caller = Some(caller);
    let driver = &lease.driver;
    let delay = driver.options.retry_delay;
    let patience = driver.options.connect_timeout;
    let mut waiting = Waiting::new(clock::now(), None, patience, delay);
    loop {
        let (sent, extension) = loop {
            lease.wait_for_upgrade().await;
            let sent = clock::now();
            let begun = lease.state().claim.extend(sent, term, lease.node_timeout());
            match begun {
                Some(extension) => break (sent, extension),
                None if !lease.is_valid(sent) => {
                    return answer_caller(&mut caller, Err(lease.lost_error()));
                }
                // An upgrade of the lease has begun after the wait, so wait for its end again.
                None => {}
            }
        };
        let item = PendingExtension { lease: Arc::clone(&lease), extension };
        let mut extending = ExtensionBatch::start(vec![item], false);
        let mut extended = Extended::Undecided;
        while let Some(decided) = extending.step().await {
            if let Some((_, decided)) = decided.first() {
                extended = *decided;
                break;
            }
        }
        let result = match extended {
            Extended::Confirmed => Ok(()),
            Extended::Lost => Err(lease.lost_error()),
            Extended::Undecided => {
                let now = clock::now();
                match waiting.after(now, sent, Loss::NoQuorum, random::random()) {
                    Next::GiveUp => {
                        // Collects more answers, so that the error reports the nodes that are up.
                        let others = async { while extending.step().await.is_some() {} };
                        let _ = timeout(delay.longest, others).await;
                        let resources = &lease.grant.resources;
                        let answers = extending.answers(0);
                        Err(driver.no_quorum(resources, &answers, lease.node_timeout()))
                    }
                    Next::TryAt(moment) => {
                        sleep(moment.since(now)).await;
                        continue;
                    }
                }
            }
        };
        answer_caller(&mut caller, result);
        // Wait for the remaining nodes: dropping the batch now would cancel the requests that are not sent yet, but
        // these nodes must also extend their keys.
        while extending.step().await.is_some() {}
        return;
    }
}

/// Sends HEAL to the nodes that lack the lease's key, until all nodes count for the lease, the lease ends or the client
/// is closed. The pause between two tries doubles, from the shortest retry delay to a third of the ttl.
///
/// Several tries may be needed: a node may still hold the key of another waiter's round that is about to be
/// undone, or may be slow or unreachable.
pub(crate) async fn repair(driver: &Arc<Driver>, lease: Arc<HeldLease>) {
    let mut pause = driver.options.retry_delay.shortest;
    let longest = (lease.grant.term.ttl / 3).max(pause);
    while needs_repair(&lease) {
        if !lease.is_held_after(pause).await {
            return;
        }
        let missing = lease.state().claim.lease().missing();
        let Some(ttl) = lease.begin_repair(missing) else {
            if !lease.is_valid(clock::now()) || lease.grant.fate.is_elsewhere() {
                return;
            }
            // An upgrade of the lease is under way or has just ended, so try again after the next pause.
            continue;
        };
        let requests = |node| send_heal(Arc::clone(driver), node, vec![(Arc::clone(&lease), ttl)]);
        let is_doubtful = join_all(missing.iter().map(requests)).await.contains(&true);
        // Another client may have held the resource on a majority meanwhile: check that a majority confirms
        // this lease.
        if is_doubtful || has_uncounted_nodes(&lease) {
            verify(&lease).await;
        }
        pause = (pause * 2).min(longest);
    }
}

fn needs_repair(lease: &HeldLease) -> bool {
    has_uncounted_nodes(lease) || !lease.state().claim.lease().missing().is_empty()
}

/// Whether any nodes hold the key but do not count towards the majority, because they may have granted the resource to
/// another lease since this lease was won. A verification makes these nodes count again.
fn has_uncounted_nodes(lease: &HeldLease) -> bool {
    lease.state().claim.lease().has_passed()
}

/// Verifies a lease: sends an EXTEND that checks which nodes hold the key, and that does not move the validity end.
/// Returns when every node has answered or timed out, and at once if the lease has ended or is being upgraded.
pub(crate) async fn verify(lease: &Arc<HeldLease>) {
    let begun = lease.state().claim.verify(clock::now(), lease.node_timeout());
    let Some(extension) = begun else { return };
    let item = PendingExtension { lease: Arc::clone(lease), extension };
    let mut verifying = ExtensionBatch::start(vec![item], false);
    while verifying.step().await.is_some() {}
}
