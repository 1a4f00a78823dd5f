#![allow(clippy::unwrap_used, reason = "tests")]

use super::{Connection, Nobody};
use crate::config::server::{Login, Server, ServerAddress};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// More bytes than a socket accepts if the server does not read.
const MANY: usize = 1 << 24;

/// The system reports no error if a server does not read from a Unix socket, so only the client can end the connection.
#[test]
fn a_dropped_connection_is_closed_although_the_server_does_not_read() {
    let path = std::env::temp_dir().join(format!("quorlock-{}-unread", std::process::id()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = UnixListener::bind(&path).unwrap();
        let place = ServerAddress::Unix(path.clone());
        let server = Server { place, login: Login::default(), tls: None, is_discovered: false };
        let connection = Connection::<Nobody>::connect(&server).await.unwrap();
        let (peer, _) = listener.accept().await.unwrap();
        std::fs::remove_file(path).unwrap();
        let mut command = redis::cmd("ECHO");
        command.arg(vec![b' '; MANY]);
        // Polls the query once, so that it fills the socket.
        assert!(timeout(Duration::ZERO, connection.query(&[command])).await.is_err());

        drop(connection);
        let closed = async {
            // Without reading: the client could then write, and would notice that the connection was dropped.
            while !peer.ready(Interest::READABLE).await.unwrap().is_read_closed() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, closed).await.unwrap();
    });
}
