//! Nodes that send data without end. The client reads only a little of this data, and keeps its leases on the other
//! nodes.

use super::{TIMEOUT, listen, polite, read_request, wait, watch_for_panics};
use quorlock::Client;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The largest number of bytes that a client may accept on one connection: more than the buffers of a socket and the
/// largest reply that these clients ask for take together.
const MOST_ACCEPTED: usize = 24 << 20;
/// The number of bytes that a node tries to send on one connection: several times the memory that a test may take.
const FLOOD: usize = 512 << 20;

#[derive(Clone, Copy, Debug)]
enum Begin {
    /// In answer to the first request.
    Hello,
    /// In answer to the first request after the handshake.
    Request,
    /// When nothing is in flight.
    Idle,
}

#[derive(Clone)]
struct Flood {
    begin: Begin,
    head: &'static str,
    /// Sent again and again.
    body: Vec<u8>,
}

/// The largest number of bytes that the client accepted on one connection, and the number of its connections.
#[derive(Default)]
struct Seen {
    accepted: AtomicUsize,
    connections: AtomicUsize,
    is_over: AtomicBool,
}

fn start(flood: Flood) -> (String, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let for_node = Arc::clone(&seen);
    let url = listen(move |connection| {
        for_node.connections.fetch_add(1, Ordering::Relaxed);
        serve(connection, &flood, &for_node)
    });
    (url, seen)
}

fn serve(connection: &TcpStream, flood: &Flood, seen: &Seen) -> std::io::Result<()> {
    let mut requests = BufReader::new(connection);
    let mut writer = connection;
    let mut is_greeted = false;
    if !matches!(flood.begin, Begin::Hello) {
        loop {
            let request = read_request(&mut requests)?;
            let name = request[0].to_uppercase();
            if matches!(flood.begin, Begin::Request) && is_greeted {
                break;
            }
            writer.write_all(polite(&request).as_bytes())?;
            // TIME is the last request of the handshake.
            is_greeted |= name == "TIME";
            if matches!(flood.begin, Begin::Idle) && is_greeted {
                break;
            }
        }
    }
    writer.write_all(flood.head.as_bytes())?;
    let chunk = flood.body.repeat((1 << 16) / flood.body.len());
    let mut sent = 0;
    while sent < FLOOD && !seen.is_over.load(Ordering::Relaxed) {
        let written = writer.write(&chunk)?;
        sent += written;
        seen.accepted.fetch_max(sent, Ordering::Relaxed);
    }
    Ok(())
}

fn floods() -> Vec<Flood> {
    let mut all = Vec::new();
    for begin in [Begin::Hello, Begin::Request, Begin::Idle] {
        for (head, body) in [
            ("$100000000000\r\n", &b"xxxxxxxxxxxxxxxx"[..]),
            ("=100000000000\r\n", b"txt:xxxxxxxxxxxx"),
            ("*1000000000000\r\n", b":1\r\n"),
            ("%1000000000000\r\n", b"+a\r\n"),
            ("|1000000000000\r\n", b"+a\r\n"),
            ("+", b"xxxxxxxxxxxxxxxx"),
            ("-ERR ", b"xxxxxxxxxxxxxxxx"),
            ("", b"*1\r\n"),
            ("", b":1\r\n"),
            ("", b"$-1\r\n"),
            ("", b">3\r\n+message\r\n+a\r\n+b\r\n"),
            ("", b"-NOSCRIPT no\r\n"),
        ] {
            all.push(Flood { begin, head, body: body.to_vec() });
        }
    }
    all
}

/// Each flooding node belongs to one client, which also has two other nodes. During the flood, the client keeps a
/// lease.
#[test]
fn a_flood_takes_little_memory_and_no_lease() {
    watch_for_panics();
    let before = super::peak_memory();
    for (batch, floods) in floods().chunks(12).enumerate() {
        let kept: Vec<_> = floods
            .iter()
            .enumerate()
            .map(|(number, flood)| {
                let (url, seen) = start(flood.clone());
                let others =
                    ["a", "b"].map(|name| format!("memory://flood-{batch}-{number}-{name}"));
                let nodes = [url, others[0].clone(), others[1].clone()];
                let client = Client::builder()
                    .nodes(nodes)
                    .ttl(Duration::from_secs(10))
                    .node_timeout(Duration::from_secs(1))
                    .build()
                    .unwrap();
                let lease = wait(client.lock("kept").acquire()).unwrap();
                (flood, seen, client, lease)
            })
            .collect();
        // Each client sends requests for a while, so that it connects again and again.
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            for (_, _, client, lease) in &kept {
                assert!(lease.is_valid());
                drop(wait(client.lock("other").wait(Duration::ZERO).acquire()));
            }
            thread::sleep(Duration::from_millis(10));
        }
        for (flood, seen, client, lease) in kept {
            let what = format!("{:?} {:?}", flood.begin, flood.head);
            assert!(wait(lease.extend(None)).is_ok(), "{what}");
            let accepted = seen.accepted.load(Ordering::Relaxed);
            assert!(accepted < MOST_ACCEPTED, "{what}: {accepted} bytes");
            // Without a pause between its attempts, a client would connect thousands of times.
            let connections = seen.connections.load(Ordering::Relaxed);
            assert!((2..200).contains(&connections), "{what}: {connections} connections");
            seen.is_over.store(true, Ordering::Relaxed);
            wait(client.close());
        }
    }
    let grown = super::peak_memory().saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes");
}

/// A node sends unsolicited messages on a subscriber connection, faster than the client can handle them.
#[test]
fn a_flood_of_messages_takes_little_memory() {
    watch_for_panics();
    let before = super::peak_memory();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let url = listen(move |connection| flood_subscriber(connection, &counter, &over));
    let client = Client::builder()
        .nodes([url, "memory://messages-a".to_owned(), "memory://messages-b".to_owned()])
        .ttl(Duration::from_secs(10))
        .build()
        .unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    let waiting = client.lock("r").wait(TIMEOUT).acquire();
    let deadline = Instant::now() + TIMEOUT;
    while sent.load(Ordering::Relaxed) < 200 << 20 {
        assert!(
            lease.is_valid() && Instant::now() < deadline,
            "{} bytes",
            sent.load(Ordering::Relaxed)
        );
        thread::sleep(Duration::from_millis(10));
    }
    assert!(wait(lease.release()));
    let next = wait(waiting).unwrap();
    assert!(wait(next.release()));
    is_over.store(true, Ordering::Relaxed);
    wait(client.close());
    let grown = super::peak_memory().saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes");
}

fn flood_subscriber(
    connection: &TcpStream,
    sent: &AtomicUsize,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    let mut requests = BufReader::new(connection);
    let mut writer = connection;
    loop {
        let request = read_request(&mut requests)?;
        if request[0] != "SUBSCRIBE" {
            writer.write_all(polite(&request).as_bytes())?;
            continue;
        }
        let channel = &request[1];
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let reply = format!(">3\r\n{}{}:1\r\n", bulk("subscribe"), bulk(channel));
        writer.write_all(reply.as_bytes())?;
        // Each message names a waiter by its number. The only waiter of this client has one of the smallest numbers.
        let message = |number: u8| {
            [
                ">3\r\n".to_owned(),
                bulk("message"),
                bulk(channel),
                bulk(&format!("{number} {}", "r".repeat(4_000))),
            ]
            .concat()
        };
        let chunk = (0..8).map(message).collect::<String>();
        while !is_over.load(Ordering::Relaxed) {
            writer.write_all(chunk.as_bytes())?;
            sent.fetch_add(chunk.len(), Ordering::Relaxed);
        }
        return Ok(());
    }
}
