//! Tests of the whole crate that use its private items. Nothing outside of tests and fuzz targets may use this module.
//!
//! - `clients`: clients on in-memory nodes.
//! - `fuzzing`: the bodies of the fuzz targets in `fuzz/`.
//! - `interleavings`: thread interleavings, with loom.
//! - `scripts`: the Lua scripts on a real server, compared with the in-memory node.
//! - `simulation`: whole clients in a simulated network, in virtual time.

#[cfg(test)]
mod clients;
pub mod fuzzing;
#[cfg(test)]
mod interleavings;
#[cfg(all(test, target_os = "linux"))]
mod scripts;
#[cfg(test)]
mod simulation;
