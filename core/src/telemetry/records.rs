//! The events of `tracing` as records, for language bindings to hand on. Programs in Rust have
//! subscribers of their own, and nothing of this is in their way.
//!
//! An event must not wait for the language: it is told on the thread that looks after leases. So it is
//! put into a queue of limited length, which somebody else empties.

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
    /// Called when there is something to take; it must not block. Returns whether somebody will take it.
    wake: Box<dyn Fn() -> bool + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    records: Vec<Arc<Record>>,
    dropped: u64,
    /// Whether somebody will take them.
    is_awake: bool,
}

/// An event.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Record {
    /// From 1, an error, to 5, a trace.
    pub level: u8,
    /// One of the [`TARGETS`]; or `quorlock`, if records were dropped.
    pub target: &'static str,
    /// What kind of event it is, such as `node.down`.
    pub name: &'static str,
    /// What happened, with the fields, in one line.
    pub text: String,
    /// When, in seconds since the Unix epoch.
    pub time: f64,
    /// What more is known of it.
    #[serde(serialize_with = "as_map")]
    pub fields: Vec<(&'static str, Detail)>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Detail {
    /// Such as the name of a resource.
    Text(String),
    /// Such as a fence: below 2^53.
    Whole(u64),
    /// Such as a time in seconds.
    Number(f64),
    /// Yes or no.
    Flag(bool),
}

fn as_map<S: Serializer>(fields: &[(&'static str, Detail)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(fields.iter().map(|(name, detail)| (name, detail)))
}

impl Listener {
    /// Hears of nothing yet. `wake` is called, on any thread, when there is something to take; it must not
    /// block. It returns whether somebody will call [`Listener::take`]. If not, or if it panics, it is
    /// called again with the next record.
    pub fn new(wake: impl Fn() -> bool + Send + Sync + 'static) -> Arc<Self> {
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

    /// Takes what there is to hear.
    pub fn take(&self) -> Vec<Arc<Record>> {
        let Queue { mut records, dropped, .. } = std::mem::take(&mut *lock(&self.queue));
        if dropped > 0 {
            records.push(Arc::new(Record::dropped(dropped)));
        }
        records
    }

    /// [`Listener::take`] as JSON: a list of objects with the names of the fields.
    pub fn take_json(&self) -> String {
        let records = self.take();
        let records: Vec<&Record> = records.iter().map(|record| &**record).collect();
        serde_json::to_string(&records).expect("there is nothing in it that JSON can't hold")
    }

    fn put(&self, record: &Arc<Record>) {
        let must_wake = {
            let mut queue = lock(&self.queue);
            if queue.records.len() < ROOM {
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
    let Some(registered) = LISTENERS.get() else { return };
    // Dropped after the lock is released: the end of a listener comes back to here.
    let listeners: Vec<Arc<Listener>>;
    // Locked to the end: whoever is last has seen all.
    let registered = lock(registered);
    listeners = registered.iter().filter_map(Weak::upgrade).collect();
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
    /// They as text, in their order.
    written: String,
}

impl Fields {
    fn add(&mut self, name: &'static str, detail: Detail) {
        let plain = |c: char| c.is_alphanumeric() || "-_.:/@[]".contains(c);
        let text = match &detail {
            Detail::Text(text) if !text.is_empty() && text.chars().all(plain) => text.clone(),
            // In quotes, and on one line.
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
