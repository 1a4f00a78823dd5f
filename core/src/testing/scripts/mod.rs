//! What the scripts do on a real server. Its clock stands still until a test lets time pass, so that keys
//! expire exactly when they are meant to, however slow the machine is.
#![allow(clippy::unwrap_used, reason = "tests")]

mod comparison;
mod foreign;
mod server;

#[allow(dead_code, reason = "these tests need only a part of it")]
#[path = "../../../tests/integration/servers.rs"]
mod servers;
