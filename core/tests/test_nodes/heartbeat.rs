//! `heartbeat_timeout`: a lease whose holder hangs is not renewed.

use crate::{MINUTE, TTL, acquire, advance, client, done, turn};
use quorlock::{Client, Error, ErrorCode, Lease, TestNodes};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Longer than the ttl, so that the lease is renewed several times before the timeout has passed.
const TIMEOUT: Duration = Duration::from_secs(3_600);

fn holder(client: &Client) -> Lease {
    done(client.lock("r").heartbeat_timeout(TIMEOUT).acquire()).unwrap()
}

fn assert_silent(error: &Error) {
    assert_eq!((error.code(), error.reason()), (ErrorCode::LeaseLost, Some("no_heartbeat")));
    assert!(error.message().contains("no heartbeat for 1 h"), "{error}");
}

#[test]
fn holder_that_hangs_loses_its_lock_after_the_timeout_and_a_ttl() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let lease = holder(&client);
    let lost = lease.lost();
    advance(&nodes, TIMEOUT - MINUTE);
    assert!(lease.is_valid(), "the acquire was the first heartbeat");
    let waiting = client.lock("r").wait(2 * TTL).acquire();
    advance(&nodes, TTL + MINUTE);
    assert_silent(&done(lost).unwrap());
    let next = done(waiting).unwrap();
    assert!(next.fence() > lease.fence());
    assert_silent(&lease.heartbeat().unwrap_err());
    assert_silent(&lease.check().unwrap_err());
    assert_silent(&done(lease.extend(None)).unwrap_err());
    assert!(!lease.is_valid() && !done(lease.release()) && next.is_valid());
    let stats = client.stats();
    assert_eq!((stats.losses, stats.no_heartbeat), (1, 1));
}

#[test]
fn each_form_of_a_heartbeat_keeps_the_lease() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let lease = holder(&client);
    let forms: [&dyn Fn(); 4] = [
        &|| lease.heartbeat().unwrap(),
        &|| lease.check().unwrap(),
        &|| done(lease.extend(None)).unwrap(),
        &|| std::thread::scope(|scope| scope.spawn(|| lease.heartbeat().unwrap()).join().unwrap()),
    ];
    for beat in forms.iter().cycle().take(12) {
        advance(&nodes, TIMEOUT - MINUTE);
        beat();
    }
    assert!(lease.is_valid());
    // Reading the lease is no heartbeat.
    advance(&nodes, TIMEOUT - MINUTE);
    assert!(lease.is_valid() && !lease.remaining().is_zero());
    advance(&nodes, TTL + MINUTE);
    assert!(!lease.is_valid());
}

#[test]
fn heartbeat_after_the_timeout_renews_at_once() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let lease = holder(&client);
    // Each renewal is due a third of the ttl after the one before, so here the last renewal is at most that old.
    advance(&nodes, TIMEOUT + TTL / 2);
    assert!(lease.is_valid() && lease.remaining() < TTL / 2);
    lease.heartbeat().unwrap();
    advance(&nodes, Duration::from_secs(1));
    assert!(lease.remaining() > TTL * 9 / 10, "{:?}", lease.remaining());
    advance(&nodes, TIMEOUT - MINUTE);
    assert!(lease.is_valid());
}

#[test]
fn suspended_holder_is_told_that_its_lease_has_expired() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let lease = holder(&client);
    let lost = lease.lost();
    // Nothing runs meanwhile, so it was not for lack of a heartbeat that nothing renewed the lease.
    done(nodes.suspend(2 * TIMEOUT)).unwrap();
    let error = done(lost).unwrap();
    assert_eq!(error.reason(), Some("expired"), "{error}");
    assert_eq!(lease.heartbeat().unwrap_err().reason(), Some("expired"));
    assert_eq!(client.stats().no_heartbeat, 0);
    assert!(acquire(&client).unwrap().fence() > lease.fence());
}

#[test]
fn every_kind_of_lease_has_the_timeout() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let candidate = client.elect("leader").heartbeat_timeout(TIMEOUT);
    let leader = done(candidate.next()).unwrap();
    let following = candidate.next();
    let permit = done(client.semaphore("s", 1).heartbeat_timeout(TIMEOUT).acquire()).unwrap();
    let shared = client.lock("shared").shared().heartbeat_timeout(TIMEOUT).acquire();
    let reader = done(shared).unwrap();
    let upgraded = done(reader.try_upgrade()).unwrap().unwrap();
    let detached = done(acquire(&client).unwrap().detach(TTL)).unwrap();
    let adopting = client.adopt(&detached.into_text()).heartbeat_timeout(TIMEOUT).acquire();
    let adopted = done(adopting).unwrap();
    let unlimited = done(client.lock("unlimited").acquire()).unwrap();
    let all = [leader, permit, upgraded, adopted];
    advance(&nodes, TIMEOUT + TTL);
    for lease in &all {
        assert_silent(&lease.check().unwrap_err());
    }
    assert!(unlimited.is_valid(), "this option is off by default");
    assert!(done(following).unwrap().is_valid(), "another candidate leads");
}

#[test]
fn client_has_a_default_that_a_lock_can_switch_off() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    let builder = Client::builder().nodes(nodes.urls()).ttl(TTL).unlimited_hold();
    let client = builder.heartbeat_timeout(TIMEOUT).build().unwrap();
    let [silent, kept] =
        [client.lock("silent"), client.lock("kept").heartbeat_timeout(Duration::ZERO)]
            .map(|lock| done(lock.acquire()).unwrap());
    advance(&nodes, TIMEOUT + TTL);
    assert!(!silent.is_valid() && kept.is_valid());
    let error = client.lock("r").heartbeat_timeout(Duration::from_millis(9)).checked().unwrap_err();
    assert!(error.message().contains("heartbeat_timeout must be a duration from 10 ms to 24 h"));
}

/// A tracing subscriber that sends a heartbeat for a lease while the renewer reports that there was none.
struct LastMoment;

static LATE: Mutex<Option<Arc<Lease>>> = Mutex::new(None);

impl Subscriber for LastMoment {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "lease.silent"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let late = LATE.lock().unwrap().clone();
        if let Some(lease) = late {
            lease.heartbeat().unwrap();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn heartbeat_while_renewal_stops_is_not_overlooked() {
    let _turn = turn();
    tracing::subscriber::set_global_default(LastMoment).unwrap();
    let nodes = TestNodes::new(3).unwrap();
    let client = client(&nodes);
    let lock = client.lock("r").heartbeat_timeout(TTL / 6);
    let lease = Arc::new(done(lock.acquire()).unwrap());
    *LATE.lock().unwrap() = Some(Arc::clone(&lease));
    // When the renewer runs again, it warns the holder and stops renewal at the same time.
    done(nodes.suspend(TTL / 4)).unwrap();
    for _ in 0..20 {
        advance(&nodes, TTL / 12);
        lease.heartbeat().unwrap();
    }
    *LATE.lock().unwrap() = None;
    assert!(lease.remaining() > TTL / 2, "{:?}", lease.remaining());
}
