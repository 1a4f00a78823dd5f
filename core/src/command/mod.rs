//! What is asked of a node and what it answers, in Rust, in Lua and in memory.

pub(crate) mod answer;
pub(crate) mod keys;
pub(crate) mod memory;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod script;
