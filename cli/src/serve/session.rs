//! One connection: reads its requests, and answers them in order. Its end releases its leases, and cancels what it waits
//! for, so it also watches for the end while a request waits.
//!
//! An idle connection has no buffer: there may be thousands.

use crate::acquiring::names;
use crate::output::json;
use crate::serve::clients::{Clients, Connection, Losses, Peer};
use crate::serve::command::{self, Command, Id, Options, Refusal};
use crate::serve::wire::{self, MAX_REQUEST, Malformed, Replies};
use quorlock::{Adoption, Client, Dialect, Error, Lease, Lock, OptionValue, Pending, Semaphore};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// How much is read at once.
const CHUNK: usize = 4096;
/// How many bytes of replies are collected before they are written, and of handled requests before they are removed.
const BATCH: usize = 16 * 1024;
/// How long a client may take to read what was written.
const SLOWEST: Duration = Duration::from_secs(10);

const CLOSING: &str = "CLOSED the daemon is about to end";

/// What the core calls a lease of another connection.
const ANOTHER_LEASE: &str = "another lease of this client";

/// What all connections share.
pub(crate) struct Daemon {
    pub(crate) client: Client,
    pub(crate) clients: Arc<Clients>,
    /// The most leases of one connection.
    pub(crate) max_leases: usize,
    /// The longest time that a client may hold a lease; `None` for no limit.
    pub(crate) max_hold: Option<Duration>,
    /// The name of this host, for holder names.
    pub(crate) host: String,
    /// Whether the daemon is about to end.
    pub(crate) draining: watch::Receiver<bool>,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client has closed it, or asked for its end.
    Gone,
    /// The client sent something that is no request.
    Malformed(Malformed),
    /// The client did not read its replies.
    Slow,
    /// The daemon is about to end, and the connection has no valid lease.
    Drained,
}

/// Why a request has no result.
enum Stop {
    /// The reply is this error.
    Refused(Refusal),
    /// The connection has ended.
    Ended(End),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error_text(&error))
    }
}

impl From<End> for Stop {
    fn from(end: End) -> Self {
        Self::Ended(end)
    }
}

/// A connection with its buffers.
pub(crate) struct Session {
    daemon: Arc<Daemon>,
    connection: Connection,
    stream: UnixStream,
    draining: watch::Receiver<bool>,
    /// Whether the client has asked for push messages. Clients that do not know them would take them for replies.
    is_pushing: bool,
    losses: Arc<Losses>,
    /// What was received, and not handled yet.
    input: Vec<u8>,
    replies: Replies,
}

impl Session {
    pub(crate) fn new(daemon: Arc<Daemon>, stream: UnixStream) -> Self {
        let peer = stream.peer_cred().map_or_else(
            |_| Peer::default(),
            |peer| Peer { pid: peer.pid().filter(|pid| *pid > 0), uid: Some(peer.uid()) },
        );
        let connection = daemon.clients.connect(peer);
        let draining = daemon.draining.clone();
        let (losses, input, replies) = Default::default();
        let is_pushing = false;
        Self { daemon, connection, stream, draining, is_pushing, losses, input, replies }
    }

    /// Handles requests until the connection ends. Dropping the future ends it, too.
    pub(crate) async fn run(mut self) -> End {
        loop {
            if let Err(end) = self.turn().await {
                // A client that has pipelined requests may still read the replies.
                if let End::Malformed(what) = end {
                    self.replies.error(&format!("ERR Protocol error: {what}"));
                }
                if end != End::Slow {
                    let _ = self.flush().await;
                }
                return end;
            }
        }
    }

    /// Waits for requests, and handles all that have arrived.
    async fn turn(&mut self) -> Result<(), End> {
        self.next_input().await?;
        let mut at = 0;
        while let Some(length) = wire::request_length(&self.input[at..]).map_err(End::Malformed)? {
            let words = wire::words(&self.input[at..at + length]).map_err(End::Malformed)?;
            at += length;
            if at == self.input.len() || at >= BATCH {
                self.input.drain(..at);
                at = 0;
            }
            self.handle(words).await?;
            // Many requests that need no node must not keep leases from being renewed.
            tokio::task::consume_budget().await;
            if self.replies.bytes.len() >= BATCH {
                self.flush().await?;
            }
        }
        self.input.drain(..at);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        self.flush().await?;
        self.replies.bytes = Vec::new();
        Ok(())
    }

    /// Waits for input while no request is in progress.
    async fn next_input(&mut self) -> Result<(), End> {
        loop {
            tokio::select! {
                biased;
                read = read_some(&mut self.stream, &mut self.input) => return read,
                () = self.losses.notify.notified(), if self.is_pushing => {
                    self.push_losses();
                    self.flush().await?;
                }
                () = finished(&mut self.draining, &self.connection) => return Err(End::Drained),
            }
        }
    }

    /// Waits for a result, unless the client goes away or, where `may_drain`, the daemon is about to end. Keeps what the
    /// client sends meanwhile.
    async fn attend<T>(&mut self, mut pending: Pending<T>, may_drain: bool) -> Result<T, Stop> {
        self.flush().await?;
        loop {
            tokio::select! {
                biased;
                value = &mut pending => return Ok(value),
                read = read_some(&mut self.stream, &mut self.input) => {
                    read?;
                    if self.input.len() > 2 * MAX_REQUEST {
                        let what = "too much was sent behind a request that waits";
                        return Err(End::Malformed(what).into());
                    }
                }
                () = drained(&mut self.draining), if may_drain => {
                    return Err(CLOSING.to_owned().into());
                }
                () = self.losses.notify.notified(), if self.is_pushing => {
                    self.push_losses();
                    self.flush().await?;
                }
            }
        }
    }

    /// Writes all replies.
    async fn flush(&mut self) -> Result<(), End> {
        if self.replies.bytes.is_empty() {
            return Ok(());
        }
        let written = match self.stream.try_write(&self.replies.bytes) {
            Ok(written) => written,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(_) => return Err(End::Gone),
        };
        if written < self.replies.bytes.len() {
            self.write_slowly(written).await?;
        }
        self.replies.bytes.clear();
        Ok(())
    }

    /// Writes the replies from this byte on to a client that does not read fast enough.
    async fn write_slowly(&mut self, from: usize) -> Result<(), End> {
        for chunk in self.replies.bytes[from..].chunks(BATCH) {
            match timeout(SLOWEST, self.stream.write_all(chunk)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(End::Gone),
                Err(_) => return Err(End::Slow),
            }
        }
        Ok(())
    }

    /// Sends push messages from now on, or no longer. RESP2 has none.
    fn set_pushing(&mut self, is_pushing: bool) {
        self.is_pushing = is_pushing && self.replies.is_resp3;
        if !self.is_pushing {
            // The leases that are watched report their losses to the old one, which nobody reads.
            self.losses = Arc::default();
        }
    }

    fn push_losses(&mut self) {
        for (id, error) in self.losses.take() {
            self.replies.push(3);
            self.replies.bulk(b"lost");
            self.replies.bulk(id.to_string().as_bytes());
            self.replies.bulk(error_text(&error).as_bytes());
        }
    }

    /// Answers a request.
    async fn handle(&mut self, words: Vec<Vec<u8>>) -> Result<(), End> {
        let answered = match command::parse(words) {
            Ok(command) => self.answer(command).await,
            Err(refusal) => Err(refusal.into()),
        };
        match answered {
            Ok(()) => {}
            Err(Stop::Refused(refusal)) => self.replies.error(&refusal),
            Err(Stop::Ended(end)) => return Err(end),
        }
        Ok(())
    }

    async fn answer(&mut self, command: Command) -> Result<(), Stop> {
        match command {
            Command::Lock { resources, options } => self.lock(resources, options).await?,
            Command::Adopt { text, options } => {
                let adoption = self.daemon.client.adopt(&text);
                let set = |adoption: Adoption, (name, value): (&str, _)| {
                    adoption.option(Dialect::Resp, name, &value)
                };
                let adoption = self.complete(options)?.into_iter().fold(adoption, set);
                let resources = adoption.resources().to_vec();
                self.acquire(&resources, || adoption.acquire()).await?;
            }
            Command::Unlock(id) => {
                let is_released = match self.connection.take(id)? {
                    Some(lease) => self.attend(lease.release(), false).await?,
                    None => false,
                };
                self.replies.integer(is_released.into());
            }
            Command::Extend { id, ttl } => {
                let lease = self.held(id)?;
                let extending = lease.extend_by(Dialect::Resp, ttl.as_ref());
                self.attend(extending, false).await??;
                self.replies.integer(valid_for(&lease));
            }
            Command::Check(id) => {
                let lease = self.held(id)?;
                lease.check()?;
                self.replies.integer(valid_for(&lease));
            }
            Command::Detach { id, within } => {
                let detaching = self.held(id)?.detach_by(Dialect::Resp, within.as_ref());
                let detached = self.attend(detaching, false).await??;
                let _ = self.connection.take(id);
                self.replies.bulk(detached.into_text().as_bytes());
            }
            Command::Lost(id) => {
                let loss = match self.daemon.clients.find(id)? {
                    Some(lease) => self.attend(lease.lost(), false).await?,
                    None => None,
                };
                match loss {
                    Some(error) => self.replies.bulk(error_text(&error).as_bytes()),
                    None => self.replies.null(),
                }
            }
            Command::Status { resource, limit: None } => {
                let asking = self.daemon.client.status(resource);
                let status = self.attend(asking, false).await??;
                self.replies.bulk(json(&[status]).as_bytes());
            }
            Command::Status { resource, limit: Some(limit) } => {
                let client = &self.daemon.client;
                let asking = client.semaphore_as(Dialect::Resp, resource, &limit).status();
                let status = self.attend(asking, false).await??;
                self.replies.bulk(json(&[status]).as_bytes());
            }
            Command::Push(true) if !self.replies.is_resp3 => {
                return Err("ERR CLIENT PUSH ON needs RESP3: send HELLO 3 first".to_owned().into());
            }
            Command::Quit => {
                self.replies.simple("OK");
                return Err(End::Gone.into());
            }
            other => self.answer_at_once(other),
        }
        Ok(())
    }

    /// Answers a command that needs no node.
    fn answer_at_once(&mut self, command: Command) {
        let replies = &mut self.replies;
        match command {
            Command::Ping(None) => replies.simple("PONG"),
            Command::Ping(Some(text)) | Command::Echo(text) => replies.bulk(&text),
            Command::Hello { version, name } => self.hello(version, name),
            Command::SetName(name) => {
                self.connection.set_name(name);
                replies.simple("OK");
            }
            Command::GetName => match self.connection.name() {
                name if name.is_empty() => replies.null(),
                name => replies.bulk(name.as_bytes()),
            },
            Command::ClientId => replies.integer(self.connection.number),
            Command::StatusOfAll => {
                let is_draining = *self.draining.borrow();
                let described = self.daemon.clients.describe(&self.daemon.client, is_draining);
                replies.bulk(described.as_bytes());
            }
            Command::Metrics => {
                replies.bulk(self.daemon.client.stats().to_prometheus().as_bytes());
            }
            Command::Push(is_pushing) => {
                replies.simple("OK");
                self.set_pushing(is_pushing);
            }
            Command::Info => {
                let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
                let text = format!(
                    "# Server\r\nserver:quorlock\r\nquorlock_version:{version}\r\nprocess_id:{pid}\r\n"
                );
                replies.bulk(text.as_bytes());
            }
            Command::NoneKnown => replies.array(0),
            Command::Reset => {
                replies.is_resp3 = false;
                replies.simple("RESET");
                self.connection.set_name(String::new());
                self.set_pushing(false);
            }
            _ => replies.simple("OK"),
        }
    }

    /// Answers `HELLO` as Redis does.
    fn hello(&mut self, version: Option<u8>, name: Option<String>) {
        if let Some(version) = version {
            self.replies.is_resp3 = version == 3;
            self.set_pushing(self.is_pushing);
        }
        let replies = &mut self.replies;
        if let Some(name) = name {
            self.connection.set_name(name);
        }
        replies.map(7);
        let version = if replies.is_resp3 { 3 } else { 2 };
        for (key, number) in [("proto", version), ("id", self.connection.number)] {
            replies.bulk(key.as_bytes());
            replies.integer(number);
        }
        let own = env!("CARGO_PKG_VERSION");
        let texts =
            [("server", "quorlock"), ("version", own), ("mode", "standalone"), ("role", "master")];
        for (key, text) in texts {
            replies.bulk(key.as_bytes());
            replies.bulk(text.as_bytes());
        }
        replies.bulk(b"modules");
        replies.array(0);
    }

    async fn lock(&mut self, resources: Vec<String>, options: Options) -> Result<(), Stop> {
        let mut options = self.complete(options)?;
        let has = |name: &str| options.iter().position(|(given, _)| *given == name);
        let client = &self.daemon.client;
        let Some(limit) = has("LIMIT") else {
            if has("PERMITS").is_some() {
                return Err("CONFIG PERMITS needs LIMIT".to_owned().into());
            }
            let set =
                |lock: Lock, (name, value): (&str, _)| lock.option(Dialect::Resp, name, &value);
            let lock = options.into_iter().fold(client.lock(&*resources), set);
            return self.acquire(&resources, || lock.acquire()).await;
        };
        let [resource] = &*resources else {
            return Err(
                "CONFIG LIMIT takes one resource: a semaphore has permits of a single resource"
                    .to_owned()
                    .into(),
            );
        };
        let (_, limit) = options.remove(limit);
        let set = |semaphore: Semaphore, (name, value): (&str, _)| {
            semaphore.option(Dialect::Resp, name, &value)
        };
        let semaphore = client.semaphore_as(Dialect::Resp, resource, &limit);
        let semaphore = options.into_iter().fold(semaphore, set);
        self.acquire(&resources, || semaphore.acquire()).await
    }

    /// Acquires a lease for this connection, and replies with its id.
    async fn acquire(
        &mut self,
        resources: &[String],
        begin: impl FnOnce() -> Pending<quorlock::Result<Lease>>,
    ) -> Result<(), Stop> {
        if *self.draining.borrow() {
            return Err(CLOSING.to_owned().into());
        }
        let most = self.daemon.max_leases;
        if self.connection.leases() >= most {
            return Err(format!(
                "ERR the connection has {most} leases, and may not have more: UNLOCK also those that were lost"
            )
            .into());
        }
        self.connection.set_waiting(Some(names(resources)));
        let acquired = self.attend(begin(), true).await;
        self.connection.set_waiting(None);
        let (id, lease) = self.connection.add(acquired??);
        if self.is_pushing {
            self.losses.watch(id, &lease);
        }
        let (fence, slots) = (lease.fences().next().map_or(0, |(_, fence)| fence), lease.slots());
        let replies = &mut self.replies;
        replies.array(if slots.is_empty() { 3 } else { 4 });
        replies.bulk(id.to_string().as_bytes());
        replies.integer(fence);
        replies.integer(valid_for(&lease));
        if !slots.is_empty() {
            replies.array(slots.len());
            slots.into_iter().for_each(|slot| replies.integer(slot.into()));
        }
        Ok(())
    }

    /// Returns the options with the holder's name, unless one is given. Refuses to hold for longer than the daemon allows.
    fn complete(&self, mut options: Options) -> Result<Options, Refusal> {
        if let Some((_, hold)) = options.iter().find(|(name, _)| *name == "MAXHOLD")
            && let Some(most) = self.daemon.max_hold
        {
            let is_longer = match hold {
                OptionValue::Null => true,
                OptionValue::Number(milliseconds) => *milliseconds > most.as_secs_f64() * 1e3,
                _ => false,
            };
            if is_longer {
                let most = most.as_millis();
                return Err(format!(
                    "CONFIG MAXHOLD must be at most {most} ms, the --max-hold of the daemon"
                ));
            }
        }
        if !options.iter().any(|(name, _)| *name == "HOLDER") {
            options.push(("HOLDER", OptionValue::Text(self.holder())));
        }
        Ok(options)
    }

    /// Returns the default name of a holder: the host, and the name of the client or of its process.
    fn holder(&self) -> String {
        let (host, name) = (&self.daemon.host, self.connection.name());
        match self.connection.peer().pid {
            _ if !name.is_empty() => format!("{host}:{name}"),
            Some(pid) => format!("{host}:{pid}"),
            // The process is of another namespace.
            None => format!("{host}:connection-{}", self.connection.number),
        }
    }

    /// Returns a lease of this connection that was not released.
    fn held(&self, id: Id) -> Result<Arc<Lease>, Refusal> {
        let ended = || format!("LEASELOST lease {id} was released or detached");
        self.connection.own(id)?.ok_or_else(ended)
    }
}

/// Waits until the daemon is about to end.
async fn drained(draining: &mut watch::Receiver<bool>) {
    // An error means that the daemon has ended.
    let _ = draining.wait_for(|is_draining| *is_draining).await;
}

/// Waits until the daemon is about to end, and no lease of the connection is valid.
async fn finished(draining: &mut watch::Receiver<bool>, connection: &Connection) {
    drained(draining).await;
    while let Some(lease) = connection.valid_lease() {
        lease.lost().await;
    }
}

/// Waits for input, and reads it. Reads no more than [`CHUNK`], so that no client takes all the time.
async fn read_some(stream: &mut UnixStream, input: &mut Vec<u8>) -> Result<(), End> {
    stream.readable().await.map_err(|_| End::Gone)?;
    input.reserve(CHUNK);
    match (&mut *stream).take(CHUNK as u64).read_buf(input).await {
        Ok(0) | Err(_) => Err(End::Gone),
        Ok(_) => Ok(()),
    }
}

/// Returns for how many milliseconds the lease is certainly valid.
fn valid_for(lease: &Lease) -> u64 {
    u64::try_from(lease.remaining().as_millis()).unwrap_or(u64::MAX)
}

/// Returns an error as clients get it: its code without underscores, and its message.
fn error_text(error: &Error) -> String {
    let (code, mut text) = (error.code().as_str().replace('_', ""), error.to_string());
    // All connections share one client of the core. Of several holders, none has its name in the error.
    let holder = error.holder().map_or_else(
        || "another lease of the same daemon".to_owned(),
        |holder| format!("{holder}, through the same daemon"),
    );
    text = text.replacen(ANOTHER_LEASE, &holder, 1);
    format!("{code} {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinHandle;

    /// A daemon whose nodes are in memory, under names of this test.
    struct Served {
        daemon: Arc<Daemon>,
        drainer: watch::Sender<bool>,
    }

    impl Served {
        fn new(test: &str) -> Self {
            let nodes = ["a", "b", "c"].map(|name| format!("memory://{test}-{name}"));
            let client = Client::builder().nodes(nodes).build().expect("a client");
            let (drainer, draining) = watch::channel(false);
            let daemon = Daemon {
                client,
                clients: Arc::new(Clients::new().expect("random numbers")),
                max_leases: 10,
                max_hold: Some(Duration::from_secs(60)),
                host: "host".to_owned(),
                draining,
            };
            Self { daemon: Arc::new(daemon), drainer }
        }

        /// Opens a connection.
        fn connect(&self) -> (UnixStream, JoinHandle<End>) {
            let (ours, theirs) = UnixStream::pair().expect("two sockets");
            (ours, tokio::spawn(Session::new(Arc::clone(&self.daemon), theirs).run()))
        }

        async fn is_held(&self, resource: &str) -> bool {
            self.daemon.client.lock(resource).locked().await.expect("an answer")
        }
    }

    async fn ask(stream: &mut UnixStream, line: &str) -> String {
        let mut request = Replies::default();
        let words: Vec<_> = line.split(' ').collect();
        request.array(words.len());
        words.iter().for_each(|word| request.bulk(word.as_bytes()));
        stream.write_all(&request.bytes).await.expect("an open connection");
        read(stream).await
    }

    /// Reads what the daemon sends next.
    async fn read(stream: &mut UnixStream) -> String {
        let mut reply = Vec::with_capacity(CHUNK);
        let reading = stream.read_buf(&mut reply);
        timeout(Duration::from_secs(30), reading).await.expect("in time").expect("a reply");
        String::from_utf8(reply).expect("text")
    }

    /// Sends a `LOCK` that must succeed, and returns the id of the lease.
    async fn lock(stream: &mut UnixStream, line: &str) -> String {
        let reply = ask(stream, line).await;
        assert!(reply.starts_with("*3\r\n$"), "{reply}");
        reply.split("\r\n").nth(2).expect("an id").to_owned()
    }

    #[tokio::test]
    async fn the_end_of_a_connection_releases_its_leases() {
        let served = Served::new("release");
        let (mut holder, ended) = served.connect();
        lock(&mut holder, "LOCK r").await;
        assert!(served.is_held("r").await);
        drop(holder);
        assert_eq!(ended.await.expect("an end"), End::Gone);
        // The ttl is 10 s.
        let lock = served.daemon.client.lock("r").wait(Duration::from_secs(5));
        lock.acquire().await.expect("it was released").release().await;
    }

    #[tokio::test]
    async fn the_end_of_a_connection_cancels_its_lock() {
        let served = Served::new("cancel");
        let (mut holder, _) = served.connect();
        let id = lock(&mut holder, "LOCK r").await;
        let (mut waiter, ended) = served.connect();
        assert!(
            ask(&mut waiter, "LOCK r WAIT 0").await.starts_with("-TIMEOUT \"r\" is held by host:")
        );
        // The request behind it does not hide the end.
        let requests =
            b"*4\r\n$4\r\nLOCK\r\n$1\r\nr\r\n$4\r\nWAIT\r\n$7\r\nFOREVER\r\n*1\r\n$4\r\nPING\r\n";
        waiter.write_all(requests).await.expect("an open connection");
        drop(waiter);
        let ended = timeout(Duration::from_secs(30), ended).await.expect("it ends in time");
        assert_eq!(ended.expect("an end"), End::Gone);
        assert_eq!(served.daemon.clients.count(), 1);
        assert_eq!(ask(&mut holder, &format!("UNLOCK {id}")).await, ":1\r\n");
    }

    #[tokio::test]
    async fn the_id_of_another_connection_is_refused() {
        let served = Served::new("foreign");
        let ((mut holder, _), (mut other, _)) = (served.connect(), served.connect());
        let id = lock(&mut holder, "LOCK r").await;
        let refusal = format!("-ERR lease {id} belongs to another connection");
        for command in ["UNLOCK", "EXTEND", "CHECK", "DETACH"] {
            let reply = ask(&mut other, &format!("{command} {id}")).await;
            assert!(reply.starts_with(&refusal), "{reply}");
        }
        assert!(served.is_held("r").await);
        assert_eq!(ask(&mut holder, &format!("UNLOCK {id}")).await, ":1\r\n");
    }

    #[tokio::test]
    async fn the_id_of_an_earlier_daemon_is_refused() {
        let (earlier, served) = (Served::new("earlier"), Served::new("later"));
        let ((mut first, _), (mut client, _)) = (earlier.connect(), served.connect());
        let stale = lock(&mut first, "LOCK r").await;
        let id = lock(&mut client, "LOCK r").await;
        assert_ne!(id, stale);
        let refusal = format!("-ERR this daemon has not issued lease {stale}: ");
        for command in ["UNLOCK", "EXTEND", "CHECK", "DETACH", "LOST"] {
            let reply = ask(&mut client, &format!("{command} {stale}")).await;
            assert!(reply.starts_with(&refusal), "{reply}");
        }
        assert_eq!(ask(&mut client, &format!("UNLOCK {id}")).await, ":1\r\n");
    }

    #[tokio::test]
    async fn losses_are_pushed_only_to_a_client_that_has_asked() {
        let served = Served::new("push");
        let (mut client, _) = served.connect();
        // One reply, and no message with it.
        let is_bulk = |reply: &str| reply.starts_with('$') && reply.matches("\r\n").count() == 2;
        let refused = "-ERR CLIENT PUSH ON needs RESP3: send HELLO 3 first\r\n";
        assert_eq!(ask(&mut client, "CLIENT PUSH ON").await, refused);
        assert!(ask(&mut client, "HELLO 3").await.starts_with("%7\r\n"));
        let id = lock(&mut client, "LOCK r MAXHOLD 1000").await;
        assert!(is_bulk(&ask(&mut client, &format!("LOST {id}")).await));
        for _ in 0..2 {
            assert_eq!(ask(&mut client, "PING").await, "+PONG\r\n");
        }
        assert_eq!(ask(&mut client, "CLIENT PUSH ON").await, "+OK\r\n");
        let id = lock(&mut client, "LOCK r MAXHOLD 1000").await;
        let pushed = read(&mut client).await;
        assert!(pushed.starts_with(&format!(">3\r\n$4\r\nlost\r\n${}\r\n{id}\r\n", id.len())));
        for off in ["CLIENT PUSH OFF", "HELLO 2", "RESET"] {
            ask(&mut client, "HELLO 3").await;
            assert_eq!(ask(&mut client, "CLIENT PUSH ON").await, "+OK\r\n");
            let id = lock(&mut client, "LOCK r MAXHOLD 1000").await;
            ask(&mut client, off).await;
            assert!(is_bulk(&ask(&mut client, &format!("LOST {id}")).await), "{off}");
            for _ in 0..2 {
                assert_eq!(ask(&mut client, "PING").await, "+PONG\r\n", "{off}");
            }
        }
    }

    #[tokio::test]
    async fn a_client_cannot_hold_longer_than_the_daemon_allows() {
        let served = Served::new("hold");
        let (mut client, _) = served.connect();
        for hold in ["60001", "FOREVER"] {
            let reply = ask(&mut client, &format!("LOCK r MAXHOLD {hold}")).await;
            assert!(reply.starts_with("-CONFIG MAXHOLD must be at most 60000 ms"), "{reply}");
        }
        assert!(ask(&mut client, "LOCK r MAXHOLD 60000").await.starts_with("*3"));
    }

    #[tokio::test]
    async fn a_connection_without_leases_ends_when_the_daemon_drains() {
        let served = Served::new("drain");
        let ((mut holder, held), (_idle, ended)) = (served.connect(), served.connect());
        let id = lock(&mut holder, "LOCK r").await;
        served.drainer.send_replace(true);
        assert_eq!(ended.await.expect("an end"), End::Drained);
        assert!(ask(&mut holder, "LOCK s").await.starts_with("-CLOSED "));
        assert_eq!(ask(&mut holder, &format!("UNLOCK {id}")).await, ":1\r\n");
        assert_eq!(held.await.expect("an end"), End::Drained);
    }

    #[tokio::test]
    async fn a_connection_whose_leases_are_lost_ends_when_the_daemon_drains() {
        let served = Served::new("lost");
        let ((mut early, lost), (mut late, held)) = (served.connect(), served.connect());
        let id = lock(&mut early, "LOCK a MAXHOLD 200").await;
        ask(&mut early, &format!("LOST {id}")).await;
        lock(&mut late, "LOCK b MAXHOLD 200").await;
        lock(&mut late, "LOCK c MAXHOLD 1000").await;
        served.drainer.send_replace(true);
        for ended in [lost, held] {
            let ended = timeout(Duration::from_secs(30), ended).await.expect("it ends in time");
            assert_eq!(ended.expect("an end"), End::Drained);
        }
    }

    #[tokio::test]
    async fn the_daemon_is_named_if_the_holder_has_no_name() {
        let served = Served::new("readers");
        let (mut client, _) = served.connect();
        lock(&mut client, "LOCK r MODE shared").await;
        let reply = ask(&mut client, "LOCK r WAIT 0").await;
        assert!(reply.contains(" is held by another lease of the same daemon (fence "), "{reply}");
    }
}
