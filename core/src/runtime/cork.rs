//! Corked threads. A corked thread collects its requests, so that requests to the same server can share a command.
//!
//! An event loop corks its thread before an iteration that starts several operations, and uncorks the thread after the
//! iteration. In between, the requests that this thread queues wait. They are written by [`uncork`], or earlier,
//! together with a request of another thread. If the event loop stalls, a service of this module writes them.
//!
//! This module owns the list of connections on which such requests wait. `transport/connection.rs` and `runtime/mod.rs`
//! call it.

use crate::runtime::fork::PerProcess;
use crate::runtime::pipeline::Flush;
use crate::runtime::serve;
use crate::runtime::sync::{Mutex, lock};
use crate::runtime::timer::sleep;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The longest time for which a thread stays corked. A request waits for at most about twice this time.
const LONGEST: Duration = Duration::from_millis(5);

thread_local! {
    /// When the cork of this thread ends, even if [`uncork`] is not called; `None` if the thread is not corked.
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

static WAITING: PerProcess<Arc<Waiting>> = PerProcess::new();

/// The connections on which requests of corked threads wait.
#[derive(Default)]
struct Waiting {
    connections: Mutex<Vec<Arc<dyn Flush>>>,
    /// Notified when a connection is added. Wakes the background task that flushes the connection if nobody uncorks.
    added: Notify,
}

/// Corks the calling thread: from now on, the requests of operations that this thread starts wait for [`uncork`], so
/// that requests to one node can share a command.
///
/// Intended for event loops: they start many operations in one iteration, and call `uncork` at its end. A thread that
/// blocks until a [`Pending`](crate::Pending) is done is also uncorked. If the event loop stalls, requests wait for
/// about 10 ms at most.
pub fn cork() {
    UNTIL.set(Some(Instant::now() + LONGEST));
}

/// Uncorks the calling thread, and sends all requests that wait because of [`cork`], even those of other threads. Does
/// nothing if the calling thread is not corked.
pub fn uncork() {
    if UNTIL.take().is_some()
        && let Some(waiting) = WAITING.get()
    {
        waiting.flush();
    }
}

pub(crate) fn is_corked() -> bool {
    UNTIL.get().is_some_and(|until| Instant::now() < until)
}

/// How long a request of this thread may wait because of a cork; zero if the thread is not corked.
pub(crate) fn longest_wait() -> Duration {
    if is_corked() { 2 * LONGEST } else { Duration::ZERO }
}

/// If this thread is corked, makes sure that the connection is flushed at the next [`uncork`], or a little later if the
/// event loop stalls. Returns whether this thread is corked; if not, the caller must flush.
pub(crate) fn flush_at_uncork<C: Flush + 'static>(connection: &Arc<C>) -> bool {
    let is_corked = is_corked();
    if is_corked {
        WAITING.get_or_init(Waiting::start).add(Arc::<C>::clone(connection));
    }
    is_corked
}

impl Waiting {
    fn start() -> Arc<Self> {
        let waiting = Arc::<Self>::default();
        let served = Arc::clone(&waiting);
        serve(move || Arc::clone(&served).flush_if_stalled());
        waiting
    }

    fn add(&self, connection: Arc<dyn Flush>) {
        let mut connections = lock(&self.connections);
        if !connections.iter().any(|other| Arc::ptr_eq(other, &connection)) {
            connections.push(connection);
            self.added.notify_one();
        }
    }

    fn flush(&self) {
        loop {
            let next = lock(&self.connections).pop();
            let Some(connection) = next else { return };
            connection.flush();
        }
    }

    /// Flushes the connections that event loops have not flushed in time. Never returns.
    async fn flush_if_stalled(self: Arc<Self>) {
        loop {
            self.flush();
            self.added.notified().await;
            sleep(LONGEST).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Flush, cork, flush_at_uncork, uncork};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[derive(Default)]
    struct Connection {
        is_flushed: AtomicBool,
    }

    impl Flush for Connection {
        fn flush(self: Arc<Self>) {
            self.is_flushed.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn uncorking_flushes_the_connections_immediately() {
        let connection = Arc::<Connection>::default();
        // On a loaded machine, a cork may end before the next call.
        let is_registered = || {
            cork();
            flush_at_uncork(&connection)
        };
        while !is_registered() {}
        uncork();
        assert!(connection.is_flushed.load(Ordering::Relaxed));
    }
}
