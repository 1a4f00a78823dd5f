//! What quorlock reports about its work: log events and spans, statistics and metrics.
//!
//! This module owns the names of events, fields and metrics. It only observes: it must never block the caller or change
//! what the caller does, even if a subscriber panics. `node`, `lock` and `client` call it.
//!
//! Reading order: `events.rs`, `records.rs` (events for language bindings), `stats.rs`,
//! `histogram.rs`, `metrics.rs` (the statistics as metrics).

pub(crate) mod events;
pub(crate) mod histogram;
pub(crate) mod metrics;
pub(crate) mod records;
pub(crate) mod stats;
