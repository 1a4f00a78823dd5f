//! Connections to servers: sockets, pipelining, the handshake, and finding the server that is meant.

pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod sentinel;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod socket;
pub(crate) mod subscription;
