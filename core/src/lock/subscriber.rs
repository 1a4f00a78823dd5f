//! Subscriber for the nodes' calls: on one more connection to each node, which is open while somebody
//! waits and for a while after.

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

/// The connections are closed when nobody has been waiting for so long.
const IDLE: Duration = Duration::from_secs(5);
/// The pause between attempts to connect grows from the first to the second of these.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What a waiter hears while it waits to try again.
pub(crate) enum Notification {
    /// The resource with this lock key is free on this node, and it is this waiter's turn.
    Free { node: usize, lock: String },
    /// It is in no queue of this node, or may have lost its place, and can join now.
    Unqueued(usize),
}

pub(crate) struct Subscriber {
    endpoints: Vec<Endpoint>,
    connect_timeout: Duration,
    closing: CancellationToken,
    /// What the names of channels begin with.
    prefix: String,
    channel: OnceLock<String>,
    /// For how many the connections are kept open.
    waiting: watch::Sender<usize>,
    state: Mutex<SubscriberState>,
}

#[derive(Default)]
struct SubscriberState {
    /// Those who listen, by their numbers.
    waiters: HashMap<u64, mpsc::UnboundedSender<Notification>>,
    connected: NodeSet,
    is_running: bool,
}

/// Keeps the connections open.
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

    /// The channel on which this client is called.
    pub(crate) fn channel(&self) -> &str {
        self.channel.get_or_init(|| {
            let number = u64::from(random::random()) << 32 | u64::from(random::random());
            format!("{}quorlock:{number:016x}", self.prefix)
        })
    }

    /// The nodes whose calls are notification.
    pub(crate) fn connected(&self) -> NodeSet {
        self.state().connected
    }

    /// Somebody listens, as long as the connections are open.
    pub(crate) fn register(&self, number: u64, waiter: mpsc::UnboundedSender<Notification>) {
        self.state().waiters.insert(number, waiter);
    }

    pub(crate) fn unregister(&self, number: u64) {
        self.state().waiters.remove(&number);
    }

    /// Somebody has to wait: keeps the connections open until the result is dropped. Called on the
    /// runtime.
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

    /// Listens to all nodes while anybody waits.
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

    async fn wait_until_idle(&self) {
        let mut waiting = self.waiting.subscribe();
        loop {
            // They cannot fail: the sender is here.
            let _ = waiting.wait_for(|waiting| *waiting == 0).await;
            if timeout(IDLE, waiting.wait_for(|waiting| *waiting > 0)).await.is_err() {
                return;
            }
        }
    }

    /// Listens to one node for ever.
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
            // What lasted was no failure.
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
                // An error means that it is about to leave.
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
