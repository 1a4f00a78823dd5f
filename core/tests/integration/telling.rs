//! What is told of a client: events, counts, metrics.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, Detail, ErrorCode, Kind, Listener, NodeState, Record, TARGETS, Value};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

/// Hears everything, of all tests that run at the same time.
struct Heard {
    listener: Arc<Listener>,
    records: Mutex<Vec<Arc<Record>>>,
}

impl Heard {
    fn begin() -> Self {
        let listener = Listener::new(|| {});
        listener.listen([5; TARGETS.len()]);
        Self { listener, records: Mutex::default() }
    }

    /// The records of this name that have a field with this text.
    fn about(&self, name: &str, text: &str) -> Vec<Arc<Record>> {
        let mut records = self.records.lock().unwrap();
        records.extend(self.listener.take());
        let has = |record: &&Arc<Record>| {
            let is = |detail: &Detail| *detail == Detail::Text(text.to_owned());
            record.name == name && record.fields.iter().any(|(_, detail)| is(detail))
        };
        records.iter().filter(has).cloned().collect()
    }
}

#[test]
fn an_outage_is_told_once() {
    let heard = Heard::begin();
    let servers = Servers::start(3);
    let client = Client::builder().nodes(&servers.urls).build().unwrap();
    let cycle = || assert!(wait(wait(client.lock("outage").acquire()).unwrap().release()));
    cycle();
    let url = servers.urls[0].clone();
    servers.ask(json!({"kill": 0}));
    wait_until("it is told", || !heard.about("node.down", &url).is_empty());
    (0..20).for_each(|_| cycle());
    assert_eq!(client.stats().nodes[0].state, NodeState::Down);
    servers.ask(json!({"restart": 0}));
    wait_until("its return is told", || !heard.about("node.up", &url).is_empty());
    let stats = client.stats();
    assert_eq!((stats.nodes[0].state, stats.nodes[0].reconnects), (NodeState::Up, 1));
    let down = heard.about("node.down", &url);
    assert_eq!((down.len(), down[0].level, down[0].target), (1, 2, "quorlock::node"));
    assert_eq!(heard.about("node.up", &url)[0].level, 3);
}

#[test]
fn what_becomes_of_a_lock_is_told_and_counted() {
    let heard = Heard::begin();
    let client = Client::builder().nodes(["memory://told"]).build().unwrap();
    let lock = client.lock("told");
    let lease = wait(lock.acquire()).unwrap();
    assert_eq!(client.stats().held, 1);
    let late = wait(lock.clone().wait(Duration::from_millis(50)).acquire()).unwrap_err();
    assert_eq!(late.code(), ErrorCode::Timeout);
    wait(lease.extend(None)).unwrap();
    drop(lock.acquire());
    wait_until("it is cancelled", || client.stats().cancelled == 1);
    assert!(wait(lease.release()));
    wait_until("it is released", || !heard.about("lease.released", "told").is_empty());

    let short = lock.ttl(Duration::from_millis(20)).auto_extend(false);
    let lost = wait(short.acquire()).unwrap();
    assert!(lost.lost().wait(TIMEOUT).unwrap().is_some());
    wait_until("the loss is told", || !heard.about("lease.lost", "told").is_empty());

    let level = |name| heard.about(name, "told").iter().map(|told| told.level).collect::<Vec<_>>();
    assert_eq!(level("lease.acquired"), [4, 4]);
    assert_eq!(level("lease.extended"), [4]);
    assert_eq!(level("acquire.failed"), [4, 4]);
    assert_eq!(level("lease.lost"), [2]);
    let acquired = &heard.about("lease.acquired", "told")[0];
    assert!(acquired.fields.contains(&("fence", Detail::Whole(lease.fence()))));
    assert!(!format!("{:?}", heard.records).contains(lease.token()));

    let stats = client.stats();
    assert_eq!((stats.attempts, stats.wins, stats.timeouts, stats.cancelled), (4, 2, 1, 1));
    assert_eq!((stats.releases, stats.losses, stats.extensions, stats.held), (1, 1, 1, 0));
    assert_eq!(stats.acquire_seconds.count, 2);
    assert_eq!(stats.hold_seconds.count, 2);
    assert_eq!(stats.waiting, 0);
}

#[test]
fn a_listener_hears_what_it_wants_to() {
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&woken);
    let listener = Listener::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let client = Client::builder().nodes(["memory://wants"]).build().unwrap();
    let cycle = || assert!(wait(wait(client.lock("wants").acquire()).unwrap().release()));
    cycle();
    assert!(listener.take().is_empty());
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    let leases_only = TARGETS.map(|target| if target == "quorlock::lease" { 4 } else { 0 });
    listener.listen(leases_only);
    // More than there is room for, while nobody takes them.
    (0..3000).for_each(|_| cycle());
    // It is told that there is something, and not each time.
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    let records = listener.take();
    let (last, others) = records.split_last().unwrap();
    assert!(others.iter().all(|record| record.target == "quorlock::lease" && record.level <= 4));
    assert_eq!((last.name, last.target), ("records.dropped", "quorlock"));
    assert!(matches!(last.fields[..], [("count", Detail::Whole(count))] if count > 0));
    cycle();
    assert!(woken.load(Ordering::SeqCst) > 1);
    let records: serde_json::Value = serde_json::from_str(&listener.take_json()).unwrap();
    let own = |record: &&serde_json::Value| record["fields"]["resource"] == "wants";
    let first = records.as_array().unwrap().iter().find(own).unwrap();
    assert_eq!(first["name"], "lease.acquired");
    assert!(first["text"].as_str().unwrap().starts_with("lease acquired resource=wants fence="));
}

#[test]
fn the_metrics_are_the_same_whatever_was_counted() {
    let client = Client::builder().nodes(["memory://metrics-1", "memory://metrics-2"]).build();
    let client = client.unwrap();
    let names = || -> Vec<_> {
        client.stats().metrics().into_iter().map(|family| (family.name, family.kind)).collect()
    };
    let before = names();
    assert!(before.contains(&("quorlock_acquires", Kind::Counter)));
    let lease = wait(client.lock("metrics").acquire()).unwrap();
    assert!(wait(client.lock("metrics").wait(NOW).acquire()).is_err());
    drop(lease);
    assert_eq!(names(), before);
    let mut unique: Vec<_> = before.iter().map(|(name, _)| name).collect();
    unique.dedup();
    assert_eq!(unique.len(), before.len());

    let metrics = client.stats().metrics();
    let acquires = metrics.iter().find(|family| family.name == "quorlock_acquires").unwrap();
    let counts: Vec<_> = acquires.samples.iter().map(|sample| &sample.value).collect();
    assert_eq!(counts, [1, 1, 0, 0].map(Value::Number).iter().collect::<Vec<_>>());
    let text = client.stats().to_prometheus();
    for line in [
        "# TYPE quorlock_acquires_total counter",
        "quorlock_acquires_total{outcome=\"timeout\"} 1",
        "quorlock_node_up{node=\"memory://metrics-1\"} 1",
        "quorlock_acquire_seconds_bucket{le=\"0.00005\"} 0",
        "quorlock_acquire_seconds_bucket{le=\"+Inf\"} 1",
        "quorlock_acquire_seconds_count 1",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
    }
}
