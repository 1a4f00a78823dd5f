//! Tells the service manager about the state of this process, if it wants to know: see sd_notify(3). `serve` reports
//! its own state, and `run` passes on what its command reports.

use crate::writer::Writer;
use std::env;
use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use tokio::time::sleep;

/// The pause before the next try while the service manager has not read earlier messages.
const PAUSE: Duration = Duration::from_millis(50);

/// Tells it that clients can connect, as soon as it reads messages. Never returns.
pub(crate) async fn tell_ready() {
    while let Err(error) = tell("READY=1")
        && error.kind() == io::ErrorKind::WouldBlock
    {
        sleep(PAUSE).await;
    }
    pending().await
}

/// Tells it that the daemon is about to end, unless it has not read earlier messages: nothing may delay the end.
pub(crate) fn tell_stopping() {
    let _ = tell("STOPPING=1");
}

/// Starts a thread that sends it messages, in order, and waits for it. Returns `None` if there is no service manager.
pub(crate) fn writer() -> io::Result<Option<Writer>> {
    let Some(address) = address() else { return Ok(None) };
    let socket = UnixDatagram::unbound()?;
    Writer::start(move |message| drop(send(&socket, message.as_bytes(), &address))).map(Some)
}

/// Sends a message without waiting.
fn tell(state: &str) -> io::Result<()> {
    let Some(address) = address() else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    send(&socket, state.as_bytes(), &address).map(drop)
}

fn address() -> Option<OsString> {
    env::var_os("NOTIFY_SOCKET")
}

fn send(socket: &UnixDatagram, message: &[u8], address: &OsStr) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    if let Some(name) = address.to_str().and_then(|address| address.strip_prefix('@')) {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        return socket.send_to_addr(message, &address);
    }
    socket.send_to(message, address)
}
