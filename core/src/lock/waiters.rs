//! Waiting for a lock: the line within the client, and the notifications of the nodes.

use crate::command::answer::Answered;
use crate::command::keys::Keys;
use crate::command::request::Ticket;
use crate::lock::subscriber::{ConnectionsGuard, Notification, Subscriber};
use crate::node::clocks::Clocks;
use quorlock_protocol::node::queue;
use quorlock_protocol::{Line, Moment, NodeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, mpsc, oneshot};

/// Where the waiters of one client are.
pub(crate) struct Waiters {
    local_queue: Mutex<Line<Arc<[Keys]>, Waiter>>,
    clocks: Arc<Clocks>,
    subscriber: Arc<Subscriber>,
    /// Notified with all report.
    reported: Notify,
}

/// What others know of a waiter.
struct Waiter {
    arrived: Moment,
    /// `None` once it was told.
    turn: Option<oneshot::Sender<Turn>>,
    /// What came of the last round of those who were first in its line.
    report: RoundReport,
    /// Notified when it should try now, if it is first: another one needs to know.
    retry_now: Arc<Notify>,
}

/// What the first in line knows, and leaves to the next.
#[derive(Clone, Default)]
pub(crate) struct RoundReport {
    /// The answers in the last round.
    pub(crate) answers: Arc<[Option<Answered>]>,
    /// Since when too few nodes can vote.
    pub(crate) outage: Option<Moment>,
    /// When that round ended; `None` if there was none yet.
    pub(crate) at: Option<Moment>,
}

enum Turn {
    First,
    /// Too few nodes can vote, and others have tried for long enough.
    NoQuorum,
}

type NotificationChannel =
    (mpsc::UnboundedSender<Notification>, mpsc::UnboundedReceiver<Notification>);

/// Where a waiter stands in the nodes' queues if the round is lost.
pub(crate) struct QueueEntry {
    pub(crate) waiter: Arc<str>,
    pub(crate) ticket: Ticket,
    /// On these nodes.
    pub(crate) nodes: NodeSet,
    /// Gone when it does not wait any more.
    pub(crate) alive: Weak<()>,
}

/// A waiter's place in its client's line. It leaves the line when this is dropped.
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    keys: Arc<[Keys]>,
    number: u64,
    arrived: Moment,
    turn: oneshot::Receiver<Turn>,
    /// Once it contends with other clients.
    notifications: Option<NotificationChannel>,
    /// Once it has to wait.
    connections: Option<ConnectionsGuard>,
    alive: Arc<()>,
    retry_now: Arc<Notify>,
    /// Whether others stood before it when it came.
    joined_behind_others: bool,
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

    fn local_queue(&self) -> MutexGuard<'_, Line<Arc<[Keys]>, Waiter>> {
        self.local_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the line of those who wait for the same.
    pub(crate) fn join(self: &Arc<Self>, keys: &Arc<[Keys]>, arrived: Moment) -> Place {
        let (sender, turn) = oneshot::channel();
        let retry_now = Arc::new(Notify::new());
        let (report, turn_sender) = (RoundReport::default(), Some(sender));
        let waiter =
            Waiter { arrived, turn: turn_sender, report, retry_now: Arc::clone(&retry_now) };
        let (number, is_first) = {
            let mut local_queue = self.local_queue();
            let (number, is_first) = local_queue.join(keys, waiter);
            if is_first && let Some(waiter) = local_queue.get(keys, number) {
                waiter.give_turn(Turn::First);
            }
            (number, is_first)
        };
        let (waiters, keys) = (Arc::clone(self), Arc::clone(keys));
        let alive = Arc::new(());
        let (notifications, connections, joined_behind_others) = (None, None, !is_first);
        Place {
            waiters,
            keys,
            number,
            arrived,
            turn,
            notifications,
            connections,
            alive,
            retry_now,
            joined_behind_others,
        }
    }

    /// How many wait, or will if they do not win at once.
    pub(crate) fn count(&self) -> u64 {
        self.local_queue().len() as u64
    }
}

impl Waiter {
    fn give_turn(&mut self, turn: Turn) {
        if let Some(sender) = self.turn.take() {
            // An error means that it is about to leave.
            let _ = sender.send(turn);
        }
    }
}

impl Place {
    /// Whether others of this client were before it.
    pub(crate) fn joined_behind_others(&self) -> bool {
        self.joined_behind_others
    }

    /// Waits until it is first. Returns whether there is any hope to win then.
    pub(crate) async fn wait_for_turn(&mut self) -> bool {
        // It cannot fail: a waiter is in the line until its place is dropped.
        !matches!((&mut self.turn).await, Ok(Turn::NoQuorum))
    }

    /// Waits, after the end of its wait, until the first in line has report from `since` or later, and returns
    /// `None`; or until it is first itself, and returns what [`Place::wait_for_turn`] does. So that many waits that
    /// end together cost one round, the first in line is asked to try now.
    pub(crate) async fn wait_for_report(&mut self, since: Moment) -> Option<bool> {
        let waiters = Arc::clone(&self.waiters);
        loop {
            let reported = waiters.reported.notified();
            if self.report().at.is_some_and(|at| at >= since) {
                return None;
            }
            if let Some(first) = waiters.local_queue().waiters(&self.keys).next() {
                first.retry_now.notify_one();
            }
            tokio::select! {
                biased;
                may_try = self.wait_for_turn() => return Some(may_try),
                () = reported => {}
            }
        }
    }

    /// Is notified when it should try now, because another waiter needs to know.
    pub(crate) fn retry_now(&self) -> Arc<Notify> {
        Arc::clone(&self.retry_now)
    }

    /// What the first in line has found out.
    pub(crate) fn report(&self) -> RoundReport {
        let local_queue = self.waiters.local_queue();
        local_queue.waiters(&self.keys).next().map(|first| first.report.clone()).unwrap_or_default()
    }

    /// What came of a round, for those behind.
    pub(crate) fn publish(&self, report: RoundReport) {
        if let Some(waiter) = self.waiters.local_queue().get(&self.keys, self.number) {
            waiter.report = report;
        }
        self.waiters.reported.notify_waiters();
    }

    /// Too few nodes can vote: those who have been waiting since then need not find out for themselves.
    pub(crate) fn end_waiters_since(&self, since: Moment) {
        self.waiters.local_queue().each(&self.keys, |waiter| {
            if waiter.arrived <= since {
                waiter.give_turn(Turn::NoQuorum);
            }
        });
    }

    /// It has to wait: notifications are to be notification.
    pub(crate) fn subscribe(&mut self) {
        self.register();
        let subscriber = &self.waiters.subscriber;
        self.connections.get_or_insert_with(|| subscriber.keep_open());
    }

    /// Listens from the beginning if notifications are notification already, for others. It may not have to wait, so
    /// that is no reason to go on with it.
    pub(crate) fn subscribe_if_connected(&mut self) {
        if !self.waiters.subscriber.connected().is_empty() {
            self.register();
        }
    }

    fn register(&mut self) {
        self.notifications.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.waiters.subscriber.register(self.number, sender.clone());
            (sender, receiver)
        });
    }

    /// Lets it hear something else, later.
    pub(crate) fn sender(&self) -> Option<mpsc::UnboundedSender<Notification>> {
        self.notifications.as_ref().map(|(sender, _)| sender.clone())
    }

    /// Waits for the next call.
    pub(crate) async fn next_notification(&mut self) -> Notification {
        match &mut self.notifications {
            Some((_, notifications)) => match notifications.recv().await {
                Some(notification) => notification,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Where it stands in the nodes' queues; `None` if it does not listen, or as long as no node has told
    /// the time.
    pub(crate) fn queue_entry(&self) -> Option<QueueEntry> {
        self.notifications.as_ref()?;
        let subscriber = &self.waiters.subscriber;
        Some(QueueEntry {
            waiter: queue::name(subscriber.channel(), self.number),
            ticket: self.waiters.clocks.at(self.arrived)?,
            nodes: subscriber.connected(),
            alive: Arc::downgrade(&self.alive),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.notifications.is_some() {
            self.waiters.subscriber.unregister(self.number);
        }
        let mut local_queue = self.waiters.local_queue();
        let report = local_queue.get(&self.keys, self.number).map(|waiter| waiter.report.clone());
        if let Some(next) = local_queue.leave(&self.keys, self.number) {
            next.report = report.unwrap_or_default();
            next.give_turn(Turn::First);
        }
    }
}
