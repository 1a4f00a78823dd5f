//! Nodes that answer the handshake, and then close each connection or answer no script. The client keeps its lease on the
//! other nodes, and opens few connections to such a node.

use super::{listen, polite, read_request, wait};
use quorlock::{Client, Lease};
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a node does after the handshake.
#[derive(Clone, Copy)]
enum Then {
    Close,
    AnswerNoScript,
}

/// Starts a node. Returns its URL and the number of its connections so far.
fn start(then: Then) -> (String, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let url = listen(move |connection| {
        count.fetch_add(1, Ordering::Relaxed);
        serve(connection, then)
    });
    (url, connections)
}

fn serve(mut connection: &TcpStream, then: Then) -> std::io::Result<()> {
    let mut requests = BufReader::new(connection);
    loop {
        let request = read_request(&mut requests)?;
        let name = request[0].to_uppercase();
        if !name.starts_with("EVAL") {
            connection.write_all(polite(&request).as_bytes())?;
        }
        // TIME is the last request of the handshake.
        if matches!(then, Then::Close) && name == "TIME" {
            return Ok(());
        }
    }
}

/// Acquires a lease with a fickle node and two others, uses the client for `time`, and returns the number of connections
/// to the fickle node.
fn connections(then: Then, name: &str, time: Duration) -> usize {
    let (url, connections) = start(then);
    let nodes = [url, format!("memory://{name}-a"), format!("memory://{name}-b")];
    let client = Client::builder()
        .nodes(nodes)
        .node_timeout(Duration::from_millis(10))
        .connect_timeout(Duration::from_millis(50))
        .build()
        .unwrap();
    let lease = wait(client.lock("kept").acquire()).unwrap();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let other = wait(client.lock("other").acquire()).unwrap();
        wait(Lease::release(&other));
        assert!(lease.is_valid());
        // Each acquire keeps an unanswered request, and other tests measure the memory of this process.
        thread::sleep(Duration::from_millis(5));
    }
    connections.load(Ordering::Relaxed)
}

#[test]
fn a_node_that_closes_each_connection_is_not_connected_to_continually() {
    let connections = connections(Then::Close, "closing", Duration::from_secs(2));
    // At most one in 25 ms.
    assert!((2..=80).contains(&connections), "{connections}");
}

#[test]
fn a_connection_to_a_node_that_answers_no_script_is_seldom_replaced() {
    let connections = connections(Then::AnswerNoScript, "no-script", Duration::from_secs(3));
    // Each connection is kept for twice as long as the one before it: 50 ms, 100 ms, 200 ms, and so on.
    assert!((2..=12).contains(&connections), "{connections}");
}
