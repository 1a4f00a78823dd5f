//! Tests of whole clients on in-memory nodes that need private items of the crate.

mod healing;
mod status;
mod suspension;
mod upgrade;
