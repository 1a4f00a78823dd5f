#![allow(clippy::unwrap_used, reason = "tests")]

use super::FanOut;
use crate::error::NodeOutcome;
use crate::node::exchange::{Done, PackedRequest, Peer, ReplySink, Route};
use crate::runtime::clock;
use crate::transport::connection::Receive;
use crate::transport::handshake::failure;
use crate::wire::answer::{Answered, Failure, vote};
use crate::wire::batch::Batchable;
use crate::wire::keys::Keys;
use crate::wire::reply::Reply;
use crate::wire::request::{Request, Subject};
use futures_util::future::{BoxFuture, FutureExt};
use quorlock_protocol::{Turns, Vote};
use redis::{RedisError, Value};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const GRANTED: Reply = Reply::Granted { fence: 1, clock: 1 };

fn turns() -> Turns {
    Turns { call: PATIENCE, reserve: PATIENCE, memory: PATIENCE }
}

fn subject() -> Arc<Subject> {
    let keys = [Keys::new("", "r")].into();
    Arc::new(Subject::new(keys, "token".into(), None))
}

fn acquire() -> Request {
    let subject = subject();
    let turns = turns();
    Request::Acquire { subject, ttl: PATIENCE, proposal: 1, ticket: None, turns }
}

fn release() -> Request {
    Request::release(&subject(), turns())
}

/// A connection that only collects the sinks of requests that are sent again outside of a batch.
#[derive(Default)]
struct Connection {
    alone: Mutex<Vec<ReplySink>>,
    refusals: Mutex<Vec<RedisError>>,
}

impl Route for Connection {
    fn refused(self: Arc<Self>, _: &Arc<Request>, error: &RedisError, sink: ReplySink) {
        sink.answer(Err(failure(error, true)));
    }

    fn send_alone(self: Arc<Self>, _: &Arc<Request>, refusal: Option<RedisError>, sink: ReplySink) {
        self.refusals.lock().unwrap().extend(refusal);
        assert!(sink.mark_sent(Arc::<Self>::clone(&self)));
        self.alone.lock().unwrap().push(sink);
    }
}

/// A node that collects the sinks of the requests sent to it.
#[derive(Default)]
struct Node {
    connection: Mutex<Option<Arc<Connection>>>,
    sinks: Mutex<Vec<ReplySink>>,
}

impl Node {
    fn connected() -> Arc<Self> {
        Arc::new(Self { connection: Mutex::new(Some(Arc::default())), ..Self::default() })
    }

    /// Returns the node's connection, which must be open.
    fn open(&self) -> Arc<Connection> {
        self.connection.lock().unwrap().clone().unwrap()
    }

    fn close(&self) {
        *self.connection.lock().unwrap() = None;
    }
}

impl Peer for Node {
    fn position(&self) -> usize {
        0
    }

    fn send(self: Arc<Self>, _: &PackedRequest, sink: ReplySink) -> Option<BoxFuture<'static, ()>> {
        self.sinks.lock().unwrap().push(sink);
        None
    }

    fn answered(self: Arc<Self>, done: Done<'_>) -> Answered {
        done.answered
    }

    fn uses(&self, route: &Weak<dyn Route>) -> bool {
        let connection = self.connection.lock().unwrap();
        connection.as_ref().is_some_and(|open| std::ptr::addr_eq(Arc::as_ptr(open), route.as_ptr()))
    }

    fn send_again(
        self: Arc<Self>,
        _: Option<Weak<dyn Route>>,
        request: Arc<Request>,
        sink: ReplySink,
    ) {
        self.send(&PackedRequest::from(request), sink);
    }
}

fn sink(fan_out: &mut FanOut, node: &Arc<Node>, request: Request) -> ReplySink {
    fan_out.send(node, &PackedRequest::from(request));
    node.sinks.lock().unwrap().pop().unwrap()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

#[test]
fn request_that_may_create_keys_keeps_its_connection_until_answered() {
    enum End {
        Answer,
        LoseSink,
        DropFanOut,
    }
    for end in [End::Answer, End::LoseSink, End::DropFanOut] {
        let node = Node::connected();
        let link = Arc::downgrade(&node.open());
        run(async {
            let mut fan_out =
                FanOut::new(&Arc::default(), clock::now(), Duration::from_millis(1), 2);
            let created = sink(&mut fan_out, &node, acquire());
            let released = sink(&mut fan_out, &node, release());
            assert!(created.mark_sent(node.open()) && released.mark_sent(node.open()));
            for _ in 0..2 {
                let received = fan_out.received().await.unwrap();
                assert_eq!(received.answered.unwrap_err().outcome, NodeOutcome::Timeout);
                assert!(!received.in_order);
            }
            assert!(fan_out.received().await.is_none() && fan_out.has_late());
            // The node now uses another connection, or none.
            node.close();
            assert!(link.strong_count() > 0, "it was closed before the answer");
            assert!(fan_out.late().now_or_never().is_none());
            released.answer(Ok(Reply::Yes));
            assert!(
                fan_out.late().now_or_never().is_none(),
                "only what creates keys is of interest"
            );
            match end {
                End::Answer => {
                    created.answer(Ok(GRANTED));
                    let late = fan_out.late().await.expect("it was answered");
                    assert_eq!((late.0, late.1.unwrap()), (0, GRANTED));
                    assert!(fan_out.late().await.is_none() && !fan_out.has_late());
                }
                End::LoseSink => {
                    drop(created);
                    assert!(fan_out.late().await.is_none());
                }
                End::DropFanOut => drop(fan_out),
            }
            assert_eq!(link.strong_count(), 0, "nothing needs the connection any more");
        });
    }
}

#[test]
fn answer_is_in_order_if_the_request_was_sent_once_on_the_connection_in_use() {
    run(async {
        for (sent, is_replaced, in_order) in [(1, false, true), (2, false, false), (1, true, false)]
        {
            let node = Node::connected();
            let mut fan_out = FanOut::new(&Arc::default(), clock::now(), PATIENCE, 1);
            let sink = sink(&mut fan_out, &node, acquire());
            (0..sent).for_each(|_| assert!(sink.mark_sent(node.open())));
            if is_replaced {
                node.close();
            }
            sink.answer(Ok(GRANTED));
            assert_eq!(fan_out.received().await.unwrap().in_order, in_order);
        }
    });
}

#[test]
fn request_that_found_no_room_counts_as_unsent() {
    let node = Node::connected();
    run(async {
        let mut fan_out = FanOut::new(&Arc::default(), clock::now(), Duration::from_millis(1), 1);
        let sink = sink(&mut fan_out, &node, acquire());
        assert!(sink.mark_sent(node.open()));
        sink.mark_unsent();
        let failure = fan_out.received().await.unwrap().answered.unwrap_err();
        assert!(!failure.sent && !fan_out.has_late());
    });
}

#[test]
fn request_is_not_sent_after_the_deadline_if_the_fan_out_is_polled_late() {
    let node = Node::connected();
    run(async {
        let mut fan_out = FanOut::new(&Arc::default(), clock::now(), Duration::ZERO, 1);
        let sink = sink(&mut fan_out, &node, acquire());
        let is_sent = Arc::new(AtomicBool::new(false));
        let sent = Arc::clone(&is_sent);
        fan_out.unsent.get_or_insert_default().push(
            async move {
                let _sink = sink;
                sent.store(true, Ordering::Relaxed);
            }
            .boxed(),
        );
        let received = fan_out.received().await.unwrap();
        assert_eq!(received.answered.unwrap_err().outcome, NodeOutcome::Timeout);
        assert!(!is_sent.load(Ordering::Relaxed));
    });
}

#[test]
fn request_whose_connection_was_closed_is_sent_once_more_if_it_may_be_applied_twice() {
    let failure = || Failure { sent: true, ..Failure::silent() };
    run(async {
        for (request, is_repeated) in
            [(release(), true), (Request::Exists([].into()), true), (acquire(), false)]
        {
            let node = Node::connected();
            let mut fan_out = FanOut::new(&Arc::default(), clock::now(), PATIENCE, 1);
            let first = sink(&mut fan_out, &node, request);
            assert!(first.mark_sent(node.open()));
            first.lost(failure());
            let second = node.sinks.lock().unwrap().pop();
            assert_eq!(second.is_some(), is_repeated);
            if let Some(second) = second {
                assert!(second.mark_sent(node.open()));
                second.lost(failure());
                assert!(node.sinks.lock().unwrap().is_empty(), "it was sent a third time");
            }
            let received = fan_out.received().await.unwrap();
            assert_eq!(received.answered.unwrap_err().outcome, NodeOutcome::Disconnected);
            assert!(received.is_repeated == is_repeated && !(received.in_order && is_repeated));
        }
    });
}

/// A silent connection was replaced. The node may still apply an ACQUIRE that was sent on the old connection.
#[test]
fn request_that_was_given_up_ends_at_once_and_may_be_answered_late() {
    run(async {
        let node = Node::connected();
        let mut fan_out = FanOut::new(&Arc::default(), clock::now(), PATIENCE, 2);
        let created = sink(&mut fan_out, &node, acquire());
        let released = sink(&mut fan_out, &node, release());
        assert!(created.mark_sent(node.open()) && released.mark_sent(node.open()));
        assert!(fan_out.received().now_or_never().is_none());
        assert!(released.give_up().is_none(), "a RELEASE fails instead");
        let waker = created.give_up().expect("an ACQUIRE is given up");
        assert!(waker.is_some(), "the fan-out is not woken");
        let received = fan_out.received().await.unwrap();
        assert_eq!(received.answered.unwrap_err().outcome, NodeOutcome::Disconnected);
        assert!(fan_out.has_late());
        created.answer(Ok(GRANTED));
        assert_eq!(fan_out.late().await.unwrap().1.unwrap(), GRANTED);
    });
}

/// A request of a batch, with its sink.
fn item(request: Request, sink: Option<ReplySink>) -> (Batchable, Option<ReplySink>) {
    (Batchable::new(&Arc::new(request), false).unwrap(), sink)
}

fn parts(parts: &[i64]) -> Result<Value, RedisError> {
    Ok(Value::Array(parts.iter().copied().map(Value::Int).collect()))
}

#[test]
fn batch_replies_reach_their_requests_and_left_out_requests_are_sent_alone() {
    run(async {
        let node = Node::connected();
        let mut fan_out = FanOut::new(&Arc::default(), clock::now(), PATIENCE, 4);
        let mut sent = |request: Request| {
            let sink = sink(&mut fan_out, &node, request.clone());
            assert!(sink.mark_sent(node.open()));
            item(request, Some(sink))
        };
        let given_up = item(release(), None);
        let batch = vec![sent(release()), given_up, sent(release()), sent(acquire())];
        assert!(ReplySink::receive_batch(batch, parts(&[0, 1, -1, 1])).is_empty());
        let first = fan_out.received().await.unwrap();
        assert!(first.in_order);
        assert_eq!(first.answered.unwrap(), Reply::No);
        assert_eq!(fan_out.received().await.unwrap().answered.unwrap(), GRANTED);
        let alone = node.open().alone.lock().unwrap().pop().unwrap();
        alone.receive(Ok(Value::Int(1)));
        let last = fan_out.received().await.unwrap();
        assert!(!last.in_order, "a later request may have overtaken it");
        assert_eq!(last.answered.unwrap(), Reply::Yes);
    });
}

#[test]
fn only_a_request_that_has_to_queue_is_sent_alone_after_a_refusal() {
    run(async {
        let refusal =
            [0, 9, 1, -1].map(Value::Int).into_iter().chain([Value::BulkString(Vec::new())]);
        let refusal = Value::Array(vec![Value::Array(refusal.collect())]);
        for queues in [false, true] {
            let node = Node::connected();
            let mut fan_out = FanOut::new(&Arc::default(), clock::now(), PATIENCE, 1);
            let Request::Acquire { subject, ttl, proposal, turns, .. } = acquire() else {
                unreachable!()
            };
            let ticket = queues.then_some(4);
            let request = Request::Acquire { subject, ttl, proposal, ticket, turns };
            let sink = sink(&mut fan_out, &node, request.clone());
            assert!(sink.mark_sent(node.open()));
            let batch = vec![item(request, Some(sink))];
            assert!(ReplySink::receive_batch(batch, Ok(refusal.clone())).is_empty());
            assert_eq!(node.open().alone.lock().unwrap().len(), usize::from(queues));
            if !queues {
                let answered = fan_out.received().await.unwrap().answered;
                assert!(matches!(answered, Ok(Reply::Held(_))), "{answered:?}");
            }
        }
    });
}

#[test]
fn a_refused_batch_is_sent_alone_unless_the_error_concerns_the_guard() {
    run(async {
        for (reply, is_alone) in [
            (&b"-NOSCRIPT unknown\r\n"[..], true),
            (b"-NOPERM denied\r\n", true),
            (b"-LOADING the data\r\n", false),
            (b"*2\r\n:1\r\n:1\r\n", false),
        ] {
            let node = Node::connected();
            let mut fan_out = FanOut::new(&Arc::default(), clock::now(), PATIENCE, 3);
            let mut sent = || {
                let sink = sink(&mut fan_out, &node, acquire());
                assert!(sink.mark_sent(node.open()));
                item(acquire(), Some(sink))
            };
            let batch = vec![sent(), sent(), sent()];
            let value = redis::parse_redis_value(reply).unwrap();
            assert!(ReplySink::receive_batch(batch, Ok(value)).is_empty());
            let alone = node.open().alone.lock().unwrap().len();
            let refusals = node.open().refusals.lock().unwrap().len();
            assert_eq!((alone, refusals), if is_alone { (3, 1) } else { (0, 0) });
            if !is_alone {
                let failure = fan_out.received().await.unwrap().answered.unwrap_err();
                assert!(failure.is_nonsense() || failure.outcome == NodeOutcome::Loading);
            }
        }
    });
}

#[test]
fn after_its_deadline_a_left_out_release_is_sent_again_and_a_left_out_acquire_is_not() {
    run(async {
        for request in [acquire(), release()] {
            let node = Node::connected();
            let mut fan_out =
                FanOut::new(&Arc::default(), clock::now(), Duration::from_millis(1), 1);
            let sink = sink(&mut fan_out, &node, request.clone());
            assert!(sink.mark_sent(node.open()));
            assert!(fan_out.received().await.unwrap().answered.is_err());
            let creates = request.creates();
            let next = ReplySink::receive_batch(vec![item(request, Some(sink))], parts(&[-1]));
            assert_eq!(next.len(), usize::from(!creates));
            assert!(node.open().alone.lock().unwrap().is_empty());
            if creates {
                let (_, late) = fan_out.late().await.unwrap();
                assert_eq!(vote(&late), Vote::Refused, "the node has done nothing");
            }
        }
    });
}
