//! A distributed lock for programs in Python, Node.js and Rust: quorum locking (Redlock) over N
//! independent Redis or Valkey masters, with fencing tokens. This crate is the whole of it; the
//! Python and Node.js packages only convert.
//!
//! [`Client`] is where to begin. [`protocol`] is the lock itself, without any IO.

mod acquire;
mod answer;
mod attempt;
mod client;
#[cfg(test)]
mod clients;
mod clock;
mod cluster;
mod deadline;
mod doctor;
mod driver;
mod ear;
mod endpoint;
mod engine;
mod error;
mod events;
mod exchange;
mod extend;
mod fanout;
mod fork;
/// For the fuzz targets in `fuzz/`; not part of the interface.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod hand_over;
mod handshake;
mod heal;
mod health;
mod held;
mod histogram;
mod human;
mod identities;
#[cfg(test)]
mod interleavings;
mod keeper;
mod keys;
mod lead;
mod lease;
mod listening;
mod lock;
mod look;
#[cfg(test)]
mod machine;
mod memory;
mod metrics;
mod node;
mod node_clocks;
mod nodes;
mod options;
mod outbox;
mod owner;
mod panics;
mod pipe;
mod priority;
mod records;
mod repair;
mod reply;
mod request;
mod resources;
mod round;
mod runtime;
mod script;
mod sentinel;
mod server;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod simulation;
mod socket;
mod stats;
mod status;
mod sync;
mod timer;
mod tls;
mod token;
mod twins;
mod url;
mod waiting;
mod wire;

#[doc(inline)]
pub use quorlock_protocol as protocol;

pub use client::{Client, ClientBuilder};
pub use doctor::{Diagnosis, Finding, Level, NodeDiagnosis, Permission};
pub use error::{Error, ErrorCode, NodeOutcome, NodeReport, Result};
pub use fork::PerProcess;
pub use histogram::Histogram;
pub use keeper::release_all;
pub use lease::Lease;
pub use lock::Lock;
pub use metrics::{Family, Kind, Sample, Value};
pub use options::{Dialect, NODES_VARIABLE, OptionValue, timeout};
pub use owner::Owner;
pub use records::{Detail, Listener, Record, TARGETS};
pub use resources::Resources;
pub use runtime::{Operation, Pending};
pub use stats::{NodeState, NodeStats, Stats};
pub use status::{NodeStatus, State, Status};
