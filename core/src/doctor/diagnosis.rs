//! What the doctor says: findings, as text and as JSON.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Level {
    /// As it should be.
    Ok,
    /// The lock works, but a promise hangs on something that may fail; or it could not be seen.
    Warning,
    /// The node cannot vote, or a promise of the lock does not hold.
    Error,
}

impl Level {
    /// The level as programs see it, such as `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What was looked at, in a word, such as `eviction`.
    pub check: &'static str,
    /// What was found, and what can go wrong.
    pub message: String,
    /// What to do; empty where nothing is to be done.
    pub advice: String,
}

/// Whether the client's user may run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Permission {
    /// It ran, or failed for another reason.
    Allowed,
    /// The server does not permit it, or not on the keys that quorlock uses.
    Denied,
}

/// What was found at one node. What could not be seen is `None`. Of a cluster, the findings are those at
/// all masters that the client has keys on, the rest is told of one of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeDiagnosis {
    /// The node's URL, without user and password.
    pub address: String,
    /// Whether it answered.
    pub reachable: bool,
    /// The median of a few round trips, in milliseconds.
    pub latency_ms: Option<f64>,
    /// `Redis`, `Valkey`, or whatever else it calls itself; `memory` for a node in this process.
    pub kind: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Names the server process.
    pub run_id: Option<String>,
    /// For how long it has been up, in whole seconds.
    pub uptime_seconds: Option<u64>,
    /// `master` or `slave`.
    pub role: Option<String>,
    /// How many replicas are connected to it.
    pub replicas: Option<u64>,
    /// Whether it is a node of a Redis Cluster.
    pub cluster: Option<bool>,
    /// The limit of its memory in bytes; 0 for none.
    pub maxmemory: Option<u64>,
    /// How much of it is in use, in bytes.
    pub used_memory: Option<u64>,
    /// What it does at that limit.
    pub maxmemory_policy: Option<String>,
    /// Whether it keeps a log of its writes.
    pub appendonly: Option<bool>,
    /// When it writes that to the disk: `always`, `everysec` or `no`.
    pub appendfsync: Option<String>,
    /// How far its clock is ahead of that of this machine, in milliseconds.
    pub clock_offset_ms: Option<f64>,
    /// The number of the database that the client uses.
    pub database: i64,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The commands that quorlock uses.
    pub permissions: BTreeMap<&'static str, Permission>,
    /// What to make of it.
    pub findings: Vec<Finding>,
}

/// What the doctor found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The worst level of all findings.
    pub level: Level,
    /// What concerns the nodes together.
    pub findings: Vec<Finding>,
    /// The nodes, in the order in which the client was given them.
    pub nodes: Vec<NodeDiagnosis>,
}

impl Diagnosis {
    pub(super) fn new(findings: Vec<Finding>, nodes: Vec<NodeDiagnosis>) -> Self {
        let all = findings.iter().chain(nodes.iter().flat_map(|node| &node.findings));
        let level = all.map(|finding| finding.level).max().unwrap_or(Level::Ok);
        Self { level, findings, nodes }
    }

    /// The diagnosis as JSON, with the names of the fields.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("there is nothing in it that JSON can't hold")
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.nodes.len();
        writeln!(f, "{count} node{}: {}", plural(count), self.level.as_str())?;
        write_findings(f, &self.findings)?;
        for node in &self.nodes {
            writeln!(f, "\n{node}")?;
            write_findings(f, &node.findings)?;
        }
        Ok(())
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

/// The worst come first. What is in order needs no more than its name.
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

/// Without the sign of a zero.
pub(super) fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0 + 0.0
}
