//! Every order of events, up to a bound, in the two places where threads share more than one lock's worth
//! of state: who drives the runtime, and who writes on a connection.
//!
//! loom runs the threads of a test in every order that differs, with up to [`PREEMPTIONS`] switches that no
//! thread asked for. It fails if all threads wait. The files under test are compiled a second time here,
//! with `sync.rs` of this directory.

mod driving;
mod sync;
mod writing;

#[path = "../../runtime/drivers.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "the same code with other primitives")]
mod drivers;
#[path = "../../runtime/pipeline.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "the same code with other primitives")]
mod pipeline;

const PREEMPTIONS: usize = 3;

fn check(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(test);
}
