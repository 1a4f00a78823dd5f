//! What to make of what was seen. No IO.

use super::diagnosis::{Finding, Level, NodeDiagnosis, Permission, tenths};
use super::examine::{Examined, Membership};
use crate::config::options::Options;
use crate::error::duration::HumanDuration;
use crate::error::{NodeOutcome, same_server};
use quorlock_protocol::{FENCE_WINDOW, Quorum};
use std::time::Duration;

/// Clocks of machines with NTP are closer by far.
const USUAL_CLOCK_ERROR_MS: f64 = 1_000.0;
/// A node that has used this much of its memory will soon refuse writes.
const NEARLY_FULL: f64 = 0.9;
/// What quorlock can do without; what it costs then.
const OPTIONAL: [(&str, &[&str]); 2] = [
    ("restarts and duplicate nodes may go unnoticed", &["INFO", "SCRIPT LOAD"]),
    (
        "who waits for a lock is not called when it is free, and tries at random",
        &["PUBLISH", "SUBSCRIBE", "ZADD", "ZRANGE", "ZRANK", "ZREM"],
    ),
];

/// Said in place of "ok" where the server does not permit to look.
const NOT_PERMITTED: &str = "not permitted to look";

fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding { level: Level::Ok, check, message: message.into(), advice: String::new() }
}

fn warning(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { level: Level::Warning, check, message: message.into(), advice: advice.into() }
}

fn error(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { level: Level::Error, check, message: message.into(), advice: advice.into() }
}

fn unseen(check: &'static str, command: &str) -> Finding {
    warning(check, NOT_PERMITTED, format!("permit {command} to the user of this client"))
}

/// What to make of a node, which consists of these servers. What there is to know of one server is told of one
/// that can be reached, if there is one.
pub(super) fn judge(servers: Vec<Examined>, options: &Options) -> NodeDiagnosis {
    let members: Option<Vec<_>> = servers.iter().map(|server| server.membership.as_ref()).collect();
    let judged = servers.iter().map(|server| judge_server(server, options));
    let findings = match members {
        Some(members) => combined(&members.into_iter().zip(judged).collect::<Vec<_>>()),
        None => judged.flatten().collect(),
    };
    let better = |one: Examined, other| if one.diagnosis.reachable { one } else { other };
    let one = servers.into_iter().reduce(better).expect("a node has a server");
    NodeDiagnosis { findings, ..one.diagnosis }
}

/// The findings at the masters of a cluster as those at one node. Where not all is in order, they tell whose.
fn combined(judged: &[(&Membership, Vec<Finding>)]) -> Vec<Finding> {
    let mut combined: Vec<(Finding, Vec<&str>)> = Vec::new();
    for (member, finding) in
        judged.iter().flat_map(|(member, all)| all.iter().map(move |f| (member, f)))
    {
        let both_fine = |known: &Finding| known.level == Level::Ok && finding.level == Level::Ok;
        let is_same = |known: &Finding| {
            known.check == finding.check && (known.message == finding.message || both_fine(known))
        };
        match combined.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, places)) => places.push(&member.place),
            None => combined.push((finding.clone(), vec![&member.place])),
        }
    }
    let is_amiss = |check| combined.iter().any(|(f, _)| f.check == check && f.level != Level::Ok);
    let told = combined.iter().filter(|(f, _)| f.level != Level::Ok || !is_amiss(f.check));
    let seen = |check| {
        judged.iter().filter(|(_, all)| all.iter().any(|finding| finding.check == check)).count()
    };
    let told = told.map(|(finding, places)| {
        let mut finding = finding.clone();
        let is_amiss_at_some = finding.level != Level::Ok && places.len() < seen(finding.check);
        // What fails on the way to a master names it already.
        if is_amiss_at_some && finding.check != "connection" {
            finding.message = format!("{}: {}", places.join(", "), finding.message);
        }
        finding
    });
    told.collect()
}

/// The findings at one server.
fn judge_server(examined: &Examined, options: &Options) -> Vec<Finding> {
    let Examined { diagnosis: node, trouble, .. } = examined;
    if node.kind.as_deref() == Some("memory") {
        let message = "a node in this process, which no other process shares";
        return vec![warning("server", message, "use it for tests only")];
    }
    let mut findings = vec![connection(examined)];
    if examined.is_known {
        findings.push(encryption(examined));
    }
    if !node.reachable || trouble.is_some() {
        return findings;
    }
    findings.extend([
        latency(node, options),
        permissions(node),
        writes(examined),
        server(node),
        replication(examined, options),
        cluster(examined),
        eviction(node),
        memory(node),
        persistence(node, options),
        clock(node),
        ok("database", format!("number {}; all clients have to use the same", node.database)),
    ]);
    findings.extend(restart(node, options));
    findings
}

fn connection(examined: &Examined) -> Finding {
    match &examined.trouble {
        None => ok("connection", "reachable"),
        Some(failure) => error(
            "connection",
            format!("{}: {}; it cannot vote", failure.outcome.as_str(), failure.detail),
            "see that it runs, that the URL is right, and that nothing stands in between",
        ),
    }
}

fn encryption(examined: &Examined) -> Finding {
    if examined.trusts_anybody {
        return warning(
            "encryption",
            "insecure=true: the server need not prove who it is, so anybody in between can read \
             along and release locks",
            "name the file with the certificate of its authority by cacert=…, in place of insecure",
        );
    }
    if examined.is_local || examined.diagnosis.tls {
        return ok("encryption", "nothing goes over a network in clear text");
    }
    warning(
        "encryption",
        "passwords and tokens go over the network in clear text: who can read along can release \
         locks",
        "use TLS (rediss://), or a private network",
    )
}

fn latency(node: &NodeDiagnosis, options: &Options) -> Finding {
    let Some(latency) = node.latency_ms else { return unseen("latency", "TIME") };
    let limit = options.node_timeout(options.ttl);
    let shown = format!("{latency:.2} ms for a round trip, of {} ms", limit.as_millis());
    if latency <= limit.as_secs_f64() * 1e3 / 2.0 {
        return ok("latency", shown);
    }
    warning(
        "latency",
        format!("{shown} that node_timeout allows: it will often be taken for dead"),
        "move it closer, or set a longer node_timeout",
    )
}

/// The commands of this kind that the user may not run.
fn denied(node: &NodeDiagnosis, kind: impl Fn(&str) -> bool) -> String {
    let denied = node.permissions.iter().filter(|(_, given)| **given == Permission::Denied);
    let denied: Vec<_> = denied.map(|(name, _)| *name).filter(|name| kind(name)).collect();
    denied.join(", ")
}

fn is_needed(name: &str) -> bool {
    OPTIONAL.iter().all(|(_, names)| !names.contains(&name))
}

fn permissions(node: &NodeDiagnosis) -> Finding {
    let needed = denied(node, is_needed);
    if !needed.is_empty() {
        return error(
            "permissions",
            format!("the user may not run {needed} on keys like quorlock-doctor: it cannot vote"),
            "permit these commands to the user, on the keys that are locked, their fences and queues",
        );
    }
    let costs = OPTIONAL.iter().filter_map(|(cost, names)| {
        let useful = denied(node, |name| names.contains(&name));
        (!useful.is_empty()).then(|| format!("the user may not run {useful}: {cost}"))
    });
    let costs: Vec<_> = costs.collect();
    if !costs.is_empty() {
        let advice = "permit these commands to the user, on its keys and channels";
        return warning("permissions", costs.join("; "), advice);
    }
    ok("permissions", "the user may run all that is needed")
}

fn writes(examined: &Examined) -> Finding {
    let Some(failure) = &examined.refusal else { return ok("writes", "it takes writes") };
    let advice = match failure.outcome {
        NodeOutcome::Loading => "wait until it has loaded its data",
        NodeOutcome::Readonly | NodeOutcome::Masterdown => "give the client a master",
        NodeOutcome::Oom => "give it more memory, or nothing else to keep",
        NodeOutcome::Misconf => "see in its log why it cannot save",
        _ => "see its log",
    };
    error("writes", format!("it refuses writes ({}), so it cannot vote", failure.detail), advice)
}

fn server(node: &NodeDiagnosis) -> Finding {
    let (Some(kind), Some(version)) = (&node.kind, &node.version) else {
        return unseen("server", "INFO");
    };
    let shown = format!("{kind} {version}");
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match &**kind {
        "Redis" if version < (6, 2) => warning(
            "server",
            format!("{shown} is older than any that quorlock is tested with"),
            "use Redis 6.2 or later, or Valkey",
        ),
        "Redis" | "Valkey" => ok("server", shown),
        _ => warning(
            "server",
            format!(
                "quorlock is not tested with {shown}, which may expire keys or run scripts in \
                 its own way"
            ),
            "use Redis 6.2 or later, or Valkey",
        ),
    }
}

/// What a replica that is promoted does not know.
const LACKS: &str = "one that is promoted in its place lacks what was not replicated yet, and would \
                     grant it again";

fn replication(examined: &Examined, options: &Options) -> Finding {
    let node = &examined.diagnosis;
    let advice = "use independent masters without failover, or set restart_guard in all clients";
    match (node.role.as_deref(), node.replicas) {
        (None, _) => unseen("replication", "INFO"),
        (Some("master"), replicas) if examined.has_sentinels || replicas != Some(0) => {
            let replicas = replicas.unwrap_or_default();
            let shown = match examined.has_sentinels {
                true => format!("the master that sentinels name, with replicas ({replicas})"),
                false => format!("a master with replicas ({replicas})"),
            };
            match options.restart_guard {
                // Sentinels tell since when it has been the master.
                Some(guard) if examined.has_sentinels => ok(
                    "replication",
                    format!(
                        "{shown}: {LACKS}; restart_guard ({}) covers that",
                        HumanDuration(guard)
                    ),
                ),
                _ => warning("replication", format!("{shown}: {LACKS}"), advice),
            }
        }
        (Some("master"), _) => ok("replication", "an independent master"),
        (Some(role), _) => error(
            "replication",
            format!("it is no master ({role}): it cannot vote"),
            "give the client the master, and better one that has no replicas",
        ),
    }
}

fn cluster(examined: &Examined) -> Finding {
    match (&examined.membership, examined.diagnosis.cluster) {
        (Some(Membership { lost_slots, .. }), _) if *lost_slots > 0 => error(
            "cluster",
            format!("no master has {lost_slots} of the slots: what is in them cannot be locked"),
            "see CLUSTER INFO, and mend it (redis-cli --cluster fix)",
        ),
        (Some(Membership { masters, .. }), _) => warning(
            "cluster",
            format!("a whole Redis Cluster, with {masters} masters: in a failover, {LACKS}"),
            "use independent masters where that must not happen; restart_guard helps clients that \
             saw the failover",
        ),
        (None, None) => unseen("cluster", "INFO"),
        (None, Some(false)) => ok("cluster", "no node of a cluster"),
        (None, Some(true)) => error(
            "cluster",
            "a node of a Redis Cluster has but a part of all keys, and refuses the others: it \
             cannot vote on them",
            "give the client the whole cluster, by redis-cluster://, or use independent masters",
        ),
    }
}

fn eviction(node: &NodeDiagnosis) -> Finding {
    let (Some(policy), Some(limit)) = (&node.maxmemory_policy, node.maxmemory) else {
        return unseen("eviction", "INFO");
    };
    let shown = format!("maxmemory-policy is {policy}");
    let advice = "set maxmemory-policy to noeviction";
    match (&**policy, limit) {
        ("noeviction", _) => ok("eviction", shown),
        (_, 0) => warning(
            "eviction",
            format!("{shown}: as soon as maxmemory is set, a lock may be evicted while it is held"),
            advice,
        ),
        _ => error(
            "eviction",
            format!("{shown}: a lock may be evicted while it is held, and granted again"),
            advice,
        ),
    }
}

fn memory(node: &NodeDiagnosis) -> Finding {
    let (Some(used), Some(limit)) = (node.used_memory, node.maxmemory) else {
        return unseen("memory", "INFO");
    };
    let shown = format!("{used} bytes in use");
    match limit {
        0 => ok("memory", format!("{shown}, without a limit")),
        _ if (used as f64) < NEARLY_FULL * limit as f64 => {
            ok("memory", format!("{shown} of {limit}"))
        }
        _ => warning(
            "memory",
            format!("{shown} of {limit}: when it is full, it refuses locks"),
            "give it more memory, or nothing else to keep",
        ),
    }
}

fn persistence(node: &NodeDiagnosis, options: &Options) -> Finding {
    let shown = match (node.appendonly, node.appendfsync.as_deref()) {
        (None, _) => return unseen("persistence", "INFO"),
        (Some(true), None) => return unseen("persistence", "CONFIG GET"),
        (Some(true), Some("always")) => {
            return ok("persistence", "appendonly, and every write is on the disk (fsync always)");
        }
        (Some(true), Some(fsync)) => {
            format!("appendfsync is {fsync}: after a crash the last locks are forgotten")
        }
        (Some(false), _) => "appendonly is off: after a restart all locks are forgotten".to_owned(),
    };
    match options.restart_guard {
        Some(guard) => ok(
            "persistence",
            format!("{shown}; restart_guard ({}) covers that", HumanDuration(guard)),
        ),
        None => warning(
            "persistence",
            format!("{shown}, and may be granted again while they are held"),
            "set restart_guard in all clients, or appendonly yes and appendfsync always",
        ),
    }
}

/// Whether the restart guard keeps it from voting, as far as its uptime goes.
fn is_young(node: &NodeDiagnosis, options: &Options) -> bool {
    let uptime = node.uptime_seconds.map(Duration::from_secs);
    options.restart_guard.zip(uptime).is_some_and(|(guard, uptime)| uptime <= guard)
}

fn restart(node: &NodeDiagnosis, options: &Options) -> Option<Finding> {
    let guard = options.restart_guard?;
    let Some(uptime) = node.uptime_seconds else {
        let message = "not permitted to look: the node does not count for the restart_guard after \
                       every new connection";
        return Some(warning("restart", message, "permit INFO to the user of this client"));
    };
    if !is_young(node, options) {
        return Some(ok(
            "restart",
            format!("up for longer than restart_guard ({})", HumanDuration(guard)),
        ));
    }
    Some(warning(
        "restart",
        format!("it has been up for {uptime} s: it does not vote yet"),
        format!("wait until restart_guard ({}) has passed", HumanDuration(guard)),
    ))
}

fn clock(node: &NodeDiagnosis) -> Finding {
    let Some(offset) = node.clock_offset_ms else { return unseen("clock", "TIME") };
    let shown = format!("its clock is {:+.1} ms off that of this machine", tenths(offset));
    let advice = "run NTP on both machines";
    match offset.abs() {
        off if off > USUAL_CLOCK_ERROR_MS => warning(
            "clock",
            format!("{shown}: if the clocks' rates differ as well, leases are not what they seem"),
            advice,
        ),
        _ => ok("clock", shown),
    }
}

/// The findings that concern the nodes together, each of which consists of some servers.
pub(super) fn judge_together(nodes: &[Vec<Examined>], options: &Options) -> Vec<Finding> {
    let quorum = Quorum::over(nodes.len()).expect("the number of nodes was checked");
    let mut findings = vec![size(quorum), majority(quorum, nodes, options)];
    findings.extend(duplicates(nodes));
    findings.extend(clocks(nodes, options));
    findings
}

fn size(quorum: Quorum) -> Finding {
    let (nodes, tolerated) = (quorum.nodes(), quorum.tolerated());
    match nodes {
        1 => warning(
            "nodes",
            "a single node: when it is down, nothing can be locked",
            "use three or five independent masters if that matters",
        ),
        _ if nodes % 2 == 0 => warning(
            "nodes",
            format!("{nodes} nodes tolerate the loss of {tolerated}, as {} would", nodes - 1),
            "use an odd number of nodes",
        ),
        _ => ok("nodes", format!("{nodes} nodes tolerate the loss of {tolerated}")),
    }
}

fn majority(quorum: Quorum, nodes: &[Vec<Examined>], options: &Options) -> Finding {
    let can_vote = |server: &Examined| {
        let denied = !denied(&server.diagnosis, is_needed).is_empty();
        let young = is_young(&server.diagnosis, options);
        server.trouble.is_none() && server.refusal.is_none() && !denied && !young
    };
    // One server has one vote.
    let is_first = |node: usize| twin_of(nodes, node).is_none();
    let able = nodes.iter().enumerate().filter(|(_, servers)| servers.iter().all(can_vote));
    let able = able.filter(|(node, _)| is_first(*node)).count();
    let shown =
        format!("{able} of {} nodes can vote, {} are needed", quorum.nodes(), quorum.size());
    match able {
        able if able < quorum.size() => {
            let is_split = |servers: &Vec<Examined>| {
                servers.iter().any(can_vote) && !servers.iter().all(can_vote)
            };
            let what = match nodes.iter().any(is_split) {
                true => "only what the cluster's other masters have",
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

/// The first node that has a server of this one, which comes later.
fn twin_of(nodes: &[Vec<Examined>], node: usize) -> Option<usize> {
    let run_ids =
        |node: usize| nodes[node].iter().filter_map(|server| server.diagnosis.run_id.as_ref());
    (0..node).find(|first| run_ids(*first).any(|run_id| run_ids(node).any(|other| other == run_id)))
}

fn duplicates(nodes: &[Vec<Examined>]) -> Option<Finding> {
    let twins = |second| twin_of(nodes, second).map(|first| (first, second));
    let twins = (0..nodes.len()).find_map(twins);
    if let Some((first, second)) = twins {
        let node = |node: usize| (node, &*nodes[node][0].diagnosis.address);
        return Some(error(
            "duplicates",
            same_server(node(first), node(second)),
            "give every server once",
        ));
    }
    let mut seen = nodes
        .iter()
        .flatten()
        .map(|server| &server.diagnosis)
        .filter(|server| server.reachable && server.kind.as_deref() != Some("memory"));
    match seen.all(|server| server.run_id.is_some()) {
        _ if nodes.len() == 1 => None,
        true => Some(ok("duplicates", "no server is given twice")),
        false => Some(unseen("duplicates", "INFO")),
    }
}

/// Fences grow across counters that were lost if `restart_guard` is long enough: see `protocol::fence`.
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
    // What the errors of measurement cannot explain.
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
            ": fences may go back after restarts where they are misjudged, unless \
                         restart_guard is longer than {}",
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
