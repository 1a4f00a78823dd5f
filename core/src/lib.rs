//! A distributed lock for programs in Python, Node.js and Rust: quorum locking (Redlock) over N
//! independent Redis or Valkey masters, with fencing tokens. This crate is the whole of it; the
//! Python and Node.js packages only convert.
//!
//! [`Client`] is where to begin. [`protocol`] is the lock itself, without any IO.

pub mod protocol;

#[cfg(test)]
mod model;

#[cfg(feature = "client")]
mod acquire;
#[cfg(feature = "client")]
mod answer;
#[cfg(feature = "client")]
mod attempt;
#[cfg(feature = "client")]
mod client;
#[cfg(all(test, feature = "client"))]
mod clients;
#[cfg(feature = "client")]
mod clock;
#[cfg(feature = "client")]
mod cluster;
#[cfg(feature = "client")]
mod deadline;
#[cfg(feature = "client")]
mod doctor;
#[cfg(feature = "client")]
mod driver;
#[cfg(feature = "client")]
mod ear;
#[cfg(feature = "client")]
mod endpoint;
#[cfg(feature = "client")]
mod engine;
#[cfg(any(test, feature = "client"))]
mod entry;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "client")]
mod events;
#[cfg(feature = "client")]
mod exchange;
#[cfg(feature = "client")]
mod extend;
#[cfg(feature = "client")]
mod fanout;
#[cfg(feature = "client")]
mod fork;
/// For the fuzz targets in `fuzz/`; not part of the interface.
#[cfg(all(feature = "client", any(test, feature = "fuzzing")))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "client")]
mod hand_over;
#[cfg(feature = "client")]
mod handshake;
#[cfg(feature = "client")]
mod heal;
#[cfg(feature = "client")]
mod health;
#[cfg(feature = "client")]
mod held;
#[cfg(feature = "client")]
mod histogram;
#[cfg(feature = "client")]
mod human;
#[cfg(feature = "client")]
mod identities;
#[cfg(all(test, feature = "client"))]
mod interleavings;
#[cfg(feature = "client")]
mod keeper;
#[cfg(feature = "client")]
mod keys;
#[cfg(feature = "client")]
mod lead;
#[cfg(feature = "client")]
mod lease;
#[cfg(feature = "client")]
mod listening;
#[cfg(feature = "client")]
mod lock;
#[cfg(feature = "client")]
mod look;
#[cfg(all(test, feature = "client"))]
mod machine;
#[cfg(feature = "client")]
mod memory;
#[cfg(feature = "client")]
mod metrics;
#[cfg(feature = "client")]
mod node;
#[cfg(feature = "client")]
mod node_clocks;
#[cfg(feature = "client")]
mod nodes;
#[cfg(feature = "client")]
mod options;
#[cfg(feature = "client")]
mod outbox;
#[cfg(feature = "client")]
mod owner;
#[cfg(feature = "client")]
mod panics;
#[cfg(feature = "client")]
mod pipe;
#[cfg(feature = "client")]
mod priority;
#[cfg(any(test, feature = "client"))]
mod queue;
#[cfg(feature = "client")]
mod records;
#[cfg(feature = "client")]
mod repair;
#[cfg(feature = "client")]
mod request;
#[cfg(feature = "client")]
mod resources;
#[cfg(feature = "client")]
mod round;
#[cfg(feature = "client")]
mod runtime;
#[cfg(feature = "client")]
mod script;
#[cfg(feature = "client")]
mod sentinel;
#[cfg(feature = "client")]
mod server;
#[cfg(all(test, feature = "client"))]
mod simulated;
#[cfg(all(test, feature = "client"))]
mod simulation;
#[cfg(any(test, feature = "client"))]
mod slot;
#[cfg(feature = "client")]
mod socket;
#[cfg(feature = "client")]
mod stats;
#[cfg(feature = "client")]
mod status;
#[cfg(feature = "client")]
mod sync;
#[cfg(feature = "client")]
mod timer;
#[cfg(feature = "client")]
mod tls;
#[cfg(feature = "client")]
mod token;
#[cfg(feature = "client")]
mod twins;
#[cfg(feature = "client")]
mod url;
#[cfg(feature = "client")]
mod waiting;
#[cfg(feature = "client")]
mod wire;

#[cfg(feature = "client")]
pub use client::{Client, ClientBuilder};
#[cfg(feature = "client")]
pub use doctor::{Diagnosis, Finding, Level, NodeDiagnosis, Permission};
#[cfg(feature = "client")]
pub use error::{Error, ErrorCode, NodeOutcome, NodeReport, Result};
#[cfg(feature = "client")]
pub use fork::PerProcess;
#[cfg(feature = "client")]
pub use histogram::Histogram;
#[cfg(feature = "client")]
pub use keeper::release_all;
#[cfg(feature = "client")]
pub use lease::Lease;
#[cfg(feature = "client")]
pub use lock::Lock;
#[cfg(feature = "client")]
pub use metrics::{Family, Kind, Sample, Value};
#[cfg(feature = "client")]
pub use options::{Dialect, NODES_VARIABLE, OptionValue, timeout};
#[cfg(feature = "client")]
pub use owner::Owner;
#[cfg(feature = "client")]
pub use records::{Detail, Listener, Record, TARGETS};
#[cfg(feature = "client")]
pub use resources::Resources;
#[cfg(feature = "client")]
pub use runtime::{Operation, Pending};
#[cfg(feature = "client")]
pub use stats::{NodeState, NodeStats, Stats};
#[cfg(feature = "client")]
pub use status::{NodeStatus, State, Status};
