//! `quorlock acquire`, `extend` and `release --lease`: leases of scripts, which no process holds.
//!
//! The text of a lease is a secret. Only `acquire` prints it, on stdout.

use crate::acquiring::{self, Source, names};
use crate::args::{self, Nodes};
use crate::connect::client;
use crate::duration::show;
use crate::exit;
use crate::output::{Failure, Output, json};
use crate::signals::{Signals, keep_running};
use quorlock::{Client, Dialect, Lease};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A lease, as JSON.
#[derive(Serialize)]
struct Described<'a> {
    /// The text; only `acquire` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<&'a str>,
    /// The fencing token of each resource.
    fences: BTreeMap<&'a str, u64>,
    /// For how long the lease is certainly valid without another extension.
    valid_for_ms: u128,
}

/// Acquires a lock, and prints the text of its lease.
pub(crate) async fn acquire(
    nodes: &Nodes,
    wanted: &args::Acquire,
    output: &Output,
) -> Result<u8, Failure> {
    let client = client(nodes)?;
    let lock = client.lock(wanted.resources.clone()).auto_extend(false).checked()?;
    keep_running();
    let mut signals = Signals::new().map_err(|error| Failure::own("no signals", &error))?;
    let source = Source::Lock(lock);
    let result = acquire_and_keep(&client, &source, wanted, &mut signals, output).await;
    client.close().await;
    result
}

async fn acquire_and_keep(
    client: &Client,
    source: &Source,
    wanted: &args::Acquire,
    signals: &mut Signals,
    output: &Output,
) -> Result<u8, Failure> {
    let lease = tokio::select! {
        biased;
        signal = signals.end() => return Ok(exit::SIGNAL + signal),
        acquired = acquiring::acquire(source, &wanted.acquiring, output) => acquired?,
    };
    let (lease, text) = client.keep(lease).await?;
    let text = if output.json { json(&described(&lease, Some(&text))) } else { text };
    let line = format!("{text}\n");
    let printed = tokio::select! {
        biased;
        signal = signals.end() => {
            // Nobody would use the lease. A second signal ends the wait for nodes that do not answer.
            tokio::select! {
                _ = lease.release() => {}
                _ = signals.end() => {}
            }
            return Ok(exit::SIGNAL + signal);
        }
        printed = output.try_print_aside(&line) => printed,
    };
    if let Err(error) = printed {
        lease.release().await;
        let what = "the lock was released, because the text of its lease cannot be printed";
        return Err(Failure::own(what, &error));
    }
    // This process may have been suspended before the text was printed.
    lease.check()?;
    output.note(validity(&lease));
    Ok(exit::OK)
}

/// Extends the lease of a text.
pub(crate) async fn extend(
    nodes: &Nodes,
    wanted: &args::Extend,
    output: &Output,
) -> Result<u8, Failure> {
    let client = client(nodes)?;
    let lease = client.resume(&wanted.lease).await?;
    // The default of --ttl is not meant for a lease that was acquired with another ttl.
    let ttl = nodes.is_ttl_flag.then_some(&nodes.ttl);
    let extended = lease.extend_by(Dialect::CommandLine, ttl).await;
    // Also after a failure: the lease is valid until its end.
    let (lease, _) = client.keep(lease).await?;
    client.close().await;
    extended?;
    if output.json {
        output.print_json(&described(&lease, None))?;
    } else {
        output.print(format_args!("{}\n", validity(&lease)))?;
    }
    // This process may have been suspended before the result was printed.
    lease.check()?;
    Ok(exit::OK)
}

/// Releases the lease of a text.
pub(crate) async fn release(nodes: &Nodes, text: &str, output: &Output) -> Result<u8, Failure> {
    let client = client(nodes)?;
    let lease = client.resume(text).await?;
    let is_released = lease.release().await;
    client.close().await;
    if let Some(loss) = lease.loss() {
        return Err(loss.into());
    }
    if !is_released {
        let message = "a majority of the nodes did not confirm the release: the lock may stay held for one more ttl";
        return Err(Failure::Other(message.to_owned(), exit::NO));
    }
    if output.json {
        output.print_json(&Described {
            lease: None,
            fences: lease.fences().collect(),
            valid_for_ms: 0,
        })?;
    } else {
        output.print(format_args!("released {}\n", names(lease.resources())))?;
    }
    Ok(exit::OK)
}

fn described<'a>(lease: &'a Lease, text: Option<&'a str>) -> Described<'a> {
    let valid_for_ms = floor(lease.remaining()).as_millis();
    Described { lease: text, fences: lease.fences().collect(), valid_for_ms }
}

/// Says for how long the lease is valid.
fn validity(lease: &Lease) -> String {
    let left = show(floor(lease.remaining()));
    format!("{}: valid for {left} from now", names(lease.resources()))
}

/// Rounds down to what is shown, so that a validity is never shown as longer than it is.
fn floor(left: Duration) -> Duration {
    let milliseconds = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    let step = match milliseconds {
        0..100 => 1,
        100..99_000 => 100,
        _ => 1000,
    };
    Duration::from_millis(milliseconds / step * step)
}

#[cfg(test)]
mod tests {
    use super::{floor, show};
    use std::time::Duration;

    #[test]
    fn a_validity_is_never_shown_as_longer_than_it_is() {
        for (micros, shown) in [
            (1_999, "1.00 ms"),
            (99_999, "99.00 ms"),
            (999_999, "0.9 s"),
            (59_399_999, "59.3 s"),
            (99_999_999, "99.0 s"),
            (3_599_999_999, "3599 s"),
        ] {
            assert_eq!(show(floor(Duration::from_micros(micros))), shown);
        }
    }
}
