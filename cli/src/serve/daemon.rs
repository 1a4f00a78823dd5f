//! The life of the daemon: it opens the socket, accepts clients, and drains.

use crate::args::{Nodes, Serve};
use crate::connect::client_with;
use crate::duration::{self, show};
use crate::exit;
use crate::manager;
use crate::output::{Failure, Output, json};
use crate::serve::budget::{Budget, USED_UP};
use crate::serve::clients::Clients;
use crate::serve::files;
use crate::serve::notes::Notes;
use crate::serve::session::{Daemon, MAX_STATUS_QUERIES, Phase, Session};
use crate::serve::socket::Socket;
use crate::signals::{Signals, keep_running};
use quorlock::{Client, OptionValue};
use rustix::process::Signal;
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// The pause after a client could not be accepted, such as for want of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How many clients are accepted before those that are connected get a turn.
const ACCEPTED_AT_ONCE: usize = 16;
/// How long the end of the daemon waits until all connections are closed. It takes no IO.
const CLOSING: Duration = Duration::from_secs(1);
/// The longest name of this host in a holder name, which must also have room for the client's name.
const LONGEST_HOST: usize = 63;

/// What is printed when clients can connect, as JSON.
#[derive(Serialize)]
struct Ready<'a> {
    socket: &'a str,
    pid: u32,
}

pub(crate) async fn serve(nodes: &Nodes, wanted: &Serve, output: &Output) -> Result<u8, Failure> {
    let heartbeat_timeout = wanted.heartbeat_timeout.as_ref().and_then(duration::of);
    let further = [
        ("wait", &wanted.wait),
        ("max_hold", &Some(wanted.max_hold.clone())),
        ("heartbeat_timeout", &wanted.heartbeat_timeout),
    ];
    let client = client_with(nodes, &further)?;
    let drain = match &wanted.drain {
        OptionValue::Null => None,
        value => Some(duration::of(value).ok_or_else(|| {
            Failure::Usage("--drain must be a duration of 0 or more, or forever".to_owned())
        })?),
    };
    keep_running();
    let mut signals = Signals::new().map_err(|error| Failure::own("no signals", &error))?;
    let mut socket = Socket::open(wanted).await?;
    let listener = socket.listener.try_clone().and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    let listener = listener.map_err(|error| Failure::own("cannot listen", &error))?;
    let clients = Clients::new(Budget::new(wanted.max_memory))
        .map_err(|error| Failure::own("no random numbers", &error.into()))?;
    let max_clients = files::clients(wanted.max_clients, &client, output)?;
    let (sender, phase) = watch::channel(Phase::Serving);
    let daemon = Arc::new(Daemon {
        client: client.clone(),
        clients: Arc::new(clients),
        max_leases: wanted.max_leases as usize,
        max_hold: duration::of(&wanted.max_hold),
        heartbeat_timeout: heartbeat_timeout.filter(|timeout| !timeout.is_zero()),
        host: host(),
        notes: Notes::new(output),
        status_queries: Semaphore::new(MAX_STATUS_QUERIES),
        phase,
    });
    let name = socket.name.clone();
    tokio::select! {
        biased;
        signal = signals.end() => return Ok(status_after(signal)),
        printed = print_ready(&name, output) => printed?,
    }
    let (fail, failing) = oneshot::channel();
    Client::spawn(accept(listener, Arc::clone(&daemon), max_clients, fail))?;
    let ended = tokio::select! {
        biased;
        signal = signals.end() => Ok(status_after(signal)),
        Ok(error) = failing => Err(Failure::own("cannot accept clients", &error)),
        () = manager::tell_ready() => unreachable!("it never returns"),
    };
    manager::tell_stopping();
    // First the file, so that another daemon finds either this one or nothing.
    socket.remove_file();
    drop(socket);
    sender.send_replace(Phase::Draining);
    if ended.is_ok() {
        let left = daemon.clients.valid_leases();
        if left > 0 {
            let limit =
                drain.map_or_else(String::new, |drain| format!(" for up to {}", show(drain)));
            let message = format!("leases held: {left}; waiting for their release{limit}");
            daemon.notes.note(message);
        }
        tokio::select! {
            biased;
            _ = signals.end() => {}
            () = none_left(&daemon, drain) => {}
        }
    }
    sender.send_replace(Phase::Ending);
    none_left(&daemon, Some(CLOSING)).await;
    client.close().await;
    ended
}

/// Returns the exit status after a signal. Those that ask a daemon to end are no failure; after others, such as the hang-up
/// of a terminal, a service manager starts it again.
fn status_after(signal: u8) -> u8 {
    let expected = [Signal::INT, Signal::TERM];
    let is_expected = expected.iter().any(|expected| expected.as_raw() == i32::from(signal));
    if is_expected { exit::OK } else { exit::SIGNAL + signal }
}

/// Prints that clients can connect.
async fn print_ready(name: &str, output: &Output) -> Result<(), Failure> {
    let ready = Ready { socket: name, pid: std::process::id() };
    let text = if output.json { json(&ready) } else { format!("listening on {name}") };
    output.print_aside(&format!("{text}\n")).await
}

/// Accepts clients until the daemon is about to end, or until that fails for good.
async fn accept(
    listener: UnixListener,
    daemon: Arc<Daemon>,
    max_clients: usize,
    fail: oneshot::Sender<io::Error>,
) {
    let mut phase = daemon.phase.clone();
    let accepting = async {
        let mut is_failing = false;
        let mut accepted = 0;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    is_failing = false;
                    admit(stream, &daemon, max_clients);
                }
                // The socket does not listen.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return error,
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        let message = format_args!("cannot accept a client: {error}");
                        daemon.notes.note_limited(message);
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
            accepted += 1;
            if accepted % ACCEPTED_AT_ONCE == 0 {
                yield_now().await;
            }
        }
    };
    tokio::select! {
        biased;
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
        // Sending fails only at the end of the daemon.
        error = accepting => drop(fail.send(error)),
    }
}

/// Serves a client, or turns it away.
fn admit(stream: UnixStream, daemon: &Arc<Daemon>, max_clients: usize) {
    let refuse = |stream: &UnixStream, error: &str| {
        daemon.clients.refused.fetch_add(1, Ordering::Relaxed);
        // It was just accepted, so there is room for this.
        let _ = stream.try_write(format!("-{error}\r\n").as_bytes());
    };
    if daemon.clients.count() >= max_clients {
        return refuse(&stream, "ERR max number of clients reached");
    }
    let Some(memory) = daemon.clients.memory_for_connection() else {
        return refuse(&stream, USED_UP);
    };
    let session = Session::new(Arc::clone(daemon), stream, memory);
    // The runtime runs this code, so it has started.
    let _ = Client::spawn(async {
        let _ = session.run().await;
    });
}

/// Waits until all connections have ended, for at most `limit`.
async fn none_left(daemon: &Daemon, limit: Option<Duration>) {
    let none_left = daemon.clients.none_left();
    match limit {
        Some(limit) => drop(timeout(limit, none_left).await),
        None => none_left.await,
    }
}

/// Returns the name of this host, as holder names have it.
fn host() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    name.chars().filter(char::is_ascii_graphic).take(LONGEST_HOST).collect()
}
