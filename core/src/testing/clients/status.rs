//! Tests of `Client::status`, `force_release` and `forget`.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::error::NodeOutcome;
use crate::wire::token::Token;
use crate::{Client, ErrorCode, NodeStatus, State, Status};
use quorlock_protocol::Quorum;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn node(outcome: NodeOutcome, token: Option<&str>, left: Option<u64>) -> NodeStatus {
    NodeStatus {
        address: "memory://a".to_owned(),
        outcome,
        detail: String::new(),
        readers: Vec::new(),
        holder: None,
        token: token.map(|token| Token::from(token).shown()),
        value: token.map(Token::from),
        expires_in_ms: left,
        fence: Some(7),
        waiters: Some(1),
    }
}

/// Returns the status of a resource on some nodes. `nodes` has one letter for each node: `-` if the resource is free on
/// that node, `?` if the node does not answer, `!` if the node stores a value that is not a string, and otherwise the
/// token that the node stores.
fn status(nodes: &str) -> Status {
    let quorum = Quorum::over(nodes.len()).unwrap();
    let node = |(at, letter): (usize, char)| {
        let left = Some(100 * (at as u64 + 1));
        match letter {
            '-' => node(NodeOutcome::Missing, None, None),
            '?' => node(NodeOutcome::Timeout, None, None),
            '!' => node(NodeOutcome::Held, None, None),
            token => node(NodeOutcome::Held, Some(&token.to_string()), left),
        }
    };
    Status::of("r", quorum, 1_000_000, nodes.chars().enumerate().map(node).collect())
}

#[test]
fn status_combines_the_answers_of_the_nodes() {
    use State::{Contested, Free, Held, Unknown};
    let expected = [
        ("---", Free, None, None),
        ("--a", Free, None, None),
        ("--?", Free, None, None),
        ("-??", Unknown, None, None),
        ("???", Unknown, None, None),
        ("-a?", Unknown, None, Some(200)),
        ("aaa", Held, Some("a"), Some(200)),
        ("aa-", Held, Some("a"), Some(100)),
        ("aa?", Held, Some("a"), Some(200)),
        ("aab", Held, Some("a"), Some(200)),
        ("ab-", Contested, None, Some(100)),
        ("ab?", Contested, None, Some(200)),
        ("abc", Contested, None, Some(200)),
        ("!!-", Held, None, None),
        ("!a?", Contested, None, None),
        ("a-", Contested, None, Some(100)),
        ("a", Held, Some("a"), Some(100)),
        ("-", Free, None, None),
    ];
    for (nodes, state, token, left) in expected {
        let status = status(nodes);
        let reported = (status.state, status.token.as_deref(), status.expires_in_ms);
        assert_eq!(reported, (state, token, left), "{nodes}");
    }
}

#[test]
fn status_names_the_holder_and_tells_since_when() {
    const DIGITS: &str = "0123456789abcdef0123456789abcdef01234567";
    let now = 1_000_000;
    let window = 2_000_000;
    let status = |value: &str, fence: u64| {
        let node = |_| NodeStatus {
            fence: Some(fence),
            ..node(NodeOutcome::Held, Some(value), Some(1_000))
        };
        Status::of("r", Quorum::over(3).unwrap(), now, (0..3).map(node).collect())
    };
    let own = format!("{DIGITS};web-7:4121");
    let held = status(&own, 999_500);
    assert_eq!((held.holder.as_deref(), held.since_ms), (Some("web-7:4121"), Some(999)));
    // The clocks of the nodes differ a little, but `since_ms` is never later than now.
    assert_eq!(status(&own, now + window).since_ms, Some(1_000));
    assert_eq!(status(&own, now + window + 1).since_ms, None, "the counter was ahead");
    // Tokens of earlier versions contain no holder name, and other libraries do not raise the fence.
    let nameless = status(DIGITS, 999_500);
    assert_eq!((nameless.holder, nameless.since_ms), (None, Some(999)));
    let foreign = status("another program", 999_500);
    assert_eq!((foreign.holder, foreign.since_ms), (None, None));
    for hidden in [format!("{held:?}"), held.to_json()] {
        assert!(hidden.contains("01234567") && !hidden.contains(&DIGITS[..9]), "{hidden}");
    }
}

#[test]
fn force_release_deletes_only_the_token_that_was_seen() {
    let urls = ["memory://status-1", "memory://status-2", "memory://status-3"];
    // The ttl is long, because other tests advance the clock of this process.
    let client = Client::builder().nodes(urls).ttl(60 * PATIENCE).build().unwrap();
    let status = || client.status("r").block_for(PATIENCE).unwrap().unwrap();
    let free = status();
    assert_eq!((free.state, free.fence, free.waiters), (State::Free, None, 0));

    let lease = client.lock("r").acquire().block_for(PATIENCE).unwrap().unwrap();
    let held = status();
    assert_eq!(held.state, State::Held);
    assert_eq!(held.token.as_deref(), lease.token().get(..8));
    assert_eq!(held.holder.as_deref(), Some(lease.holder()));
    assert_eq!(held.fence, Some(lease.fence()));
    assert!(held.expires_in_ms.is_some_and(|left| left <= 3_600_000));

    // The resource is free in this status, so `force_release` releases nothing.
    let released = client.force_release(&free).block_for(PATIENCE).unwrap().unwrap();
    assert!(released.iter().all(|node| node.outcome == NodeOutcome::Missing));
    assert_eq!(status().state, State::Held);
    let forgotten = client.forget("r").block_for(PATIENCE).unwrap().unwrap();
    assert!(forgotten.iter().all(|node| node.outcome == NodeOutcome::Missing));

    let released = client.force_release(&held).block_for(PATIENCE).unwrap().unwrap();
    assert!(released.iter().all(|node| node.outcome == NodeOutcome::Confirmed));
    assert_eq!((status().state, status().fence), (State::Free, held.fence));
    let error = lease.extend(None).block_for(PATIENCE).unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::LeaseLost);
    assert!(lease.lost().block_for(PATIENCE).unwrap().is_some());

    let forgotten = client.forget("r").block_for(PATIENCE).unwrap().unwrap();
    assert!(forgotten.iter().all(|node| node.outcome == NodeOutcome::Confirmed));
    assert_eq!(status().fence, None);
}
