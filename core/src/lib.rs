//! A distributed lock for programs in Python, Node.js and Rust: quorum locking (Redlock) over N independent Redis or
//! Valkey masters, with fencing tokens. This crate contains all of the logic; the Python and Node.js packages only
//! convert types.
//!
//! Start with [`Client`]. [`protocol`] is the crate that implements the lock protocol without IO.
//!
//! This file declares the modules and re-exports the public items; it defines nothing. The modules form layers. Each
//! module imports only modules that come before it in this list: `error`, `runtime`, `config`, `wire`, `memory`,
//! `telemetry`, `transport`, `node`, `doctor`, `lock`, `client`, `testing`.

mod client;
mod config;
mod doctor;
mod error;
mod lock;
mod memory;
mod node;
mod runtime;
mod telemetry;
/// Test support, and the entry points of the fuzz targets in `fuzz/`. This module is not part of the public API.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod testing;
mod transport;
mod wire;

#[doc(inline)]
pub use quorlock_protocol as protocol;

pub use client::adoption::Adoption;
pub use client::election::Election;
pub use client::lock::Lock;
pub use client::permits_status::{PermitHolder, PermitNode, SemaphoreStatus};
pub use client::semaphore::Semaphore;
pub use client::status::{NodeStatus, Reader, State, Status};
pub use client::test_nodes::{FastForward, TestNodes};
pub use client::watch::{Leader, Watch};
pub use client::{Client, ClientBuilder};
pub use config::credentials::{Credentials, CredentialsRequest};
pub use config::duration::parse_duration;
pub use config::mode::Mode;
pub use config::nodes::NODES_VARIABLE;
pub use config::options::{timeout, unit_warning};
pub use config::permits::MAX_PERMITS;
pub use config::quoted::shortened;
pub use config::resources::{Resources, wrong_resource};
pub use config::secret::{has_lease_text, without_secrets};
pub use config::value::{Dialect, OptionValue};
pub use doctor::{Diagnosis, Finding, Level, NodeDiagnosis, Permission, Setting};
pub use error::printable::{printable, printable_json};
pub use error::{Error, ErrorCode, NodeOutcome, NodeReport, Result};
pub use lock::claim::detach::Detached;
pub use lock::lease::Lease;
pub use lock::lease::owner::Owner;
pub use lock::renewer::release_all;
pub use memory::node::Fault;
pub use runtime::cork::{cork, uncork};
pub use runtime::fork::PerProcess;
pub use runtime::{Operation, Pending};
pub use telemetry::histogram::Histogram;
pub use telemetry::metrics::{Family, Kind, Sample, Value};
pub use telemetry::records::{Detail, Listener, Record, TARGETS};
pub use telemetry::stats::{NodeState, NodeStats, Stats};
