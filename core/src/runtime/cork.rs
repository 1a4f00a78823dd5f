//! Corked threads: they collect requests, so that requests to the same server can share a command.
//!
//! An event loop corks its thread before an iteration that starts several operations, and uncorks the thread after it.
//! In between, the requests that this thread queues wait. They are written by [`uncork`], or earlier, together with a
//! request of another thread. If the event loop stalls, a service writes them.
//!
//! This module owns the list of connections on which such requests wait. `transport/connection.rs` and `runtime/mod.rs`
//! call it.

use crate::runtime::fork::PerProcess;
use crate::runtime::pipeline::{Flush, Pipelined};
use crate::runtime::serve;
use crate::runtime::sync::{Mutex, lock};
use crate::runtime::timer::sleep;
use std::cell::Cell;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A thread stays corked for at most this time, and a request waits for about twice this time at most.
const LONGEST: Duration = Duration::from_millis(5);

thread_local! {
    /// When the cork of this thread ends by itself.
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

static WAITING: PerProcess<Arc<Waiting>> = PerProcess::new();

/// The connections on which requests of corked threads wait.
#[derive(Default)]
struct Waiting {
    connections: Mutex<Vec<Arc<dyn Flush>>>,
    /// Notified when a connection is added.
    added: Notify,
}

/// Corks this thread.
pub(crate) fn cork() {
    UNTIL.set(Some(Instant::now() + LONGEST));
}

/// Uncorks this thread, and writes the requests of all corked threads. Does nothing if this thread is not corked.
pub(crate) fn uncork() {
    if UNTIL.take().is_some()
        && let Some(waiting) = WAITING.get()
    {
        waiting.flush();
    }
}

pub(crate) fn is_corked() -> bool {
    UNTIL.get().is_some_and(|until| Instant::now() < until)
}

/// Makes sure that the connection is flushed at the next [`uncork`], or a little later if the event loop stalls.
pub(crate) fn flush_at_uncork<C: Pipelined>(connection: Arc<C>) {
    WAITING.get_or_init(Waiting::start).add(connection);
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
        let connections = mem::take(&mut *lock(&self.connections));
        connections.into_iter().for_each(Flush::flush);
    }

    /// Flushes the connections that event loops have not flushed in time. Never returns.
    async fn flush_if_stalled(self: Arc<Self>) {
        loop {
            self.added.notified().await;
            sleep(LONGEST).await;
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, cork, is_corked};
    use crate::Client;
    use crate::runtime::drive;

    #[test]
    fn a_call_that_blocks_uncorks_the_thread() {
        cork();
        drive(async {}).expect("a runtime");
        assert!(!is_corked());
        let client = Client::builder().nodes(["memory://corked"]).build().expect("a client");
        let _lease = client.lock("r").acquire().block().expect("the lock is free");
        cork();
        client.lock("r").wait(LONGEST / 5).acquire().block().expect_err("the lock is held");
        assert!(!is_corked());
    }
}
