//! The `tracing` events as records, which language bindings pass on to their language. A Rust program installs its own
//! `tracing` subscriber instead, and never calls this module.
//!
//! Reporting an event must not wait for the other language, because the thread that reports the event also renews
//! leases. So records go into a bounded queue for each [`Listener`], and the binding empties the queue. This module
//! owns these queues and the subscriber that fills them.

use crate::runtime::fork::PerProcess;
use crate::runtime::panics;
use crate::telemetry::events;
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::subscriber::{self, Interest};
use tracing::{Event, Level, Metadata, Subscriber, callsite};

/// The targets of the events. A [`Listener`] has one level for each of them.
pub const TARGETS: [&str; 5] =
    [events::ACQUIRE, events::ELECTION, events::LEASE, events::NODE, events::WAITING];

/// The target of the record that reports dropped records.
const DROPPED: &str = "quorlock";

/// The maximum number of records in a queue; further records are dropped and counted.
const CAPACITY: usize = 4096;

/// For each target, the highest level that any listener wants: 0 for nothing, 1 for errors, up to 5
/// for traces.
static MAX_LEVELS: [AtomicU8; TARGETS.len()] = [const { AtomicU8::new(0) }; TARGETS.len()];

static LISTENERS: PerProcess<Mutex<Vec<Weak<Listener>>>> = PerProcess::new();

/// A queue of [`Record`]s for one consumer, such as the log handler of a language binding.
pub struct Listener {
    levels: [AtomicU8; TARGETS.len()],
    queue: Mutex<RecordBuffer>,
    /// Called when there are records to take. Must not block. Returns whether the consumer will take them.
    wake: Box<dyn Fn() -> bool + Send + Sync>,
}

#[derive(Default)]
struct RecordBuffer {
    records: Vec<Arc<Record>>,
    dropped: u64,
    /// Whether the consumer was woken and will take the records.
    is_awake: bool,
}

/// One event, as a language binding receives it.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Record {
    /// The level, from 1 (error) to 5 (trace).
    pub level: u8,
    /// One of the [`TARGETS`], or `quorlock` in the record that reports dropped records.
    pub target: &'static str,
    /// The name of the event, such as `node.down`.
    pub name: &'static str,
    /// The message and the fields, on one line.
    pub text: String,
    /// When the event was reported, in seconds since the Unix epoch.
    pub time: f64,
    /// The names and values of the event's fields, in order, without the message.
    #[serde(serialize_with = "as_map")]
    pub fields: Vec<(&'static str, Detail)>,
}

/// The value of a field of an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Detail {
    /// A string, such as the name of a resource.
    Text(String),
    /// An integer below 2^53, such as a fence.
    Whole(u64),
    /// A number, such as a duration in seconds.
    Number(f64),
    /// A Boolean.
    Flag(bool),
}

fn as_map<S: Serializer>(fields: &[(&'static str, Detail)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(fields.iter().map(|(name, detail)| (name, detail)))
}

impl Listener {
    /// Creates a listener that receives nothing yet; see [`Listener::listen`].
    ///
    /// `wake` is called on any thread when there are records to take. `wake` must not block. It returns whether
    /// [`Listener::take`] will be called. If `wake` returns `false` or panics, `wake` is called again for the next
    /// record.
    pub fn new(wake: impl Fn() -> bool + Send + Sync + 'static) -> Arc<Self> {
        static INSTALLED: Once = Once::new();
        // This fails if the program has its own subscriber, which then receives all events instead.
        INSTALLED.call_once(|| drop(subscriber::set_global_default(Recorder)));
        let (levels, queue) = Default::default();
        let listener = Arc::new(Self { levels, queue, wake: Box::new(wake) });
        let mut listeners = lock(LISTENERS.get_or_init(Mutex::default));
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&listener));
        listener
    }

    /// Sets the level for each of the [`TARGETS`] from now on: 0 for nothing, 1 for errors, 2 for
    /// warnings, 3 for information, 4 for details, 5 for traces.
    pub fn listen(&self, levels: [u8; TARGETS.len()]) {
        let is_same = |(own, level): (&AtomicU8, u8)| own.swap(level, Ordering::Relaxed) == level;
        // Must visit all levels to set them, so count the unchanged ones instead of stopping at the first change.
        let same = self.levels.iter().zip(levels).map(is_same).filter(|same| *same).count();
        if same < TARGETS.len() {
            update_levels();
        }
    }

    /// Takes all queued records, oldest first. Does not block.
    pub fn take(&self) -> Vec<Arc<Record>> {
        let RecordBuffer { mut records, dropped, .. } = std::mem::take(&mut *lock(&self.queue));
        if dropped > 0 {
            records.push(Arc::new(Record::dropped(dropped)));
        }
        records
    }

    /// Takes all queued records, like [`Listener::take`], and returns them as JSON: a list of objects with the field
    /// names of [`Record`].
    pub fn take_json(&self) -> String {
        let records = self.take();
        let records: Vec<&Record> = records.iter().map(|record| &**record).collect();
        serde_json::to_string(&records).expect("it contains only values that JSON can represent")
    }

    fn put(&self, record: &Arc<Record>) {
        let must_wake = {
            let mut queue = lock(&self.queue);
            if queue.records.len() < CAPACITY {
                queue.records.push(Arc::clone(record));
            } else {
                queue.dropped += 1;
            }
            !std::mem::replace(&mut queue.is_awake, true)
        };
        if must_wake && panics::contain(&self.wake) != Some(true) {
            lock(&self.queue).is_awake = false;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        update_levels();
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("levels", &self.levels).finish_non_exhaustive()
    }
}

/// Enables exactly the levels that at least one listener wants. Events of other levels then cost almost nothing.
fn update_levels() {
    let Some(registered) = LISTENERS.get() else { return };
    // Declared before the guard `registered`, so that the listeners are dropped after the guard: dropping a listener
    // calls this function, which locks the same mutex.
    let listeners: Vec<Arc<Listener>>;
    // Stays locked until this function returns, so that concurrent calls run one after the other and the last one sees
    // all levels.
    let registered = lock(registered);
    listeners = registered.iter().filter_map(Weak::upgrade).collect();
    let mut changed = false;
    for (index, highest) in MAX_LEVELS.iter().enumerate() {
        let levels = listeners.iter().map(|one| one.levels[index].load(Ordering::Relaxed));
        let level = levels.max().unwrap_or(0);
        changed |= highest.swap(level, Ordering::Relaxed) != level;
    }
    if changed {
        callsite::rebuild_interest_cache();
    }
}

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

/// The `tracing` subscriber that turns events into records.
struct Recorder;

impl Recorder {
    fn is_enabled(metadata: &Metadata<'_>) -> bool {
        let level =
            position(metadata.target()).map(|index| MAX_LEVELS[index].load(Ordering::Relaxed));
        metadata.is_event() && level.is_some_and(|level| number(*metadata.level()) <= level)
    }
}

impl Subscriber for Recorder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::is_enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::is_enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let highest = MAX_LEVELS.iter().map(|level| level.load(Ordering::Relaxed)).max();
        Some(match highest.unwrap_or(0) {
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

    // `is_enabled` disables all spans, so the methods below are never called.
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
        fields.add("count", Detail::Whole(count));
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
    fields: Vec<(&'static str, Detail)>,
    /// The fields as text, in order.
    written: String,
}

impl Fields {
    fn add(&mut self, name: &'static str, detail: Detail) {
        let plain = |c: char| c.is_alphanumeric() || "-_.:/@[]".contains(c);
        let text = match &detail {
            Detail::Text(text) if !text.is_empty() && text.chars().all(plain) => text.clone(),
            // Quoted, so that the text stays on one line.
            Detail::Text(text) => format!("{text:?}"),
            Detail::Whole(number) => number.to_string(),
            Detail::Number(number) => format!("{number:.6}"),
            Detail::Flag(flag) => flag.to_string(),
        };
        self.written += &format!(" {name}={text}");
        self.fields.push((name, detail));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.add(name, Detail::Text(format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), Detail::Text(value.to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), Detail::Whole(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), Detail::Number(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), Detail::Flag(value));
    }
}
