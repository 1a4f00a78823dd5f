//! Extensions on the wire: one EXTEND to all nodes, for one lease or for many.

use crate::command::answer::{Answered, about, answer};
use crate::command::request::Request;
use crate::error::Result;
use crate::lock::driver::Driver;
use crate::lock::heal::send_heal;
use crate::lock::held::extension::PendingExtension;
use crate::lock::held::{HeldLease, answer_caller};
use crate::node::fanout::FanOut;
use crate::runtime::clock;
use crate::runtime::random;
use crate::runtime::timer::sleep;
use quorlock_protocol::{Answer, Extended, Loss, Next, Term, Waiting};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Extensions under way that share their requests.
pub(crate) struct ExtensionBatch {
    driver: Arc<Driver>,
    items: Vec<PendingExtension>,
    fan_out: FanOut,
    answers: Vec<Option<Answered>>,
    /// Which of them are decided.
    is_decided: Vec<bool>,
    decided: Vec<(usize, Arc<HeldLease>, Extended)>,
    /// Whether any node lacks any of the keys.
    some_missing: bool,
}

impl ExtensionBatch {
    /// Sends them. They are at least one, and all of one client.
    pub(crate) fn start(items: Vec<PendingExtension>) -> Self {
        let driver = Arc::clone(items[0].lease.driver());
        let locks = items
            .iter()
            .map(|PendingExtension { lease, extension, .. }| lease.extend_target(extension));
        let request = Request::Extend(locks.collect());
        let began = items.iter().map(|item| item.sent).min().unwrap_or_else(clock::now);
        let patience = items.iter().map(|item| item.patience).max().unwrap_or_default();
        Self {
            fan_out: driver.broadcast(request, began, patience),
            answers: vec![None; driver.nodes.len()],
            is_decided: vec![false; items.len()],
            decided: Vec::new(),
            some_missing: false,
            driver,
            items,
        }
    }

    /// Takes in one node's answer; `false` if there is none to come.
    pub(crate) async fn step(&mut self) -> bool {
        let Some((node, answered)) = self.fan_out.next().await else { return false };
        self.answers[node] = Some(answered.clone());
        for position in 0..self.items.len() {
            let answer = answer(&about(&answered, position));
            self.some_missing |= answer == Answer::No;
            // Of what is decided, only what there is to heal matters.
            if self.is_decided[position] && answer != Answer::No {
                continue;
            }
            let PendingExtension { lease, extension, sent, .. } = &mut self.items[position];
            let Some(extended) = lease.record_answer(extension, node, answer) else { continue };
            if !std::mem::replace(&mut self.is_decided[position], true) {
                let (lease, sent) = (Arc::clone(lease), *sent);
                let failure_reports = match extended {
                    Extended::Confirmed => Vec::new(),
                    _ => self.driver.reports(&self.answers(position)),
                };
                lease.record_decision(extended, sent, failure_reports);
                self.decided.push((position, lease, extended));
            }
        }
        if self.some_missing {
            self.repair_missing();
        }
        true
    }

    fn repair_missing(&mut self) {
        let mut batches = vec![Vec::new(); self.driver.nodes.len()];
        for PendingExtension { lease, extension, .. } in &mut self.items {
            let nodes = extension.take_missing();
            if let Some(ttl) = lease.begin_repair(nodes) {
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

    /// The leases whose extensions were decided since this was called last, with their positions.
    pub(crate) fn take_decided(&mut self) -> Vec<(usize, Arc<HeldLease>, Extended)> {
        std::mem::take(&mut self.decided)
    }

    /// The nodes' answers so far about the lease at this position.
    pub(crate) fn answers(&self, position: usize) -> Vec<Option<Answered>> {
        let about = |answered: &Option<Answered>| answered.as_ref().map(|a| about(a, position));
        self.answers.iter().map(about).collect()
    }
}

/// Extends a lease by hand, and tells the caller.
pub(crate) async fn extend(lease: Arc<HeldLease>, term: Term, caller: oneshot::Sender<Result<()>>) {
    let mut caller = Some(caller);
    let driver = lease.driver();
    let (delay, patience) = (driver.options.retry_delay, driver.options.connect_timeout);
    let mut waiting = Waiting::new(clock::now(), None, patience, delay);
    loop {
        let sent = clock::now();
        let Some(item) = lease.begin_manual_extension(sent, term) else {
            return answer_caller(&mut caller, Err(lease.lost_error()));
        };
        let mut extending = ExtensionBatch::start(vec![item]);
        let mut extended = Extended::Undecided;
        while extending.step().await {
            if let Some((_, _, decided)) = extending.take_decided().pop() {
                extended = decided;
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
                        Err(driver.no_quorum(&lease.grant.resources, &extending.answers(0)))
                    }
                    Next::TryAt(moment) => {
                        sleep(moment.since(now)).await;
                        continue;
                    }
                }
            }
        };
        answer_caller(&mut caller, result);
        // The nodes that the decision did not wait for are extended as well.
        while extending.step().await {}
        return;
    }
}
