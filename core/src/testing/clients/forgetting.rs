//! Tests that in-memory nodes keep nothing for names that are no longer used.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::Client;
use crate::memory::entries::NodeMemory;
use crate::memory::node::MemoryNode;
use crate::wire::keys::Keys;
use crate::wire::request::{Request, Subject};
use quorlock_protocol::node::entry::Time;
use quorlock_protocol::{Moment, Turns};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn questions_about_unknown_names_leave_nothing_on_an_in_memory_node() {
    let client = Client::builder().nodes(["memory://asked"]).build().unwrap();
    let node = MemoryNode::named("asked");
    for number in 0..100 {
        let name = format!("r{number}");
        client.status(name.as_str()).block_for(PATIENCE).unwrap().unwrap();
        client.lock(name.as_str()).locked().block_for(PATIENCE).unwrap().unwrap();
        let semaphore = client.semaphore(name.as_str(), 3);
        semaphore.status().block_for(PATIENCE).unwrap().unwrap();
    }
    assert_eq!(node.size(), 0);
}

#[test]
fn in_memory_node_forgets_what_a_server_forgets() {
    let mut node = NodeMemory::default();
    let at = |seconds: u64| Time {
        now: Moment::from_origin(Duration::from_secs(seconds)),
        wall: 1_795_298_783_000_000 + seconds * 1_000_000,
    };
    let acquire = |number: u64, ticket| {
        let keys = match number % 3 {
            0 => Keys::new("", &format!("r{number}")),
            1 => Keys::new("", &format!("r{number}")).shared(),
            _ => Keys::permit("", &format!("r{number}"), 0, 3),
        };
        let waiter = Some("channel#1".into());
        let token = format!("{number:040x}").into();
        let subject = Arc::new(Subject::new([keys].into(), token, waiter));
        let ttl = Duration::from_secs(10);
        Request::Acquire { subject, ttl, proposal: 1, ticket, turns: Turns::default() }
    };
    for number in 0..20_000 {
        // A lock or permit is granted for each name. For some names, the same token sends ACQUIRE again, with a ticket.
        let time = at(number / 10);
        node.answer(time, &acquire(number, None)).unwrap();
        if number % 7 == 0 {
            let other = acquire(number, Some(time.wall));
            node.answer(time, &other).unwrap();
        }
        assert!(node.size() < 5_000, "{} after {number}", node.size());
    }
}
