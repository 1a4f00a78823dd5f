//! Receives the nodes' notifications and other messages, over a separate connection to each node.
//!
//! The connections are open while an acquire of this client waits or a [`Topic`] exists, and for [`IDLE`] after the
//! last wait or topic has ended. A lost notification delays a waiter until its next try and has no other effect.
//! `waiters.rs` registers waiters here; this module only sends them [`Notification`]s. `election.rs` names the channels
//! of elections.

use crate::config::endpoint::Endpoint;
use crate::node::subscription::{Subscription, notification};
use crate::runtime;
use crate::runtime::clock;
use crate::runtime::mutex::Mutex;
use crate::runtime::random;
use crate::runtime::timer::{sleep, timeout};
use crate::wire::answer::Failure;
use crate::wire::limits::WAITING_MESSAGES;
use futures_util::future::join_all;
use quorlock_protocol::NodeSet;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// The time for which the connections stay open after the last waiter or [`Topic`] has gone.
const IDLE: Duration = Duration::from_secs(5);
/// The shortest and the longest delay between two attempts to connect; each delay is then reduced at random by up to
/// half.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// An event that a waiter receives between two rounds.
pub(crate) enum Notification {
    /// The resource with this lock key is free on this node, and this waiter is first in the node's queue.
    Free { node: usize, lock: String },
    /// These slots of the semaphore are free on this node for this waiter. The node reported them in a refusal that
    /// arrived after the waiter's round was decided.
    Offered { node: usize, slots: Vec<u32> },
    /// The waiter might not be in this node's queue, so it must join the queue.
    Unqueued(usize),
}

/// The subscriptions of one client, and the recipients of the messages.
pub(crate) struct Subscriber {
    endpoints: Vec<Endpoint>,
    connect_timeout: Duration,
    closing: CancellationToken,
    /// The client's `key_prefix`, with which the channel's name begins.
    prefix: String,
    channel: OnceLock<String>,
    /// The number of [`ConnectionsGuard`]s that exist.
    waiting: watch::Sender<usize>,
    /// Notified when a channel is added to `topics` or removed from `topics`.
    topics_changed: watch::Sender<()>,
    state: Mutex<SubscriberState>,
}

#[derive(Default)]
struct SubscriberState {
    /// The registered waiters, by their numbers.
    waiters: BTreeMap<u64, mpsc::Sender<Notification>>,
    /// The receivers of messages on the channels of elections: for each channel, its receivers by their numbers.
    topics: HashMap<Arc<str>, HashMap<u64, mpsc::Sender<Arc<str>>>>,
    last_topic: u64,
    connected: NodeSet,
    is_running: bool,
}

/// Keeps the connections open until this value is dropped.
pub(crate) struct ConnectionsGuard(Arc<Subscriber>);

impl Drop for ConnectionsGuard {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

/// Receives the messages on one channel, from all nodes. Keeps the connections open until this value is dropped.
pub(crate) struct Topic {
    connections: ConnectionsGuard,
    channel: Arc<str>,
    number: u64,
    messages: mpsc::Receiver<Arc<str>>,
}

impl Topic {
    /// Waits for the next message. Every node passes on each message that it receives, so the same message may arrive
    /// several times. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Arc<str> {
        match self.messages.recv().await {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }

    /// Discards the messages that have arrived but were not taken.
    pub(crate) fn clear(&mut self) {
        while self.messages.try_recv().is_ok() {}
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        let subscriber = &self.connections.0;
        let mut state = subscriber.state.lock();
        if let Some(receivers) = state.topics.get_mut(&self.channel) {
            receivers.remove(&self.number);
            if receivers.is_empty() {
                state.topics.remove(&self.channel);
                subscriber.topics_changed.send_replace(());
            }
        }
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
            topics_changed: watch::Sender::new(()),
            state: Mutex::default(),
        })
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
        self.state.lock().connected
    }

    /// From now on, sends the notifications for the waiter with this number to `waiter`. Does not keep the connections
    /// open.
    pub(crate) fn register(&self, number: u64, waiter: mpsc::Sender<Notification>) {
        self.state.lock().waiters.insert(number, waiter);
    }

    pub(crate) fn unregister(&self, number: u64) {
        self.state.lock().waiters.remove(&number);
    }

    /// Subscribes to a channel on all nodes, including nodes that are connected later. Must be called on the runtime.
    pub(crate) fn subscribe(self: &Arc<Self>, channel: &str) -> Topic {
        let connections = self.keep_open();
        let (channel, (sender, messages)) = (Arc::from(channel), mpsc::channel(WAITING_MESSAGES));
        let mut state = self.state.lock();
        state.last_topic += 1;
        let number = state.last_topic;
        let receivers = state.topics.entry(Arc::clone(&channel)).or_default();
        receivers.insert(number, sender);
        if receivers.len() == 1 {
            self.topics_changed.send_replace(());
        }
        Topic { connections, channel, number, messages }
    }

    /// Opens the connections and keeps them open until the guard is dropped. Must be called on the runtime.
    pub(crate) fn keep_open(self: &Arc<Self>) -> ConnectionsGuard {
        let mut state = self.state.lock();
        self.waiting.send_modify(|waiting| *waiting += 1);
        if !state.is_running {
            let subscriber = Arc::clone(self);
            runtime::serve(move || Arc::clone(&subscriber).run());
            state.is_running = true;
        }
        ConnectionsGuard(Arc::clone(self))
    }

    /// Keeps a subscription to each node open while there are [`ConnectionsGuard`]s. Ends when there has been no guard
    /// for [`IDLE`]; the next `keep_open` starts this task again.
    async fn run(self: Arc<Self>) {
        loop {
            self.state.lock().connected = NodeSet::EMPTY;
            let subscriptions = (0..self.endpoints.len()).map(|node| self.stay_subscribed(node));
            tokio::select! {
                biased;
                () = self.closing.cancelled() => {}
                () = self.wait_until_idle() => {}
                _ = join_all(subscriptions) => {}
            }
            let mut state = self.state.lock();
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
            // Never fails, because `self` owns the sender.
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
            let on_message = Arc::downgrade(self);
            let on_broken = broken.clone();
            let on_message = move |channel: &str, message: &str| {
                if let Some(subscriber) = on_message.upgrade() {
                    subscriber.receive(node, channel, message);
                }
            };
            let target = &self.endpoints[node].target;
            let opening =
                Subscription::open(target, self.channel(), on_message, move || on_broken.cancel());
            let began = clock::now();
            if let Ok(Ok(subscription)) = timeout(self.connect_timeout, opening).await {
                self.set_connected(node, true);
                tokio::select! {
                    biased;
                    () = broken.cancelled() => {}
                    () = self.follow_topics(&subscription) => {}
                }
                self.set_connected(node, false);
            }
            // A connection that stayed up resets the backoff.
            let lasted = clock::now().since(began) > longest;
            delay = if lasted { shortest } else { (delay * 2).min(longest) };
            sleep(delay.mul_f64(random::jitter())).await;
        }
    }

    /// Keeps a connection subscribed to the channels of the topics. Returns if a change fails; the connection must then
    /// be replaced.
    async fn follow_topics(&self, subscription: &Subscription) {
        let mut changes = self.topics_changed.subscribe();
        let mut subscribed = HashSet::new();
        loop {
            changes.borrow_and_update();
            let wanted: HashSet<Arc<str>> =
                self.state.lock().topics.keys().map(Arc::clone).collect();
            let change = async {
                for channel in subscribed.difference(&wanted) {
                    subscription.unsubscribe(channel).await?;
                }
                for channel in wanted.difference(&subscribed) {
                    subscription.subscribe(channel).await?;
                }
                Ok::<_, Failure>(())
            };
            if !matches!(timeout(self.connect_timeout, change).await, Ok(Ok(()))) {
                return;
            }
            subscribed = wanted;
            // Never fails, because `self` owns the sender.
            let _ = changes.changed().await;
        }
    }

    fn set_connected(&self, node: usize, connected: bool) {
        let mut state = self.state.lock();
        if connected {
            state.connected.insert(node);
            for waiter in state.waiters.values() {
                // Fails only if the waiter is dropping its place, or if the waiter's channel is full.
                let _ = waiter.try_send(Notification::Unqueued(node));
            }
        } else {
            state.connected.remove(node);
        }
    }

    /// Passes a message on to its waiter or to the topics of its channel. Sending fails only if the receivers are being
    /// dropped, or if too many messages wait already: a node may send messages faster than the receivers read them.
    fn receive(&self, node: usize, channel: &str, message: &str) {
        let state = self.state.lock();
        if let Some(receivers) = state.topics.get(channel) {
            let message = Arc::from(message);
            receivers.values().for_each(|topic| drop(topic.try_send(Arc::clone(&message))));
        } else if channel == self.channel()
            && let Some((number, lock)) = notification(message)
            && let Some(waiter) = state.waiters.get(&number)
        {
            let _ = waiter.try_send(Notification::Free { node, lock: lock.to_owned() });
        }
    }
}
