//! Notes how many rounds of requests each acquire of this process needed.

use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Metadata, Subscriber};

static ROUNDS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Notes the rounds of all acquires from now on.
pub fn record() {
    set_global_default(Recorder).expect("no other subscriber");
}

/// Returns the rounds of the acquires that succeeded since the last call.
pub fn take() -> Vec<u64> {
    std::mem::take(&mut ROUNDS.lock().expect("no panic"))
}

/// A subscriber to the event of a successful acquire, and to nothing else.
struct Recorder;

impl Subscriber for Recorder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "lease.acquired"
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Rounds);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Rounds;

impl Visit for Rounds {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "rounds" {
            ROUNDS.lock().expect("no panic").push(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
