//! In-memory nodes for the tests that users of quorlock write. A test can make the nodes fail, and can move their clock
//! ahead.
//!
//! This module applies the faults and moves the clock; `memory/node.rs` implements the faults, and `runtime/timer.rs`
//! the timers that follow the clock. Language bindings call this module.

use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, Result};
use crate::lock::claim::extend::verify;
use crate::lock::renewer::{leases, move_clock};
use crate::memory::node::{Fault, MemoryNode};
use crate::runtime::timer::{
    follow_clock, is_awaited, next_due, settle, until_awaited, wake_followers,
};
use crate::runtime::{self, Pending, clock};
use quorlock_protocol::MAX_NODES;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The longest time by which a test can move the clock.
const MOST_TIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// In-memory nodes for tests. The name of each node is unique in this process. Dropping a `TestNodes` removes its
/// nodes, so close the clients of these nodes first.
///
/// The clock belongs to the process: moving it affects all in-memory nodes and their clients. The clock only goes
/// forward, so moving it can end a lease but not prolong one.
///
/// ```
/// use quorlock::{Client, ErrorCode, Fault, TestNodes};
/// use std::time::Duration;
///
/// # async fn run() -> quorlock::Result<()> {
/// let nodes = TestNodes::new(3)?;
/// let client = Client::builder().nodes(nodes.urls()).build()?;
/// let lease = client.lock("orders:42").acquire().await?;
///
/// nodes.apply(None, Fault::Cut).await;
/// nodes.advance(Duration::from_secs(10)).await?;
/// assert_eq!(lease.check().unwrap_err().code(), ErrorCode::LeaseLost);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Debug)]
pub struct TestNodes {
    names: Vec<String>,
    nodes: Vec<Arc<MemoryNode>>,
}

impl TestNodes {
    /// Creates `count` nodes: 1 to 32.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) if `count` is out of range.
    pub fn new(count: usize) -> Result<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        if !(1..=MAX_NODES).contains(&count) {
            return Err(Error::config(format!("{count} nodes: there must be 1 to {MAX_NODES}")));
        }
        follow_clock();
        let set = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let names: Vec<_> = (1..=count).map(|number| format!("test-{set}-{number}")).collect();
        let nodes = names.iter().map(|name| MemoryNode::named(name)).collect();
        Ok(Self { names, nodes })
    }

    /// Like [`TestNodes::new`], but takes the number as `dialect` writes it. For language bindings.
    #[doc(hidden)]
    pub fn new_by(dialect: Dialect, count: &OptionValue) -> Result<Self> {
        match count {
            OptionValue::Number(count) if (1..=MAX_NODES).any(|n| n as f64 == *count) => {
                Self::new(*count as usize)
            }
            other => Err(Error::config(format!(
                "the number of nodes must be 1 to {MAX_NODES}, not {}",
                other.shown(dialect)
            ))),
        }
    }

    /// The nodes' URLs, for [`ClientBuilder::nodes`](crate::ClientBuilder::nodes).
    pub fn urls(&self) -> Vec<String> {
        self.names.iter().map(|name| format!("memory://{name}")).collect()
    }

    /// Applies a fault to the node at this position, counted from 0, or to all nodes. When the returned [`Pending`] is
    /// ready, the clients have noticed broken connections, and have connected again to nodes that recovered.
    ///
    /// # Panics
    ///
    /// If there is no node at this position, or if no thread can be started.
    pub fn apply(&self, node: Option<usize>, fault: Fault) -> Pending<()> {
        let nodes =
            node.map_or_else(|| self.nodes.clone(), |node| vec![Arc::clone(&self.nodes[node])]);
        run(async move {
            nodes.iter().for_each(|node| node.apply(fault));
            settle().await;
        })
        .expect("a thread can be started")
    }

    /// Moves the clock ahead by `time` without waiting for that time. The clock moves in steps: it stops at each moment
    /// at which a timer of quorlock is due. So leases are renewed, attempts are repeated and requests time out as if
    /// the time had really passed. Timers of other code are not affected.
    ///
    /// The call fails with [`ErrorCode::Config`](crate::ErrorCode::Config) if an open client of this process has used a
    /// node that is not in-memory, or if `time` is longer than 100 years.
    pub fn advance(&self, time: Duration) -> Pending<Result<()>> {
        Pending::started(run(async move {
            check_time(time)?;
            let end = clock::now().plus(time);
            loop {
                settle().await;
                let now = clock::now();
                if now >= end {
                    return Ok(());
                }
                let next = next_due(now).map_or(end, |next| next.min(end));
                move_clock(next.since(now))?;
                wake_followers();
            }
        }))
    }

    /// Like [`TestNodes::advance`], but takes the time as `dialect` writes it. For language bindings.
    #[doc(hidden)]
    pub fn advance_by(&self, dialect: Dialect, time: &OptionValue) -> Pending<Result<()>> {
        Pending::started(time_of(dialect, time).map(|time| self.advance(time)))
    }

    /// Moves the clock ahead by `time` in one jump, as if this process had been suspended while the nodes kept running.
    /// A lease that ends within the jump is lost, because the process could not renew the lease in time. This includes
    /// leases of clients that stand for other processes: give those a ttl that is longer than `time`.
    ///
    /// The call fails in the same case as [`TestNodes::advance`].
    pub fn suspend(&self, time: Duration) -> Pending<Result<()>> {
        Pending::started(run(async move {
            check_time(time)?;
            settle().await;
            move_clock(time)?;
            wake_followers();
            settle().await;
            Ok(())
        }))
    }

    /// Like [`TestNodes::suspend`], but takes the time as `dialect` writes it. For language bindings.
    #[doc(hidden)]
    pub fn suspend_by(&self, dialect: Dialect, time: &OptionValue) -> Pending<Result<()>> {
        Pending::started(time_of(dialect, time).map(|time| self.suspend(time)))
    }

    /// Moves the clock ahead to the next timer whenever a caller waits for an operation, such as an acquire. The
    /// operation takes almost no real time, but has the same result. The fast-forward ends when the returned
    /// [`FastForward`] is dropped.
    ///
    /// # Errors
    ///
    /// The same as [`TestNodes::advance`].
    pub fn fast_forward(&self) -> Result<FastForward> {
        move_clock(Duration::ZERO)?;
        let stop = CancellationToken::new();
        let flying = stop.clone().run_until_cancelled_owned(async {
            loop {
                settle().await;
                if !is_awaited() {
                    until_awaited().await;
                    continue;
                }
                let now = clock::now();
                match next_due(now).map(|next| move_clock(next.since(now))) {
                    Some(Ok(())) => wake_followers(),
                    // No timer is pending, or the clock must not move, because an open client has used a node that is
                    // not in-memory.
                    Some(Err(_)) | None => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
        runtime::spawn(async {
            let _ = flying.await;
        })?;
        Ok(FastForward { _stop: stop.drop_guard() })
    }

    /// Deletes lock keys on all nodes, even if the locks are held. A lock key is the key prefix followed by the
    /// resource. Waiters are not notified. Holders notice the loss at their next extension: see
    /// [`TestNodes::verify_leases`].
    pub fn delete_keys<S: AsRef<str>>(&self, keys: impl IntoIterator<Item = S>) {
        let keys: Vec<_> = keys.into_iter().collect();
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        self.nodes.iter().for_each(|node| node.delete(&keys));
    }

    /// Checks now, for each lease of this process on these nodes, whether the nodes still hold the lease's keys.
    /// Holders of lost leases are notified.
    pub fn verify_leases(&self) -> Pending<()> {
        let urls = self.urls();
        run(async move {
            let leases = leases(|lease| {
                let nodes = &lease.driver.nodes;
                nodes.iter().any(|node| urls.iter().any(|url| url == node.address()))
            });
            for lease in leases {
                verify(&lease).await;
            }
            settle().await;
        })
        // If the runtime cannot start, there are no leases to check.
        .unwrap_or_else(|_| Pending::ready(()))
    }
}

impl Drop for TestNodes {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| MemoryNode::remove(name));
    }
}

/// Moves the clock ahead while callers wait, until this value is dropped: see [`TestNodes::fast_forward`].
#[derive(Debug)]
#[must_use = "dropping it stops it"]
pub struct FastForward {
    _stop: DropGuard,
}

/// Fails if `time` is longer than [`MOST_TIME`].
fn check_time(time: Duration) -> Result<()> {
    if time <= MOST_TIME {
        Ok(())
    } else {
        Err(Error::config("the time must be at most 100 years"))
    }
}

/// Returns the time that is given as `dialect` writes it.
fn time_of(dialect: Dialect, time: &OptionValue) -> Result<Duration> {
    let given = match time {
        OptionValue::Number(number) => {
            Duration::try_from_secs_f64(number * dialect.unit() / 1e9).ok()
        }
        _ => None,
    };
    given.ok_or_else(|| {
        let form = dialect.duration_form();
        let shown = time.shown(dialect);
        Error::config(format!("the time must be a duration of 0 or more{form}, not {shown}"))
    })
}

/// Runs `work` on the runtime. A caller that waits for the result does not count as waiting for an operation, so
/// [`TestNodes::fast_forward`] does not move the clock for this caller.
fn run<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<Pending<T>> {
    let (sender, receiver) = oneshot::channel();
    runtime::spawn(async move {
        // Sending fails if the caller no longer waits.
        let _ = sender.send(work.await);
    })?;
    Ok(Pending::open_ended(receiver))
}
