//! Tests that need all of the crate: the simulation, the orders of threads, and what the fuzz targets call.

#[cfg(test)]
mod clients;
pub mod fuzzing;
#[cfg(test)]
mod interleavings;
#[cfg(all(test, target_os = "linux"))]
mod scripts;
#[cfg(test)]
mod simulation;
