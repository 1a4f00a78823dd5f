//! Requests to a node and its replies: as Rust types, as Lua scripts, and as in-memory nodes.
//!
//! This module owns what is sent to a node, the keys that it names, and how replies are understood.
//! It does not decide anything about a lock (`quorlock_protocol` does) and does no IO (`transport`
//! and `node` do). `node`, `doctor` and `lock` call it.
//!
//! Reading order: `keys.rs`, `token.rs`, `request.rs`, `reply.rs`, `answer.rs` (a reply or a failure),
//! `script.rs` with `scripts/`, `wire.rs` and `parse.rs` (a server's side), `memory.rs` and
//! `memory_node.rs` (an in-memory node's side), `limits.rs` (what a node may send), `text.rs` (leases as text).

pub(crate) mod answer;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod memory_node;
pub(crate) mod parse;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod script;
pub(crate) mod text;
pub(crate) mod token;
pub(crate) mod wire;
