//! `quorlock release`: takes a lock away from its holder.
//!
//! It deletes only the tokens that it has shown, so a lock that was acquired in the meantime stays held.

use crate::args::{self, Nodes};
use crate::connect::client;
use crate::exit;
use crate::lease;
use crate::output::{Failure, Output};
use crate::status::{describe, summary};
use quorlock::{NodeReport, State, Status, printable};
use serde::Serialize;
use std::io::{self, IsTerminal};

/// The result, as JSON.
#[derive(Serialize)]
struct Released<'a> {
    resource: &'a str,
    /// The state before the release.
    was: State,
    /// The state after the release.
    state: State,
    nodes: &'a [NodeReport],
}

pub(crate) async fn release(
    nodes: &Nodes,
    wanted: &args::Release,
    output: &Output,
) -> Result<u8, Failure> {
    let resource = match (&wanted.resource, &wanted.lease) {
        (Some(resource), _) => resource,
        (None, Some(text)) => return lease::release(nodes, text, output).await,
        (None, None) => unreachable!("the arguments have one of them"),
    };
    let client = client(nodes)?;
    let seen = client.status(resource).await?;
    if seen.would_release() && !wanted.yes && !agrees(&seen, output)? {
        output.note("nothing was released");
        return Ok(exit::NO);
    }
    // Releases only the tokens that were seen, so a lock acquired in the meantime is not touched.
    let nodes = client.force_release(&seen).await?;
    let after = client.status(resource).await?;
    client.close().await;
    if output.json {
        let Status { resource, state: was, .. } = &seen;
        let released = Released { resource, was: *was, state: after.state, nodes: &nodes };
        output.print_json(&released)?;
    } else {
        output.print(format_args!("{}\n{}", outcome(&seen, &after), describe(&after, output)))?;
    }
    Ok(match after.state {
        State::Free => exit::OK,
        State::Unknown => exit::NO_QUORUM,
        _ if is_left(&seen, &after) => exit::NO,
        // The shown leases are gone: the lock already has another holder, or the key a value that is not a token.
        _ => exit::OK,
    })
}

/// Whether a lease that was seen is left, or a value that is not a token.
fn is_left(seen: &Status, after: &Status) -> bool {
    let (seen, after) = (tokens(seen), tokens(after));
    seen == after || seen.iter().any(|token| after.contains(token))
}

/// Returns the tokens of the holder and of the readers.
fn tokens(status: &Status) -> Vec<&str> {
    let readers = status.readers.iter().map(|reader| &*reader.token);
    status.token.as_deref().into_iter().chain(readers).collect()
}

/// Says what was released, and from whom.
fn outcome(seen: &Status, after: &Status) -> String {
    let name = printable(&seen.resource);
    let state = seen.state.as_str();
    let before = format!("it was {state}{}", summary(seen));
    match after.state {
        State::Free if seen.state == State::Free => format!("nothing to release: {name} was free"),
        State::Free => format!("released {name}: {before}"),
        State::Held if is_left(seen, after) => format!("not released {name}: {before}"),
        State::Held => format!("released {name}, which has a new holder: {before}"),
        _ => format!("sent the release of {name}: {before}"),
    }
}

/// Asks the user at the terminal for confirmation. Fails if stdin or stderr is not a terminal.
fn agrees(seen: &Status, output: &Output) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Usage(format!(
            "{} is {}: there is no terminal for a confirmation, so use --yes to release it",
            printable(&seen.resource),
            seen.state.as_str(),
        )));
    }
    output.ask(format_args!(
        "{} is {}{}. Its holder may continue to work for about a third of its ttl, at the same time as the next holder. Release it? [y/N] ",
        printable(&seen.resource),
        seen.state.as_str(),
        summary(seen),
    ));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| Failure::own("no answer", &error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
