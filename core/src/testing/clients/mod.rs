//! Tests of whole clients on in-memory nodes that need what is private to the crate.

mod healing;
mod status;
mod suspension;
