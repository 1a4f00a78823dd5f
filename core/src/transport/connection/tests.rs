#![allow(clippy::unwrap_used, reason = "tests")]

use super::{BatchOf, Connection, MAX_UNANSWERED, Nobody, Packed, RawReply, Receive, Room};
use crate::config::server::{Login, Server, ServerAddress};
use crate::wire::limits;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// More bytes than a socket accepts if the server does not read.
const MANY: usize = 1 << 24;

/// Returns a connection to a server, and the end of the server. `name` is the name of the test.
async fn connect<R: Receive>(name: &str) -> (Connection<R>, UnixStream) {
    let path = std::env::temp_dir().join(format!("quorlock-{}-{name}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let place = ServerAddress::Unix(path.clone());
    let server = Server { place, login: Login::default(), tls: None, is_discovered: false };
    let connection = Connection::connect(&server).await.unwrap();
    let (peer, _) = listener.accept().await.unwrap();
    std::fs::remove_file(path).unwrap();
    (connection, peer)
}

/// The system reports no error if a server does not read from a Unix socket, so only the client can end the connection.
#[test]
fn a_dropped_connection_is_closed_although_the_server_does_not_read() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (connection, peer) = connect::<Nobody>("unread").await;
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

/// A recipient that ignores its answer.
struct IgnoredAnswer;

impl Receive for IgnoredAnswer {
    type Request = Infallible;

    fn receive(self, _: RawReply) {}

    fn receive_batch(_: BatchOf<Self>, _: RawReply) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn pack(_: Vec<(Infallible, Self)>) -> Vec<Packed<Self>> {
        Vec::new()
    }
}

/// A server needs time for a long command, and each command takes memory until it is answered.
#[test]
fn requests_wait_for_room_while_long_commands_are_unanswered() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (connection, mut peer) = connect("full").await;
        let send =
            |room| connection.send(&[b' '; MAX_UNANSWERED / 2], limits::USUAL, room, IgnoredAnswer);
        assert!(send(Room::None).is_ok() && send(Room::None).is_ok());
        assert!(send(Room::Needed).is_ok() && send(Room::Needed).is_ok());
        assert!(send(Room::Needed).is_err());
        assert!(send(Room::None).is_ok() && send(Room::Kept).is_ok(), "they do not wait");
        let mut room = pin!(connection.room());
        assert!(timeout(Duration::from_millis(50), room.as_mut()).await.is_err());
        let mut bytes = vec![0; 3 * MAX_UNANSWERED];
        timeout(PATIENCE, peer.read_exact(&mut bytes)).await.unwrap().unwrap();
        peer.write_all(&b"+OK\r\n".repeat(4)).await.unwrap();
        timeout(PATIENCE, room).await.unwrap();
        assert!(send(Room::Needed).is_ok());
    });
}
