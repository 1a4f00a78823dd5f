//! What an acquire does while others hold the lock or are before it: it waits in the local queue of its
//! client, in the queues of the nodes, and between rounds.

use super::Acquire;
use crate::command::answer::Answered;
use crate::command::request::{Request, Subject};
use crate::error::Error;
use crate::lock::round::RunningRound;
use crate::lock::subscriber::Notification;
use crate::lock::waiters::{Place, QueueEntry, RoundReport};
use crate::runtime::clock;
use crate::runtime::random;
use crate::runtime::timer::sleep;
use crate::telemetry::events;
use quorlock_protocol::{Loss, Moment, Next};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How soon a queue is joined again after that failed for want of a connection.
const JOIN_AGAIN: Duration = Duration::from_millis(100);

/// How long a thread or task waits for a lock that it holds itself before an event warns of it.
const REENTRANT_AFTER: Duration = Duration::from_secs(1);

impl Acquire {
    /// Waits in the client's line; returns why it was in vain.
    pub(super) async fn wait_in_local_queue(&mut self) -> Option<Error> {
        if self.place.as_ref()?.joined_behind_others() {
            self.begin_to_wait();
        }
        let end = self.wait.map(|wait| self.arrived.plus(wait));
        let retry_delay = self.driver.options.retry_delay.longest;
        let place = self.place.as_mut()?;
        let wait = async {
            match end {
                Some(end) => {
                    sleep(end.since(clock::now())).await;
                    // Older report may be of a holder that is gone, or of nodes that are down since. The timer
                    // may be late: it stands still while the machine is suspended.
                    clock::now().minus(retry_delay).max(self.arrived)
                }
                None => std::future::pending().await,
            }
        };
        let may_try = tokio::select! {
            biased;
            may_try = place.wait_for_turn() => Some(may_try),
            since = wait => place.wait_for_report(since).await,
        };
        let RoundReport { answers, outage, .. } = place.report();
        match (may_try, outage) {
            (Some(true), outage) => {
                if let Some(since) = outage {
                    self.waiting.met_outage(since.max(self.arrived));
                }
                None
            }
            (None, None) => Some(self.loss_error(Loss::Contended { free_in: None }, &answers)),
            (Some(false), _) | (None, Some(_)) => Some(self.loss_error(Loss::NoQuorum, &answers)),
        }
    }

    /// Others have it, or are before it in the line.
    fn begin_to_wait(&mut self) {
        if !self.trace.begin_waiting() || self.owner.is_none() {
            return;
        }
        // Its owner waits from now on, so it acquires nothing else meanwhile.
        let own = self.renewer.find(&self.keys, |held| held.grant.owner == self.owner);
        let Some(held) = own else { return };
        let waiting = CancellationToken::new();
        self.reentrant_warning = Some(waiting.clone().drop_guard());
        let resources = self.resources.clone();
        let warn = waiting.run_until_cancelled_owned(async move {
            sleep(REENTRANT_AFTER).await;
            if held.is_valid(clock::now()) {
                events::reentrant(&resources, held.grant.fence);
            }
        });
        self.driver.detach(async move {
            warn.await;
        });
    }

    /// What follows a round that was lost.
    pub(super) fn after_loss(&mut self, round: &RunningRound, loss: Loss) -> Next {
        // It joined with its request, except where that failed.
        let failed = |answer: &Option<Answered>| matches!(answer, Some(Err(_)));
        let nodes = 0..round.answers.len();
        nodes.filter(|node| failed(&round.answers[*node])).for_each(|node| {
            self.joined.remove(node);
        });
        // Where others are said to be before it by some nodes only, they may be gone.
        self.waiting.stands_behind(round.refusals().filter_map(|refusal| refusal.rank).min());
        self.trace.lose_round(loss);
        let next = self.waiting.after(clock::now(), round.sent, loss, random::random());
        if let (Next::TryAt(_), Loss::Contended { .. }) = (next, loss) {
            self.begin_to_wait();
        }
        if let Some(place) = &mut self.place {
            let outage = self.waiting.outage();
            let at = Some(clock::now());
            place.publish(RoundReport { answers: round.answers.clone().into(), outage, at });
            match (next, loss) {
                (Next::TryAt(_), Loss::Contended { .. }) => place.subscribe(),
                (Next::GiveUp, Loss::NoQuorum) => {
                    let patience = self.driver.options.connect_timeout;
                    place.end_waiters_since(clock::now().minus(patience));
                }
                _ => {}
            }
        }
        next
    }

    /// Waits until it is time for another round: at `next`, or earlier if the nodes call.
    pub(super) async fn pause(&mut self, mut next: Moment) {
        loop {
            self.join_queues();
            let left = next.since(clock::now());
            let Some(place) = &mut self.place else { return sleep(left).await };
            let retry_now = place.retry_now();
            let notification = tokio::select! {
                biased;
                notification = place.next_notification() => notification,
                () = retry_now.notified() => return,
                () = sleep(left) => return,
            };
            match notification {
                Notification::Unqueued(node) => self.joined.remove(node),
                Notification::Free { node, lock } => {
                    self.trace.notified(self.driver.nodes[node].address());
                    let resource = self.keys.iter().position(|keys| keys.lock == lock);
                    let (now, random) = (clock::now(), random::random());
                    let Some(resource) = resource else { continue };
                    let delay = self.driver.options.retry_delay;
                    next = self.calls.add(now, node, resource, next, delay, random);
                    if next <= now {
                        return;
                    }
                }
            }
        }
    }

    /// Joins the queues of those nodes that it has begun to listen to. A node where the resource is
    /// free by now calls at once.
    fn join_queues(&mut self) {
        let Some(entry) = self.place.as_ref().and_then(Place::queue_entry) else { return };
        let QueueEntry { waiter, ticket, nodes, alive } = entry;
        if nodes == self.joined {
            return;
        }
        if self.queue_subject.is_none() {
            // There is nothing to release; but the token must be nobody's.
            let Ok(token) = random::token() else { return };
            let keys = Arc::clone(&self.keys);
            self.queue_subject = Some(Arc::new(Subject { keys, token, waiter: Some(waiter) }));
        }
        let Some(subject) = &self.queue_subject else { return };
        let Some(sender) = self.place.as_ref().and_then(Place::sender) else { return };
        for node in nodes.iter().filter(|node| !self.joined.contains(*node)) {
            let (subject, turns) = (Arc::clone(subject), self.driver.turns());
            let leave = Request::release(&subject, turns);
            let request = Request::Release { subject, ticket: Some(ticket), turns };
            let join = self.driver.call(node, request, clock::now(), self.node_timeout);
            let (again, closing) = (sender.clone(), self.driver.closing.clone());
            let (target, patience) = (Arc::clone(&self.driver.nodes[node]), self.node_timeout);
            let alive = Weak::clone(&alive);
            let join = async move {
                if join.await.is_err() {
                    closing.run_until_cancelled(sleep(JOIN_AGAIN)).await;
                    // An error means that nobody waits any more.
                    let _ = again.send(Notification::Unqueued(node));
                } else if alive.strong_count() == 0 {
                    // The node may have been asked to let it join again, after it had left.
                    let horizon = clock::now().plus(turns.memory);
                    target.deliver(leave, patience, horizon, &closing).await;
                }
            };
            self.driver.detach(join);
        }
        self.joined = nodes;
    }

    /// Leaves the nodes' queues, in vain.
    pub(super) fn leave_node_queues(&mut self) {
        self.place = None;
        let Some(subject) = &self.queue_subject else { return };
        let horizon = clock::now().plus(self.driver.turns().memory);
        for node in std::mem::take(&mut self.joined).iter() {
            let request = Request::release(subject, self.driver.turns());
            self.driver.deliver(node, request, self.node_timeout, horizon);
        }
    }
}
