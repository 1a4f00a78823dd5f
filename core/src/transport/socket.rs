//! Opens sockets to servers: TCP, Unix, and TLS over TCP. Called by `connection.rs` only.

use crate::config::server::{Server, ServerAddress};
use crate::config::tls;
use crate::runtime::timer::sleep;
use crate::transport::lookup::{Attempt, look_up};
use futures_util::stream::{FuturesUnordered, StreamExt};
use socket2::{SockRef, TcpKeepalive};
use std::future::pending;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp;
#[cfg(unix)]
use tokio::net::{UnixStream, unix};

/// How long a connection may be silent before the kernel probes whether the server's machine is still reachable. Also
/// the interval between two probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// If no address of a host has accepted a connection for this long, the next address is also tried, as RFC 8305
/// recommends.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

pub(crate) type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;

pub(crate) enum WriteHalf {
    /// A socket that any thread may write to.
    Plain(Plain),
    /// An encrypted socket. Writing to it requires `&mut`, so a single task owns it.
    Encrypted(Box<dyn AsyncWrite + Send + Unpin>),
}

pub(crate) enum Plain {
    Tcp(tcp::OwnedWriteHalf),
    #[cfg(unix)]
    Unix(unix::OwnedWriteHalf),
}

impl Plain {
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(socket) => socket.try_write(bytes),
        }
    }

    /// Closes both directions. Answers that have arrived can still be read.
    pub(crate) fn shut_down(&self) {
        let socket = match self {
            Self::Tcp(socket) => SockRef::from(AsRef::<TcpStream>::as_ref(socket)),
            #[cfg(unix)]
            Self::Unix(socket) => SockRef::from(AsRef::<UnixStream>::as_ref(socket)),
        };
        // Fails if the connection has ended already.
        let _ = socket.shutdown(Shutdown::Both);
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.writable().await,
            #[cfg(unix)]
            Self::Unix(socket) => socket.writable().await,
        }
    }
}

/// An open socket, with separate sides for reading and writing.
pub(crate) struct Socket {
    pub(crate) read: ReadHalf,
    pub(crate) write: WriteHalf,
    /// Records whether the address of this connection works; `None` if the host has only one address.
    pub(crate) attempt: Option<Attempt>,
}

/// Opens a connection to a server. Has no time limit, except for the TLS handshake.
pub(crate) async fn connect(server: &Server) -> io::Result<Socket> {
    match (&server.place, &server.tls) {
        (ServerAddress::Tcp { host, port }, None) => {
            let (socket, attempt) = tcp(host, *port).await?;
            let (read, write) = socket.into_split();
            let write = WriteHalf::Plain(Plain::Tcp(write));
            Ok(Socket { read: Box::new(read), write, attempt })
        }
        (ServerAddress::Tcp { host, port }, Some(tls)) => {
            let (socket, attempt) = tcp(host, *port).await?;
            let (read, write) = tokio::io::split(tls.connect(host, socket).await?);
            let read = Box::new(Explained { stream: read, host: host.clone() });
            Ok(Socket { read, write: WriteHalf::Encrypted(Box::new(write)), attempt })
        }
        #[cfg(unix)]
        (ServerAddress::Unix(path), _) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            let write = WriteHalf::Plain(Plain::Unix(write));
            Ok(Socket { read: Box::new(read), write, attempt: None })
        }
        #[cfg(not(unix))]
        (ServerAddress::Unix(_), _) => Err(io::ErrorKind::Unsupported.into()),
    }
}

async fn tcp(host: &str, port: u16) -> io::Result<(TcpStream, Option<Attempt>)> {
    let addresses = look_up(host, port).await?;
    let (address, socket) = first_of(&addresses).await?;
    let attempt = (addresses.len() > 1).then(|| Attempt::new(host, address.ip()));
    socket.set_nodelay(true)?;
    let options = SockRef::from(&socket);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    options.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    options.set_tcp_user_timeout(Some(KEEPALIVE))?;
    Ok((socket, attempt))
}

/// Connects to the addresses in order, and returns the first connection that succeeds. Starts the next attempt as soon
/// as an attempt has failed, or when no attempt has succeeded within [`NEXT_ADDRESS`]. Returns the last error if all
/// attempts fail.
async fn first_of(addresses: &[SocketAddr]) -> io::Result<(SocketAddr, TcpStream)> {
    let connect = |address: SocketAddr| async move { (address, TcpStream::connect(address).await) };
    let mut left = addresses.iter();
    let mut connecting = FuturesUnordered::new();
    loop {
        connecting.extend(left.next().copied().map(connect));
        let pause = async {
            match left.len() {
                0 => pending().await,
                _ => sleep(NEXT_ADDRESS).await,
            }
        };
        tokio::select! {
            biased;
            connected = connecting.next() => match connected {
                Some((address, Ok(socket))) => return Ok((address, socket)),
                Some((_, Err(error))) if connecting.is_empty() && left.len() == 0 => return Err(error),
                Some((_, Err(_))) => {}
                None => return Err(io::Error::other("the host has no address")),
            },
            () = pause => {}
        }
    }
}

/// A TLS stream that adds advice to its read errors. If the server rejects the client's certificate, the client may
/// learn this only from a read error after the handshake.
struct Explained<S> {
    stream: S,
    host: String,
}

impl<S: AsyncRead + Unpin> AsyncRead for Explained<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        polled.map_err(|error| tls::explained(error, &self.host))
    }
}

#[cfg(test)]
mod tests;
