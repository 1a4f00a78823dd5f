//! Timers: `sleep` and `timeout` for all tasks of this crate. Unlike the clock in `clock.rs`, they
//! may stand still while the machine is suspended.

#[cfg(test)]
pub(crate) use simulated::{sleep, timeout};
#[cfg(not(test))]
pub(crate) use tokio::time::{sleep, timeout};

/// Timers for simulated processes and for all other unit tests.
#[cfg(test)]
mod simulated {
    use crate::runtime::machine;
    use std::future::Future;
    use std::time::Duration;

    /// The time limit has passed.
    #[derive(Debug)]
    pub(crate) struct Elapsed;

    /// Sleeps on the machine's own clock, which stands still while the machine is suspended.
    pub(crate) async fn sleep(duration: Duration) {
        let Some(machine) = machine::current() else { return tokio::time::sleep(duration).await };
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

    pub(crate) async fn timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, Elapsed> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = sleep(limit) => Err(Elapsed),
        }
    }
}
