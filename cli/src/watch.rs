//! `quorlock watch` and `quorlock list --watch`: show who holds locks, as it changes. On a terminal they draw a table
//! again and again; elsewhere they print a line for each change.

use crate::args::{self, Nodes};
use crate::connect::client;
use crate::duration::{self, show};
use crate::exit;
use crate::list::{MORE, nothing_held, statuses, table};
use crate::output::{Failure, Output, json};
use crate::signals::Signals;
use crate::status::{holder, waiters};
use quorlock::{Client, ErrorCode, OptionValue, State, Status, printable};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::time::sleep;

/// The most resources that `quorlock watch` shows if none are named.
const MOST: usize = 1000;

/// Which resources to show.
enum Shown<'a> {
    Named(&'a [String]),
    /// All that are held and whose names begin with `prefix`, `limit` at most.
    Held {
        prefix: &'a str,
        limit: usize,
    },
}

pub(crate) async fn watch(
    nodes: &Nodes,
    wanted: &args::Watch,
    output: &Output,
) -> Result<u8, Failure> {
    let shown = match &*wanted.resources {
        [] => Shown::Held { prefix: "", limit: MOST },
        names => Shown::Named(names),
    };
    show_until_signal(nodes, &shown, &wanted.interval, output).await
}

/// Runs `quorlock list --watch`.
pub(crate) async fn list(
    nodes: &Nodes,
    wanted: &args::List,
    output: &Output,
) -> Result<u8, Failure> {
    let prefix = wanted.prefix.as_deref().unwrap_or_default();
    let shown = Shown::Held { prefix, limit: wanted.limit.into() };
    show_until_signal(nodes, &shown, &wanted.interval, output).await
}

async fn show_until_signal(
    nodes: &Nodes,
    shown: &Shown<'_>,
    interval: &OptionValue,
    output: &Output,
) -> Result<u8, Failure> {
    let client = client(nodes)?;
    let interval = duration::of(interval).filter(|interval| !interval.is_zero());
    let interval =
        interval.ok_or_else(|| Failure::Usage("--interval must be longer than 0".to_owned()))?;
    let mut signals = Signals::new().map_err(|error| Failure::own("no signals", &error))?;
    let ended = tokio::select! {
        signal = signals.end() => Ok(exit::SIGNAL + signal),
        ended = follow(&client, shown, interval, output) => ended,
    };
    client.close().await;
    ended
}

/// Shows the locks until that fails, or the reader has closed the pipe.
async fn follow(
    client: &Client,
    shown: &Shown<'_>,
    interval: Duration,
    output: &Output,
) -> Result<u8, Failure> {
    let is_live = !output.json && io::stdout().is_terminal();
    let mut seen = Seen::default();
    let mut said = String::new();
    loop {
        let mut printed = Ok(());
        let message = match look(client, shown, &seen).await {
            Ok(Found { all, is_cut }) if is_live => {
                let text = draw(&all, is_cut, shown, interval, output);
                printed = output.redraw_aside(&text).await;
                String::new()
            }
            Ok(Found { all, is_cut }) => {
                let lines: String =
                    all.iter().filter_map(|status| seen.line(status, output)).collect();
                if !lines.is_empty() {
                    printed = output.try_print_aside(&lines).await;
                }
                match shown {
                    Shown::Named(_) => String::new(),
                    Shown::Held { prefix, .. } => {
                        seen.0.retain(|_, before| before.state != State::Free);
                        if seen.0.is_empty() {
                            nothing_held(prefix)
                        } else if is_cut {
                            MORE.to_owned()
                        } else {
                            String::new()
                        }
                    }
                }
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
        if !message.is_empty() && message != said {
            output.note(&message);
        }
        said = message;
        sleep(interval).await;
    }
}

/// What one query found.
struct Found {
    all: Vec<Status>,
    /// Whether there may be more resources than the limit.
    is_cut: bool,
}

/// Returns the status of the resources to show, and of those seen before.
async fn look(client: &Client, shown: &Shown<'_>, seen: &Seen) -> Result<Found, Failure> {
    let (prefix, limit) = match *shown {
        Shown::Named(names) => {
            return Ok(Found { all: statuses(client, names).await?, is_cut: false });
        }
        Shown::Held { prefix, limit } => (prefix, limit),
    };
    let (mut names, is_cut) = client.list(prefix, limit).await?;
    names.extend(seen.0.keys().cloned());
    names.sort_unstable();
    names.dedup();
    let mut all = statuses(client, &names).await?;
    // Released since it was listed, or left on a minority by an attempt that failed.
    all.retain(|status| status.state != State::Free || seen.0.contains_key(&status.resource));
    Ok(Found { all, is_cut })
}

/// Returns what the terminal shows: as many rows as it has room for.
fn draw(
    all: &[Status],
    is_cut: bool,
    shown: &Shown<'_>,
    interval: Duration,
    output: &Output,
) -> String {
    let room = height().saturating_sub(5).max(1);
    let left_out = all.len().saturating_sub(room);
    let mut text = format!("every {}; Ctrl-C ends\n\n", show(interval));
    match shown {
        Shown::Held { prefix, .. } if all.is_empty() => text += &(nothing_held(prefix) + "\n"),
        _ => text += &table(&all[..all.len() - left_out], output),
    }
    if left_out > 0 {
        text += &format!("… and {left_out} more\n");
    }
    if is_cut {
        text += &format!("{MORE}\n");
    }
    text
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
    holder: Option<String>,
    /// The tokens of the readers, in order.
    readers: Vec<String>,
    waiters: u64,
}

impl Seen {
    /// Returns a line about the resource if it has changed.
    fn line(&mut self, status: &Status, output: &Output) -> Option<String> {
        let is_held = status.state == State::Held;
        let fence = status.fence.filter(|_| is_held);
        let told = Told {
            state: status.state,
            fence,
            holder: status.holder.clone(),
            readers: status.readers.iter().map(|reader| reader.token.clone()).collect(),
            waiters: status.waiters,
        };
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
        let name = printable(&status.resource);
        let state = output.paint(status.state.as_str());
        Some(format!("{name}: {state}{by}{fence}{waiters}\n"))
    }
}
