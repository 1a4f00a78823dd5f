//! The Lua scripts on a real server. The tests set the server's clock, so keys expire at exact times even on a slow
//! machine.
#![allow(clippy::unwrap_used, reason = "tests")]

mod comparison;
mod failures;
mod foreign;
mod lost;
mod pauses;
mod permits;
mod server;

#[allow(dead_code, reason = "these tests need only a part of it")]
#[path = "../../../tests/integration/servers.rs"]
mod servers;
