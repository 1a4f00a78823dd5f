//! Timers of simulated processes, and of all other tests.

use super::process::process;
use std::future::Future;
use std::time::Duration;

/// The time ran out.
#[derive(Debug)]
pub(crate) struct Elapsed;

/// Sleeps by the process's own clock, which stands still while its machine is suspended.
pub(crate) async fn sleep(duration: Duration) {
    let Some(process) = process() else { return tokio::time::sleep(duration).await };
    let until = process.running() + duration;
    loop {
        let left = until.saturating_sub(process.running());
        if left.is_zero() {
            return;
        }
        // Whole milliseconds are what timers can do, and at least one is progress.
        let left = process.in_true_time(left).max(Duration::from_millis(1));
        tokio::time::sleep(left).await;
    }
}

pub(crate) async fn timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = sleep(limit) => Err(Elapsed),
    }
}
