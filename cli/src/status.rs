//! `quorlock status`: shows the state of locks, or of a semaphore. `release` also uses the functions that format a status.

use crate::args::{self, Nodes};
use crate::connect::client;
use crate::duration::show;
use crate::exit;
use crate::output::{Failure, Output};
use quorlock::{
    Client, Dialect, NodeStatus, OptionValue, Reader, SemaphoreStatus, State, Status, printable,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) async fn status(
    nodes: &Nodes,
    wanted: &args::Status,
    output: &Output,
) -> Result<u8, Failure> {
    let client = client(nodes)?;
    if let (Some(limit), [resource]) = (wanted.limit, &*wanted.resources) {
        return permits(&client, resource, limit, output).await;
    }
    let mut all = Vec::new();
    for resource in &wanted.resources {
        let status = client.status(resource).await?;
        if !output.json {
            output.print(describe(&status, output))?;
        }
        all.push(status);
    }
    client.close().await;
    if output.json {
        output.print_json(&all)?;
    }
    let any = |state| all.iter().any(|status| status.state == state);
    Ok(if any(State::Unknown) {
        exit::NO_QUORUM
    } else if any(State::Held) || any(State::Contested) {
        exit::NO
    } else {
        exit::OK
    })
}

async fn permits(
    client: &Client,
    resource: &str,
    limit: f64,
    output: &Output,
) -> Result<u8, Failure> {
    let limit = OptionValue::Number(limit);
    let semaphore = client.semaphore_as(Dialect::CommandLine, resource, &limit).checked()?;
    let status = semaphore.status().await?;
    client.close().await;
    if output.json {
        // An array, as for locks.
        output.print_json(&[&status])?;
    } else {
        output.print(describe_permits(&status, output))?;
    }
    Ok(if status.free == 0 { exit::NO } else { exit::OK })
}

/// Returns the status as lines of text: one for the semaphore, one for each holder, and one for each node.
fn describe_permits(status: &SemaphoreStatus, output: &Output) -> String {
    let waiters = waiters(status.waiters).map_or_else(String::new, |words| format!(", {words}"));
    let name = printable(&status.resource);
    let free = output.paint("free");
    let mut text = format!("{name}: {} of {} permits {free}{waiters}\n", status.free, status.limit);
    for holder in &status.holders {
        let by = holder
            .holder
            .as_deref()
            .map_or_else(String::new, |name| format!("{}, ", printable(name)));
        let fence = holder.fence.map_or_else(String::new, |fence| format!(", fence {fence}"));
        let left = holder.expires_in_ms.map(Duration::from_millis);
        let left = left.map_or_else(String::new, |left| format!(", for {} more", show(left)));
        let slot = holder.slot;
        let held = output.paint("held");
        text += &format!("  permit {slot}: {held} by {by}token {}…{fence}{left}\n", holder.token);
    }
    for node in &status.nodes {
        let report = match node.held {
            Some(held) => format!("{held} {}", output.paint("held")),
            None if node.detail.is_empty() => node.outcome.as_str().to_owned(),
            None => format!("{}, {}", node.outcome.as_str(), node.detail),
        };
        text += &format!("  {}: {report}\n", node.address);
    }
    text
}

/// Returns the status as lines of text: one for the lock, and one for each node.
pub(crate) fn describe(status: &Status, output: &Output) -> String {
    let state = output.paint(status.state.as_str());
    let mut text = format!("{}: {state}{}\n", printable(&status.resource), summary(status));
    for reader in &status.readers {
        text += &format!("  {}\n", describe_reader(reader));
    }
    for node in &status.nodes {
        text += &format!("  {}: {}\n", node.address, describe_node(node, output));
    }
    text
}

/// Returns further details of the status, to be appended to the state.
pub(crate) fn summary(status: &Status) -> String {
    let held_for = held_for(status).map(|time| format!("for {}", show(time)));
    let token = status.token.as_ref().map(|token| format!("token {token}…"));
    let fence = status.fence.filter(|_| status.state == State::Held);
    let fence = fence.map(|fence| format!("fence {fence}"));
    let left = expiry(status).map(|left| format!("free in {} unless it is renewed", show(left)));
    let by = readers(&status.readers).or(status.holder.as_deref().map(shown));
    let by = by.map(|by| format!("by {by}"));
    let words: String = [by, held_for].iter().flatten().map(|words| format!(" {words}")).collect();
    let parts = [token, fence, left, waiters(status.waiters)].into_iter().flatten();
    words + &parts.map(|part| format!(", {part}")).collect::<String>()
}

/// Returns the name of the holder, the beginning of its token if it has none, or the number of readers; `None` if the
/// resource is not held.
pub(crate) fn holder(status: &Status) -> Option<String> {
    let token = || status.token.as_ref().map(|token| format!("token {token}…"));
    let of_one = || status.holder.as_deref().map(shown).or_else(token);
    readers(&status.readers).or_else(of_one)
}

fn shown(name: &str) -> String {
    printable(name).into_owned()
}

/// Says how many clients hold the resource in shared mode, if any do.
fn readers(readers: &[Reader]) -> Option<String> {
    match readers.len() {
        0 => None,
        1 => Some("1 reader".to_owned()),
        count => Some(format!("{count} readers")),
    }
}

fn describe_reader(reader: &Reader) -> String {
    let left = show(Duration::from_millis(reader.expires_in_ms));
    let name =
        reader.holder.as_deref().map_or_else(String::new, |name| format!("{}, ", printable(name)));
    format!("reader {name}token {}…, for {left} more", reader.token)
}

/// Returns for how long the resource has been held, by the nodes' clocks and that of this machine.
pub(crate) fn held_for(status: &Status) -> Option<Duration> {
    let since = UNIX_EPOCH + Duration::from_millis(status.since_ms?);
    Some(SystemTime::now().duration_since(since).unwrap_or_default())
}

/// Returns after which time the resource is free, if no key is extended.
pub(crate) fn expiry(status: &Status) -> Option<Duration> {
    status.expires_in_ms.map(Duration::from_millis)
}

/// Says how many clients wait, if any do.
pub(crate) fn waiters(count: u64) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 client waits".to_owned()),
        waiters => Some(format!("{waiters} clients wait")),
    }
}

fn describe_node(node: &NodeStatus, output: &Output) -> String {
    use quorlock::NodeOutcome::{Held, Missing};
    let outcome = match (node.outcome, &node.holder, &node.token) {
        (Missing, ..) => output.paint("free"),
        (Held, ..) if !node.readers.is_empty() => {
            let by = readers(&node.readers).unwrap_or_default();
            format!("{} by {by}", output.paint("held"))
        }
        (Held, Some(holder), _) => format!("{} by {}", output.paint("held"), printable(holder)),
        (Held, None, Some(token)) => format!("{} by token {token}…", output.paint("held")),
        (Held, None, None) => format!("{} by a value that is not a token", output.paint("held")),
        (outcome, ..) => output.paint(outcome.as_str()),
    };
    let left = match (node.outcome, node.expires_in_ms) {
        (_, Some(left)) => Some(format!("for {} more", show(Duration::from_millis(left)))),
        (Held, None) => Some("without expiry".to_owned()),
        _ => None,
    };
    let fence = node.fence.map(|fence| format!("last fence {fence}"));
    let waiters = node.waiters.filter(|waiters| *waiters > 0);
    let waiters = waiters.map(|waiters| format!("{waiters} in the queue"));
    let detail = Some(node.detail.clone()).filter(|detail| !detail.is_empty());
    let parts = [left, fence, waiters, detail].into_iter().flatten();
    outcome + &parts.map(|part| format!(", {part}")).collect::<String>()
}
