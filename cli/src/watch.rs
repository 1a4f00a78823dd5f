//! `quorlock watch`: shows who holds locks, as it changes. On a terminal it is a table that is drawn again; elsewhere
//! it is a line for each change.

use crate::args::{self, Nodes};
use crate::connect::client;
use crate::duration::{self, show};
use crate::exit;
use crate::list::{statuses, table};
use crate::output::{Failure, Output, json};
use crate::signals::Signals;
use crate::status::{holder, waiters};
use quorlock::{Client, ErrorCode, State, Status, printable};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::time::sleep;

/// The most resources to watch if none are named.
const MOST: usize = 1000;

pub(crate) async fn watch(
    nodes: &Nodes,
    wanted: &args::Watch,
    output: &Output,
) -> Result<u8, Failure> {
    let client = client(nodes)?;
    let interval = duration::of(&wanted.interval).filter(|interval| !interval.is_zero());
    let interval =
        interval.ok_or_else(|| Failure::Usage("--interval must be longer than 0".to_owned()))?;
    let mut signals = Signals::new().map_err(|error| Failure::own("no signals", &error))?;
    let ended = tokio::select! {
        signal = signals.end() => Ok(exit::SIGNAL + signal),
        ended = follow(&client, &wanted.resources, interval, output) => ended,
    };
    client.close().await;
    ended
}

/// Shows the locks until that fails, or the reader has closed the pipe.
async fn follow(
    client: &Client,
    resources: &[String],
    interval: Duration,
    output: &Output,
) -> Result<u8, Failure> {
    let is_live = !output.json && io::stdout().is_terminal();
    let (mut seen, mut complaint) = (Seen::default(), String::new());
    loop {
        let mut printed = Ok(());
        let trouble = match look(client, resources, &seen).await {
            Ok(all) if is_live => {
                let text = draw(&all, interval, output);
                printed = output.redraw_aside(&text).await;
                String::new()
            }
            Ok(all) => {
                let lines: String =
                    all.iter().filter_map(|status| seen.line(status, output)).collect();
                if !lines.is_empty() {
                    printed = output.try_print_aside(&lines).await;
                }
                if resources.is_empty() {
                    seen.0.retain(|_, before| before.state != State::Free);
                }
                String::new()
            }
            // An outage may pass.
            Err(Failure::Quorlock(error)) if error.code() == ErrorCode::NoQuorum => {
                error.message().to_owned()
            }
            Err(failure) => return Err(failure),
        };
        match printed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(exit::OK),
            Err(error) => return Err(Failure::own("the locks cannot be shown", &error)),
            Ok(()) => {}
        }
        if !trouble.is_empty() && trouble != complaint {
            output.note(&trouble);
        }
        complaint = trouble;
        sleep(interval).await;
    }
}

/// Returns the status of the named resources. Without names, of all that are held, and of those seen before.
async fn look(client: &Client, resources: &[String], seen: &Seen) -> Result<Vec<Status>, Failure> {
    if !resources.is_empty() {
        return statuses(client, resources).await;
    }
    let (mut names, _) = client.list("", MOST).await?;
    names.extend(seen.0.keys().cloned());
    names.sort_unstable();
    names.dedup();
    statuses(client, &names).await
}

/// Returns what the terminal shows: as many rows as it has room for.
fn draw(all: &[Status], interval: Duration, output: &Output) -> String {
    let room = height().saturating_sub(4).max(1);
    let left_out = all.len().saturating_sub(room);
    let more = if left_out > 0 { format!("… and {left_out} more\n") } else { String::new() };
    let title = format!("every {}; Ctrl-C ends", show(interval));
    format!("{title}\n\n{}{more}", table(&all[..all.len() - left_out], output))
}

/// Returns the number of lines of the terminal.
fn height() -> usize {
    #[cfg(unix)]
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout())
        && size.ws_row > 0
    {
        return size.ws_row.into();
    }
    24
}

/// What was last told about each resource.
#[derive(Default)]
struct Seen(BTreeMap<String, Told>);

#[derive(PartialEq, Eq)]
struct Told {
    state: State,
    /// The holder's fence.
    fence: Option<u64>,
    waiters: u64,
}

impl Seen {
    /// Returns a line about the resource if it has changed.
    fn line(&mut self, status: &Status, output: &Output) -> Option<String> {
        let is_held = status.state == State::Held;
        let fence = status.fence.filter(|_| is_held);
        let told = Told { state: status.state, fence, waiters: status.waiters };
        if self.0.get(&status.resource) == Some(&told) {
            return None;
        }
        self.0.insert(status.resource.clone(), told);
        if output.json {
            return Some(format!("{}\n", json(status)));
        }
        let by = holder(status).map_or_else(String::new, |holder| format!(" by {holder}"));
        let fence = fence.map_or_else(String::new, |fence| format!(", fence {fence}"));
        let waiters = waiters(status.waiters).map_or_else(String::new, |text| format!(", {text}"));
        let (name, state) = (printable(&status.resource), output.paint(status.state.as_str()));
        Some(format!("{name}: {state}{by}{fence}{waiters}\n"))
    }
}
