//! Extensions on the wire: one EXTEND to all nodes, for one lease or for many.

use crate::acquire::reports;
use crate::driver::{Call, Driver};
use crate::held::Held;
use crate::node::{Answered, answer};
use crate::protocol::{Extended, Extension};
use crate::request::{Reply, Request};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use std::time::Duration;

/// One lease's extension.
pub(crate) struct Item {
    pub(crate) lease: Arc<Held>,
    pub(crate) extension: Extension,
    /// How long to wait for the nodes' answers.
    pub(crate) patience: Duration,
}

/// Extensions under way that share their requests.
pub(crate) struct Extending {
    items: Vec<Item>,
    calls: FuturesUnordered<Call>,
    answers: Vec<Option<Answered>>,
    /// The positions of those that are not decided yet.
    undecided: Vec<usize>,
    decided: Vec<(Arc<Held>, Extended)>,
}

impl Extending {
    /// Sends them.
    pub(crate) fn start(driver: &Driver, items: Vec<Item>) -> Self {
        let locks = items.iter().map(|Item { lease, extension, .. }| lease.to_extend(extension));
        let request = Request::Extend(locks.collect());
        let patience = items.iter().map(|item| item.patience).max().unwrap_or_default();
        Self {
            calls: driver.call_all(&request, patience),
            answers: vec![None; driver.nodes.len()],
            undecided: (0..items.len()).collect(),
            decided: Vec::new(),
            items,
        }
    }

    /// Takes in one node's answer; `false` if there is none to come.
    pub(crate) async fn step(&mut self) -> bool {
        let Some((node, answered)) = self.calls.next().await else { return false };
        self.answers[node] = Some(answered.clone());
        let Self { items, answers, decided, .. } = self;
        self.undecided.retain(|&position| {
            let Item { lease, extension, .. } = &mut items[position];
            let answer = answer(&answered.clone().map(|reply| reply.about(position)));
            let Some(extended) = lease.extended(extension, node, answer) else { return true };
            if extended != Extended::Confirmed {
                lease.not_extended(reports(lease.driver(), &about(answers, position)));
            }
            decided.push((Arc::clone(lease), extended));
            false
        });
        true
    }

    /// The leases whose extensions were decided since this was called last.
    pub(crate) fn take_decided(&mut self) -> Vec<(Arc<Held>, Extended)> {
        std::mem::take(&mut self.decided)
    }

    /// The nodes' answers so far about the lease at this position.
    pub(crate) fn answers(&self, position: usize) -> Vec<Option<Answered>> {
        about(&self.answers, position)
    }
}

fn about(answers: &[Option<Answered>], position: usize) -> Vec<Option<Answered>> {
    let about = |answered: Answered| answered.map(|reply: Reply| reply.about(position));
    answers.iter().map(|answered| answered.clone().map(about)).collect()
}
