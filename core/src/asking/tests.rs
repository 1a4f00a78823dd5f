#![allow(clippy::unwrap_used, reason = "tests")]

use super::{Asking, Parcel, Sink};
use crate::clock;
use crate::deadline::Deadlines;
use crate::endpoint::Endpoint;
use crate::error::NodeOutcome;
use crate::identities::Identities;
use crate::node::{Link, Node};
use crate::node_clocks::Clocks;
use crate::options::Options;
use crate::protocol::Turns;
use crate::request::{Keys, Reply, Request, Subject};
use futures_util::future::FutureExt;
use std::sync::{Arc, Weak};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const GRANTED: Reply = Reply::Granted { fence: 1, clock: 1 };

fn acquire(resource: &str) -> Request {
    let keys = [Keys::new("", resource)].into();
    let subject = Arc::new(Subject { keys, token: "token".to_owned(), waiter: None });
    let turns = Turns { call: PATIENCE, keep: PATIENCE, memory: PATIENCE };
    Request::Acquire { subject, ttl: PATIENCE, proposal: 1, ticket: None, turns }
}

/// A request that was given up is taken back. If it was under way to another server by then (a cluster's
/// server said that this one has the slot), it must not come after what takes it back.
#[test]
fn what_nobody_waits_for_is_not_sent() {
    let endpoint = Endpoint::parse(1, "memory://given-up").unwrap();
    let identities = Identities::new(vec![endpoint.address.clone()]);
    let deadlines: Arc<Deadlines> = Arc::default();
    let clocks = Arc::new(Clocks::new(1));
    let node = Node::new(endpoint, 0, &Options::default(), &identities, &deadlines, &clocks);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert!(node.settled().await);
        let has = async |resource| {
            let keys = [Keys::new("", resource)].into();
            node.call(Request::Look(keys), clock::now(), PATIENCE).await.unwrap() == Reply::Yes
        };
        for resource in ["awaited", "given up"] {
            let request = Arc::new(acquire(resource));
            let asking = Asking::new(&deadlines, clock::now(), PATIENCE, 1);
            let entry = asking.board.add(Arc::clone(&node), Arc::clone(&request));
            let sink = Sink::new(&asking.board, entry);
            let asking = Some(asking).filter(|_| resource == "awaited");
            assert!(node.send(&Parcel::from(request), sink).is_none());
            assert_eq!(has(resource).await, asking.is_some(), "{resource}");
        }
    });
}

/// A runtime, and a memory node with its connection.
fn connected(name: &str) -> (tokio::runtime::Runtime, Arc<Deadlines>, Arc<Node>, Weak<Link>) {
    let endpoint = Endpoint::parse(1, &format!("memory://{name}")).unwrap();
    let identities = Identities::new(vec![endpoint.address.clone()]);
    let deadlines: Arc<Deadlines> = Arc::default();
    let node = Node::new(
        endpoint,
        0,
        &Options::default(),
        &identities,
        &deadlines,
        &Arc::new(Clocks::new(1)),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let link = runtime.block_on(async {
        assert!(node.settled().await);
        let asking = Asking::new(&deadlines, clock::now(), PATIENCE, 1);
        let sink = sink(&asking, &node, acquire("any"));
        assert!(node.send(&Parcel::from(acquire("any")), sink).is_none());
        asking.board.lock().entries[0].link.clone()
    });
    assert!(link.strong_count() > 0);
    (runtime, deadlines, node, link)
}

fn sink(asking: &Asking, node: &Arc<Node>, request: Request) -> Sink {
    let entry = asking.board.add(Arc::clone(node), Arc::new(request));
    Sink::new(&asking.board, entry)
}

fn release() -> Request {
    let keys = [Keys::new("", "r")].into();
    let subject = Arc::new(Subject { keys, token: "token".to_owned(), waiter: None });
    Request::release(&subject, Turns { call: PATIENCE, keep: PATIENCE, memory: PATIENCE })
}

#[test]
fn request_that_may_create_keys_keeps_its_connection_until_it_is_answered() {
    enum End {
        Answer,
        LoseSink,
        DropAsking,
    }
    for end in [End::Answer, End::LoseSink, End::DropAsking] {
        let (runtime, deadlines, node, link) = connected("late");
        runtime.block_on(async {
            let mut asking = Asking::new(&deadlines, clock::now(), Duration::from_millis(1), 2);
            let created = sink(&asking, &node, acquire("r"));
            let released = sink(&asking, &node, release());
            let open = link.upgrade().unwrap();
            assert!(created.goes_on(&open) && released.goes_on(&open));
            drop(open);
            for _ in 0..2 {
                let told = asking.told().await.unwrap();
                assert_eq!(told.answered.unwrap_err().outcome, NodeOutcome::Timeout);
                assert!(!told.in_order);
            }
            assert!(asking.told().await.is_none() && asking.has_late());
            // The node uses another connection now, or none.
            node.close();
            assert!(link.strong_count() > 0, "it was closed before the answer");
            assert!(asking.late().now_or_never().is_none());
            released.answer(Ok(Reply::Yes));
            assert!(
                asking.late().now_or_never().is_none(),
                "only what creates keys is of interest"
            );
            match end {
                End::Answer => {
                    created.answer(Ok(GRANTED));
                    let late = asking.late().await.expect("it was answered");
                    assert_eq!((late.0, late.1.unwrap()), (0, GRANTED));
                    assert!(asking.late().await.is_none() && !asking.has_late());
                }
                End::LoseSink => {
                    drop(created);
                    assert!(asking.late().await.is_none());
                }
                End::DropAsking => drop(asking),
            }
            assert_eq!(link.strong_count(), 0, "nobody needs it any more");
        });
    }
}

#[test]
fn answer_is_in_order_if_the_request_was_sent_once_on_the_connection_in_use() {
    let (runtime, deadlines, node, link) = connected("in-order");
    runtime.block_on(async {
        let open = link.upgrade().unwrap();
        for (sent, is_replaced, in_order) in [(1, false, true), (2, false, false), (1, true, false)]
        {
            let mut asking = Asking::new(&deadlines, clock::now(), PATIENCE, 1);
            let sink = sink(&asking, &node, acquire("r"));
            (0..sent).for_each(|_| assert!(sink.goes_on(&open)));
            if is_replaced {
                node.close();
            }
            sink.answer(Ok(GRANTED));
            assert_eq!(asking.told().await.unwrap().in_order, in_order);
        }
    });
}

/// What could not be put on a connection was not sent there.
#[test]
fn request_that_found_no_room_was_not_sent() {
    let (runtime, deadlines, node, link) = connected("full");
    runtime.block_on(async {
        let mut asking = Asking::new(&deadlines, clock::now(), Duration::from_millis(1), 1);
        let sink = sink(&asking, &node, acquire("r"));
        assert!(sink.goes_on(&link.upgrade().unwrap()));
        sink.comes_back();
        let failure = asking.told().await.unwrap().answered.unwrap_err();
        assert!(!failure.sent && !asking.has_late());
    });
}
