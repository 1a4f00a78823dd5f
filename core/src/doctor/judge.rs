//! Turns the observations of one node into findings, without IO.
//!
//! The thresholds and texts of these findings are here and nowhere else. Called by `diagnose` in
//! `mod.rs`; `together.rs` has the findings about all nodes.

use super::diagnosis::{Finding, Level, NodeDiagnosis, Permission, error, ok, tenths, warning};
use super::examine::{Examined, Membership};
use crate::config::options::Options;
use crate::error::NodeOutcome;
use crate::error::duration::HumanDuration;
use crate::runtime::clock;
use crate::wire::answer::Failure;
use quorlock_protocol::Guard;
use std::time::Duration;

/// The largest clock offset that causes no warning, in milliseconds. Clocks that are synchronized with NTP differ much
/// less.
pub(super) const USUAL_CLOCK_ERROR_MS: f64 = 1_000.0;
/// A node that uses more than this fraction of its memory limit will soon refuse writes.
const NEARLY_FULL: f64 = 0.9;
/// The advice for servers that lack a feature that quorlock needs.
const TESTED_SERVERS: &str = "use Redis 6.2 or later, or Valkey";
/// The groups of commands that quorlock can work without. The text of each group says what happens if the user is not
/// permitted to run the commands of the group.
const OPTIONAL: [(&str, &[&str]); 4] = [
    ("restarts and duplicate nodes may go unnoticed", &["INFO"]),
    ("the first use of each script takes one more round trip", &["SCRIPT LOAD"]),
    (
        "waiters are not notified when a lock is released, and retry at random intervals",
        &["PUBLISH", "SUBSCRIBE", "ZADD", "ZRANGE", "ZRANK", "ZREM"],
    ),
    (
        "the node refuses shared locks, or keeps them until their ttl has passed",
        &["PEXPIREAT", "ZCOUNT", "ZRANGEBYSCORE", "ZREMRANGEBYSCORE", "ZREVRANK", "ZSCORE"],
    ),
];

/// Judges a node that consists of these servers. The findings cover all servers. The other fields of the returned
/// diagnosis describe only one server: one that could be reached, if any could.
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

/// Combines the findings at the masters of a cluster. If only some masters have a problem, the finding's message names
/// these masters.
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
    let has_problem =
        |check| combined.iter().any(|(f, _)| f.check == check && f.level != Level::Ok);
    let shown = combined.iter().filter(|(f, _)| f.level != Level::Ok || !has_problem(f.check));
    let seen = |check| {
        judged.iter().filter(|(_, all)| all.iter().any(|finding| finding.check == check)).count()
    };
    let shown = shown.map(|(finding, places)| {
        let mut finding = finding.clone();
        let is_partial = finding.level != Level::Ok && places.len() < seen(finding.check);
        // The message of a connection failure already names its master, so do not add the name.
        if is_partial && finding.check != "connection" {
            finding.message = format!("{}: {}", places.join(", "), finding.message);
        }
        finding
    });
    shown.collect()
}

fn judge_server(examined: &Examined, options: &Options) -> Vec<Finding> {
    let Examined { diagnosis: node, trouble, .. } = examined;
    let mut findings = vec![connection(examined)];
    if examined.is_memory() {
        let message = "a node in this process, which no other process shares";
        findings.push(warning("server", message, "use it for tests only"));
        if trouble.is_none() {
            findings.extend(restart(examined, options));
        }
        return findings;
    }
    if examined.is_known {
        findings.push(encryption(examined));
    }
    if !node.reachable || trouble.is_some() {
        return findings;
    }
    findings.extend([
        latency(examined, options),
        permissions(examined),
        writes(examined),
        server(examined),
        replication(examined, options),
        cluster(examined),
        eviction(examined),
        memory(examined),
        persistence(examined, options),
        clock(examined),
        ok("database", format!("number {}; all clients must use the same", node.database)),
    ]);
    findings.extend(restart(examined, options));
    findings
}

fn connection(examined: &Examined) -> Finding {
    match &examined.trouble {
        None => ok("connection", "reachable"),
        Some(failure) => error(
            "connection",
            format!("{}: {}; it cannot vote", failure.outcome.as_str(), failure.detail),
            "check that it runs, that the URL is right, and that no firewall is in the way",
        ),
    }
}

fn encryption(examined: &Examined) -> Finding {
    if examined.skips_verification {
        return warning(
            "encryption",
            "insecure=true: the server's certificate is not verified, so an attacker on the \
             network can read tokens and release locks",
            "replace insecure=true by cacert=…, the file with the certificate of its authority",
        );
    }
    if examined.is_local || examined.diagnosis.tls {
        return ok("encryption", "no traffic crosses a network in clear text");
    }
    warning(
        "encryption",
        "passwords and tokens cross the network in clear text: anyone who reads them can release \
         locks",
        "use TLS (rediss://), or a private network",
    )
}

fn latency(examined: &Examined, options: &Options) -> Finding {
    let node = &examined.diagnosis;
    let Some(latency) = node.latency_ms else { return unseen(examined, "latency", "TIME") };
    let limit = options.node_timeout(options.ttl);
    let shown =
        format!("a round trip takes {latency:.2} ms, and node_timeout is {} ms", limit.as_millis());
    if latency <= limit.as_secs_f64() * 1e3 / 2.0 {
        return ok("latency", shown);
    }
    warning(
        "latency",
        format!("{shown}: requests will often time out"),
        "move the node closer, or set a longer node_timeout",
    )
}

/// Returns the denied commands for which `kind` returns `true`, separated by commas.
fn denied(node: &NodeDiagnosis, kind: impl Fn(&str) -> bool) -> String {
    let denied = node.permissions.iter().filter(|(_, given)| **given == Permission::Denied);
    let denied: Vec<_> = denied.map(|(name, _)| *name).filter(|name| kind(name)).collect();
    denied.join(", ")
}

fn is_needed(name: &str) -> bool {
    OPTIONAL.iter().all(|(_, names)| !names.contains(&name))
}

fn permissions(examined: &Examined) -> Finding {
    let node = &examined.diagnosis;
    let needed = denied(node, is_needed);
    if !needed.is_empty() {
        return error(
            "permissions",
            format!("the user may not run {needed} on keys like quorlock-doctor: it cannot vote"),
            "allow the user these commands on the lock keys, fence keys and queues",
        );
    }
    let costs = OPTIONAL.iter().filter_map(|(cost, names)| {
        let useful = denied(node, |name| names.contains(&name));
        (!useful.is_empty()).then(|| format!("the user may not run {useful}: {cost}"))
    });
    let info_failure = examined.failed.get("INFO");
    let unread =
        info_failure.filter(|failure| failure.outcome != NodeOutcome::Noperm).map(|failure| {
            let (cost, _) = OPTIONAL[0];
            format!("INFO fails ({}): {cost}", failure.detail)
        });
    let strict = examined.is_strict.then(|| {
        "scripts may access only keys that they declare: the locks of this node cannot be listed".to_owned()
    });
    let costs: Vec<_> = costs.chain(unread).chain(strict).collect();
    if !costs.is_empty() {
        let is_denied = !denied(node, |_| true).is_empty();
        let advice = match is_denied {
            true => "allow the user these commands on its keys and channels",
            false => TESTED_SERVERS,
        };
        return warning("permissions", costs.join("; "), advice);
    }
    ok("permissions", "the user may run all required commands")
}

fn writes(examined: &Examined) -> Finding {
    let Some(failure) = &examined.refusal else { return ok("writes", "it accepts writes") };
    let advice = match failure.outcome {
        NodeOutcome::Loading => "wait until it has loaded its data",
        NodeOutcome::Readonly | NodeOutcome::Masterdown => "point the client at a master",
        NodeOutcome::Oom => "give it more memory, or remove other data from it",
        NodeOutcome::Misconf => "see its log for why it cannot save",
        _ => "see its log",
    };
    error("writes", format!("it refuses writes ({}), so it cannot vote", failure.detail), advice)
}

fn server(examined: &Examined) -> Finding {
    let node = &examined.diagnosis;
    let (Some(kind), Some(version)) = (&node.kind, &node.version) else {
        return unseen(examined, "server", "INFO");
    };
    let shown = format!("{kind} {version}");
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match &**kind {
        "Redis" if version < (6, 2) => warning(
            "server",
            format!("{shown} is older than any version that quorlock is tested with"),
            TESTED_SERVERS,
        ),
        "Redis" | "Valkey" => ok("server", shown),
        _ => warning(
            "server",
            format!(
                "quorlock is not tested with {shown}, which may expire keys or run scripts in \
                 its own way"
            ),
            TESTED_SERVERS,
        ),
    }
}

/// Returns the finding for a check whose information is missing, because `command` failed or did not report the
/// information.
pub(super) fn unseen(examined: &Examined, check: &'static str, command: &str) -> Finding {
    let is_denied = !denied(&examined.diagnosis, |name| name == command).is_empty();
    let why = match examined.failed.get(command) {
        Some(failure) if failure.outcome != NodeOutcome::Noperm => {
            format!("{command} fails ({})", failure.detail)
        }
        None if !is_denied => format!("{command} does not tell"),
        _ => {
            let advice = format!("allow the user of this client to run {command}");
            return warning(check, "not permitted to look", advice);
        }
    };
    warning(check, format!("cannot be read: {why}"), TESTED_SERVERS)
}

/// The part of the messages that explains the risk of a failover.
const LACKS: &str = "a replica that is promoted lacks locks that were not replicated yet, and would \
                     grant them again";

fn replication(examined: &Examined, options: &Options) -> Finding {
    let node = &examined.diagnosis;
    let advice = "use independent masters without failover, or set restart_guard in all clients";
    match (node.role.as_deref(), node.replicas) {
        (None, _) => unseen(examined, "replication", "INFO"),
        (Some("master"), replicas) if examined.has_sentinels || replicas != Some(0) => {
            let replicas = replicas.unwrap_or_default();
            let shown = match examined.has_sentinels {
                true => format!("the master that sentinels name, with replicas ({replicas})"),
                false => format!("a master with replicas ({replicas})"),
            };
            match options.restart_guard {
                // Sentinels report the time of the last failover, so the restart guard takes failovers into account.
                Some(guard) if examined.has_sentinels => ok(
                    "replication",
                    format!(
                        "{shown}: {LACKS}; restart_guard ({}) covers that",
                        HumanDuration(guard)
                    ),
                ),
                Some(_) => warning(
                    "replication",
                    format!(
                        "{shown}: {LACKS}; restart_guard does not help clients that start after the \
                         failover"
                    ),
                    "use independent masters without failover",
                ),
                None => warning("replication", format!("{shown}: {LACKS}"), advice),
            }
        }
        (Some("master"), _) => ok("replication", "an independent master"),
        (Some(role), _) => error(
            "replication",
            format!("it is not a master ({role}): it cannot vote"),
            "point the client at the master, preferably one without replicas",
        ),
    }
}

fn cluster(examined: &Examined) -> Finding {
    match (&examined.membership, examined.diagnosis.cluster) {
        (Some(Membership { lost_slots, .. }), _) if *lost_slots > 0 => error(
            "cluster",
            format!("no master has {lost_slots} of the slots: resources in them cannot be locked"),
            "see CLUSTER INFO, and repair the cluster (redis-cli --cluster fix)",
        ),
        (Some(Membership { masters, .. }), _) => warning(
            "cluster",
            format!("a whole Redis Cluster, with {masters} masters: in a failover, {LACKS}"),
            "use independent masters if that must not happen; restart_guard helps clients that \
             were running during the failover",
        ),
        (None, None) => unseen(examined, "cluster", "INFO"),
        (None, Some(false)) => ok("cluster", "not part of a cluster"),
        (None, Some(true)) => error(
            "cluster",
            "a node of a Redis Cluster serves only part of the keys and refuses the others: it \
             cannot vote on them",
            "configure the whole cluster with redis-cluster://, or use independent masters",
        ),
    }
}

fn eviction(examined: &Examined) -> Finding {
    let node = &examined.diagnosis;
    let (Some(policy), Some(limit)) = (&node.maxmemory_policy, node.maxmemory) else {
        return unseen(examined, "eviction", "INFO");
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

fn memory(examined: &Examined) -> Finding {
    let node = &examined.diagnosis;
    let (Some(used), Some(limit)) = (node.used_memory, node.maxmemory) else {
        return unseen(examined, "memory", "INFO");
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
            "give it more memory, or remove other data from it",
        ),
    }
}

fn persistence(examined: &Examined, options: &Options) -> Finding {
    let node = &examined.diagnosis;
    let unread = match (node.appendonly, &node.appendfsync) {
        (None, _) => Some("INFO"),
        (Some(true), None) => Some("CONFIG GET"),
        _ => None,
    };
    if let (Some(command), None) = (unread, options.restart_guard) {
        let advice = format!("set restart_guard in all clients, or let this client run {command}");
        return Finding { advice, ..unseen(examined, "persistence", command) };
    }
    let shown = match (node.appendonly, node.appendfsync.as_deref()) {
        (None, _) => "appendonly cannot be read".to_owned(),
        (Some(true), None) => "appendonly is on; appendfsync cannot be read".to_owned(),
        (Some(true), Some("always")) if examined.pauses_sync => {
            "no-appendfsync-on-rewrite is yes: after a crash during a save or a rewrite the last \
             locks are forgotten"
                .to_owned()
        }
        (Some(true), Some("always")) => {
            return ok("persistence", "appendonly is on, and every write is synced to disk");
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
        None => {
            let also = if examined.pauses_sync { ", and no-appendfsync-on-rewrite no" } else { "" };
            let durable = format!("appendonly yes and appendfsync always{also}");
            warning(
                "persistence",
                format!("{shown}, and may be granted again while they are held"),
                format!("set restart_guard in all clients, or {durable}"),
            )
        }
    }
}

/// Returns why a server cannot vote: the server cannot be reached, the user lacks a permission, or the server refuses
/// writes. Returns `None` if the server can vote. Ignores the restart guard.
pub(super) fn obstacle(server: &Examined) -> Option<Failure> {
    let denied = denied(&server.diagnosis, is_needed);
    let denied = (!denied.is_empty()).then(|| Failure {
        outcome: NodeOutcome::Noperm,
        detail: format!("the user may not run {denied}"),
        sent: true,
    });
    server.trouble.clone().or(denied).or_else(|| server.refusal.clone())
}

/// Returns how much longer the restart guard keeps a node with this uptime from voting, for a client that connects to
/// the node now. Zero if there is no guard.
pub(super) fn guard_left(uptime: Duration, options: &Options) -> Duration {
    let Some(restart_guard) = options.restart_guard else { return Duration::ZERO };
    let now = clock::now();
    let mut guard = Guard::new(options.term(restart_guard));
    guard.looked(now, Some(("", uptime)));
    guard.counts_from().since(now)
}

/// Whether the restart guard keeps the server from voting. `false` if the server's age is unknown.
pub(super) fn is_young(server: &Examined, options: &Options) -> bool {
    server.age().is_some_and(|age| !guard_left(age, options).is_zero())
}

fn restart(server: &Examined, options: &Options) -> Option<Finding> {
    let guard = options.restart_guard?;
    let Some(age) = server.age() else {
        let mut finding = unseen(server, "restart", "INFO");
        finding.message +=
            ": after each new connection, the node cannot vote for the length of restart_guard";
        return Some(finding);
    };
    let left = guard_left(age, options);
    if left.is_zero() {
        return Some(ok(
            "restart",
            format!("up for longer than restart_guard ({})", HumanDuration(guard)),
        ));
    }
    Some(warning(
        "restart",
        match server.named_for {
            Some(named) if named == age => {
                format!("the sentinels have named it for {} s: it does not vote yet", age.as_secs())
            }
            _ => format!("it has been up for {} s: it does not vote yet", age.as_secs()),
        },
        format!(
            "wait for {}, until restart_guard ({}) has passed",
            HumanDuration(left),
            HumanDuration(guard)
        ),
    ))
}

fn clock(examined: &Examined) -> Finding {
    let node = &examined.diagnosis;
    let Some(offset) = node.clock_offset_ms else { return unseen(examined, "clock", "TIME") };
    let shown = format!("its clock is {:+.1} ms off that of this machine", tenths(offset));
    let advice = "run NTP on both machines";
    match offset.abs() {
        off if off > USUAL_CLOCK_ERROR_MS => warning(
            "clock",
            format!("{shown}: if the clocks also run at different rates, leases are unreliable"),
            advice,
        ),
        _ => ok("clock", shown),
    }
}

#[cfg(test)]
mod tests {
    use super::{guard_left, is_young, persistence, restart, server, unseen};
    use crate::config::options::Options;
    use crate::doctor::diagnosis::Level;
    use crate::doctor::examine::{Examined, fill};
    use crate::wire::limits::SHOWN_TEXT;
    use redis::{InfoDict, Value, parse_redis_value};
    use std::time::Duration;

    /// A promoted replica may have been up for a long time and still lack locks of the old master.
    #[test]
    fn a_server_is_young_for_as_long_as_the_sentinels_have_named_it() {
        let second = Duration::from_secs(1);
        let mut server = Examined { named_for: Some(5 * second), ..Examined::default() };
        server.diagnosis.uptime_seconds = Some(100_000);
        let options = Options { restart_guard: Some(30 * second), ..Options::default() };
        assert!(is_young(&server, &options));
        let finding = restart(&server, &options).expect("there is a guard");
        assert!(finding.message.contains("the sentinels have named it for 5 s"), "{finding:?}");
        server.named_for = Some(60 * second);
        assert!(!is_young(&server, &options));
        assert_eq!(restart(&server, &options).expect("there is a guard").level, Level::Ok);
    }

    /// The guard lasts a little longer than `restart_guard`, because clocks drift and uptimes are in whole seconds.
    #[test]
    fn a_node_is_young_for_as_long_as_clients_do_not_count_its_votes() {
        let second = Duration::from_secs(1);
        let restart_guard = Some(30 * second);
        let options = Options { restart_guard, ..Options::default() };
        assert!(guard_left(31 * second, &options) > Duration::ZERO);
        assert_eq!(guard_left(32 * second, &options), Duration::ZERO);
        assert_eq!(guard_left(Duration::ZERO, &Options::default()), Duration::ZERO);
    }

    fn guarded() -> Options {
        Options { restart_guard: Some(Duration::from_secs(30)), ..Options::default() }
    }

    #[test]
    fn a_server_that_pauses_syncing_may_forget_locks() {
        let mut server = Examined::default();
        server.diagnosis.appendonly = Some(true);
        server.diagnosis.appendfsync = Some("always".to_owned());
        let options = Options::default();
        assert_eq!(persistence(&server, &options).level, Level::Ok);
        server.pauses_sync = true;
        let finding = persistence(&server, &options);
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.advice.contains("no-appendfsync-on-rewrite no"), "{finding:?}");
        assert_eq!(persistence(&server, &guarded()).level, Level::Ok);
    }

    #[test]
    fn the_guard_covers_persistence_that_cannot_be_read() {
        let unread = Examined::default();
        let mut unsure = Examined::default();
        unsure.diagnosis.appendonly = Some(true);
        for server in [unread, unsure] {
            let finding = persistence(&server, &Options::default());
            assert_eq!(finding.level, Level::Warning);
            assert!(finding.advice.contains("set restart_guard"), "{finding:?}");
            assert_eq!(persistence(&server, &guarded()).level, Level::Ok);
        }
    }

    fn kind_of(info: &str) -> (Option<String>, Level) {
        let mut examined = Examined::default();
        fill(&mut examined.diagnosis, &InfoDict::new(info));
        let level = server(&examined).level;
        (examined.diagnosis.kind, level)
    }

    #[test]
    fn servers_that_claim_to_be_redis_are_recognized() {
        for (info, kind, level) in [
            ("redis_version:7.2.4\r\n", "Redis", Level::Ok),
            ("redis_version:7.2.4\r\nvalkey_version:8.0.1\r\n", "Valkey", Level::Ok),
            ("redis_version:7.2.4\r\nredict_version:7.3.0\r\n", "Redict", Level::Warning),
            (
                "redis_version:6.3.4\r\nexecutable:/usr/bin/keydb-server\r\n",
                "KeyDB",
                Level::Warning,
            ),
        ] {
            assert_eq!(kind_of(info), (Some(kind.to_owned()), level), "{info}");
        }
    }

    #[test]
    fn the_reason_why_info_fails_is_told() {
        let why = |reply: Value| {
            let mut examined = Examined::default();
            assert!(examined.read::<String>("INFO", reply).is_none());
            unseen(&examined, "server", "INFO").message
        };
        let error = |text: &str| parse_redis_value(format!("-{text}\r\n").as_bytes());
        let section = error("ERR section (server) is not supported").expect("a reply");
        let expected = "cannot be read: INFO fails (ERR section (server) is not supported)";
        assert_eq!(why(section), expected);
        let unknown =
            error("ERR unknown command 'INFO', with args beginning with: ").expect("a reply");
        assert_eq!(why(unknown), "cannot be read: INFO fails (ERR unknown command 'INFO')");
        let denied = error("NOPERM this user has no permissions to run the 'info' command");
        assert_eq!(why(denied.expect("a reply")), "not permitted to look");
        assert!(why(Value::Array(Vec::new())).contains("the answer makes no sense"));
    }

    #[test]
    fn long_texts_of_a_server_are_cut() {
        let mut examined = Examined::default();
        let info = format!("redis_version:{}\r\nrole:{}\r\n", "7".repeat(9_000), "é".repeat(9_000));
        fill(&mut examined.diagnosis, &InfoDict::new(&info));
        for text in [examined.diagnosis.version, examined.diagnosis.role] {
            assert_eq!(text.map(|text| text.chars().count()), Some(SHOWN_TEXT + 1));
        }
    }
}
