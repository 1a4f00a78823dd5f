//! `quorlock list`: shows all resources that are held. `watch` also uses its table.

use crate::args::{self, Nodes};
use crate::connect::client;
use crate::duration::show;
use crate::exit;
use crate::output::{Failure, Output};
use crate::status::{expiry, held_for, holder};
use quorlock::{Client, State, Status, printable};

/// The number of resources to query at the same time.
const AT_ONCE: usize = 16;
/// What is said if there may be more resources than `--limit`.
pub(crate) const MORE: &str = "there may be more: narrow the prefix, or set a higher --limit";
/// The longest text in a column of the table, in characters.
const WIDEST: usize = 48;

pub(crate) async fn list(
    nodes: &Nodes,
    wanted: &args::List,
    output: &Output,
) -> Result<u8, Failure> {
    let client = client(nodes)?;
    let prefix = wanted.prefix.as_deref().unwrap_or_default();
    let (names, is_cut) = client.list(prefix, wanted.limit.into()).await?;
    let mut all = statuses(&client, &names).await?;
    client.close().await;
    // Released since it was listed, or left on a minority by an attempt that failed.
    all.retain(|status| status.state != State::Free);
    if output.json {
        output.print_json(&all)?;
    } else if !all.is_empty() {
        output.print(table(&all, output))?;
    } else {
        output.note(nothing_held(prefix));
    }
    if is_cut {
        output.note(MORE);
    }
    Ok(exit::OK)
}

/// Says that no resource whose name begins with `prefix` is held.
pub(crate) fn nothing_held(prefix: &str) -> String {
    if prefix.is_empty() {
        "nothing is held".to_owned()
    } else {
        format!("nothing whose name begins with {} is held", printable(prefix))
    }
}

/// Queries the status of each resource, several at the same time.
pub(crate) async fn statuses(client: &Client, names: &[String]) -> Result<Vec<Status>, Failure> {
    let mut all = Vec::new();
    for names in names.chunks(AT_ONCE) {
        let pending: Vec<_> = names.iter().map(|name| client.status(name)).collect();
        for status in pending {
            all.push(status.await?);
        }
    }
    Ok(all)
}

/// Returns a table with one line for each resource.
pub(crate) fn table(all: &[Status], output: &Output) -> String {
    let titles = ["RESOURCE", "STATE", "HOLDER", "HELD FOR", "FREE IN", "WAITERS", "FENCE"];
    let row = |status: &Status| {
        [
            shorten(&printable(&status.resource)),
            status.state.as_str().to_owned(),
            holder(status).map_or_else(dash, |holder| shorten(&holder)),
            held_for(status).map_or_else(dash, show),
            expiry(status).map_or_else(dash, show),
            status.waiters.to_string(),
            status.fence.map_or_else(dash, |fence| fence.to_string()),
        ]
    };
    let rows: Vec<_> = [titles.map(str::to_owned)].into_iter().chain(all.iter().map(row)).collect();
    let length = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..titles.len()).map(|column| length(column).unwrap_or(0)).collect();
    let cell = |(column, text): (usize, &String)| {
        let gap = " ".repeat(widths[column] - text.chars().count() + 2);
        format!("{}{gap}", output.paint(text))
    };
    let line = |row: &[String; 7]| {
        let line: String = row.iter().enumerate().map(cell).collect();
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

fn dash() -> String {
    "-".to_owned()
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
