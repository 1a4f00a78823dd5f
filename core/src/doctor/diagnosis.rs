//! The doctor's report, as values, text and JSON.

use crate::error::printable::printable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Level {
    /// The check found no problem.
    Ok,
    /// The lock works, but one of its guarantees depends on something that may fail. Also used if a check was not
    /// possible.
    Warning,
    /// The node cannot vote, or a guarantee of the lock does not hold.
    Error,
}

impl Level {
    /// The level as a stable string for programs, such as `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The severity of the finding.
    pub level: Level,
    /// The name of the check, such as `eviction`.
    pub check: &'static str,
    /// What was found, and what can go wrong as a result.
    pub message: String,
    /// What to do about the finding; empty if the level is [`Level::Ok`].
    pub advice: String,
}

/// Whether the client's user may run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Permission {
    /// The command ran, or failed for a reason other than those of [`Permission::Denied`].
    Allowed,
    /// The user is not permitted to run the command, at least not on the keys that quorlock uses. Also used if the
    /// server does not know the command.
    Denied,
}

/// What the doctor found at one node. A field is `None` if its value could not be read. For a cluster, the findings
/// cover all masters that the client's keys may be on; the other fields describe one of these masters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeDiagnosis {
    /// The node's URL, without user and password.
    pub address: String,
    /// Whether the node answered.
    pub reachable: bool,
    /// The median of a few round trips, in milliseconds.
    pub latency_ms: Option<f64>,
    /// The server software, such as `Redis` or `Valkey`; `memory` for an in-memory node.
    pub kind: Option<String>,
    /// The version of the server software.
    pub version: Option<String>,
    /// The id of the server process.
    pub run_id: Option<String>,
    /// The uptime of the server, in whole seconds; `None` for an in-memory node that has never restarted.
    pub uptime_seconds: Option<u64>,
    /// The server's role: `master` or `slave`.
    pub role: Option<String>,
    /// The number of connected replicas.
    pub replicas: Option<u64>,
    /// Whether the server is a node of a Redis Cluster.
    pub cluster: Option<bool>,
    /// The server's memory limit in bytes; 0 if there is none.
    pub maxmemory: Option<u64>,
    /// The server's memory in use, in bytes.
    pub used_memory: Option<u64>,
    /// The server's policy when it reaches the memory limit, such as `noeviction`.
    pub maxmemory_policy: Option<String>,
    /// Whether the server keeps an append-only file.
    pub appendonly: Option<bool>,
    /// The server's policy for syncing the append-only file to disk: `always`, `everysec` or `no`.
    pub appendfsync: Option<String>,
    /// The offset of the server's clock from this machine's clock, in milliseconds; positive if the
    /// server's clock is ahead.
    pub clock_offset_ms: Option<f64>,
    /// The number of the database that the client uses.
    pub database: i64,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The commands that quorlock uses, and whether the user may run them.
    pub permissions: BTreeMap<&'static str, Permission>,
    /// The results of all checks of this node.
    pub findings: Vec<Finding>,
}

/// A setting that must be the same in all clients of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Setting {
    /// The setting: `nodes`, `restart_guard`, `key_prefix` or `drift_factor`.
    pub name: &'static str,
    /// The value, as text for people. For `nodes`, the number of nodes. For `restart_guard`, a duration such as `30 s`,
    /// or `off`.
    pub value: String,
    /// Where the value comes from: the name of an option as the program's language spells it, such as `nodeTimeout`,
    /// the name of an environment variable, or `default`.
    pub source: String,
}

/// The doctor's report; see [`Client::doctor`](crate::Client::doctor). Its `Display` text is for
/// people.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The highest level of all findings.
    pub level: Level,
    /// The settings that must be the same in all clients of a fleet.
    pub settings: Vec<Setting>,
    /// The findings about the nodes as a whole.
    pub findings: Vec<Finding>,
    /// The nodes, in the order of the client's list.
    pub nodes: Vec<NodeDiagnosis>,
}

impl Diagnosis {
    pub(super) fn new(
        mut findings: Vec<Finding>,
        mut nodes: Vec<NodeDiagnosis>,
        settings: Vec<Setting>,
    ) -> Self {
        nodes.iter_mut().for_each(NodeDiagnosis::make_printable);
        findings.iter_mut().for_each(Finding::make_printable);
        let all = findings.iter().chain(nodes.iter().flat_map(|node| &node.findings));
        let level = all.map(|finding| finding.level).max().unwrap_or(Level::Ok);
        Self { level, settings, findings, nodes }
    }

    /// Returns the diagnosis as JSON. The keys are the names of the fields.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it contains only values that JSON can represent")
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.nodes.len();
        writeln!(f, "{count} node{}: {}", plural(count), self.level.as_str())?;
        write_findings(f, &self.findings)?;
        let settings: Vec<_> = self.settings.iter().map(Setting::to_string).collect();
        writeln!(f, "  settings {}", settings.join(", "))?;
        for node in &self.nodes {
            writeln!(f, "\n{node}")?;
            write_findings(f, &node.findings)?;
        }
        Ok(())
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.value.is_empty() { "empty".into() } else { printable(&self.value) };
        write!(f, "{}: {value} ({})", self.name, self.source)
    }
}

impl Finding {
    /// Replaces characters that a server may have sent to control a terminal.
    fn make_printable(&mut self) {
        for text in [&mut self.message, &mut self.advice] {
            *text = printable(text).into_owned();
        }
    }
}

impl NodeDiagnosis {
    /// Replaces characters that a server may have sent to control a terminal.
    fn make_printable(&mut self) {
        let Self { address, kind, version, run_id, role, maxmemory_policy, appendfsync, .. } = self;
        let optional = [kind, version, run_id, role, maxmemory_policy, appendfsync];
        for text in optional.into_iter().flatten().chain([address]) {
            *text = printable(text).into_owned();
        }
        self.findings.iter_mut().for_each(Finding::make_printable);
    }
}

impl fmt::Display for NodeDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if let Some(kind) = &self.kind {
            write!(f, ", {kind}")?;
        }
        if let Some(version) = &self.version {
            write!(f, " {version}")?;
        }
        if let Some(role) = &self.role {
            write!(f, ", {role}")?;
        }
        if let Some(uptime) = self.uptime_seconds {
            write!(f, ", up {uptime} s")?;
        }
        if let Some(latency) = self.latency_ms {
            write!(f, ", {latency:.2} ms away")?;
        }
        if let Some(offset) = self.clock_offset_ms {
            write!(f, ", clock {:+.1} ms", tenths(offset))?;
        }
        Ok(())
    }
}

/// Writes errors first, then warnings, then the names of the checks without a problem.
fn write_findings(f: &mut fmt::Formatter<'_>, findings: &[Finding]) -> fmt::Result {
    for level in [Level::Error, Level::Warning] {
        for finding in findings.iter().filter(|finding| finding.level == level) {
            let Finding { check, message, advice, .. } = finding;
            writeln!(f, "  {:<8} {check}: {message}", level.as_str())?;
            if !advice.is_empty() {
                writeln!(f, "           -> {advice}")?;
            }
        }
    }
    let fine = findings.iter().filter(|finding| finding.level == Level::Ok);
    let fine: Vec<_> = fine.map(|finding| finding.check).collect();
    if fine.is_empty() { Ok(()) } else { writeln!(f, "  ok       {}", fine.join(", ")) }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Rounds to one decimal place; never returns a negative zero.
pub(super) fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0 + 0.0
}

pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding { level: Level::Ok, check, message: message.into(), advice: String::new() }
}

pub(super) fn warning(
    check: &'static str,
    message: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    Finding { level: Level::Warning, check, message: message.into(), advice: advice.into() }
}

pub(super) fn error(
    check: &'static str,
    message: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    Finding { level: Level::Error, check, message: message.into(), advice: advice.into() }
}
