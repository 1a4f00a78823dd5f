//! `quorlock doctor`: reports what is wrong with the nodes. With `--require`, it is a probe that only checks
//! whether enough nodes can vote.

use crate::args::{self, Nodes, Require};
use crate::connect::client;
use crate::exit;
use crate::output::{Failure, Output};
use quorlock::protocol::Quorum;
use quorlock::{Client, Level, NodeOutcome, NodeReport};
use serde::Serialize;

pub(crate) async fn doctor(
    nodes: &Nodes,
    wanted: &args::Doctor,
    output: &Output,
) -> Result<u8, Failure> {
    let client = client(nodes)?;
    if let Some(require) = wanted.require {
        let result = probe(&client, require, output).await;
        client.close().await;
        return result;
    }
    let diagnosis = client.doctor().await?;
    client.close().await;
    if output.json {
        output.print_json(&diagnosis)?;
    } else {
        // The line of a finding is indented and begins with the level.
        let paint = |line: &str| match line.trim_start().split_once(' ') {
            Some((level, rest)) if line.starts_with("  ") => {
                format!("  {} {rest}\n", output.paint(level))
            }
            _ => format!("{line}\n"),
        };
        output.print(diagnosis.to_string().lines().map(paint).collect::<String>())?;
    }
    Ok(match diagnosis.level {
        Level::Ok => 0,
        Level::Warning => 1,
        _ => 2,
    })
}

/// The result of a probe that succeeded, as JSON. One that failed is reported as an error.
#[derive(Serialize)]
struct Probed<'a> {
    /// The number of nodes that can vote.
    can_vote: usize,
    /// The number of nodes that must be able to vote.
    needed: usize,
    nodes: &'a [NodeReport],
}

/// Checks whether the required nodes can vote.
async fn probe(client: &Client, require: Require, output: &Output) -> Result<u8, Failure> {
    let count = client.addresses().count();
    let needed = match require {
        Require::Majority => Quorum::over(count).expect("the number of nodes was checked").size(),
        Require::All => count,
    };
    let nodes = client.votes(needed).await?;
    let number = |outcome| nodes.iter().filter(|node| node.outcome == outcome).count();
    let can_vote = number(NodeOutcome::Granted);
    let least = if number(NodeOutcome::Pending) > 0 { "at least " } else { "" };
    let message = format!("{least}{can_vote} of {count} nodes can vote, {needed} needed");
    if can_vote < needed {
        return Err(Failure::NoMajority(message, nodes));
    }
    if output.json {
        output.print_json(&Probed { can_vote, needed, nodes: &nodes })?;
    } else if !output.quiet {
        output.print(format_args!("{message}\n"))?;
    }
    Ok(exit::OK)
}
