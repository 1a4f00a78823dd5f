//! How an acquire waits: in the local queue, in the nodes' queues, and between rounds.
//!
//! Only `acquire.rs` calls this module. The code here starts no round and answers no caller.

use super::Acquire;
use super::report::blocker;
use crate::error::Error;
use crate::lock::claim::round::RunningRound;
use crate::lock::waiting::subscriber::Notification;
use crate::lock::waiting::waiters::{Place, QueueEntry, RoundReport};
use crate::runtime::clock;
use crate::runtime::random;
use crate::runtime::timer::sleep;
use crate::telemetry::events;
use crate::wire::answer::{Answered, refusals};
use crate::wire::request::{Request, Subject};
use crate::wire::token::Token;
use quorlock_protocol::node::queue;
use quorlock_protocol::{Loss, Moment, Next, NodeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The delay before an acquire repeats a failed request to join a node's queue.
const JOIN_AGAIN: Duration = Duration::from_millis(100);

/// How long an acquire waits for a lease of its own thread or task before the client emits a warning event.
const REENTRANT_AFTER: Duration = Duration::from_secs(1);

impl Acquire {
    /// Waits in the local queue. Returns `None` when it is this acquire's turn, and at once if this acquire does not
    /// queue. Returns an error if `wait` ends first, if too few nodes can vote, or if the acquire must not wait.
    pub(super) async fn wait_in_local_queue(&mut self) -> Option<Error> {
        if self.place.as_ref()?.joined_behind_others {
            self.begin_to_wait(None);
            if let Some(mistake) = self.mistake.take() {
                return Some(mistake);
            }
        }
        let end = self.wait.map(|wait| self.arrived.plus(wait));
        let retry_delay = self.driver.options.retry_delay.longest;
        let place = self.place.as_mut()?;
        let wait = async {
            match end {
                Some(end) => {
                    sleep(end.since(clock::now())).await;
                    // Do not use a report of a lost round that is older than `retry_delay`: it may name a holder that
                    // has released the lock since, or miss a recent outage. Count back from now, not from `end`: the
                    // timer fires late if the machine was suspended.
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

    /// Records that the acquire must wait. `holder` is the name of the holder, if known.
    ///
    /// For a lock, the first call also checks whether the caller waits for its own lease. If so, this method usually
    /// schedules a warning. But if that lease is shared and is released only when the caller's block ends, the wait
    /// could never end. In this case, this method sets `mistake`, so that the acquire fails.
    fn begin_to_wait(&mut self, holder: Option<&str>) {
        if !self.trace.begin_waiting(holder) || self.permits.is_some() {
            return;
        }
        // One check is enough: while the owner waits here, it acquires no other lease.
        let (keys, blocks) = (&self.keys, &self.blocks);
        if !blocks.is_empty()
            && let Some(held) =
                self.renewer.find(keys, |held| held.blocks_acquire_within(blocks, keys))
        {
            self.mistake = Some(Error::config(format!(
                "this is in a block that holds {} in shared mode, so the wait would only end with that block: use \
                 try_upgrade (in Node.js tryUpgrade), or acquire after the block",
                held.grant.resources
            )));
            return;
        }
        let Some(owner) = self.owner else { return };
        let own = self.renewer.find(&self.keys, |held| held.grant.owner == Some(owner));
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

    /// Chooses the permits that the next round tries. If further permits may be free, also gives the next waiter in the
    /// local queue its turn.
    pub(super) fn choose_permits(&mut self) {
        let Some(permits) = &mut self.permits else { return };
        self.keys = permits.choose();
        if let Some(place) = self.place.as_ref().filter(|_| permits.may_be_spare()) {
            place.pass_turn();
        }
    }

    /// Decides whether the next round begins at once, for permits that nodes report as free.
    pub(super) fn may_try_other_permits(&mut self, round: &RunningRound, loss: Loss) -> bool {
        let Some(permits) = &mut self.permits else { return false };
        let waits = self.place.is_some();
        loss != Loss::NoQuorum && permits.learn(&round.answers, self.driver.quorum, waits)
    }

    /// Returns the waiter's entry for the nodes' queues; `None` if the waiter cannot queue yet. For permits, the
    /// waiter's name in the entry contains the number of wanted permits and the limit.
    pub(super) fn queue_entry(&mut self) -> Option<QueueEntry> {
        let entry = self.place.as_mut().and_then(Place::queue_entry)?;
        let Some(permits) = &self.permits else { return Some(entry) };
        let waiter = queue::name_with_permits(&entry.waiter, permits.count, permits.limit);
        Some(QueueEntry { waiter, ..entry })
    }

    /// Shares the result of a lost round with the local queue, and returns what to do next.
    pub(super) fn after_loss(&mut self, round: &RunningRound, loss: Loss) -> Next {
        // A node that refused the ACQUIRE has added the waiter to its queue, because the ACQUIRE carried the queue
        // ticket. If the request to a node failed, the waiter might be missing from that node's queue, so the waiter
        // must join that queue again.
        let failed = |answer: &Option<Answered>| matches!(answer, Some(Err(_)));
        let nodes = 0..round.answers.len();
        nodes.filter(|node| failed(&round.answers[*node])).for_each(|node| {
            self.joined.remove(node);
        });
        // Take the smallest rank: a node that reports a larger rank may still list waiters that have left.
        self.waiting
            .stands_behind(refusals(&round.answers).filter_map(|(_, refusal)| refusal.rank).min());
        let mut next = self.waiting.after(clock::now(), round.sent, loss, random::random());
        if let Next::TryAt(moment) = &mut next {
            for (node, refusal) in refusals(&round.answers) {
                *moment = self.offered(node, &refusal.permits.slots, *moment);
            }
        }
        if let (Next::TryAt(_), Loss::Contended { .. }) = (next, loss) {
            self.begin_to_wait(blocker(&round.answers).map(|blocker| blocker.name));
        }
        if let Some(place) = &mut self.place {
            let outage = self.waiting.outage();
            let at = Some(clock::now());
            place.publish(RoundReport { answers: round.answers.clone().into(), outage, at });
            match (next, loss) {
                (Next::TryAt(_), Loss::Contended { .. }) => place.subscribe(),
                (Next::GiveUp, Loss::NoQuorum) => {
                    let since = clock::now().minus(self.driver.options.connect_timeout);
                    // If this acquire's own deadline has ended an outage that is still short, the others go on.
                    if outage.is_some_and(|outage| outage <= since) {
                        place.end_waiters_since(since);
                    }
                }
                _ => {}
            }
        }
        next
    }

    /// Waits until `next`, or for less time if a notification or another local waiter asks for an earlier round.
    pub(super) async fn pause(&mut self, mut next: Moment) {
        loop {
            self.join_queues();
            let left = next.since(clock::now());
            let Some(place) = &mut self.place else { return sleep(left).await };
            let retry_now = Arc::clone(&place.retry_now);
            let notification = tokio::select! {
                biased;
                Some(notification) = place.next_notification() => notification,
                () = retry_now.notified() => return,
                () = sleep(left) => return,
            };
            match notification {
                Notification::Unqueued(node) => self.joined.remove(node),
                Notification::Offered { node, slots } => next = self.offered(node, &slots, next),
                Notification::Free { node, lock } => {
                    self.trace.notified(self.driver.nodes[node].address());
                    let resource = match &mut self.permits {
                        Some(permits) => permits.notified(node, &lock).then_some(0),
                        None => self.keys.iter().position(|keys| keys.lock == lock),
                    };
                    if let Some(resource) = resource {
                        next = self.called(node, resource, next);
                    }
                }
            }
        }
    }

    /// Records the slots that a node reported as free in a refusal, and returns when to start the next round: at `next`
    /// or earlier.
    fn offered(&mut self, node: usize, slots: &[u32], next: Moment) -> Moment {
        let counts = self.permits.as_mut().is_some_and(|permits| permits.offered(node, slots));
        if counts { self.called(node, 0, next) } else { next }
    }

    /// Records a notification, and returns when to start the next round: at `next` or earlier. `resource` is the
    /// position of the free resource. For permits, `resource` is not used, because all permits belong to one resource.
    fn called(&mut self, node: usize, resource: usize, next: Moment) -> Moment {
        let now = clock::now();
        let delay = self.driver.options.retry_delay;
        let random = random::random();
        match &self.permits {
            Some(permits) => {
                let agree = permits.nodes_agree(self.driver.quorum);
                self.calls.add_offer(now, node, agree, next, delay, random)
            }
            None => self.calls.add(now, node, resource, next, delay, random),
        }
    }

    /// In the background, asks each node that can notify this client, but may not have queued the waiter, to queue the
    /// waiter. A node on which the resource is free then notifies its first waiter at once.
    fn join_queues(&mut self) {
        let Some(entry) = self.queue_entry() else { return };
        let QueueEntry { waiter, ticket, nodes, alive, sender, .. } = entry;
        if nodes == self.joined {
            return;
        }
        if self.queue_subject.is_none() {
            // A waiter joins a queue with a RELEASE that carries a ticket. The token is fresh, so the RELEASE deletes
            // no key.
            let Ok(token) = Token::new(&self.holder) else { return };
            let keys = Arc::clone(&self.keys);
            self.queue_subject = Some(Arc::new(Subject::new(keys, token, Some(waiter))));
        }
        let Some(subject) = &self.queue_subject else { return };
        for node in nodes.without(self.joined).iter() {
            let subject = Arc::clone(subject);
            let turns = self.driver.turns();
            let leave = Request::leave(&subject, turns);
            let join = Request::join(&subject, ticket, turns);
            let target = Arc::clone(&self.driver.nodes[node]);
            let patience = self.node_timeout;
            let join = target.call(join, clock::now(), patience);
            let again = sender.clone();
            let closing = self.driver.closing.clone();
            let alive = Weak::clone(&alive);
            let join = async move {
                if join.await.is_err() {
                    closing.run_until_cancelled(sleep(JOIN_AGAIN)).await;
                    // Sending fails if the acquire has ended.
                    let _ = again.try_send(Notification::Unqueued(node));
                } else if alive.strong_count() == 0 {
                    // The waiter has left all queues meanwhile. This join may have reached the node after the request
                    // to leave, so leave again.
                    let horizon = clock::now().plus(turns.memory);
                    target.deliver(leave, patience, horizon, &closing).await;
                }
            };
            self.driver.detach(join);
        }
        self.has_joined(nodes);
    }

    /// Records that the waiter joins the queues of these nodes, and of no others.
    pub(super) fn has_joined(&mut self, nodes: NodeSet) {
        self.joined = nodes;
        self.may_be_queued = self.may_be_queued.with(nodes);
    }

    /// Leaves the local queue and the nodes' queues. Called when the acquire ends without a lease.
    pub(super) fn leave_node_queues(&mut self) {
        self.place = None;
        let Some(subject) = &self.queue_subject else { return };
        let horizon = clock::now().plus(self.driver.turns().memory);
        for node in std::mem::take(&mut self.may_be_queued).iter() {
            let request = Request::leave(subject, self.driver.turns());
            self.driver.deliver(node, [request], self.node_timeout, horizon);
        }
    }
}
