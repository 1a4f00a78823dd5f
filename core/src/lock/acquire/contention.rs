//! What an acquire does while others hold the lock or are before it: it waits in the local queue of its
//! client, in the queues of the nodes, and between rounds.

use super::Acquire;
use crate::command::answer::Answered;
use crate::command::request::{Request, Subject};
use crate::error::Error;
use crate::lock::round::RunningRound;
use crate::lock::subscriber::Notification;
use crate::lock::waiters::{Place, Queued, RoundReport};
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
    pub(super) async fn turn(&mut self) -> Option<Error> {
        if self.place.as_ref()?.stood_behind() {
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
        let has_hope = tokio::select! {
            biased;
            has_hope = place.is_first() => Some(has_hope),
            since = wait => place.is_informed(since).await,
        };
        let RoundReport { answers, outage, .. } = place.report();
        match (has_hope, outage) {
            (Some(true), outage) => {
                if let Some(since) = outage {
                    self.waiting.met_outage(since.max(self.arrived));
                }
                None
            }
            (None, None) => Some(self.error(Loss::Contended { free_in: None }, &answers)),
            (Some(false), _) | (None, Some(_)) => Some(self.error(Loss::NoQuorum, &answers)),
        }
    }

    /// Others have it, or are before it in the line.
    fn begin_to_wait(&mut self) {
        if !self.trace.wait() || self.owner.is_none() {
            return;
        }
        // Its owner waits from now on, so it acquires nothing else meanwhile.
        let own = self.renewer.find(&self.keys, |held| held.won.owner == self.owner);
        let Some(held) = own else { return };
        let waiting = CancellationToken::new();
        self.reentrant = Some(waiting.clone().drop_guard());
        let resources = self.resources.clone();
        let warn = waiting.run_until_cancelled_owned(async move {
            sleep(REENTRANT_AFTER).await;
            if held.is_valid(clock::now()) {
                events::reentrant(&resources, held.won.fence);
            }
        });
        self.driver.detach(async move {
            warn.await;
        });
    }

    /// What follows a round that was lost.
    pub(super) fn lost(&mut self, round: &RunningRound, loss: Loss) -> Next {
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
                (Next::TryAt(_), Loss::Contended { .. }) => place.listen(),
                (Next::GiveUp, Loss::NoQuorum) => {
                    let patience = self.driver.options.connect_timeout;
                    place.give_up_with_others(clock::now().minus(patience));
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
            let hurry = place.hurry();
            let notification = tokio::select! {
                biased;
                notification = place.notification() => notification,
                () = hurry.notified() => return,
                () = sleep(left) => return,
            };
            match notification {
                Notification::Unqueued(node) => self.joined.remove(node),
                Notification::Free { node, lock } => {
                    self.trace.called(self.driver.nodes[node].address());
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
        let Some(queued) = self.place.as_ref().and_then(Place::queued) else { return };
        let Queued { waiter, ticket, nodes, waits } = queued;
        if nodes == self.joined {
            return;
        }
        if self.queued.is_none() {
            // There is nothing to release; but the token must be nobody's.
            let Ok(token) = random::token() else { return };
            let keys = Arc::clone(&self.keys);
            self.queued = Some(Arc::new(Subject { keys, token, waiter: Some(waiter) }));
        }
        let Some(subject) = &self.queued else { return };
        let Some(sender) = self.place.as_ref().and_then(Place::sender) else { return };
        for node in nodes.iter().filter(|node| !self.joined.contains(*node)) {
            let (subject, turns) = (Arc::clone(subject), self.driver.turns());
            let leave = Request::release(&subject, turns);
            let request = Request::Release { subject, ticket: Some(ticket), turns };
            let join = self.driver.call(node, request, clock::now(), self.node_timeout);
            let (again, closing) = (sender.clone(), self.driver.closing.clone());
            let (target, patience) = (Arc::clone(&self.driver.nodes[node]), self.node_timeout);
            let waits = Weak::clone(&waits);
            let join = async move {
                if join.await.is_err() {
                    closing.run_until_cancelled(sleep(JOIN_AGAIN)).await;
                    // An error means that nobody waits any more.
                    let _ = again.send(Notification::Unqueued(node));
                } else if waits.strong_count() == 0 {
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
    pub(super) fn leave(&mut self) {
        self.place = None;
        let Some(queued) = &self.queued else { return };
        let horizon = clock::now().plus(self.driver.turns().memory);
        for node in std::mem::take(&mut self.joined).iter() {
            let request = Request::release(queued, self.driver.turns());
            self.driver.deliver(node, request, self.node_timeout, horizon);
        }
    }
}
