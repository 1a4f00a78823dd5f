//! Client configuration: nodes, options and resources, validated before any request is sent.
//!
//! This module parses and checks everything that a user passes to a client or a lock, and writes the error messages for
//! invalid values. It opens no connection. Only `tls.rs` does IO: it reads certificate files, and encrypts connections
//! that other modules have opened. `client` calls this module; many other modules use its types.
//!
//! Reading order: `value.rs` (what bindings pass), `options.rs`, `environment.rs`, `duration.rs`, `holder.rs`,
//! `mode.rs`, `permits.rs`, `resources.rs`, `quoted.rs`, `nodes.rs` (the list of nodes), `endpoint.rs` (one node),
//! `url.rs`, `secret.rs`, `server.rs`, `credentials.rs`, `tls.rs` (`no_tls.rs` without the feature `tls`).

pub(crate) mod credentials;
pub(crate) mod duration;
pub(crate) mod endpoint;
pub(crate) mod environment;
pub(crate) mod holder;
pub(crate) mod mode;
pub(crate) mod nodes;
pub(crate) mod options;
pub(crate) mod permits;
pub(crate) mod quoted;
pub(crate) mod resources;
pub(crate) mod secret;
pub(crate) mod server;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
pub(crate) mod tls;
pub(crate) mod url;
pub(crate) mod value;
