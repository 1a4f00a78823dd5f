//! Waiting for a lock: the local queue of each resource, and a waiter's entry in the nodes' queues.
//!
//! Waiters of one client for the same resources form a FIFO queue, and usually only the first waiter sends requests to
//! the nodes. Queues decide which waiter tries next, never who holds a lock. An acquire joins with [`Waiters::join`]
//! and leaves by dropping its [`Place`].

use crate::lock::waiting::subscriber::{ConnectionsGuard, Notification, Subscriber, Topic};
use crate::node::clocks::Clocks;
use crate::runtime::mutex::Mutex;
use crate::wire::answer::Answered;
use crate::wire::keys::Keys;
use crate::wire::limits::WAITING_MESSAGES;
use crate::wire::request::Ticket;
use quorlock_protocol::node::queue;
use quorlock_protocol::{Line, Moment, NodeSet};
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, mpsc, oneshot};

/// The waiters of one client, in one local queue for each set of resources.
pub(crate) struct Waiters {
    local_queue: Mutex<Line<Arc<[Keys]>, Waiter>>,
    clocks: Arc<Clocks>,
    subscriber: Arc<Subscriber>,
    /// Notified whenever a waiter publishes a [`RoundReport`].
    reported: Notify,
}

/// What the local queue stores about a waiter.
struct Waiter {
    arrived: Moment,
    /// Sends the message that ends the wait in this queue; `None` after the message was sent.
    turn: Option<oneshot::Sender<Turn>>,
    /// The report of this waiter's last round or, before its first round, of its predecessor's last round.
    report: RoundReport,
    /// Notified when another waiter needs the result of a round. If this waiter is first in the queue, the notification
    /// makes it start a round at once.
    retry_now: Arc<Notify>,
}

/// The result of the last round of the first waiter in a local queue. The next waiter inherits the report.
#[derive(Clone, Default)]
pub(crate) struct RoundReport {
    /// Each node's answer in that round.
    pub(crate) answers: Arc<[Option<Answered>]>,
    /// The moment since which too few nodes can vote; `None` if enough nodes can vote.
    pub(crate) outage: Option<Moment>,
    /// When that round ended; `None` before the first round.
    pub(crate) at: Option<Moment>,
}

/// The message that ends the wait of a waiter in the local queue.
enum Turn {
    First,
    /// Too few nodes can vote, and this waiter has already waited for at least `connect_timeout`. This waiter fails
    /// without a round of its own.
    NoQuorum,
}

type NotificationChannel = (mpsc::Sender<Notification>, mpsc::Receiver<Notification>);

/// A waiter's entry in the nodes' queues. A node adds the entry when it refuses an ACQUIRE that carries the
/// ticket.
#[derive(Clone)]
pub(crate) struct QueueEntry {
    pub(crate) waiter: Arc<str>,
    pub(crate) ticket: Ticket,
    /// The nodes whose notifications reach this client.
    pub(crate) nodes: NodeSet,
    /// A weak reference that is dead after the waiter has dropped its [`Place`].
    pub(crate) alive: Weak<()>,
    /// A weak reference that is dead after the waiter has started another round or dropped its [`Place`].
    pub(crate) round: Weak<()>,
    /// Sends notifications to the waiter between two rounds.
    pub(crate) sender: mpsc::Sender<Notification>,
}

impl QueueEntry {
    /// Whether the waiter has stopped waiting.
    pub(crate) fn has_left(&self) -> bool {
        self.alive.strong_count() == 0
    }

    /// Whether the waiter still waits and has started another round. A node may already have granted the new round, so
    /// the undo of the earlier round must not put the waiter back into the node's queue.
    pub(crate) fn has_gone_on(&self) -> bool {
        !self.has_left() && self.round.strong_count() == 0
    }
}

/// A waiter's place in the local queue. Dropping the place leaves the queue and gives the next waiter its turn.
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    keys: Arc<[Keys]>,
    number: u64,
    arrived: Moment,
    /// The waiter's ticket; `None` until the waiter first needs it. The ticket must not change, because the nodes order
    /// the waiters by their tickets. The client therefore computes the ticket only once: a second computation could
    /// give another ticket, because the nodes' clocks do not run at the rate of this client's clock.
    ticket: Option<Ticket>,
    turn: oneshot::Receiver<Turn>,
    /// Carries notifications to the waiter; `None` until the waiter registers with the subscriber.
    notifications: Option<NotificationChannel>,
    /// Keeps the subscriptions open; `None` until the waiter loses a round to contention.
    connections: Option<ConnectionsGuard>,
    alive: Arc<()>,
    /// Replaced at the start of each round, which makes [`QueueEntry::round`] of earlier rounds dead.
    round: Arc<()>,
    /// Notified when another waiter asks this waiter to start a round now.
    pub(crate) retry_now: Arc<Notify>,
    /// Whether other waiters of this client were in the queue when this waiter joined.
    pub(crate) joined_behind_others: bool,
}

impl Waiters {
    pub(crate) fn new(clocks: Arc<Clocks>, subscriber: Arc<Subscriber>) -> Arc<Self> {
        Arc::new(Self {
            local_queue: Mutex::default(),
            clocks,
            subscriber,
            reported: Notify::new(),
        })
    }

    /// Joins the local queue for these keys. If the queue is empty, it is the waiter's turn immediately.
    pub(crate) fn join(self: &Arc<Self>, keys: &Arc<[Keys]>, arrived: Moment) -> Place {
        let (sender, turn) = oneshot::channel();
        let retry_now = Arc::new(Notify::new());
        let waiter = Waiter {
            arrived,
            turn: Some(sender),
            report: RoundReport::default(),
            retry_now: Arc::clone(&retry_now),
        };
        let (number, is_first) = {
            let mut local_queue = self.local_queue.lock();
            let (number, is_first) = local_queue.join(keys, waiter);
            if is_first && let Some(waiter) = local_queue.get(keys, number) {
                waiter.give_turn(Turn::First);
            }
            (number, is_first)
        };
        Place {
            waiters: Arc::clone(self),
            keys: Arc::clone(keys),
            number,
            arrived,
            ticket: None,
            turn,
            notifications: None,
            connections: None,
            alive: Arc::new(()),
            round: Arc::new(()),
            retry_now,
            joined_behind_others: !is_first,
        }
    }

    /// Subscribes to a channel on all nodes, including nodes that are connected later.
    pub(crate) fn subscribe(&self, channel: &str) -> Topic {
        self.subscriber.subscribe(channel)
    }

    /// Returns the number of acquires in the local queues, including those whose turn it is.
    pub(crate) fn count(&self) -> u64 {
        self.local_queue.lock().len() as u64
    }
}

impl Waiter {
    fn give_turn(&mut self, turn: Turn) {
        if let Some(sender) = self.turn.take() {
            // Fails only if the waiter is dropping its place.
            let _ = sender.send(turn);
        }
    }
}

impl Place {
    /// Waits until this waiter has its turn to try, and returns `true`. Returns `false` if the waiter must fail
    /// instead, because too few nodes can vote. Must not be called again after it has returned.
    pub(crate) async fn wait_for_turn(&mut self) -> bool {
        // The result is never `Err`: the queue keeps the sender until the message is sent or `self` is dropped.
        !matches!((&mut self.turn).await, Ok(Turn::NoQuorum))
    }

    /// Waits for a report of a round that ended at `since` or later, and returns `None`. If this waiter's turn comes
    /// earlier, returns the result of [`Place::wait_for_turn`]. Called when the `wait` of an acquire ends while the
    /// acquire still waits in the local queue.
    ///
    /// This method asks the first waiter to start a round now, so that one round serves all waits that end at the same
    /// time.
    pub(crate) async fn wait_for_report(&mut self, since: Moment) -> Option<bool> {
        let waiters = Arc::clone(&self.waiters);
        loop {
            let reported = waiters.reported.notified();
            if self.report().at.is_some_and(|at| at >= since) {
                return None;
            }
            if let Some(first) = waiters.local_queue.lock().waiters(&self.keys).next() {
                first.retry_now.notify_one();
            }
            tokio::select! {
                biased;
                may_try = self.wait_for_turn() => return Some(may_try),
                () = reported => {}
            }
        }
    }

    /// Returns the report of the first waiter in the local queue.
    pub(crate) fn report(&self) -> RoundReport {
        let local_queue = self.waiters.local_queue.lock();
        local_queue.waiters(&self.keys).next().map(|first| first.report.clone()).unwrap_or_default()
    }

    /// Leaves the queue after the acquire has won. If the lease is shared, first gives all waiters in this queue their
    /// turn, because all of them can share the resources.
    pub(crate) fn win(self) {
        if self.keys.iter().all(Keys::is_shared) {
            let mut local_queue = self.waiters.local_queue.lock();
            local_queue.each(&self.keys, |waiter| waiter.give_turn(Turn::First));
        }
    }

    /// Gives the next waiter its turn, although this waiter still has its own turn and stays in the queue.
    pub(crate) fn pass_turn(&self) {
        if let Some(next) = self.waiters.local_queue.lock().after(&self.keys, self.number) {
            next.give_turn(Turn::First);
        }
    }

    /// Publishes the result of this waiter's round to the waiters behind it.
    pub(crate) fn publish(&self, report: RoundReport) {
        if let Some(waiter) = self.waiters.local_queue.lock().get(&self.keys, self.number) {
            waiter.report = report;
        }
        self.waiters.reported.notify_waiters();
    }

    /// Ends the wait of all waiters that joined the local queue at `since` or earlier: too few nodes can vote, and
    /// rounds of these waiters would have the same result.
    pub(crate) fn end_waiters_since(&self, since: Moment) {
        self.waiters.local_queue.lock().each(&self.keys, |waiter| {
            if waiter.arrived <= since {
                waiter.give_turn(Turn::NoQuorum);
            }
        });
    }

    /// Begins a round. From now on, the undo of an earlier round leaves the nodes' queues unchanged, even if the undo
    /// is sent later.
    pub(crate) fn begin_round(&mut self) {
        self.round = Arc::new(());
    }

    /// Registers for notifications, and keeps the subscriptions open until the place is dropped.
    pub(crate) fn subscribe(&mut self) {
        self.register();
        let subscriber = &self.waiters.subscriber;
        self.connections.get_or_insert_with(|| subscriber.keep_open());
    }

    /// Registers for notifications if subscriptions of this client are open already. Does not keep the subscriptions
    /// open, because this waiter may win its first round.
    pub(crate) fn subscribe_if_connected(&mut self) {
        if !self.waiters.subscriber.connected().is_empty() {
            self.register();
        }
    }

    fn register(&mut self) {
        self.notifications.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(WAITING_MESSAGES);
            self.waiters.subscriber.register(self.number, sender.clone());
            (sender, receiver)
        });
    }

    /// Waits for the next notification. `None` if the waiter is not registered. Cancel-safe.
    pub(crate) async fn next_notification(&mut self) -> Option<Notification> {
        self.notifications.as_mut()?.1.recv().await
    }

    /// Returns the waiter's entry for the nodes' queues. `None` if the waiter is not registered for notifications, or
    /// if no node has reported its clock yet: the ticket is a time by the nodes' clocks.
    pub(crate) fn queue_entry(&mut self) -> Option<QueueEntry> {
        let sender = self.notifications.as_ref()?.0.clone();
        let Waiters { subscriber, clocks, .. } = &*self.waiters;
        self.ticket = self.ticket.or_else(|| clocks.at(self.arrived).map(queue::ticket));
        Some(QueueEntry {
            waiter: queue::name(subscriber.channel(), self.number),
            ticket: self.ticket?,
            nodes: subscriber.connected(),
            alive: Arc::downgrade(&self.alive),
            round: Arc::downgrade(&self.round),
            sender,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.notifications.is_some() {
            self.waiters.subscriber.unregister(self.number);
        }
        let mut local_queue = self.waiters.local_queue.lock();
        let report = local_queue.get(&self.keys, self.number).map(|waiter| waiter.report.clone());
        if let Some(next) = local_queue.leave(&self.keys, self.number) {
            next.report = report.unwrap_or_default();
            next.give_turn(Turn::First);
        }
    }
}
