#![allow(clippy::unwrap_used, reason = "tests")]

use super::Node;
use super::link::Link;
use crate::config::endpoint::Endpoint;
use crate::config::options::Options;
use crate::error::NodeOutcome;
use crate::node::clocks::Clocks;
use crate::node::exchange::{Done, InFlight, PackedRequest, Peer};
use crate::node::identity::Identities;
use crate::runtime::clock;
use crate::transport::handshake::ServerInfo;
use crate::wire::answer::Failure;
use crate::wire::keys::Keys;
use crate::wire::reply::Reply;
use crate::wire::request::{Request, Subject};
use quorlock_protocol::Turns;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
const GUARD: Duration = Duration::from_secs(60);
/// Longer than any guard.
const OLD: Duration = Duration::from_secs(1_000_000);

fn node(url: &str, options: &Options) -> Arc<Node> {
    let endpoint = Endpoint::parse(1, url).unwrap();
    let identities = Identities::new(vec![endpoint.address.clone()]);
    Node::new(endpoint, 0, options, &identities, &Arc::default(), &Arc::new(Clocks::new(1)))
}

fn guarded_node() -> Arc<Node> {
    node("memory://guarded", &Options { restart_guard: Some(GUARD), ..Options::default() })
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

/// A server that is loading its data, or that follows a master, may lose the locks that it granted. This can
/// happen without a restart and without a broken connection.
#[test]
fn votes_do_not_count_after_an_error_that_implies_lost_memory() {
    use NodeOutcome::{Loading, Masterdown, Misconf, Noperm, Oom, Readonly, Refused};
    for (outcome, is_doubtful) in [
        (Loading, true),
        (Readonly, true),
        (Masterdown, true),
        (Oom, false),
        (Misconf, false),
        (Noperm, false),
        (Refused, false),
    ] {
        let node = guarded_node();
        node.guard().unwrap().looked(clock::now(), Some(("memory", OLD)));
        let request = Request::Exists([Keys::new("", "r")].into());
        let vote = |answered| {
            let began = clock::now();
            let patience = Duration::ZERO;
            let done =
                Done { request: &request, began, took: None, patience, route: None, answered };
            Arc::clone(&node).answered(done)
        };
        assert!(matches!(vote(Ok(Reply::No)), Ok(Reply::No)), "it counts at first");

        let failure = Failure { outcome, ..Failure::refused("") };
        let before = clock::now();
        assert!(vote(Err(failure)).is_err());
        match vote(Ok(Reply::No)) {
            Ok(Reply::Uncounted(reply, from)) => {
                assert!(is_doubtful, "{outcome:?}");
                assert_eq!(*reply, Reply::No);
                assert!(from >= before.plus(GUARD), "{outcome:?}");
            }
            Ok(Reply::No) => assert!(!is_doubtful, "{outcome:?}"),
            other => panic!("{outcome:?}: {other:?}"),
        }
    }
}

#[test]
fn replica_does_not_count_however_long_it_has_been_up() {
    for (is_replica, counts) in [(false, true), (true, false)] {
        let node = guarded_node();
        let [memory, run_id] = ["memory", "run"].map(str::to_owned);
        node.record_server_info(Some(ServerInfo {
            memory,
            run_id,
            uptime: OLD,
            is_replica,
            clock: None,
        }))
        .unwrap();
        let guard = node.guard().unwrap();
        assert_eq!(guard.counts(clock::now()), counts, "{is_replica}");
        assert!(guard.counts(clock::now().plus(2 * GUARD)));
    }
}

fn acquire(resource: &str) -> Request {
    let keys = [Keys::new("", resource)].into();
    let subject = Arc::new(Subject::new(keys, "token".into(), None));
    let turns = Turns { call: PATIENCE, reserve: PATIENCE, memory: PATIENCE };
    Request::Acquire { subject, ttl: PATIENCE, proposal: 1, ticket: None, turns }
}

/// After a client has given up a request, the client sends the UNDO of the request. A redirection must not
/// send the request to another server any more: the request could arrive there after its UNDO.
#[test]
fn given_up_request_is_not_sent() {
    let node = node("memory://given-up", &Options::default());
    run(async {
        assert!(node.settled().await);
        let has = async |resource| {
            let keys = [Keys::new("", resource)].into();
            node.call(Request::Exists(keys), clock::now(), PATIENCE).await.unwrap() == Reply::Yes
        };
        for resource in ["awaited", "given up"] {
            let request = Arc::new(acquire(resource));
            let in_flight = Arc::new(InFlight::of(1, PATIENCE));
            let peer: Arc<dyn Peer> = Arc::<Node>::clone(&node);
            let sink = in_flight.add(Arc::clone(&peer), Arc::clone(&request));
            let is_awaited = resource == "awaited";
            if !is_awaited {
                in_flight.clear();
            }
            assert!(peer.send(&PackedRequest::from(request), sink).is_none());
            assert_eq!(has(resource).await, is_awaited, "{resource}");
        }
    });
}

/// Starts a server for one connection, which it returns at the end. `answer` returns the reply to a script; if it returns
/// `None`, the server stops reading.
fn serve(
    listener: TcpListener,
    mut answer: impl FnMut() -> Option<&'static str> + Send + 'static,
) -> JoinHandle<TcpStream> {
    std::thread::spawn(move || {
        let (connection, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(connection.try_clone().unwrap());
        let mut line = String::new();
        let mut number = |reader: &mut BufReader<_>| {
            line.clear();
            reader.read_line(&mut line).unwrap();
            line.get(1..).and_then(|number| number.trim_end().parse::<usize>().ok())
        };
        while let Some(count) = number(&mut reader) {
            let mut words = Vec::new();
            for _ in 0..count {
                let mut word = vec![0; number(&mut reader).unwrap() + 2];
                reader.read_exact(&mut word).unwrap();
                words.push(String::from_utf8(word).unwrap());
            }
            let reply = match words[0].trim_end() {
                "HELLO" => Some("%0\r\n"),
                word if word.starts_with("EVAL") => answer(),
                _ => Some("+OK\r\n"),
            };
            let Some(reply) = reply else { break };
            if (&connection).write_all(reply.as_bytes()).is_err() {
                break;
            }
        }
        connection
    })
}

/// quorlock must not send the source of a script forever if a server always forgets the script immediately,
/// or if a proxy always answers that the script is unknown.
#[test]
fn a_request_is_given_up_if_the_server_never_knows_its_script() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let scripts = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&scripts);
    let server = serve(listener, move || {
        counter.fetch_add(1, Ordering::Relaxed);
        Some("-NOSCRIPT No matching script.\r\n")
    });
    let node = node(&url, &Options { connect_timeout: PATIENCE, ..Options::default() });
    run(async {
        assert!(node.settled().await);
        let failure = node.call(acquire("r"), clock::now(), PATIENCE).await.unwrap_err();
        assert_eq!(failure.outcome, NodeOutcome::Refused);
        assert!(failure.detail.starts_with("NOSCRIPT"), "{failure:?}");
        drop(node);
    });
    server.join().unwrap();
    assert!((2..20).contains(&scripts.load(Ordering::Relaxed)));
}

#[test]
fn a_request_that_waits_for_room_ends_when_its_node_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let server = serve(listener, || None);
    let node = node(&url, &Options { connect_timeout: PATIENCE, ..Options::default() });
    run(async {
        assert!(node.settled().await);
        let request = Arc::new(acquire("r"));
        let peer: Arc<dyn Peer> = Arc::<Node>::clone(&node);
        let mut in_flight = Vec::new();
        let mut sending = loop {
            in_flight.push(Arc::new(InFlight::of(1, PATIENCE)));
            let last = in_flight.last().unwrap();
            let sink = last.add(Arc::clone(&peer), Arc::clone(&request));
            let packed_request = PackedRequest::from(Arc::clone(&request));
            if let Some(sending) = Arc::clone(&peer).send(&packed_request, sink) {
                break sending;
            }
        };
        assert!(timeout(Duration::ZERO, &mut sending).await.is_err(), "there is room");
        node.close();
        // The system itself closes a connection whose server does not read, but only after 15 s.
        timeout(Duration::from_secs(10), sending).await.unwrap();
    });
    server.join().unwrap();
}

const LONG: Duration = Duration::from_secs(3_600);

/// Returns a connected node and its connection, which the node has begun to doubt. The last answer took long, as if this
/// process had been stopped while it waited.
async fn doubting(connect_timeout: Duration) -> (Arc<Node>, Arc<Link>) {
    let node = node("memory://doubted", &Options { connect_timeout, ..Options::default() });
    assert!(node.settled().await);
    let link = node.state.borrow().link().unwrap();
    link.answered(clock::now().minus(LONG), LONG);
    node.doubt_if_idle(&link);
    (node, link)
}

#[test]
fn a_doubted_connection_is_replaced_after_the_connect_timeout() {
    run(async {
        let (node, link) = doubting(Duration::from_millis(50)).await;
        let mut state = node.state.subscribe();
        let replaced = state.wait_for(|state| !state.is(&link));
        timeout(PATIENCE, replaced).await.unwrap().unwrap();
    });
}

#[test]
fn a_closed_node_drops_a_doubted_connection() {
    run(async {
        let (node, link) = doubting(LONG).await;
        assert!(link.is_doubted.load(Ordering::Relaxed));
        node.close();
        assert!(Arc::into_inner(link).is_some(), "something keeps the connection");
    });
}

#[test]
fn a_node_that_is_closed_while_it_connects_gives_up_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let node = node(&url, &Options { connect_timeout: 4 * PATIENCE, ..Options::default() });
    run(async {
        let mut settling = std::pin::pin!(node.settled());
        assert!(timeout(Duration::ZERO, &mut settling).await.is_err());
        // The server does not answer.
        let (mut connection, _) = listener.accept().unwrap();
        node.close();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.read_to_end(&mut Vec::new()).unwrap();
    });
}
