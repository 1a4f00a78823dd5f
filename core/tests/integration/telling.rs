//! Telemetry: log events, statistics, metrics.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{
    Client, Detail, ErrorCode, Kind, Lease, Listener, NodeState, Owner, Pending, Record, Result,
    TARGETS, Value,
};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

/// Collects the records of all tests that run at the same time. The recorder takes each record immediately, so that no
/// record is dropped.
struct Recorder {
    _listener: Arc<Listener>,
    records: Arc<Mutex<Vec<Arc<Record>>>>,
}

impl Recorder {
    fn begin() -> Self {
        Self::begin_at(5)
    }

    /// Records events up to this level: 2 is WARN, 5 is TRACE. All tests of this process share the buffer, which drops
    /// its oldest events when it is full.
    fn begin_at(level: u8) -> Self {
        let own = Arc::new(OnceLock::<Weak<Listener>>::new());
        let records = Arc::<Mutex<Vec<_>>>::default();
        let listening = Arc::clone(&own);
        let taken = Arc::clone(&records);
        let listener = Listener::new(move || {
            if let Some(listener) = listening.get().and_then(Weak::upgrade) {
                taken.lock().unwrap().extend(listener.take());
            }
            true
        });
        own.set(Arc::downgrade(&listener)).unwrap();
        listener.listen([level; TARGETS.len()]);
        Self { _listener: listener, records }
    }

    /// Returns the records with this name that have a field with this text.
    fn about(&self, name: &str, text: &str) -> Vec<Arc<Record>> {
        let records = self.records.lock().unwrap();
        let has = |record: &&Arc<Record>| {
            let is = |detail: &Detail| *detail == Detail::Text(text.to_owned());
            record.name == name && record.fields.iter().any(|(_, detail)| is(detail))
        };
        records.iter().filter(has).cloned().collect()
    }
}

#[test]
fn a_node_outage_is_logged_once() {
    let recorder = Recorder::begin();
    let servers = Servers::start(3);
    let client = Client::builder().nodes(&servers.urls).build().unwrap();
    let cycle = || assert!(wait(wait(client.lock("outage").acquire()).unwrap().release()));
    cycle();
    let url = servers.urls[0].clone();
    servers.ask(json!({"kill": 0}));
    wait_until("the outage is logged", || !recorder.about("node.down", &url).is_empty());
    (0..20).for_each(|_| cycle());
    assert_eq!(client.stats().nodes[0].state, NodeState::Down);
    servers.ask(json!({"restart": 0}));
    wait_until("the recovery is logged", || !recorder.about("node.up", &url).is_empty());
    let stats = client.stats();
    assert_eq!((stats.nodes[0].state, stats.nodes[0].reconnects), (NodeState::Up, 1));
    let down = recorder.about("node.down", &url);
    assert_eq!((down.len(), down[0].level, down[0].target), (1, 2, "quorlock::node"));
    assert_eq!(recorder.about("node.up", &url)[0].level, 3);
}

#[test]
fn acquires_and_lease_ends_are_logged_and_counted() {
    let recorder = Recorder::begin();
    let client = Client::builder().nodes(["memory://logged"]).build().unwrap();
    let lock = client.lock("logged");
    let lease = wait(lock.acquire()).unwrap();
    assert_eq!(client.stats().held, 1);
    let late = wait(lock.clone().wait(Duration::from_millis(50)).acquire()).unwrap_err();
    assert_eq!(late.code(), ErrorCode::Timeout);
    wait(lease.extend(None)).unwrap();
    drop(lock.acquire());
    wait_until("the acquire is cancelled", || client.stats().cancelled == 1);
    assert!(wait(lease.release()));
    wait_until("the release is logged", || !recorder.about("lease.released", "logged").is_empty());

    let short = lock.ttl(Duration::from_millis(20)).auto_extend(false);
    let lost = wait(short.acquire()).unwrap();
    assert!(lost.lost().block_for(TIMEOUT).unwrap().is_some());
    wait_until("the loss is logged", || !recorder.about("lease.lost", "logged").is_empty());

    let level =
        |name| recorder.about(name, "logged").iter().map(|record| record.level).collect::<Vec<_>>();
    assert_eq!(level("lease.acquired"), [4, 4]);
    assert_eq!(level("lease.extended"), [4]);
    assert_eq!(level("acquire.failed"), [4, 4]);
    assert_eq!(level("lease.lost"), [2]);
    let acquired = &recorder.about("lease.acquired", "logged")[0];
    assert!(acquired.fields.contains(&("fence", Detail::Whole(lease.fence()))));
    let holder = ("holder", Detail::Text(lease.holder().to_owned()));
    for name in ["lease.acquired", "acquire.failed", "lease.released", "lease.lost"] {
        assert!(recorder.about(name, "logged")[0].fields.contains(&holder), "{name}");
    }
    assert!(!format!("{:?}", recorder.records).contains(&lease.token()[..9]));

    let stats = client.stats();
    assert_eq!((stats.attempts, stats.wins, stats.timeouts, stats.cancelled), (4, 2, 1, 1));
    assert_eq!((stats.releases, stats.losses, stats.extensions, stats.held), (1, 1, 1, 0));
    assert_eq!(stats.acquire_seconds.count, 2);
    assert_eq!(stats.hold_seconds.count, 2);
    assert_eq!(stats.waiting, 0);
}

#[test]
fn acquires_in_shared_mode_are_logged_with_their_mode() {
    let recorder = Recorder::begin();
    let client = Client::builder().nodes(["memory://modes"]).wait(NOW).build().unwrap();
    let reader = wait(client.lock("modes").shared().acquire()).unwrap();
    assert!(wait(client.lock("modes").acquire()).is_err());
    assert!(wait(client.lock(["one", "modes"]).shared_for("modes").acquire()).is_ok());
    assert!(wait(reader.release()));
    let mode = |name, resource: &str| -> Vec<_> {
        let records = recorder.about(name, resource);
        let mode = |record: &Arc<Record>| {
            let found = record.fields.iter().find(|(name, _)| *name == "mode");
            found.map(|(_, mode)| mode.clone())
        };
        records.iter().map(mode).collect()
    };
    let text = |mode: &str| Some(Detail::Text(mode.to_owned()));
    assert_eq!(mode("lease.acquired", "modes"), [text("shared")]);
    assert_eq!(mode("acquire.failed", "modes"), [None]);
    assert_eq!(mode("lease.acquired", "one, modes"), [text("exclusive, shared")]);
}

/// Returns how many leases were released, closed with their client, dropped, and lost, and how many are held
/// now.
fn ends(client: &Client) -> [u64; 5] {
    let stats = client.stats();
    [stats.releases, stats.closed, stats.dropped, stats.losses, stats.held]
}

#[test]
fn an_abandoned_lease_is_not_released_and_expires_with_a_warning() {
    let recorder = Recorder::begin_at(2);
    let client = Client::builder().nodes(["memory://abandoned"]).build().unwrap();
    let lock = client.lock("abandoned").wait(NOW);
    let short = lock.clone().ttl(Duration::from_secs(5));
    let lease = wait(short.acquire()).unwrap();
    let fence = lease.fence();
    let lost = lease.lost();
    assert!(lease.abandon());
    assert!(!lease.abandon(), "it is abandoned already");
    drop(lease);
    assert_eq!(ends(&client), [0, 0, 1, 0, 0]);
    let held = wait(lock.acquire()).map(|_| "the key must still exist").unwrap_err();
    assert_eq!(held.code(), ErrorCode::Timeout);
    wait_until("the key expires, because it is not renewed", || wait(lock.acquire()).is_ok());

    // A watcher of the dropped lease receives a loss, which is not counted as another end.
    let loss = wait(lost).expect("the lease is lost");
    assert!(loss.to_string().contains("dropped without being released"), "{loss}");
    let [dropped] = &recorder.about("lease.dropped", "abandoned")[..] else { panic!("not once") };
    assert_eq!((dropped.level, dropped.target), (2, "quorlock::lease"));
    assert!(dropped.fields.contains(&("fence", Detail::Whole(fence))));
    assert!(recorder.about("lease.lost", "abandoned").is_empty());
    assert_eq!(ends(&client), [1, 0, 1, 0, 0]);
}

#[test]
fn watchers_of_an_abandoned_lease_survive_its_client() {
    let client = Client::builder().nodes(["memory://outlived"]).build().unwrap();
    let lease = wait(client.lock("r").ttl(Duration::from_millis(200)).acquire()).unwrap();
    let lost = lease.lost();
    assert!(lease.abandon());
    drop(lease);
    drop(client);
    assert!(wait(lost).is_some());
}

#[test]
fn stats_count_how_leases_ended() {
    let client = Client::builder().nodes(["memory://ends"]).build().unwrap();
    let acquire = |resource| wait(client.lock(resource).acquire()).unwrap();
    assert!(wait(acquire("released").release()));
    drop(acquire("left"));
    let abandoned = acquire("given-up");
    let held = acquire("held");
    assert!(abandoned.abandon());
    drop(abandoned);
    assert_eq!(ends(&client), [2, 0, 1, 0, 1]);
    // Closing the client counts only the lease that was still held.
    wait(client.close());
    assert_eq!(ends(&client), [2, 1, 1, 0, 0]);
    assert!(!held.abandon(), "it has ended");
    drop(held);
    assert_eq!(ends(&client), [2, 1, 1, 0, 0]);
    let other = Client::builder().nodes(["memory://ends"]).build().unwrap();
    assert!(wait(other.lock("given-up").wait(NOW).acquire()).is_ok());
}

#[test]
fn an_acquire_that_waits_for_its_own_thread_is_logged() {
    const WAIT: Duration = Duration::from_millis(1500);
    let recorder = Recorder::begin();
    let client = Client::builder().nodes(["memory://reentrant"]).wait(WAIT).build().unwrap();
    let events = || recorder.about("acquire.reentrant", "reentrant");
    let lease = wait(client.lock(["other", "reentrant"]).acquire()).unwrap();
    let fence = lease.fences().next().unwrap().1;
    let lock = client.lock("reentrant");
    let own = format!("\"reentrant\" is held by another lease of this client (fence {fence})");
    let refused = |acquire: Pending<Result<Lease>>| wait(acquire).unwrap_err().to_string();

    // The error names the holding lease immediately, for every owner.
    assert!(refused(lock.clone().wait(NOW).acquire()).contains(&own));
    let foreign = [Some(Owner::Foreign(7)), None].map(|owner| lock.acquire_as(owner));
    let other = lock.clone();
    let elsewhere = std::thread::spawn(move || refused(other.acquire()));
    for error in foreign.map(refused).into_iter().chain([elsewhere.join().unwrap()]) {
        assert!(error.contains(&format!("{own} after 1.5 s")), "{error}");
    }
    assert!(events().is_empty(), "none of them waits for itself");

    let waiting = lock.wait_forever().acquire();
    wait_until("the wait is logged", || !events().is_empty());
    drop(waiting);
    let [event] = &events()[..] else { panic!("{:?}", events()) };
    assert_eq!((event.level, event.target), (2, "quorlock::acquire"));
    assert!(event.fields.contains(&("fence", Detail::Whole(fence))));

    // There is no event for another client's lease, nor for a lease that is released.
    let other = Client::builder().nodes(["memory://reentrant"]).wait(WAIT).build().unwrap();
    assert!(refused(other.lock("reentrant").acquire()).contains("held by others"));
    let short = wait(client.lock("short").acquire()).unwrap();
    let waiting = client.lock("short").acquire();
    assert!(wait(short.release()));
    assert!(wait(waiting).is_ok());
    assert_eq!(events().len(), 1);
}

#[test]
fn an_acquire_that_waits_for_a_lease_that_its_own_thread_adopted_is_logged() {
    let recorder = Recorder::begin();
    let client = Client::builder().nodes(["memory://adopted"]).build().unwrap();
    let events = || recorder.about("acquire.reentrant", "adopted").len();
    let detached = || {
        let lease = wait(client.lock("adopted").acquire()).unwrap();
        wait(lease.detach(TIMEOUT)).unwrap().into_text()
    };
    let waiting = client.lock("adopted").wait(Duration::from_millis(1500));
    let lease = wait(client.adopt(&detached()).acquire_as(None)).unwrap();
    assert!(wait(waiting.acquire()).is_err());
    assert_eq!(events(), 0, "nobody knows who adopted it");
    assert!(wait(lease.release()));

    let _lease = wait(client.adopt(&detached()).acquire()).unwrap();
    let waiting = waiting.wait_forever().acquire();
    wait_until("the wait is logged", || events() == 1);
    drop(waiting);
}

#[test]
fn leases_belong_to_the_tokio_task_that_acquired_them() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let recorder = Recorder::begin();
    let client = Client::builder().nodes(["memory://tasks"]).build().unwrap();
    let lock = client.lock("tasks");
    let events = || recorder.about("acquire.reentrant", "tasks").len();
    runtime.block_on(async {
        let own = lock.clone();
        let holder = tokio::spawn(async move { own.acquire().await.unwrap() });
        let lease = holder.await.unwrap();
        // The waiter is another task of the same thread.
        let short = lock.clone().wait(Duration::from_millis(1500));
        let waiting = tokio::spawn(async move { short.acquire().await.map(drop) });
        assert!(waiting.await.unwrap().is_err());
        assert_eq!(events(), 0);
        assert!(lease.release().await);

        let itself = tokio::spawn(async move {
            let _lease = lock.acquire().await.unwrap();
            lock.wait_forever().acquire().await.map(drop)
        });
        while events() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        itself.abort();
    });
}

#[test]
fn a_listener_whose_wake_up_fails_is_woken_by_the_next_record() {
    let woken = Arc::new(AtomicUsize::new(0));
    let works = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&woken);
    let answer = Arc::clone(&works);
    let listener = Listener::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
        match answer.load(Ordering::SeqCst) {
            0 => panic!("the wake-up of a listener panics"),
            1 => false,
            _ => true,
        }
    });
    listener.listen([0, 0, 4, 0, 0]);
    let client = Client::builder().nodes(["memory://wakes"]).build().unwrap();
    // Other tests may log events about leases at the same time. So the number of wake-ups may be larger than
    // expected, and records of other tests are filtered out.
    let acquire = || wait(client.lock("wakes").acquire()).unwrap();
    for answer in [0, 1] {
        works.store(answer, Ordering::SeqCst);
        let before = woken.load(Ordering::SeqCst);
        assert!(wait(acquire().release()));
        wait_until("the wake-up is tried again", || woken.load(Ordering::SeqCst) >= before + 2);
    }
    works.store(2, Ordering::SeqCst);
    assert!(wait(acquire().release()));
    let is_about_this = |record: &Arc<Record>| record.text.contains("wakes");
    let mut records = Vec::new();
    wait_until("all records arrive", || {
        records.extend(listener.take().into_iter().filter(is_about_this));
        records.len() == 6
    });
}

#[test]
fn a_listener_gets_only_the_records_it_asked_for() {
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&woken);
    let listener = Listener::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
        true
    });
    let client = Client::builder().nodes(["memory://wants"]).build().unwrap();
    let cycle = || assert!(wait(wait(client.lock("wants").acquire()).unwrap().release()));
    cycle();
    assert!(listener.take().is_empty());
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    let leases_only = TARGETS.map(|target| if target == "quorlock::lease" { 4 } else { 0 });
    listener.listen(leases_only);
    // Create more records than the buffer holds, without taking any.
    (0..3000).for_each(|_| cycle());
    // There is one wake-up for all records.
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
fn the_set_of_metrics_does_not_depend_on_the_counts() {
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
        "quorlock_acquire_seconds_bucket{le=\"+Inf\"} 1",
        "quorlock_acquire_seconds_count 1",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
    }
    assert!(text.contains("\nquorlock_acquire_seconds_bucket{le=\"0.00005\"} "), "{text}");
}
