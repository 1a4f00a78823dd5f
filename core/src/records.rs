//! The events of `tracing` as records, for language bindings to hand on. Programs in Rust have
//! subscribers of their own, and nothing of this is in their way.
//!
//! An event must not wait for the language: it is told on the thread that looks after leases. So it is
//! put into a queue of limited length, which somebody else empties.

use crate::events;
use crate::fork::PerProcess;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::subscriber::{self, Interest};
use tracing::{Event, Level, Metadata, Subscriber, callsite};

/// What records are about: the targets of the events.
pub const TARGETS: [&str; 4] = [events::ACQUIRE, events::LEASE, events::NODE, events::WAITING];

/// What is told when records had to be thrown away.
const DROPPED: &str = "quorlock";

/// So many records wait to be taken, at most.
const ROOM: usize = 4096;

/// How much is heard of each target, by all listeners together: 0 for nothing, 1 for errors, to 5 for
/// everything.
static LOUDEST: [AtomicU8; TARGETS.len()] = [const { AtomicU8::new(0) }; TARGETS.len()];

static LISTENERS: PerProcess<Mutex<Vec<Weak<Listener>>>> = PerProcess::new();

/// Somebody who hears of events.
pub struct Listener {
    levels: [AtomicU8; TARGETS.len()],
    queue: Mutex<Queue>,
    /// Called when there is something to take; it must not block.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    records: Vec<Arc<Record>>,
    dropped: u64,
}

#[derive(Serialize)]
struct Record {
    /// From 1, an error, to 5, a trace.
    level: u8,
    target: &'static str,
    name: &'static str,
    /// What happened, with the fields.
    text: String,
    /// In seconds since the Unix epoch.
    time: f64,
    fields: serde_json::Map<String, Value>,
}

impl Listener {
    /// Hears of nothing yet. `wake` is called, on any thread, when there is something to take that was
    /// not there before; it must not block.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        static INSTALLED: Once = Once::new();
        // It fails in a program that has a subscriber of its own, which hears of everything then.
        INSTALLED.call_once(|| drop(subscriber::set_global_default(Recorder)));
        let (levels, queue) = Default::default();
        let listener = Arc::new(Self { levels, queue, wake: Box::new(wake) });
        let mut listeners = lock(LISTENERS.get_or_init(Mutex::default));
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&listener));
        listener
    }

    /// Hears of so much of each of the [`TARGETS`] from now on: 0 for nothing, 1 for errors, 2 for
    /// warnings, 3 for what is of interest, 4 for details, 5 for everything.
    pub fn listen(&self, levels: [u8; TARGETS.len()]) {
        let is_same = |(own, level): (&AtomicU8, u8)| own.swap(level, Ordering::Relaxed) == level;
        // All are set, whatever comes of the first.
        let same = self.levels.iter().zip(levels).map(is_same).filter(|same| *same).count();
        if same < TARGETS.len() {
            tune();
        }
    }

    /// Takes what there is to hear: JSON, a list of objects with `level`, `target`, `name`, `text`, `time`
    /// and `fields`; `None` if there is nothing.
    pub fn take(&self) -> Option<String> {
        let Queue { records, dropped } = std::mem::take(&mut *lock(&self.queue));
        let lost = (dropped > 0).then(|| Arc::new(Record::dropped(dropped)));
        let records: Vec<_> = records.into_iter().chain(lost).collect();
        let records: Vec<&Record> = records.iter().map(|record| &**record).collect();
        let json = || serde_json::to_string(&records).expect("JSON can hold all of it");
        (!records.is_empty()).then(json)
    }

    fn put(&self, record: &Arc<Record>) {
        let was_empty = {
            let mut queue = lock(&self.queue);
            let was_empty = queue.records.is_empty();
            if queue.records.len() < ROOM {
                queue.records.push(Arc::clone(record));
            } else {
                queue.dropped += 1;
            }
            was_empty
        };
        if was_empty {
            (self.wake)();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        tune();
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("levels", &self.levels).finish_non_exhaustive()
    }
}

/// Lets as much be told as is heard. What nobody hears costs next to nothing then.
fn tune() {
    let listeners = listeners();
    let mut changed = false;
    for (index, loudest) in LOUDEST.iter().enumerate() {
        let levels = listeners.iter().map(|one| one.levels[index].load(Ordering::Relaxed));
        let level = levels.max().unwrap_or(0);
        changed |= loudest.swap(level, Ordering::Relaxed) != level;
    }
    if changed {
        callsite::rebuild_interest_cache();
    }
}

/// Those of this process.
fn listeners() -> Vec<Arc<Listener>> {
    let listeners = LISTENERS.get().map(|listeners| lock(listeners).clone());
    listeners.unwrap_or_default().iter().filter_map(Weak::upgrade).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn position(target: &str) -> Option<usize> {
    TARGETS.iter().position(|known| *known == target)
}

fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

/// Makes records of events.
struct Recorder;

impl Recorder {
    fn hears(metadata: &Metadata<'_>) -> bool {
        let level = position(metadata.target()).map(|index| LOUDEST[index].load(Ordering::Relaxed));
        metadata.is_event() && level.is_some_and(|level| number(*metadata.level()) <= level)
    }
}

impl Subscriber for Recorder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::hears(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::hears(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let loudest = LOUDEST.iter().map(|level| level.load(Ordering::Relaxed)).max();
        Some(match loudest.unwrap_or(0) {
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn event(&self, event: &Event<'_>) {
        let Some(index) = position(event.metadata().target()) else { return };
        let record = Arc::new(Record::of(event));
        for listener in listeners() {
            if record.level <= listener.levels[index].load(Ordering::Relaxed) {
                listener.put(&record);
            }
        }
    }

    // There are no spans: they are not heard.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Record {
    fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        Self::new(number(*metadata.level()), metadata.target(), metadata.name(), fields)
    }

    fn dropped(count: u64) -> Self {
        let mut fields = Fields::default();
        fields.message.push_str("records were dropped");
        fields.add("count", count.into());
        Self::new(number(Level::WARN), DROPPED, "records.dropped", fields)
    }

    fn new(level: u8, target: &'static str, name: &'static str, fields: Fields) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let Fields { message: text, fields, written } = fields;
        Self { level, target, name, text: text + &written, time, fields }
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    fields: serde_json::Map<String, Value>,
    /// They as text, in their order.
    written: String,
}

impl Fields {
    fn add(&mut self, name: &str, value: Value) {
        let plain = |c: char| c.is_alphanumeric() || "-_.:/@[]".contains(c);
        let text = match &value {
            Value::String(text) if !text.is_empty() && text.chars().all(plain) => text.clone(),
            // With quotes, and on one line.
            other => other.to_string(),
        };
        self.written += &format!(" {name}={text}");
        self.fields.insert(name.to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.add(name, format!("{value:?}").into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), value.into());
    }
}
