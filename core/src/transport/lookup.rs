//! Looks up host names. Called by `socket.rs` only.
//!
//! A look-up may hang for long after its caller has given up. Later callers wait for the same one, so that an outage of the
//! name service costs few threads, however often clients try to connect.

use crate::runtime::fork::PerProcess;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Addresses without a port, or an error that each caller gets.
type Found = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;
type Pending = Shared<BoxFuture<'static, Found>>;

/// After this time, a look-up may never return, and the next caller begins another one.
const PATIENCE: Duration = Duration::from_secs(10);

/// The newest look-up under way of each host name.
static LOOK_UPS: PerProcess<Mutex<HashMap<String, LookUp>>> = PerProcess::new();

struct LookUp {
    began: Instant,
    pending: Pending,
}

fn look_ups() -> MutexGuard<'static, HashMap<String, LookUp>> {
    LOOK_UPS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the addresses of a host. Has no time limit.
pub(super) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let mut found = under_way(host)?.await.map_err(|(kind, text)| io::Error::new(kind, text))?;
    found.iter_mut().for_each(|address| address.set_port(port));
    Ok(found)
}

/// Returns the look-up of the host that is under way, or else a new one, on a thread of its own. That is not a blocking
/// thread of tokio, because tokio panics if it cannot start one.
fn under_way(host: &str) -> io::Result<Pending> {
    let mut all = look_ups();
    if let Some(look_up) = all.get(host).filter(|look_up| look_up.began.elapsed() < PATIENCE) {
        return Ok(look_up.pending.clone());
    }
    let (sender, receiver) = oneshot::channel();
    let (began, name) = (Instant::now(), host.to_owned());
    let find = move || {
        let this = UnderWay { began, host: name };
        let found = (&*this.host, 0).to_socket_addrs().map(Iterator::collect);
        // Must precede sending: a caller that comes after the result must start a new look-up.
        drop(this);
        // Sending fails if nobody waits any more.
        let _ = sender.send(found.map_err(|error| (error.kind(), error.to_string())));
    };
    let started = thread::Builder::new().name("quorlock-lookup".to_owned()).spawn(find);
    started.map_err(|error| {
        io::Error::other(format!("the host cannot be looked up without a thread: {error}"))
    })?;
    let panicked = || (io::ErrorKind::Other, "the look-up of the host panicked".to_owned());
    let pending = receiver.map(move |found| found.unwrap_or_else(|_| Err(panicked())));
    let pending = pending.boxed().shared();
    all.insert(host.to_owned(), LookUp { began, pending: pending.clone() });
    Ok(pending)
}

/// Dropped when the look-up has ended, also by a panic.
struct UnderWay {
    began: Instant,
    host: String,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = look_ups();
        if all.get(&self.host).is_some_and(|look_up| look_up.began == self.began) {
            all.remove(&self.host);
        }
    }
}
