//! Servers that refuse a connection with an error, and close the connection. The user must see the error.

use super::servers::Servers;
use super::{TIMEOUT, wait};
use quorlock::{Client, ErrorCode, NodeOutcome};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Several attempts are needed, because it depends on chance whether the client writes before it reads.
const ATTEMPTS: usize = 20;

/// Returns the outcome and the detail of a node that refuses each connection. Checks that the doctor reports the same
/// detail.
fn refusal(url: &str) -> (NodeOutcome, String) {
    let client = Client::builder().nodes([url]).connect_timeout(TIMEOUT).build().unwrap();
    let error = wait(client.lock("r").wait(Duration::ZERO).acquire()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum);
    let node = &error.nodes()[0];
    let diagnosis = wait(client.doctor()).unwrap();
    let is_told = |text: &str| text.contains(node.detail.split(';').next().unwrap());
    assert!(
        diagnosis.nodes[0].findings.iter().any(|finding| is_told(&finding.message)),
        "{diagnosis}"
    );
    wait(client.close());
    (node.outcome, node.detail.clone())
}

#[test]
fn a_server_with_too_many_clients_says_so() {
    let servers = Servers::start(1);
    servers.command(0, &["CONFIG", "SET", "maxclients", "1"]);
    let _only = only_client(servers.ports[0]);
    for _ in 0..ATTEMPTS {
        let (outcome, detail) = refusal(&servers.urls[0]);
        assert_eq!(detail, "ERR max number of clients reached");
        assert_eq!(outcome, NodeOutcome::Refused);
    }
}

/// Connects as the only client of a server that accepts one client. Tries again while the server still has its former
/// client.
fn only_client(port: u64) -> TcpStream {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let mut connection = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let mut answer = [0; 7];
        let asked =
            connection.write_all(b"PING\r\n").and_then(|()| connection.read_exact(&mut answer));
        if asked.is_ok() && &answer == b"+PONG\r\n" {
            return connection;
        }
        assert!(Instant::now() < deadline, "{asked:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns an address of this machine other than the loopback addresses, if the machine has one. Sends nothing.
fn lan_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[test]
fn a_server_in_protected_mode_says_so() {
    let Some(address) = lan_address() else { return };
    let args = ["--protected-mode", "yes", "--bind", "0.0.0.0"];
    let servers = Servers::start_with(json!({ "start": 1, "args": args }));
    for _ in 0..ATTEMPTS {
        let (outcome, detail) = refusal(&format!("redis://{address}:{}", servers.ports[0]));
        assert!(detail.starts_with("DENIED Redis is running in protected mode"), "{detail}");
        assert!(detail.chars().count() <= 301, "{detail}");
        assert_eq!(outcome, NodeOutcome::Refused);
    }
}

/// A server that closes a socket with unread data resets the connection. The client must still read what the server
/// sent before the reset.
#[test]
fn a_server_that_resets_the_connection_is_heard() {
    for reads_first in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                if reads_first {
                    let _ = connection.read(&mut [0]);
                }
                let _ = connection.write_all(b"-ERR too many tenants\r\n");
                if !reads_first {
                    let _ = connection.read(&mut [0]);
                }
                // The connection is dropped with unread data.
            }
        });
        for _ in 0..ATTEMPTS {
            let expected = (NodeOutcome::Refused, "ERR too many tenants".to_owned());
            assert_eq!(refusal(&url), expected, "{reads_first}");
        }
    }
}
