//! Connections to servers: sockets, pipelining, the handshake, and the search for the current
//! master.
//!
//! This module owns the bytes on a connection. It knows nothing about votes, leases or the deadlines of requests.
//! `node` and `doctor` call this module.
//!
//! Reading order: `lookup.rs`, `socket.rs`, `frame.rs` (the limits of replies), `connection.rs`
//! (pipelining), `login.rs`, `handshake.rs`, `sentinel.rs` and `cluster.rs` (finding masters),
//! `simulated.rs` (tests).

pub(crate) mod cluster;
pub(crate) mod connection;
mod frame;
pub(crate) mod handshake;
pub(crate) mod login;
mod lookup;
pub(crate) mod sentinel;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod socket;
