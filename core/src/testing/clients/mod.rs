//! Tests of whole clients on in-memory nodes that need private items of the crate.

mod forgetting;
mod healing;
mod kept;
mod status;
mod suspension;
mod upgrade;
