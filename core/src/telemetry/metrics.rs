//! The statistics as metrics: names, help texts and labels, defined once for the exporters of all languages. This
//! module counts nothing itself: see `stats.rs`.

use crate::telemetry::histogram::Histogram;
use crate::telemetry::stats::{NodeState, NodeStats, Stats};
use serde::Serialize;
use std::fmt::{self, Display, Write};

/// A metric with its current samples. Its name, kind, label names and buckets never change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Family {
    /// The name, following Prometheus conventions, without the `_total` suffix of counters.
    pub name: &'static str,
    /// Whether the metric is a counter, a gauge or a histogram.
    pub kind: Kind,
    /// A sentence that describes the metric.
    pub help: &'static str,
    /// The samples. `quorlock_node_requests` has no sample for an outcome that has not occurred at a node.
    pub samples: Vec<Sample>,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// A number that never decreases.
    Counter,
    /// A number that may increase and decrease.
    Gauge,
    /// A distribution of durations in seconds.
    Histogram,
}

/// One value of a metric, with the labels that identify the value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// The names and values of the labels, which identify the sample within its metric.
    pub labels: Vec<(&'static str, String)>,
    /// The value of the metric for these labels.
    pub value: Value,
}

/// The value of a sample: a number or a histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Value {
    /// The value of a counter or gauge.
    Number(u64),
    /// The value of a histogram.
    Histogram(Histogram),
}

fn family(kind: Kind, name: &'static str, help: &'static str, samples: Vec<Sample>) -> Family {
    Family { name, kind, help, samples }
}

fn one(value: u64) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value: Value::Number(value) }]
}

fn by_outcome(outcomes: &[(&'static str, u64)]) -> Vec<Sample> {
    let sample = |(outcome, count): &(&'static str, u64)| Sample {
        labels: vec![("outcome", (*outcome).to_owned())],
        value: Value::Number(*count),
    };
    outcomes.iter().map(sample).collect()
}

fn times(histogram: &Histogram) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value: Value::Histogram(histogram.clone()) }]
}

impl Stats {
    /// Returns the statistics as metrics, for exporters: each metric once, always in the same
    /// order.
    pub fn metrics(&self) -> Vec<Family> {
        use Kind::{Counter, Gauge, Histogram};
        let acquires = [
            ("won", self.wins),
            ("timeout", self.timeouts),
            ("no_quorum", self.no_quorum),
            ("cancelled", self.cancelled),
        ];
        let extensions = [("confirmed", self.extensions), ("failed", self.extension_failures)];
        let label = |node: &NodeStats| vec![("node", node.address.clone())];
        let per_node = |value: fn(&NodeStats) -> Value| {
            let nodes = self.nodes.iter();
            nodes.map(|node| Sample { labels: label(node), value: value(node) }).collect()
        };
        // Skip the nodes of a client that is not in use. These nodes are not connected, and a 0 would look like an
        // outage.
        let in_use = |node: &&NodeStats| !matches!(node.state, NodeState::Idle | NodeState::Closed);
        let up = self.nodes.iter().filter(in_use).map(|node| Sample {
            labels: label(node),
            value: Value::Number(u64::from(node.state == NodeState::Up)),
        });
        let requests = self.nodes.iter().flat_map(|node| {
            node.outcomes.iter().map(|(outcome, count)| Sample {
                labels: vec![("node", node.address.clone()), ("outcome", (*outcome).to_owned())],
                value: Value::Number(*count),
            })
        });
        vec![
            family(
                Counter,
                "quorlock_acquires",
                "Finished acquires, by outcome.",
                by_outcome(&acquires),
            ),
            family(
                Counter,
                "quorlock_rounds",
                "Rounds of requests that acquires needed.",
                one(self.rounds),
            ),
            family(
                Counter,
                "quorlock_releases",
                "Leases that were released while they were valid.",
                one(self.releases),
            ),
            family(
                Counter,
                "quorlock_leases_closed",
                "Leases that were released because their client was closed.",
                one(self.closed),
            ),
            family(
                Counter,
                "quorlock_leases_dropped",
                "Valid leases that were dropped without a release.",
                one(self.dropped),
            ),
            family(
                Counter,
                "quorlock_leases_detached",
                "Leases that were detached, for another client to adopt.",
                one(self.detached),
            ),
            family(
                Counter,
                "quorlock_elections",
                "Elections that candidates have won.",
                one(self.elections),
            ),
            family(
                Counter,
                "quorlock_leases_handed_over",
                "Leases that were handed over to a successor, which has adopted them.",
                one(self.handed_over),
            ),
            family(
                Counter,
                "quorlock_losses",
                "Leases that were lost before their release.",
                one(self.losses),
            ),
            family(
                Counter,
                "quorlock_losses_without_heartbeat",
                "Lost leases that were not renewed because there was no heartbeat.",
                one(self.no_heartbeat),
            ),
            family(
                Counter,
                "quorlock_extensions",
                "Renewals of leases, by outcome.",
                by_outcome(&extensions),
            ),
            family(Gauge, "quorlock_leases_held", "Leases that are held.", one(self.held)),
            family(Gauge, "quorlock_waiters", "Acquires that are in progress.", one(self.waiting)),
            family(
                Histogram,
                "quorlock_acquire_seconds",
                "Duration of successful acquires.",
                times(&self.acquire_seconds),
            ),
            family(
                Histogram,
                "quorlock_wait_seconds",
                "Time that acquires waited for other holders, successful or not.",
                times(&self.wait_seconds),
            ),
            family(
                Histogram,
                "quorlock_hold_seconds",
                "Time that leases were held.",
                times(&self.hold_seconds),
            ),
            family(
                Histogram,
                "quorlock_extension_seconds",
                "Duration of confirmed renewals.",
                times(&self.extension_seconds),
            ),
            family(
                Counter,
                "quorlock_node_requests",
                "Requests to a node, by outcome.",
                requests.collect(),
            ),
            family(
                Histogram,
                "quorlock_node_answer_seconds",
                "Response times of a node.",
                per_node(|node| Value::Histogram(node.answer_seconds.clone())),
            ),
            family(
                Gauge,
                "quorlock_node_up",
                "Whether a node is connected: 1 or 0. Missing while the client is not in use.",
                up.collect(),
            ),
            family(
                Counter,
                "quorlock_node_reconnects",
                "Reconnects to a node.",
                per_node(|node| Value::Number(node.reconnects)),
            ),
        ]
    }

    /// Returns the metrics as JSON.
    pub fn metrics_to_json(&self) -> String {
        serde_json::to_string(&self.metrics())
            .expect("it contains only values that JSON can represent")
    }

    /// Returns the metrics in the text format of Prometheus (0.0.4), for programs without a client
    /// library.
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for family in self.metrics() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{family}");
        }
        text
    }
}

impl Display for Family {
    /// Writes the metric in the text format of Prometheus.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, suffix) = match self.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
        };
        let name = format!("{}{suffix}", self.name);
        writeln!(f, "# HELP {name} {}\n# TYPE {name} {kind}", self.help)?;
        for Sample { labels, value } in &self.samples {
            match value {
                Value::Number(number) => writeln!(f, "{name}{} {number}", braced(labels))?,
                Value::Histogram(Histogram { count, sum, bounds, counts }) => {
                    let mut up_to = 0;
                    for (index, in_bucket) in counts.iter().enumerate() {
                        up_to += in_bucket;
                        let bound = bounds.get(index).map_or("+Inf".to_owned(), f64::to_string);
                        let mut labels = labels.clone();
                        labels.push(("le", bound));
                        writeln!(f, "{name}_bucket{} {up_to}", braced(&labels))?;
                    }
                    let labels = braced(labels);
                    writeln!(f, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}")?;
                }
            }
        }
        Ok(())
    }
}

fn braced(labels: &[(&'static str, String)]) -> String {
    let label = |(name, value): &(&str, String)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    let labels: Vec<_> = labels.iter().map(label).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}
