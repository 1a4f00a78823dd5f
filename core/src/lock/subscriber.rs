//! Receives the nodes' notifications, over a separate connection to each node.
//!
//! The connections are open while an acquire of this client waits, and for [`IDLE`] after that. A
//! lost notification delays a waiter until its next try and has no other effect. `waiters.rs`
//! registers waiters here; this module only sends them [`Notification`]s.

use crate::config::endpoint::Endpoint;
use crate::runtime;
use crate::runtime::clock;
use crate::runtime::random;
use crate::runtime::timer::{sleep, timeout};
use crate::transport::subscription::Subscription;
use futures_util::future::join_all;
use quorlock_protocol::NodeSet;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// The time for which the connections stay open after the last waiter has left.
const IDLE: Duration = Duration::from_secs(5);
/// The first and the longest delay between two attempts to connect.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// An event that a waiter receives between two rounds.
pub(crate) enum Notification {
    /// The resource with this lock key is free on this node, and this waiter is first in the node's queue.
    Free { node: usize, lock: String },
    /// The waiter might not be in this node's queue, so it must join the queue.
    Unqueued(usize),
}

/// The subscriptions of one client.
pub(crate) struct Subscriber {
    endpoints: Vec<Endpoint>,
    connect_timeout: Duration,
    closing: CancellationToken,
    /// The client's `key_prefix`, with which the channel's name begins.
    prefix: String,
    channel: OnceLock<String>,
    /// The number of [`ConnectionsGuard`]s that exist.
    waiting: watch::Sender<usize>,
    state: Mutex<SubscriberState>,
}

#[derive(Default)]
struct SubscriberState {
    /// The registered waiters, by their numbers.
    waiters: HashMap<u64, mpsc::UnboundedSender<Notification>>,
    connected: NodeSet,
    is_running: bool,
}

/// Keeps the connections open until it is dropped.
pub(crate) struct ConnectionsGuard(Arc<Subscriber>);

impl Drop for ConnectionsGuard {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

impl Subscriber {
    pub(crate) fn new(
        endpoints: &[Endpoint],
        connect_timeout: Duration,
        prefix: &str,
        closing: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            endpoints: endpoints.to_vec(),
            connect_timeout,
            closing: closing.clone(),
            prefix: prefix.to_owned(),
            channel: OnceLock::new(),
            waiting: watch::Sender::new(0),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, SubscriberState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the channel on which the nodes notify this client: random, and the same for all
    /// nodes.
    pub(crate) fn channel(&self) -> &str {
        self.channel.get_or_init(|| {
            let number = u64::from(random::random()) << 32 | u64::from(random::random());
            format!("{}quorlock:{number:016x}", self.prefix)
        })
    }

    /// Returns the nodes with an open subscription. Their notifications reach this client now.
    pub(crate) fn connected(&self) -> NodeSet {
        self.state().connected
    }

    /// Sends further notifications for the waiter with this number to `waiter`. Does not keep the connections
    /// open.
    pub(crate) fn register(&self, number: u64, waiter: mpsc::UnboundedSender<Notification>) {
        self.state().waiters.insert(number, waiter);
    }

    pub(crate) fn unregister(&self, number: u64) {
        self.state().waiters.remove(&number);
    }

    /// Opens the connections and keeps them open until the guard is dropped. Must be called on the runtime.
    pub(crate) fn keep_open(self: &Arc<Self>) -> ConnectionsGuard {
        let mut state = self.state();
        self.waiting.send_modify(|waiting| *waiting += 1);
        if !state.is_running {
            let subscriber = Arc::clone(self);
            runtime::serve(move || Arc::clone(&subscriber).run());
            state.is_running = true;
        }
        ConnectionsGuard(Arc::clone(self))
    }

    /// Keeps a subscription to each node open while there are guards. Ends some time after the last guard was
    /// dropped; `keep_open` then starts this task again.
    async fn run(self: Arc<Self>) {
        loop {
            self.state().connected = NodeSet::EMPTY;
            let subscriptions = (0..self.endpoints.len()).map(|node| self.stay_subscribed(node));
            tokio::select! {
                biased;
                () = self.closing.cancelled() => {}
                () = self.wait_until_idle() => {}
                _ = join_all(subscriptions) => {}
            }
            let mut state = self.state();
            state.connected = NodeSet::EMPTY;
            if *self.waiting.borrow() == 0 || self.closing.is_cancelled() {
                state.is_running = false;
                return;
            }
        }
    }

    /// Waits until there has been no [`ConnectionsGuard`] for [`IDLE`].
    async fn wait_until_idle(&self) {
        let mut waiting = self.waiting.subscribe();
        loop {
            // Fails only if the sender was dropped, but `self` owns the sender.
            let _ = waiting.wait_for(|waiting| *waiting == 0).await;
            if timeout(IDLE, waiting.wait_for(|waiting| *waiting > 0)).await.is_err() {
                return;
            }
        }
    }

    /// Keeps a subscription to one node open. Never returns.
    async fn stay_subscribed(self: &Arc<Self>, node: usize) {
        let (shortest, longest) = RECONNECT_DELAY;
        let mut delay = shortest;
        loop {
            let broken = CancellationToken::new();
            let (on_notification, on_broken) = (Arc::downgrade(self), broken.clone());
            let on_notification = move |number: u64, lock: &str| {
                if let Some(subscriber) = on_notification.upgrade() {
                    subscriber.notify(number, node, lock);
                }
            };
            let target = &self.endpoints[node].target;
            let opening = Subscription::open(target, self.channel(), on_notification, move || {
                on_broken.cancel()
            });
            let began = clock::now();
            if let Ok(Ok(_subscription)) = timeout(self.connect_timeout, opening).await {
                self.set_connected(node, true);
                broken.cancelled().await;
                self.set_connected(node, false);
            }
            // A connection that stayed up resets the backoff.
            let lasted = clock::now().since(began) > longest;
            delay = if lasted { shortest } else { (delay * 2).min(longest) };
            sleep(delay.mul_f64(random::jitter())).await;
        }
    }

    fn set_connected(&self, node: usize, connected: bool) {
        let mut state = self.state();
        if connected {
            state.connected.insert(node);
            for waiter in state.waiters.values() {
                // Fails only if the waiter is dropping its place.
                let _ = waiter.send(Notification::Unqueued(node));
            }
        } else {
            state.connected.remove(node);
        }
    }

    fn notify(&self, number: u64, node: usize, lock: &str) {
        if let Some(waiter) = self.state().waiters.get(&number) {
            let _ = waiter.send(Notification::Free { node, lock: lock.to_owned() });
        }
    }
}
