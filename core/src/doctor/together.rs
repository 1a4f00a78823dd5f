//! Turns the observations of all nodes into findings about the nodes as a whole, without IO.
//!
//! Findings about a single node are in `judge.rs`. Called by `diagnose` in `mod.rs`.

use super::diagnosis::{Finding, error, ok, warning};
use super::examine::Examined;
use super::judge::{USUAL_CLOCK_ERROR_MS, is_young, obstacle, unseen};
use crate::config::options::Options;
use crate::error::duration::HumanDuration;
use crate::error::{needed, same_server};
use quorlock_protocol::{FENCE_WINDOW, Quorum};
use std::time::Duration;

/// Returns the findings about the nodes as a whole. Each node consists of one or more servers.
pub(super) fn judge_together(nodes: &[Vec<Examined>], options: &Options) -> Vec<Finding> {
    let quorum = Quorum::over(nodes.len()).expect("the number of nodes was checked");
    let mut findings = vec![size(quorum), majority(quorum, nodes, options)];
    findings.extend(duplicates(nodes));
    findings.extend(clocks(nodes, options));
    findings
}

fn size(quorum: Quorum) -> Finding {
    let nodes = quorum.nodes();
    let tolerated = quorum.tolerated();
    match nodes {
        1 => warning(
            "nodes",
            "a single node: when it is down, nothing can be locked",
            "use three or five independent masters if that matters",
        ),
        _ if nodes.is_multiple_of(2) => warning(
            "nodes",
            format!("{nodes} nodes tolerate the loss of {tolerated}, as {} would", nodes - 1),
            "use an odd number of nodes",
        ),
        _ => ok("nodes", format!("{nodes} nodes tolerate the loss of {tolerated}")),
    }
}

fn majority(quorum: Quorum, nodes: &[Vec<Examined>], options: &Options) -> Finding {
    let can_vote = |server: &Examined| obstacle(server).is_none() && !is_young(server, options);
    // Of duplicate nodes, count only the first one, because they have only one vote together.
    let is_first = |node: usize| duplicate_of(nodes, node).is_none();
    let able = nodes.iter().enumerate().filter(|(_, servers)| servers.iter().all(can_vote));
    let able = able.filter(|(node, _)| is_first(*node)).count();
    let shown = format!("{able} of {} nodes can vote, {}", quorum.nodes(), needed(quorum.size()));
    match able {
        able if able < quorum.size() => {
            let is_split = |servers: &Vec<Examined>| {
                servers.iter().any(can_vote) && !servers.iter().all(can_vote)
            };
            let what = match nodes.iter().any(is_split) {
                true => "only resources on the cluster's other masters",
                false => "nothing",
            };
            error("majority", format!("{shown}: {what} can be locked"), "see the nodes' findings")
        }
        able if able == quorum.size() && able < quorum.nodes() => warning(
            "majority",
            format!("{shown}: nothing can be locked when one more fails"),
            "see the nodes' findings",
        ),
        _ => ok("majority", shown),
    }
}

/// Returns the first node that comes before `node` in the list and shares a server with `node`.
pub(super) fn duplicate_of(nodes: &[Vec<Examined>], node: usize) -> Option<usize> {
    let run_ids =
        |node: usize| nodes[node].iter().filter_map(|server| server.diagnosis.run_id.as_ref());
    (0..node).find(|first| run_ids(*first).any(|run_id| run_ids(node).any(|other| other == run_id)))
}

fn duplicates(nodes: &[Vec<Examined>]) -> Option<Finding> {
    let pair = |second| duplicate_of(nodes, second).map(|first| (first, second));
    let pair = (0..nodes.len()).find_map(pair);
    if let Some((first, second)) = pair {
        let node = |node: usize| (node, &*nodes[node][0].diagnosis.address);
        return Some(error(
            "duplicates",
            same_server(node(first), node(second)),
            "list every server only once",
        ));
    }
    let mut seen =
        nodes.iter().flatten().filter(|server| server.diagnosis.reachable && !server.is_memory());
    match seen.find(|server| server.diagnosis.run_id.is_none()) {
        _ if nodes.len() == 1 => None,
        None => Some(ok("duplicates", "no server is listed twice")),
        Some(server) => Some(unseen(server, "duplicates", "INFO")),
    }
}

/// Judges the offsets between the nodes' clocks. After nodes have lost their fence counters, fences may go back, unless
/// `restart_guard` is long enough. The larger the offsets are, the longer `restart_guard` must be: see
/// `protocol::fence`.
fn clocks(nodes: &[Vec<Examined>], options: &Options) -> Option<Finding> {
    let offsets: Vec<(f64, f64)> = nodes
        .iter()
        .flatten()
        .filter_map(|node| Some((node.diagnosis.clock_offset_ms?, node.clock_error_ms)))
        .collect();
    let ends = |sign: f64| {
        let ends = offsets.iter().map(|(offset, error)| sign * (offset - sign * error));
        ends.fold(f64::NEG_INFINITY, f64::max)
    };
    // The part of the clocks' difference that measurement errors cannot explain.
    let apart = (ends(1.0) + ends(-1.0)).max(0.0);
    let needed = 2 * FENCE_WINDOW + Duration::from_secs_f64(apart / 1e3);
    if offsets.is_empty() {
        return None;
    }
    if apart > FENCE_WINDOW.as_secs_f64() * 1e3 {
        let message = format!(
            "the nodes' clocks are {apart:.0} ms apart: acquires need a second round trip, and fences may \
             go back after restarts unless restart_guard is longer than {}",
            HumanDuration(needed)
        );
        return Some(error("clocks", message, "run NTP on all of them"));
    }
    let is_short = options.restart_guard.is_some_and(|guard| guard <= needed);
    let limit = match is_short {
        true => format!(
            ": fences may go back after a restart that is misjudged, unless restart_guard is \
             longer than {}",
            HumanDuration(needed)
        ),
        false => String::new(),
    };
    match offsets.len() {
        1 => None,
        _ if apart > USUAL_CLOCK_ERROR_MS => Some(warning(
            "clocks",
            format!("the nodes' clocks are {apart:.0} ms apart{limit}"),
            "run NTP on all of them",
        )),
        _ => Some(ok("clocks", format!("the nodes' clocks agree{limit}"))),
    }
}
