//! What quorlock reports about its work: events, records, counters and metrics. It changes nothing.

pub(crate) mod events;
pub(crate) mod histogram;
pub(crate) mod metrics;
pub(crate) mod records;
pub(crate) mod stats;
