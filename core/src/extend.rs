//! Extensions on the wire: one EXTEND to all nodes, for one lease or for many.

use crate::clock;
use crate::driver::Call;
use crate::error::Result;
use crate::held::{Held, Item, tell};
use crate::node::{Answered, answer};
use crate::protocol::{Extended, Loss, Next, Term, Waiting};
use crate::request::{Reply, Request};
use crate::token;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// Extensions under way that share their requests.
pub(crate) struct Extending {
    items: Vec<Item>,
    calls: FuturesUnordered<Call>,
    answers: Vec<Option<Answered>>,
    /// The positions of those that are not decided yet.
    undecided: Vec<usize>,
    decided: Vec<(usize, Arc<Held>, Extended)>,
}

impl Extending {
    /// Sends them. They are at least one, and all of one client.
    pub(crate) fn start(items: Vec<Item>) -> Self {
        let driver = Arc::clone(items[0].lease.driver());
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
                lease.not_extended(lease.driver().reports(&about(answers, position)));
            }
            decided.push((position, Arc::clone(lease), extended));
            false
        });
        true
    }

    /// The leases whose extensions were decided since this was called last, with their positions.
    pub(crate) fn take_decided(&mut self) -> Vec<(usize, Arc<Held>, Extended)> {
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

/// Extends a lease by hand, and tells the caller.
pub(crate) async fn extend(lease: Arc<Held>, term: Term, caller: oneshot::Sender<Result<()>>) {
    let mut caller = Some(caller);
    let driver = lease.driver();
    let (delay, patience) = (driver.options.retry_delay, driver.options.connect_timeout);
    let mut waiting = Waiting::new(clock::now(), None, patience, delay);
    loop {
        let sent = clock::now();
        let Some(item) = lease.begin_now(sent, term) else {
            return tell(&mut caller, Err(lease.lost_now()));
        };
        let mut extending = Extending::start(vec![item]);
        let mut extended = Extended::Undecided;
        while extending.step().await {
            if let Some((_, _, decided)) = extending.take_decided().pop() {
                extended = decided;
                break;
            }
        }
        let result = match extended {
            Extended::Confirmed => Ok(()),
            Extended::Lost => Err(lease.lost_now()),
            Extended::Undecided => {
                let now = clock::now();
                match waiting.after(now, sent, Loss::NoQuorum, token::random()) {
                    Next::GiveUp => {
                        Err(driver.no_quorum(&lease.won.resource, &extending.answers(0)))
                    }
                    Next::TryAt(moment) => {
                        sleep(moment.since(now)).await;
                        continue;
                    }
                }
            }
        };
        tell(&mut caller, result);
        // The nodes that the decision did not wait for are extended as well.
        while extending.step().await {}
        return;
    }
}
