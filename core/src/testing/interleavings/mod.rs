//! Thread interleavings of the two modules in which threads share state that no single mutex protects:
//! `runtime/drivers.rs` (which thread drives the runtime) and `runtime/pipeline.rs` (which thread writes on a
//! connection).
//!
//! loom runs the threads of a test in every distinct order, with up to [`PREEMPTIONS`] preemptions. A deadlock fails
//! the test. The files under test are compiled a second time here, with `sync.rs` of this directory in place of
//! `runtime/sync.rs`.

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
