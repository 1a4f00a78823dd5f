//! `quorlock run --adopt` and `--detach`: a lease goes from one process to another.
//!
//! The text of a lease is a secret: it must get into neither arguments nor messages.

use super::{Child, Environment, cannot_run, command, signals};
use crate::acquiring::{NOW, Source, acquire, names};
use crate::args::{Named, Run};
use crate::exit;
use crate::output::{Failure, Output, named};
use quorlock::{Adoption, Client, Dialect, ErrorCode, Lease, OptionValue};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// The environment variable with the text of a lease.
pub(super) const VARIABLE: &str = "QUORLOCK_LEASE";

/// Returns the adoption of the lease whose text is in the file or, without a file, in the environment.
pub(super) fn adoption(client: &Client, file: Option<&Path>) -> Result<Adoption, Failure> {
    let (place, text) = match file {
        Some(file) => {
            let place = if file == "-" { "stdin".into() } else { named(file) };
            let text = first_line(file).map_err(|error| {
                Failure::Usage(format!(
                    "the text of the lease cannot be read from {place}: {error}"
                ))
            })?;
            (place, text)
        }
        None => (VARIABLE.to_owned(), std::env::var(VARIABLE).unwrap_or_default()),
    };
    if text.trim().is_empty() {
        return Err(Failure::Usage(format!(
            "{place} has no text of a lease: --adopt takes over a lease that was detached, and needs its text in the \
             environment variable {VARIABLE}, or in a file or stdin with --lease-file"
        )));
    }
    let adoption = client.adopt(&text).checked();
    adoption.map_err(|error| Failure::Usage(format!("{place}: {}", error.message())))
}

/// Reads the first line. What follows it on stdin is left for the command.
fn first_line(file: &Path) -> io::Result<String> {
    let line = if file == "-" { line(super::stdin()?) } else { line(File::open(file)?) };
    String::from_utf8(line?).map_err(|_| io::Error::other("it is not text"))
}

fn line(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while from.by_ref().take(1).read_to_end(&mut line)? == 1 && !line.ends_with(b"\n") {}
    Ok(line)
}

/// Whether the environment has the text of a detached lease that nobody can adopt any more: one of a resource, or of a
/// permit, that is held by now.
pub(super) fn is_used_up(client: &Client, held: &Lease) -> bool {
    let Ok(text) = std::env::var(VARIABLE) else { return false };
    let detached = client.adopt(&text);
    let held_slots = held.slots();
    let is_same_kind = detached.slots().is_empty() == held_slots.is_empty();
    let has_slot = detached.slots().iter().any(|slot| held_slots.contains(slot));
    let has_resource = detached.resources().iter().any(|name| held.resources().contains(name));
    is_same_kind && has_resource && (has_slot || held_slots.is_empty())
}

/// Acquires the lock, detaches the lease, and runs the command, which has the text. If the command fails and nobody has
/// adopted the lease, releases it.
pub(super) async fn run(
    client: Client,
    wanted: &Run,
    kill_after: Duration,
    output: &Output,
) -> Result<u8, Failure> {
    client.check_within(Dialect::CommandLine, wanted.within.as_ref())?;
    let source =
        Source::wanted(&client, wanted).option(&Named::default(), "max_hold", &OptionValue::Null);
    let result = hand_over(&client, &source.checked()?, wanted, kill_after, output).await;
    client.close().await;
    result
}

async fn hand_over(
    client: &Client,
    source: &Source,
    wanted: &Run,
    kill_after: Duration,
    output: &Output,
) -> Result<u8, Failure> {
    let mut signals = signals()?;
    let lease = tokio::select! {
        biased;
        signal = signals.end() => return Ok(exit::SIGNAL + signal),
        acquired = acquire(source, &wanted.acquiring, output) => acquired?,
    };
    let detached = lease.detach_by(Dialect::CommandLine, wanted.within.as_ref()).await;
    let text = match detached {
        Ok(detached) => detached.into_text(),
        Err(error) => {
            lease.release().await;
            return Err(error.into());
        }
    };
    output.note(format_args!("detached {}", names(lease.resources())));
    let command = command(wanted);
    let status = match Child::spawn(&command, &environment(&lease, &text), None, kill_after) {
        Ok(mut child) => child
            .wait(&mut signals, || true)
            .await
            .map_err(|error| Failure::own("the command's end was not seen", &error)),
        Err(error) => Err(cannot_run(&command, &error)),
    };
    if !matches!(status, Ok(exit::OK)) {
        take_back(client, &lease, &text, output).await;
    }
    status
}

/// Returns the changes to the environment of a command that may adopt the lease.
fn environment(lease: &Lease, text: &str) -> Environment {
    let only = match lease.resources() {
        [resource] => Some(resource.clone()),
        _ => None,
    };
    vec![
        (VARIABLE, Some(text.to_owned())),
        ("QUORLOCK_RESOURCE", only),
        // Those of the adopter are others.
        ("QUORLOCK_FENCE", None),
        ("QUORLOCK_FENCES", None),
        ("QUORLOCK_SLOTS", None),
        ("QUORLOCK_TOKEN", None),
    ]
}

/// Releases a detached lease that nobody has adopted.
async fn take_back(client: &Client, detached: &Lease, text: &str, output: &Output) {
    let name = names(detached.resources());
    let adoption = client.adopt(text).option(Dialect::CommandLine, "--wait", &NOW);
    match adoption.acquire().await {
        Ok(lease) if lease.release().await => {
            output.note(format_args!("released {name}, which nobody has adopted"));
        }
        // It was adopted, or has ended.
        Err(error) if error.code() == ErrorCode::LeaseLost => {}
        Ok(_) | Err(_) => output.note(format_args!(
            "{name} could not be released: it may stay held until it is adopted, or until --within has passed"
        )),
    }
}
