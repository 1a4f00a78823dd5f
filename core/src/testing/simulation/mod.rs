//! Deterministic simulation of whole clients.
//!
//! Everything but the sockets is the code that is shipped: options, client, driver, keeper, nodes'
//! reconnection, protocol. The servers are in-memory nodes behind a simulated network; time is
//! virtual; clocks, random numbers and tasks belong to simulated processes (`process.rs`). A seed
//! stands for a whole world (`scenario.rs`): how many nodes and processes, which options, how fast
//! each clock runs, what goes wrong when (`faults.rs`). A witness (`witness.rs`) sees all leases at once;
//! verdicts without a lease are judged by what the nodes answered (`evidence.rs`).
//!
//! `make simulate` runs some thousand seeds, `make simulate SEED=…` one, with its history. The same
//! seed is always the same history, as long as the code is the same.

mod check;
mod directed;
mod evidence;
mod faults;
mod history;
mod life;
mod link;
mod network;
mod node;
mod process;
mod program;
mod scenario;
mod waiting;
mod witness;
mod world;
