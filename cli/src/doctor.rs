//! `quorlock doctor`: checks whether the nodes are fit for a lock.

use crate::args::Nodes;
use crate::connect::client;
use crate::output::{Failure, Output};
use quorlock::Level;

pub(crate) async fn doctor(nodes: &Nodes, output: &Output) -> Result<u8, Failure> {
    let client = client(nodes)?;
    let diagnosis = client.doctor().await?;
    if output.json {
        output.print_json(&diagnosis);
    } else {
        // The line of a finding is indented and begins with the level.
        let paint = |line: &str| match line.trim_start().split_once(' ') {
            Some((level, rest)) if line.starts_with("  ") => {
                format!("  {} {rest}\n", output.paint(level))
            }
            _ => format!("{line}\n"),
        };
        output.print(diagnosis.to_string().lines().map(paint).collect::<String>());
    }
    client.close().await;
    Ok(match diagnosis.level {
        Level::Ok => 0,
        Level::Warning => 1,
        _ => 2,
    })
}
