//! Tests of whole clients on in-memory nodes. The tests need private items of the crate.

mod corking;
mod forgetting;
mod healing;
mod heartbeat;
mod kept;
mod status;
mod suspension;
mod upgrade;
