//! Nodes that answer with arbitrary bytes. No answer may make the client panic, hang, exhaust the memory, or
//! hold a lock that was not granted.
#![allow(clippy::unwrap_used, reason = "tests")]

mod fickle;
#[cfg(target_os = "linux")]
mod floods;
#[allow(dead_code, reason = "the integration tests use more of it")]
#[path = "../integration/servers.rs"]
mod servers;
// When a connection is reset, systems other than Linux discard the data that has already arrived.
#[cfg(target_os = "linux")]
mod words;

use proptest::collection::vec;
use proptest::prelude::*;
use quorlock::{Client, ErrorCode, Pending};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

/// The maximum time that a test waits for an operation. It is far longer than any operation takes, even on a
/// loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Blocks this thread until the operation is complete.
fn wait<T>(mut pending: Pending<T>) -> T {
    pending.block_for(TIMEOUT).expect("the operation timed out")
}

/// The maximum time that the client waits for a node; some nodes never answer.
const PATIENCE: Duration = Duration::from_millis(100);

/// The behaviour of a node: valid answers first, then `bytes`.
#[derive(Clone, Debug)]
struct Garbage {
    /// The number of requests on each connection that the node answers correctly before it misbehaves.
    polite: usize,
    bytes: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    /// Closes the connection.
    Close,
    /// Sends nothing more.
    FallSilent,
    /// Answers like a server again.
    GoOn,
}

/// A misbehaving node that serves one client.
struct Node {
    url: String,
    closed: Arc<AtomicBool>,
}

impl Node {
    fn start(garbage: Garbage) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closed = Arc::new(AtomicBool::new(false));
        let is_closed = Arc::clone(&closed);
        thread::spawn(move || {
            for connection in listener.incoming() {
                if is_closed.load(Ordering::Relaxed) {
                    return;
                }
                let garbage = garbage.clone();
                // An error means that the client has disconnected.
                thread::spawn(move || serve(&connection?, &garbage));
            }
        });
        Self { url: format!("redis://{address}"), closed }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // Connects once more, so that the listener's thread stops waiting for a connection and notices `closed`.
        let _ = TcpStream::connect(self.url.trim_start_matches("redis://"));
    }
}

fn serve(connection: &TcpStream, garbage: &Garbage) -> std::io::Result<()> {
    let mut requests = BufReader::new(connection);
    let mut writer = connection;
    for _ in 0..garbage.polite {
        let request = read_request(&mut requests)?;
        writer.write_all(polite(&request).as_bytes())?;
    }
    read_request(&mut requests)?;
    writer.write_all(&garbage.bytes)?;
    match garbage.then {
        Then::Close => return Ok(()),
        Then::FallSilent => {}
        Then::GoOn => loop {
            let request = read_request(&mut requests)?;
            writer.write_all(polite(&request).as_bytes())?;
        },
    }
    // Discards further requests until the client closes the connection.
    std::io::copy(&mut requests, &mut std::io::sink()).map(drop)
}

/// Starts a node that handles each connection on a thread of its own with `serve`. Returns the node's URL.
fn listen(serve: impl Fn(&TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let serve = Arc::clone(&serve);
            // An error means that the client has closed the connection.
            thread::spawn(move || serve(&connection?));
        }
    });
    url
}

/// Reads the words of the next request.
fn read_request(reader: &mut impl BufRead) -> std::io::Result<Vec<String>> {
    let count = read_number(reader, '*')?;
    let word = |_| {
        let size = read_number(reader, '$')?;
        let mut word = vec![0; size + 2];
        reader.read_exact(&mut word)?;
        Ok(String::from_utf8_lossy(&word[..size]).into_owned())
    };
    (0..count).map(word).collect()
}

fn read_number(reader: &mut impl BufRead, kind: char) -> std::io::Result<usize> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let number = line.strip_prefix(kind).and_then(|number| number.trim_end().parse().ok());
    number.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

/// A server's answer that grants nothing.
fn polite(request: &[String]) -> String {
    match &*request[0].to_uppercase() {
        "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
        "INFO" => {
            let info = "run_id:0123456789\r\nuptime_in_seconds:100000\r\nrole:master\r\n";
            format!("${}\r\n{info}\r\n", info.len())
        }
        "TIME" => "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n".to_owned(),
        "SCRIPT" => format!("$40\r\n{}\r\n", "0".repeat(40)),
        "EVALSHA" | "EVAL" => ":0\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

/// The number of requests before a client's first ACQUIRE: the handshake and the examination of the node.
const BEFORE_ACQUIRE: usize = 15;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Collects the panics of quorlock's threads from now on. On those threads a panic would not fail a test.
fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if thread::current().name() == Some("quorlock") {
                PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
            }
            before(panic);
        }));
    });
}

/// Runs one client for each of these nodes, all concurrently. No node grants anything.
fn meet(all: &[Garbage]) {
    watch_for_panics();
    let meetings: Vec<_> = all
        .iter()
        .map(|garbage| {
            let node = Node::start(garbage.clone());
            let client = Client::builder()
                .nodes([&node.url])
                .ttl(Duration::from_secs(1))
                .connect_timeout(PATIENCE)
                .node_timeout(PATIENCE)
                .build()
                .unwrap();
            let acquiring = client.lock("r").wait(Duration::ZERO).acquire();
            let looking = client.doctor();
            (garbage, node, client, acquiring, looking)
        })
        .collect();
    for (garbage, _node, client, acquiring, looking) in meetings {
        let error = wait(acquiring).expect_err("no node granted the lock");
        // `Timeout` is possible too: the bytes may say that another client holds the lock.
        let codes = [ErrorCode::NoQuorum, ErrorCode::Timeout];
        assert!(codes.contains(&error.code()), "{garbage:?}: {error}");
        assert_eq!(error.nodes().len(), 1);
        assert_eq!(wait(looking).unwrap().nodes.len(), 1);
        wait(client.close());
    }
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(panics.is_empty(), "{panics:?}");
    #[cfg(target_os = "linux")]
    assert!(peak_memory() < 1 << 30, "an announced length was allocated");
}

/// The peak memory of this process, in bytes.
#[cfg(target_os = "linux")]
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Returns nodes that send these bytes at each stage: the first request, the examination of the node, and
/// ACQUIRE.
fn at_each_stage(bytes: &[u8]) -> Vec<Garbage> {
    let mut all = Vec::new();
    for polite in [0, 3, BEFORE_ACQUIRE] {
        for then in [Then::Close, Then::FallSilent, Then::GoOn] {
            all.push(Garbage { polite, bytes: bytes.to_vec(), then });
        }
    }
    all
}

#[test]
fn malicious_replies_do_no_harm() {
    let nested = |kind: &str, depth: usize| kind.repeat(depth).into_bytes();
    let shapes: Vec<Vec<u8>> = [
        // Lengths of data that does not follow.
        "$2147483647\r\nx",
        "$9223372036854775807\r\n",
        "*2147483647\r\n:1\r\n",
        "*9223372036854775807\r\n",
        "%4611686018427387903\r\n",
        "%9223372036854775807\r\n",
        "|9223372036854775807\r\n",
        "~9223372036854775807\r\n",
        ">9223372036854775807\r\n",
        "=9223372036854775807\r\n",
        "!9223372036854775807\r\n",
        // Invalid numbers.
        "$-2\r\n",
        "*-7\r\n",
        "%-1\r\n",
        "|-1\r\n",
        "~-1\r\n",
        ">-1\r\n",
        "=-1\r\n",
        "!-1\r\n",
        ":99999999999999999999\r\n",
        ":\r\n",
        ",\r\n",
        "#x\r\n",
        // Unexpected replies.
        "",
        "\r\n",
        "\0",
        ">0\r\n",
        ">1\r\n:1\r\n",
        ">2\r\n+message\r\n:1\r\n",
        ">3\r\n+subscribe\r\n+x\r\n:1\r\n",
        ">3\r\n+unsubscribe\r\n_\r\n:0\r\n",
        "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
        ":1\r\n",
        "*2\r\n:1\r\n:1\r\n",
        "*3\r\n:1\r\n:-1\r\n:1\r\n",
        "*3\r\n:1\r\n:9007199254740992\r\n:1\r\n",
        "*3\r\n:1\r\n:1\r\n:-1\r\n",
        // Numbers that no script returns: the fence, the node's clock, the remaining time and the rank.
        "*3\r\n:1\r\n:0\r\n:1\r\n",
        "*3\r\n:1\r\n:5\r\n:0\r\n",
        "*3\r\n:1\r\n:5\r\n:9007199264740992\r\n",
        "*5\r\n:0\r\n:-7\r\n:1\r\n:0\r\n$0\r\n\r\n",
        "*5\r\n:0\r\n:1\r\n:0\r\n:0\r\n$0\r\n\r\n",
        "*5\r\n:0\r\n:1\r\n:1\r\n:-2\r\n$0\r\n\r\n",
        "*4\r\n:0\r\n:9223372036854775807\r\n:9223372036854775807\r\n:0\r\n",
        "*4\r\n:0\r\n:0\r\n:-1\r\n:9223372036854775807\r\n",
        "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        "*3\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n",
        "~3\r\n:1\r\n:1\r\n:1\r\n",
        "%1\r\n:1\r\n:1\r\n",
        "|1\r\n:1\r\n:1\r\n*3\r\n:1\r\n:5\r\n:1",
        // Errors.
        "-\r\n",
        "-NOSCRIPT\r\n",
        "-NOSCRIPT no\r\n-NOSCRIPT no\r\n-NOSCRIPT no\r\n-NOSCRIPT no\r\n-NOSCRIPT no\r\n",
        "-MOVED 1 127.0.0.1:1\r\n",
        "-ASK\r\n",
        "-LOADING\r\n",
        "*1\r\n*1\r\n-ERR\r\n",
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    ]
    .into_iter()
    .map(|text| text.as_bytes().to_vec())
    .chain([
        nested("*1\r\n", 50),
        nested("*1\r\n", 100_000),
        nested("%1\r\n:1\r\n", 100_000),
        nested("|1\r\n:1\r\n", 100_000),
        nested(">1\r\n", 100_000),
        nested("*4096\r\n", 100_000),
        vec![b'+'; 1 << 20],
        vec![0xff; 1 << 16],
    ])
    .collect();
    for shapes in shapes.chunks(8) {
        let all: Vec<_> = shapes.iter().flat_map(|bytes| at_each_stage(bytes)).collect();
        meet(&all);
    }
}

fn garbage() -> impl Strategy<Value = Garbage> {
    let number = prop_oneof![-2..5_i64, any::<i64>()];
    let piece = prop_oneof![
        4 => (prop::sample::select(b"+-:$*%~>|=!(,#_".to_vec()), number)
            .prop_map(|(kind, number)| format!("{}{number}\r\n", char::from(kind)).into_bytes()),
        1 => Just(polite(&["INFO".to_owned()]).into_bytes()),
        1 => vec(any::<u8>(), 0..32),
    ];
    let bytes = (vec(piece, 0..8), any::<prop::sample::Index>(), any::<bool>());
    let bytes = bytes.prop_map(|(pieces, at, is_cut)| {
        let mut bytes = pieces.concat();
        if is_cut && !bytes.is_empty() {
            bytes.truncate(at.index(bytes.len()));
        }
        bytes
    });
    let then = prop::sample::select(vec![Then::Close, Then::FallSilent, Then::GoOn]);
    (0..=BEFORE_ACQUIRE + 2, bytes, then).prop_map(|(polite, bytes, then)| Garbage {
        polite,
        bytes,
        then,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_replies_do_no_harm(all in vec(garbage(), 48)) {
        meet(&all);
    }
}

#[test]
fn the_last_stage_reaches_the_acquire() {
    // Here the node grants instead of sending garbage. If this fails, the tests above do not reach ACQUIRE.
    let granted = b"*3\r\n:1\r\n:5\r\n:7\r\n".to_vec();
    let garbage = Garbage { polite: BEFORE_ACQUIRE, bytes: granted, then: Then::GoOn };
    let node = Node::start(garbage);
    let client = Client::builder().nodes([&node.url]).connect_timeout(TIMEOUT).build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    assert_eq!(lease.fence(), 5);
    wait(client.close());
}
