//! Tests that need all of the crate: the simulation, the orders of threads, and what the fuzz targets call.

#[cfg(test)]
mod clients;
pub mod fuzzing;
#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod simulation;
