//! Foreign code that panics: a tracing subscriber, a callback, a waker.

use crate::servers::Servers;
use crate::{TIMEOUT, acquire, alone, client, hold, wait, wait_until};
use quorlock::NodeState;
use serde_json::json;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The ttl is long because printing the backtrace of a panic can block a thread for a second on a loaded
/// machine.
const TTL: Duration = Duration::from_secs(6);

static EVENTS: AtomicUsize = AtomicUsize::new(0);

/// A tracing subscriber that panics on every span and event.
struct Panicking;

impl Subscriber for Panicking {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("quorlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("new_span panics")
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        panic!("record panics")
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        EVENTS.fetch_add(1, Ordering::Relaxed);
        panic!("event panics")
    }

    fn enter(&self, _: &Id) {
        panic!("enter panics")
    }

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_that_panics_harms_no_lease() {
    if !alone("panics::a_subscriber_that_panics_harms_no_lease", &[]) {
        return;
    }
    tracing::subscriber::set_global_default(Panicking).unwrap();
    let servers = Servers::start(3);
    let client = client(&servers.urls, TTL);
    let lease = acquire(&client.lock("held"));
    let state = |node: usize| client.stats().nodes[node].state;
    servers.ask(json!({ "kill": 0 }));
    wait_until("a node is down", || state(0) == NodeState::Down);
    hold(&lease, 2 * TTL);
    servers.ask(json!({ "restart": 0 }));
    wait_until("the node is connected again", || state(0) == NodeState::Up);
    assert!(wait(acquire(&client.lock("other")).release()));
    let (sender, losses) = mpsc::channel();
    lease.on_lost(move |loss| drop(sender.send(loss)));
    (0..3).for_each(|node| drop(servers.command(node, &["DEL", "held"])));
    assert!(losses.recv_timeout(TIMEOUT).is_ok());
    assert!(EVENTS.load(Ordering::Relaxed) > 5);
}

#[test]
fn a_callback_that_panics_harms_no_other_lease() {
    let servers = Servers::start(3);
    let client = client(&servers.urls, TTL);
    let short = client.lock("short").option(
        quorlock::Dialect::Rust,
        "max_hold",
        &quorlock::OptionValue::Number(TTL.as_secs_f64()),
    );
    let ends = acquire(&short);
    let taken = acquire(&client.lock("taken"));
    let kept = acquire(&client.lock("kept"));
    let called = Arc::new(AtomicUsize::new(0));
    for lease in [&ends, &taken] {
        let called = Arc::clone(&called);
        lease.on_lost(move |_| {
            called.fetch_add(1, Ordering::SeqCst);
            panic!("a callback panics");
        });
    }
    let mut lost = ends.lost();
    // The renewal that `taken` shares with `kept` detects the loss of `taken`. The local clock detects the other loss.
    (0..3).for_each(|node| drop(servers.command(node, &["DEL", "taken"])));
    wait_until("both are lost", || called.load(Ordering::SeqCst) == 2);
    // Other watchers of the same lease learn of the loss too.
    assert!(lost.block_for(TIMEOUT).unwrap().is_some());
    hold(&kept, 2 * TTL);
    let mut lost = kept.lost();
    (0..3).for_each(|node| drop(servers.command(node, &["DEL", "kept"])));
    assert!(lost.block_for(TIMEOUT).unwrap().is_some());
}

struct PanickingWaker(AtomicUsize);

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker panics");
    }
}

#[test]
fn a_waker_that_panics_harms_no_other_lease() {
    let servers = Servers::start(3);
    let client = client(&servers.urls, TTL);
    let taken = acquire(&client.lock("taken"));
    let kept = acquire(&client.lock("kept"));
    let waker = Arc::new(PanickingWaker(AtomicUsize::new(0)));
    let mut lost = pin!(taken.lost());
    let polled = lost.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waker))));
    assert!(polled.is_pending());
    (0..3).for_each(|node| drop(servers.command(node, &["DEL", "taken"])));
    wait_until("the waker is called", || waker.0.load(Ordering::SeqCst) == 1);
    hold(&kept, 2 * TTL);
    assert!(wait(kept.release()));
}
