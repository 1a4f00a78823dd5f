//! Acquires a lock for `run` and `acquire`: says what it waits for, and retries during an outage.

use crate::args::Acquiring;
use crate::duration::{self, show};
use crate::output::{Failure, Output};
use crate::status::printable;
use quorlock::{Dialect, Error, ErrorCode, Lease, Lock, OptionValue};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The pause between two attempts while too few nodes can vote.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// Acquires the lock. Dropping the future ends the wait, and leaves nothing held.
pub(crate) async fn acquire(
    lock: &Lock,
    wanted: &Acquiring,
    output: &Output,
) -> Result<Lease, Failure> {
    let began = Instant::now();
    let wait = if wanted.nonblock { Some(&OptionValue::Number(0.0)) } else { wanted.wait.as_ref() };
    let set = |wait| lock.clone().option(Dialect::CommandLine, "--wait", wait);
    let mut lock = wait.map_or_else(|| lock.clone(), set);
    if let Some(holder) = &wanted.holder {
        let holder = OptionValue::Text(holder.clone());
        lock = lock.option(Dialect::CommandLine, "--holder", &holder);
    }
    let lock = lock.checked()?;
    let outage = outage(wanted.outage.as_ref())?;
    let mut is_outage_known = false;
    loop {
        let error = match attempt(&lock, wait, output).await {
            Ok(lease) => {
                tell_acquired(&lease, began, output);
                return Ok(lease);
            }
            Err(error) => error,
        };
        match error.code() {
            ErrorCode::Timeout => return Err(Failure::Conflict(error, wanted.conflict_exit_code)),
            ErrorCode::NoQuorum if outage.is_none_or(|outage| began.elapsed() < outage) => {}
            _ => return Err(error.into()),
        }
        if !std::mem::replace(&mut is_outage_known, true) {
            let limit =
                outage.map_or_else(String::new, |outage| format!(" for up to {}", show(outage)));
            output.note(format_args!("{}; retrying{limit}", error.message()));
        }
        output.detail(error.nodes());
        sleep(OUTAGE_PAUSE).await;
    }
}

/// Acquires the lock, and first says that it is held if a single try shows that.
async fn attempt(lock: &Lock, wait: Option<&OptionValue>, output: &Output) -> Result<Lease, Error> {
    if wait != Some(&OptionValue::Number(0.0)) {
        match lock.clone().wait(Duration::ZERO).acquire().await {
            Err(error) if error.code() == ErrorCode::Timeout => {
                let by =
                    error.holder().map_or_else(String::new, |holder| format!(", held by {holder}"));
                output.note(format_args!("waiting for {}{by}", names(lock.resources())));
                output.detail(error.nodes());
            }
            // A single try gives up at once, so the acquire below decides whether it is an outage.
            Err(error) if error.code() == ErrorCode::NoQuorum => {}
            result => return result,
        }
    }
    lock.acquire().await
}

fn tell_acquired(lease: &Lease, began: Instant, output: &Output) {
    let fence = lease.fences().next().map_or(0, |(_, fence)| fence);
    let (name, waited) = (names(lease.resources()), show(began.elapsed()));
    let holder = match lease.holder() {
        "" => String::new(),
        holder => format!(" as {holder}"),
    };
    output.note(format_args!("acquired {name}{holder} after {waited}, fence {fence}"));
}

/// Returns how long an outage at the start may last; `None` for no limit.
fn outage(wanted: Option<&OptionValue>) -> Result<Option<Duration>, Failure> {
    match wanted {
        None => Ok(Some(Duration::ZERO)),
        Some(OptionValue::Null) => Ok(None),
        Some(value) => duration::of(value).map(Some).ok_or_else(|| {
            Failure::Usage("--outage must be a duration of 0 or more, or forever".to_owned())
        }),
    }
}

/// Returns the names of resources for a message.
pub(crate) fn names(resources: &[String]) -> String {
    resources
        .iter()
        .map(|resource| printable(&quorlock::shortened(resource)))
        .collect::<Vec<_>>()
        .join(", ")
}
