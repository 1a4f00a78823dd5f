//! Looks up host names. Called by `socket.rs` only.
//!
//! A look-up may hang long after its caller has given up. Later callers for the same host wait for that
//! look-up instead of starting another one. So an outage of the name service blocks only a few threads,
//! however often clients try to connect.

use crate::runtime::fork::PerProcess;
use crate::runtime::threads::SharedWork;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The addresses of a host, all with port 0, or the error of the look-up. All callers that wait for the look-up get
/// this result.
type Resolved = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// The look-up in progress for each host name.
static LOOK_UPS: PerProcess<Mutex<HashMap<String, SharedWork<Resolved>>>> = PerProcess::new();

fn look_ups() -> MutexGuard<'static, HashMap<String, SharedWork<Resolved>>> {
    LOOK_UPS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the latest connections to a host with several addresses have shown.
#[derive(Clone, Copy, Default)]
struct Tried {
    /// The last address at which a server answered.
    good: Option<IpAddr>,
    /// The last address that accepted a connection, but at which no server answered.
    bad: Option<IpAddr>,
}

static TRIED: PerProcess<Mutex<HashMap<String, Tried>>> = PerProcess::new();

fn tried() -> MutexGuard<'static, HashMap<String, Tried>> {
    TRIED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attempt to use one of several addresses of a host. If [`Attempt::succeeded`] is called, later look-ups return
/// this address first. If this value is dropped before that, later look-ups return this address as the last one of its
/// family (IPv4 or IPv6).
pub(crate) struct Attempt {
    host: String,
    address: IpAddr,
    has_succeeded: bool,
}

impl Attempt {
    pub(super) fn new(host: &str, address: IpAddr) -> Self {
        Self { host: host.to_owned(), address, has_succeeded: false }
    }

    /// Records that a server at this address has answered.
    pub(super) fn succeeded(mut self) {
        self.has_succeeded = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut all = tried();
        let Tried { good, bad } = all.entry(std::mem::take(&mut self.host)).or_default();
        let (now, before) = if self.has_succeeded { (good, bad) } else { (bad, good) };
        *now = Some(self.address);
        if *before == *now {
            *before = None;
        }
    }
}

/// Returns the addresses of a host in the order in which the caller should try them. Has no time limit.
pub(super) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let mut found = found(host).await?;
    found.iter_mut().for_each(|address| address.set_port(port));
    let tried = tried().get(host).copied().unwrap_or_default();
    Ok(in_order(found, tried))
}

/// Sorts the addresses of a host. The address that worked (`good`) is first. The address that did not work (`bad`) is
/// the last of its family. The other addresses keep the order in which the system returned them. IPv4 and IPv6
/// addresses alternate, because one of the two families may not work at all.
fn in_order(mut addresses: Vec<SocketAddr>, Tried { good, bad }: Tried) -> Vec<SocketAddr> {
    addresses.sort_by_key(|address| {
        let address = Some(address.ip());
        (address == bad, address != good)
    });
    let begins_with_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == begins_with_v6);
    let mut first = first.into_iter();
    let mut second = second.into_iter();
    let in_turn = std::iter::from_fn(|| Some([first.next(), second.next()]));
    in_turn.take_while(|pair| pair.iter().any(Option::is_some)).flatten().flatten().collect()
}

/// Waits for the look-up of the host. Starts a look-up if none is in progress.
async fn found(host: &str) -> io::Result<Vec<SocketAddr>> {
    let name = host.to_owned();
    let find = move || {
        let found = (&*name, 0).to_socket_addrs().map(Iterator::collect);
        found.map_err(|error| (error.kind(), error.to_string()))
    };
    let begin = || {
        let mut all = look_ups();
        all.retain(|_, look_up| !look_up.has_ended());
        all.entry(host.to_owned()).or_default().run("quorlock-lookup", find)
    };
    let found = begin().map_err(|error| {
        io::Error::other(format!("the host cannot be looked up without a thread: {error}"))
    })?;
    let panicked = || (io::ErrorKind::Other, "the look-up of the host panicked".to_owned());
    let found = found.await.unwrap_or_else(|| Err(panicked()));
    found.map_err(|(kind, text)| io::Error::new(kind, text))
}

#[cfg(test)]
mod tests {
    use super::{Attempt, Tried, in_order, tried};
    use std::net::SocketAddr;

    #[test]
    fn families_are_tried_in_turn_and_the_address_that_worked_first() {
        let all = |addresses: &[&str]| -> Vec<SocketAddr> {
            addresses.iter().map(|address| address.parse().expect("an address")).collect()
        };
        let [a, b, c] = ["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1"];
        let x = "192.0.2.1:1";
        let y = "192.0.2.2:1";
        for (found, good, bad, expected) in [
            (&[a, b, c, x, y][..], "", "", [a, x, b, y, c]),
            (&[a, b, c, x, y], "192.0.2.2", "", [y, a, x, b, c]),
            (&[a, b, c, x, y], "2001:db8::3", "", [c, x, a, y, b]),
            (&[x, a, y, b, c], "192.0.2.9", "", [x, a, y, b, c]),
            (&[a, b, c, x, y], "", "2001:db8::1", [b, x, c, y, a]),
            (&[x, a, y, b, c], "192.0.2.2", "192.0.2.1", [y, a, x, b, c]),
        ] {
            let [good, bad] = [good, bad].map(|address| address.parse().ok());
            assert_eq!(in_order(all(found), Tried { good, bad }), all(&expected));
        }
        let none = Tried::default();
        assert!(in_order(Vec::new(), none).is_empty());
    }

    #[test]
    fn address_at_which_no_server_answers_is_tried_last() {
        let addresses = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().expect("an address"));
        let host = "two.example";
        let order = || {
            let all = addresses.map(|address| SocketAddr::new(address, 1)).into();
            let found = in_order(all, tried().get(host).copied().unwrap_or_default());
            found.iter().map(SocketAddr::ip).collect::<Vec<_>>()
        };
        let [one, other] = addresses;
        drop(Attempt::new(host, one));
        assert_eq!(order(), [other, one]);
        Attempt::new(host, other).succeeded();
        drop(Attempt::new(host, other));
        assert_eq!(order(), [one, other]);
        Attempt::new(host, other).succeeded();
        assert_eq!(order(), [other, one]);
    }
}
