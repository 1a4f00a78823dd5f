//! Timers: `sleep` and `timeout` for all tasks of this crate. Unlike the clock in `clock.rs`, timers may stand still
//! while the machine is suspended.
//!
//! In the tests that users of quorlock write, timers can follow the clock when a test moves the clock ahead: see
//! [`follow_clock`]. Only `client/test_nodes.rs` turns this mode on. While the mode is off, its only cost is that each
//! `sleep` reads one flag.

use crate::runtime::clock;
use crate::runtime::fork::PerProcess;
#[cfg(test)]
use crate::runtime::machine;
use quorlock_protocol::Moment;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;

/// The error of [`timeout`]: the time limit has passed.
#[derive(Debug)]
pub(crate) struct Elapsed;

/// Sleeps for `duration` by a clock that may stand still while the machine is suspended.
///
/// If `duration` is zero, only lets other tasks run. Otherwise, the sleep may last up to 1 ms longer than `duration`,
/// because timers have a resolution of 1 ms.
pub(crate) async fn sleep(duration: Duration) {
    #[cfg(test)]
    if let Some(machine) = machine::current() {
        return sleep_on(&*machine, duration).await;
    }
    if follows_clock() {
        // Boxed, so that the future of `sleep` stays small in programs other than tests.
        return Box::pin(sleep_until(clock::now().plus(duration))).await;
    }
    if duration.is_zero() {
        return yield_now().await;
    }
    tokio::time::sleep(duration).await;
}

pub(crate) async fn timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = sleep(limit) => Err(Elapsed),
    }
}

/// Sleeps on the clock of a simulated machine.
#[cfg(test)]
async fn sleep_on(machine: &dyn machine::Machine, duration: Duration) {
    let until = machine.running() + duration;
    loop {
        let left = until.saturating_sub(machine.running());
        if left.is_zero() {
            return;
        }
        // Timers have a resolution of 1 ms; a shorter sleep would make no progress.
        let left = machine.in_true_time(left).max(Duration::from_millis(1));
        tokio::time::sleep(left).await;
    }
}

static FOLLOWS_CLOCK: AtomicBool = AtomicBool::new(false);

static FOLLOWERS: PerProcess<Followers> = PerProcess::new();

/// The timers that follow the clock, and the number of operations that callers wait for.
#[derive(Default)]
struct Followers {
    /// Each timer: the moment at which it is due, and its ID.
    due: Mutex<BTreeSet<(Moment, usize)>>,
    last_id: AtomicUsize,
    /// Notified when the clock was moved, so that each timer checks whether it is due.
    moved: Notify,
    /// How many operations callers wait for at present: see [`Awaited`].
    awaited: AtomicUsize,
    /// Notified when a caller begins to wait for an operation.
    is_awaited: Notify,
}

fn followers() -> &'static Followers {
    FOLLOWERS.get_or_init(Followers::default)
}

/// Turns on the mode in which every new timer follows the clock when a test moves the clock ahead. The mode stays on
/// until the process ends.
pub(crate) fn follow_clock() {
    FOLLOWS_CLOCK.store(true, Ordering::Release);
}

fn follows_clock() -> bool {
    FOLLOWS_CLOCK.load(Ordering::Acquire)
}

async fn sleep_until(until: Moment) {
    let followers = followers();
    let _due = Due::add(followers, until);
    loop {
        // Must start to listen before reading the clock: otherwise, a move of the clock after the read would go
        // unnoticed.
        let moved = followers.moved.notified();
        let left = until.since(clock::now());
        if left.is_zero() {
            return;
        }
        tokio::select! {
            biased;
            () = moved => {}
            () = tokio::time::sleep(left) => {}
        }
    }
}

/// A timer that follows the clock. While this value exists, `Followers::due` contains the timer.
struct Due {
    followers: &'static Followers,
    key: (Moment, usize),
}

impl Due {
    fn add(followers: &'static Followers, until: Moment) -> Self {
        let key = (until, followers.last_id.fetch_add(1, Ordering::Relaxed));
        followers.due().insert(key);
        Self { followers, key }
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.followers.due().remove(&self.key);
    }
}

impl Followers {
    fn due(&self) -> MutexGuard<'_, BTreeSet<(Moment, usize)>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The moment at which the next timer after `now` is due; `None` if no timer is due after `now`.
pub(crate) fn next_due(now: Moment) -> Option<Moment> {
    let due = followers().due();
    due.range((now, usize::MAX)..).map(|(moment, _)| *moment).find(|moment| *moment > now)
}

/// Makes all timers that follow the clock check whether they are due. Must be called after the clock was moved.
pub(crate) fn wake_followers() {
    followers().moved.notify_waiters();
}

/// Waits until all ready tasks of the runtime have run, and all tasks that they have woken. Must be called on the
/// runtime.
pub(crate) async fn settle() {
    /// The expected length of the longest chain of tasks in which each task wakes the next, and none waits for a timer.
    const CHAIN: usize = 16;
    /// The minimum number of tasks that tokio polls before it returns to a task that has yielded.
    const POLLS: usize = 61;
    let tasks = Handle::current().metrics().num_alive_tasks();
    for _ in 0..CHAIN * (1 + tasks / POLLS) {
        yield_now().await;
    }
}

/// An operation that a caller waits for, in tests in which timers follow the clock. While this value exists,
/// `Followers::awaited` counts the operation.
#[derive(Debug)]
pub(crate) struct Awaited(());

impl Awaited {
    pub(crate) fn begin() -> Option<Self> {
        follows_clock().then(|| {
            let followers = followers();
            followers.awaited.fetch_add(1, Ordering::AcqRel);
            followers.is_awaited.notify_waiters();
            Self(())
        })
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        followers().awaited.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether any caller waits for an operation now.
pub(crate) fn is_awaited() -> bool {
    followers().awaited.load(Ordering::Acquire) > 0
}

/// Waits until some caller waits for an operation.
pub(crate) async fn until_awaited() {
    let followers = followers();
    loop {
        let is_awaited = followers.is_awaited.notified();
        if self::is_awaited() {
            return;
        }
        is_awaited.await;
    }
}

#[cfg(test)]
mod tests {
    use super::sleep;
    use futures_util::FutureExt as _;
    use std::pin::pin;
    use std::time::Duration;
    use tokio::runtime::Builder;

    #[test]
    fn zero_sleep_does_not_last_until_the_next_millisecond() {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let is_over_after_a_yield = |duration| {
            runtime.block_on(async {
                let mut sleeps = pin!(sleep(duration));
                (&mut sleeps).now_or_never().or_else(|| sleeps.now_or_never()).is_some()
            })
        };
        assert!(is_over_after_a_yield(Duration::ZERO));
        assert!(!is_over_after_a_yield(Duration::from_millis(1)));
    }
}
