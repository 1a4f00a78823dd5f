#![allow(clippy::unwrap_used, reason = "tests")]

use super::{NEXT_ADDRESS, first_of};
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

/// An address that drops new connections, because the queue of its listener is full. Owns the sockets that
/// fill the queue.
struct BlackHole {
    _listener: Socket,
    _filling: Vec<Socket>,
    address: SocketAddr,
}

impl BlackHole {
    fn open() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut filling = Vec::new();
        loop {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let connected = socket.connect_timeout(&address, Duration::from_millis(200));
            let is_full = connected.is_err();
            filling.push(socket);
            if is_full {
                let address = address.as_socket().unwrap();
                return Self { _listener: listener, _filling: filling, address };
            }
        }
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

fn refusing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn address_after_one_that_drops_packets_is_tried() {
    let hole = BlackHole::open();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap();
    run(async {
        let alone = timeout(2 * NEXT_ADDRESS, first_of(&[hole.address])).await;
        assert!(alone.is_err(), "the black hole accepts a connection");
        let began = Instant::now();
        let addresses = [refusing(), hole.address, open];
        let (address, _) = timeout(LONG, first_of(&addresses)).await.unwrap().unwrap();
        assert_eq!(address, open);
        assert!(began.elapsed() >= NEXT_ADDRESS, "both were tried at once");
    });
}

#[test]
fn error_is_reported_after_all_addresses_have_failed() {
    let one = refusing();
    let other = refusing();
    run(async {
        let failed = timeout(LONG, first_of(&[one, other])).await.unwrap();
        assert_eq!(failed.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(first_of(&[]).await.is_err());
    });
}
