//! Requests to a node and its replies: as Rust types, and as commands and Lua scripts for a server.
//!
//! This module owns the contents of requests, the keys that requests name, and the parsing of replies. It does not
//! decide anything about a lock (`quorlock_protocol` does) and does no IO (`transport` and `node` do). `memory`,
//! `transport`, `node`, `lock`, `client` and `doctor` call this module.
//!
//! Reading order: `keys.rs`, `token.rs`, `request.rs`, `reply.rs`, `answer.rs` (a reply or a failure),
//! `script.rs` with `scripts/`, `commands.rs` and `parse.rs` (requests to servers and their replies),
//! `batch.rs` (several requests as one command), `limits.rs` (what a node may send), `text.rs` (leases as text).

pub(crate) mod answer;
pub(crate) mod batch;
pub(crate) mod commands;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod parse;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod script;
pub(crate) mod text;
pub(crate) mod token;
