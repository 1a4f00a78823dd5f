//! Deterministic simulation of whole clients.
//!
//! Everything except the sockets is the shipped code: options, client, driver, renewer, reconnection to nodes,
//! protocol. The servers are in-memory nodes behind a simulated network. Time is virtual. Clocks, random numbers and
//! tasks belong to simulated processes (`process.rs`).
//!
//! A seed determines a whole world (`scenario.rs`): the number of nodes and processes, the options, the rate of each
//! clock, and which faults happen when (`faults.rs`). A witness observes the leases of all processes (`witness.rs`).
//! The errors of failed acquires are checked against what the nodes answered (`evidence.rs`).
//!
//! `make simulate` runs 2,000 seeds. `make simulate SEED=…` runs a single seed and prints its history.
//! The same seed always yields the same history, as long as the code is the same.

mod applied;
mod check;
mod desk;
mod directed;
mod elections;
mod evidence;
mod faults;
mod handover;
mod history;
mod life;
mod link;
mod network;
mod node;
mod process;
mod program;
mod scenario;
mod semaphores;
mod steps;
mod usage;
mod waiting;
mod witness;
mod world;
