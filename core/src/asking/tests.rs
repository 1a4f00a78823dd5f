#![allow(clippy::unwrap_used, reason = "tests")]

use super::{Asking, Parcel, Sink};
use crate::clock;
use crate::deadline::Deadlines;
use crate::endpoint::Endpoint;
use crate::identities::Identities;
use crate::node::Node;
use crate::options::Options;
use crate::protocol::Turns;
use crate::request::{Keys, Reply, Request, Subject};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

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
    let node = Node::new(endpoint, 0, &Options::default(), &identities, &deadlines);
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
            let sink = Sink { board: Arc::clone(&asking.board), entry, hops: 0 };
            let asking = Some(asking).filter(|_| resource == "awaited");
            assert!(node.send(&Parcel::from(request), sink).is_none());
            assert_eq!(has(resource).await, asking.is_some(), "{resource}");
        }
    });
}
