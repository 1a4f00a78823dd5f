//! The life of the daemon: it opens the socket, accepts clients, and drains.

use crate::args::{Nodes, Serve};
use crate::connect::client_with;
use crate::duration::{self, show};
use crate::exit;
use crate::output::{Failure, Output};
use crate::serve::clients::Clients;
use crate::serve::notes::Notes;
use crate::serve::session::{Daemon, End, Session};
use crate::serve::socket::{Socket, notify, raise_file_limit};
use crate::signals::Signals;
use quorlock::OptionValue;
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The pause after a client could not be accepted, such as for want of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The number of files that are not for clients: connections to nodes, and what the runtime needs.
const OTHER_FILES: u64 = 200;
/// The longest name of this host in a holder name, which must also have room for the client's name.
const LONGEST_HOST: usize = 63;

/// What is printed when clients can connect, as JSON.
#[derive(Serialize)]
struct Ready<'a> {
    socket: &'a str,
    pid: u32,
}

pub(crate) async fn serve(nodes: &Nodes, wanted: &Serve, output: &Output) -> Result<u8, Failure> {
    let further = [("--wait", &wanted.wait), ("--max-hold", &Some(wanted.max_hold.clone()))];
    let client = client_with(nodes, &further)?;
    let drain = match &wanted.drain {
        OptionValue::Null => None,
        value => Some(duration::of(value).ok_or_else(|| {
            Failure::Usage("--drain must be a duration of 0 or more, or forever".to_owned())
        })?),
    };
    let mut signals = Signals::new().map_err(|error| Failure::own("no signals", &error))?;
    let files = raise_file_limit();
    if files < u64::from(wanted.max_clients) + OTHER_FILES {
        output.note(format_args!(
            "the limit of open files, {files}, is too low for --max-clients {}",
            wanted.max_clients
        ));
    }
    let mut socket = Socket::open(wanted).await?;
    let listener = socket.listener.try_clone().and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    let listener = listener.map_err(|error| Failure::own("cannot listen", &error))?;
    let clients =
        Clients::new().map_err(|error| Failure::own("no random numbers", &error.into()))?;
    let notes = Notes::new(output);
    let (drainer, draining) = watch::channel(false);
    let daemon = Arc::new(Daemon {
        client: client.clone(),
        clients: Arc::new(clients),
        max_leases: wanted.max_leases as usize,
        max_hold: duration::of(&wanted.max_hold),
        host: host(),
        draining,
    });
    let name = socket.name.clone();
    if output.json {
        output.print_json(&Ready { socket: &name, pid: std::process::id() })?;
    } else {
        output.print(format_args!("listening on {name}\n"))?;
    }
    notify("READY=1");

    let mut sessions = JoinSet::new();
    let max_clients = wanted.max_clients as usize;
    let accepting = tokio::select! {
        biased;
        _ = signals.end() => Ok(()),
        failed = accept(&listener, &daemon, max_clients, &mut sessions, &notes) => Err(failed),
    };
    notify("STOPPING=1");
    // First the file, so that another daemon finds either this one or nothing.
    socket.remove_file();
    drop((listener, socket));
    drainer.send_replace(true);
    if accepting.is_ok() {
        let left = daemon.clients.valid_leases();
        if left > 0 {
            let limit =
                drain.map_or_else(String::new, |drain| format!(" for up to {}", show(drain)));
            notes.note(format_args!("leases held: {left}; waiting for their release{limit}"));
        }
        tokio::select! {
            biased;
            _ = signals.end() => {}
            () = all(&mut sessions, drain, &notes) => {}
        }
    }
    sessions.shutdown().await;
    client.close().await;
    accepting.map(|()| exit::OK)
}

/// Accepts clients until that fails for good.
async fn accept(
    listener: &UnixListener,
    daemon: &Arc<Daemon>,
    max_clients: usize,
    sessions: &mut JoinSet<End>,
    notes: &Notes,
) -> Failure {
    let mut is_failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = sessions.join_next() => {
                if let Ok(end) = ended {
                    tell(end, notes);
                }
                continue;
            }
        };
        is_failing &= accepted.is_err();
        match accepted {
            Ok((stream, _)) if daemon.clients.count() >= max_clients => {
                refuse(&stream, &daemon.clients);
            }
            Ok((stream, _)) => drop(sessions.spawn(Session::new(Arc::clone(daemon), stream).run())),
            // The socket does not listen.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Failure::own("cannot accept clients", &error);
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    notes.note_limited(format_args!("cannot accept a client: {error}"));
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Turns a client away.
fn refuse(stream: &UnixStream, clients: &Clients) {
    clients.refused.fetch_add(1, Ordering::Relaxed);
    // It was just accepted, so there is room for this.
    let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
}

/// Waits until all connections have ended, for at most `limit`.
async fn all(sessions: &mut JoinSet<End>, limit: Option<Duration>, notes: &Notes) {
    let ended = async {
        while let Some(ended) = sessions.join_next().await {
            if let Ok(end) = ended {
                tell(end, notes);
            }
        }
    };
    match limit {
        Some(limit) => drop(timeout(limit, ended).await),
        None => ended.await,
    }
}

/// Reports the end of a connection that the daemon has closed.
fn tell(end: End, notes: &Notes) {
    match end {
        End::Malformed(what) => notes.note_limited(format_args!("closed a connection: {what}")),
        End::Slow => {
            notes.note_limited("closed a connection whose client did not read its replies");
        }
        End::Gone | End::Drained => {}
    }
}

/// Returns the name of this host, as holder names have it.
fn host() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    name.chars().filter(char::is_ascii_graphic).take(LONGEST_HOST).collect()
}
