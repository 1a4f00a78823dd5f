//! The link between a simulated process and a node: its delays, faults and connections.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The link between a process and a node.
pub(super) struct Link {
    /// Whether messages pass to the node.
    pub(super) up: watch::Sender<bool>,
    /// Whether messages pass to the process.
    pub(super) down: watch::Sender<bool>,
    /// The shortest and the longest delay of a message, in milliseconds.
    delay: (AtomicU64, AtomicU64),
    connections: Mutex<Vec<Weak<Shared>>>,
    pub(super) loses_calls: AtomicBool,
}

/// The state of a connection that both ends share.
pub(super) struct Shared {
    /// Whether the connection is for notifications only.
    pub(super) is_subscription: bool,
    /// Cancelled when the client learns that the connection is broken.
    pub(super) broken: CancellationToken,
    /// Whether requests in flight are lost when the connection breaks. If not, these requests arrive late.
    pub(super) is_lost: AtomicBool,
    /// Whether the client has dropped the connection.
    pub(super) is_abandoned: AtomicBool,
}

impl Link {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            up: watch::Sender::new(true),
            down: watch::Sender::new(true),
            delay: (AtomicU64::new(0), AtomicU64::new(2)),
            connections: Mutex::default(),
            loses_calls: AtomicBool::new(false),
        })
    }

    pub(super) fn set_delay(&self, milliseconds: Range<u64>) {
        self.delay.0.store(milliseconds.start, Ordering::Relaxed);
        self.delay.1.store(milliseconds.end, Ordering::Relaxed);
    }

    pub(super) fn delay(&self) -> Range<u64> {
        self.delay.0.load(Ordering::Relaxed)..self.delay.1.load(Ordering::Relaxed)
    }

    pub(super) fn connections(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process is subscribed to notifications of the node.
    pub(super) fn is_listening(&self) -> bool {
        let connections = self.connections();
        let mut open = connections.iter().filter_map(Weak::upgrade);
        open.any(|shared| shared.is_subscription && !shared.is_abandoned.load(Ordering::Relaxed))
    }

    /// Breaks all connections. Requests in flight are lost, or arrive late if `is_lost` is `false`.
    pub(super) fn cut(&self, is_lost: bool) {
        for shared in self.connections().drain(..).filter_map(|shared| shared.upgrade()) {
            shared.is_lost.fetch_or(is_lost, Ordering::Relaxed);
            shared.broken.cancel();
        }
    }

    /// Drops all connections because the process was killed.
    pub(super) fn abandon(&self) {
        for shared in self.connections().drain(..).filter_map(|shared| shared.upgrade()) {
            shared.is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}
