//! One connection: reads its requests, and answers them in order. Its end releases its leases, and cancels what it waits
//! for, so it also watches for the end while a request waits.
//!
//! An idle connection has no buffer: there may be thousands. What a client makes the daemon keep in memory is taken from the
//! budget first.

use crate::acquiring::names;
use crate::output::json;
use crate::serve::budget::{self, COPIES, LeaseShares, Share, TOO_MANY_RENEWALS, USED_UP, UsedUp};
use crate::serve::clients::{Clients, Connection, Losses, Peer};
use crate::serve::command::{self, Command, HEARTBEAT, Id, Options, Refusal};
use crate::serve::notes::Notes;
use crate::serve::wire::{self, MAX_REQUEST, Malformed, Replies};
use quorlock::{Client, Dialect, Error, Lease, OptionValue, Owner, Pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::{self, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// The pause between two looks whether a client whose input is not read has gone away.
const LOOK_FOR_END: Duration = Duration::from_millis(100);

/// All clients run in one task, which is therefore not the owner of their leases.
const NO_OWNER: Option<Owner> = None;

/// How much is read at once.
const CHUNK: usize = 4096;
/// How many bytes of replies are collected before they are written, and of handled requests before they are removed.
const BATCH: usize = 16 * 1024;
/// How long a client may take to read what was written, and to send the rest of a request.
const SLOWEST: Duration = Duration::from_secs(10);
/// How long a connection handles requests before others get a turn.
const TURN: Duration = Duration::from_micros(200);
/// The buffers and requests of this size are part of what a connection takes anyway.
const SHORT: usize = 2 * CHUNK;

/// The maximum number of STATUS requests that query the nodes at the same time. Further ones wait, because the size of the
/// answers is not known in advance.
pub(crate) const MAX_STATUS_QUERIES: usize = 4;

/// How many of the resources for which a client waits are named in the status of the daemon. The status is not taken
/// from the budget.
const NAMED: usize = 3;

const CLOSING: &str = "CLOSED the daemon is about to end";

/// What all connections share.
pub(crate) struct Daemon {
    pub(crate) client: Client,
    pub(crate) clients: Arc<Clients>,
    /// The most leases of one connection.
    pub(crate) max_leases: usize,
    /// The longest time that a client may hold a lease; `None` for no limit.
    pub(crate) max_hold: Option<Duration>,
    /// The longest time for which a client may get its leases renewed without a heartbeat; `None` for no limit.
    pub(crate) heartbeat_timeout: Option<Duration>,
    /// The name of this host, for holder names.
    pub(crate) host: String,
    pub(crate) notes: Notes,
    /// A permit for each STATUS request that may query the nodes now: see [`MAX_STATUS_QUERIES`].
    pub(crate) status_queries: sync::Semaphore,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// What the daemon does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Phase {
    Serving,
    /// It is about to end, and waits for the release of leases.
    Draining,
    /// It closes all connections.
    Ending,
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
    /// The client did not send the rest of a request.
    Late,
    /// There was no memory for what the client sent.
    UsedUp,
    /// The daemon is about to end, and the connection has no valid lease.
    Drained,
}

impl From<UsedUp> for End {
    fn from(_: UsedUp) -> Self {
        Self::UsedUp
    }
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

impl From<UsedUp> for Stop {
    fn from(error: UsedUp) -> Self {
        Self::Refused(error.into())
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
    phase: watch::Receiver<Phase>,
    /// Whether the client has asked for push messages. Clients that do not know them would take them for replies.
    is_pushing: bool,
    losses: Arc<Losses>,
    input: Input,
    /// Replies that are not written yet.
    replies: Replies,
    /// Where the reply to the current request begins among them.
    reply_at: usize,
}

/// What was received, and not handled yet.
struct Input {
    bytes: Vec<u8>,
    /// When the first of the requests began, of which a part is here.
    began: Option<Instant>,
    /// The memory of all buffers of the connection, beyond [`SHORT`].
    memory: Share,
}

impl Input {
    /// Takes memory for a buffer of this size.
    fn charge(&mut self, bytes: usize) -> Result<(), UsedUp> {
        self.memory.resize(bytes.saturating_sub(SHORT))
    }

    /// Makes room for the next part. No room is left of what was refused.
    fn make_room(&mut self) -> Result<(), End> {
        let length = self.bytes.len();
        if self.bytes.capacity() - length < CHUNK {
            let more = CHUNK.max(length / 2);
            self.charge(length + more)?;
            self.bytes.reserve_exact(more);
        }
        Ok(())
    }

    /// Removes requests that were handled.
    fn remove(&mut self, handled: usize) {
        self.bytes.drain(..handled);
        if self.bytes.capacity() > CHUNK.max(2 * self.bytes.len()) {
            self.bytes.shrink_to_fit();
        }
        self.began = (!self.bytes.is_empty()).then(Instant::now);
    }
}

impl Session {
    /// `memory` is that of the connection.
    pub(crate) fn new(daemon: Arc<Daemon>, stream: UnixStream, memory: Share) -> Self {
        let peer = stream.peer_cred().map_or_else(
            |_| Peer::default(),
            |peer| Peer { pid: peer.pid().filter(|pid| *pid > 0), uid: Some(peer.uid()) },
        );
        let connection = daemon.clients.connect(peer, memory);
        let phase = daemon.phase.clone();
        let memory = daemon.clients.budget.nothing();
        let input = Input { bytes: Vec::new(), began: None, memory };
        let (losses, replies) = Default::default();
        Self {
            daemon,
            connection,
            stream,
            phase,
            is_pushing: false,
            losses,
            input,
            replies,
            reply_at: 0,
        }
    }

    /// Handles requests until the connection or the daemon ends, and reports the end of a connection that the daemon has
    /// closed. Dropping the future ends it, too.
    pub(crate) async fn run(self) -> End {
        let mut phase = self.phase.clone();
        let daemon = Arc::clone(&self.daemon);
        let notes = &daemon.notes;
        let end = tokio::select! {
            biased;
            () = reached(&mut phase, Phase::Ending) => End::Drained,
            end = self.handle_all() => end,
        };
        match end {
            End::Malformed(what) => notes.note_limited(format_args!("closed a connection: {what}")),
            End::Slow => {
                notes.note_limited("closed a connection whose client did not read its replies");
            }
            End::Late => {
                notes.note_limited("closed a connection whose client did not finish its request");
            }
            End::UsedUp => {
                notes.note_limited("closed a connection because clients use all of the memory");
            }
            End::Gone | End::Drained => {}
        }
        end
    }

    async fn handle_all(mut self) -> End {
        loop {
            if let Err(end) = self.turn().await {
                // A client that has pipelined requests may still read the replies.
                match end {
                    End::Malformed(what) => {
                        self.replies.error(&format!("ERR Protocol error: {what}"));
                    }
                    End::Late => self.replies.error("ERR the request was not finished in time"),
                    End::UsedUp => self.replies.error(USED_UP),
                    End::Gone | End::Slow | End::Drained => {}
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
        let mut began = Instant::now();
        let mut at = 0;
        while let Some(length) =
            wire::request_length(&self.input.bytes[at..]).map_err(End::Malformed)?
        {
            let words = wire::words(&self.input.bytes[at..at + length]).map_err(End::Malformed)?;
            at += length;
            if at == self.input.bytes.len() || at >= BATCH {
                self.remove(at);
                at = 0;
            }
            self.handle(words, length).await?;
            if self.replies.bytes.len() >= BATCH {
                self.flush().await?;
            }
            if began.elapsed() >= TURN {
                yield_now().await;
                began = Instant::now();
            }
        }
        if at > 0 {
            self.remove(at);
        }
        self.flush().await
    }

    /// Removes requests that were handled from the input.
    fn remove(&mut self, handled: usize) {
        self.input.remove(handled);
        // Less is always possible.
        let _ = self.charge();
    }

    /// Takes memory for both buffers as they are now: the replies are not written yet.
    fn charge(&mut self) -> Result<(), UsedUp> {
        self.input.charge(self.input.bytes.capacity() + self.replies.bytes.capacity())
    }

    /// Waits for input while no request is in progress.
    async fn next_input(&mut self) -> Result<(), End> {
        let began = self.input.began;
        loop {
            tokio::select! {
                biased;
                read = read_some(&mut self.stream, &mut self.input) => return read,
                () = overdue(began) => return Err(End::Late),
                () = self.losses.notify.notified(), if self.is_pushing => {
                    self.push_losses();
                    self.flush().await?;
                }
                () = finished(&mut self.phase, &self.connection) => return Err(End::Drained),
            }
        }
    }

    /// Waits for a result, unless the client goes away or, where `may_drain`, the daemon is about to end. Keeps what the
    /// client sends meanwhile.
    async fn attend<T>(
        &mut self,
        pending: impl Future<Output = T>,
        may_drain: bool,
    ) -> Result<T, Stop> {
        let mut pending = pin!(pending);
        let mut is_full = false;
        self.flush().await?;
        let attended = loop {
            tokio::select! {
                biased;
                value = &mut pending => break Ok(value),
                read = read_behind(&mut self.stream, &mut self.input, &mut is_full) => read?,
                () = reached(&mut self.phase, Phase::Draining), if may_drain => {
                    break Err(CLOSING.to_owned().into());
                }
                () = self.losses.notify.notified(), if self.is_pushing => {
                    self.push_losses();
                    self.flush().await?;
                }
            }
        };
        if is_full {
            // The client could not send the rest of its request.
            self.input.began = self.input.began.map(|_| Instant::now());
        }
        attended
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
        // A request may wait for hours from now on.
        self.replies.bytes = Vec::new();
        self.reply_at = 0;
        // Less is always possible.
        let _ = self.charge();
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

    /// Answers a request of this length.
    async fn handle(&mut self, words: Vec<Vec<u8>>, length: usize) -> Result<(), End> {
        let mut is_lasting = false;
        self.reply_at = self.replies.bytes.len();
        let answered = match self.memory_for(length) {
            Ok(memory) => match command::parse(words) {
                Ok(command) => {
                    is_lasting = command.is_lasting();
                    self.answer(command, memory).await
                }
                Err(refusal) => Err(refusal.into()),
            },
            Err(error) => Err(error.into()),
        };
        match answered {
            Ok(()) => {}
            Err(Stop::Refused(refusal)) => self.replies.error(&refusal),
            Err(Stop::Ended(end)) => return Err(end),
        }
        let is_refused = self.charge().is_err();
        let replies = &mut self.replies.bytes;
        if is_refused && !is_lasting && replies.len() > self.reply_at + SHORT {
            replies.truncate(self.reply_at);
            replies.shrink_to_fit();
            self.replies.error(USED_UP);
        }
        Ok(())
    }

    /// Takes the memory for a request of this length while it is in progress.
    fn memory_for(&self, length: usize) -> Result<Share, UsedUp> {
        self.daemon.clients.budget.take(COPIES * length.saturating_sub(SHORT / COPIES))
    }

    /// Answers a command. `memory` is what it takes meanwhile.
    async fn answer(&mut self, command: Command, mut memory: Share) -> Result<(), Stop> {
        match command {
            Command::Lock { resources, options } => self.lock(resources, options, memory).await?,
            Command::Adopt { text, options } => {
                let adoption = self.daemon.client.adopt(&text);
                // The share of the request becomes that of the lease, and the text may be longer than what is in it.
                drop(text);
                let adoption = adoption.options(Dialect::Resp, self.complete(options)?);
                let resources = adoption.resources().to_vec();
                let wanted = Wanted {
                    resources: &resources,
                    permits: adoption.slots().len(),
                    ttl: adoption.wanted_ttl(),
                };
                self.acquire(wanted, || adoption.acquire_as(NO_OWNER), memory).await?;
            }
            Command::Unlock(id) => {
                let is_released = match self.connection.take(id)? {
                    Some((lease, _shares)) => self.attend(lease.release(), false).await?,
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
                let daemon = Arc::clone(&self.daemon);
                let _turn = self.attend(daemon.status_queries.acquire(), false).await?;
                let asking = daemon.client.status(resource);
                let status = self.attend(asking, false).await??;
                self.replies.bulk(json(&[status]).as_bytes());
            }
            Command::Status { resource, limit: Some(limit) } => {
                let daemon = Arc::clone(&self.daemon);
                let _turn = self.attend(daemon.status_queries.acquire(), false).await?;
                memory.resize(budget::of_permit_query(resource.len()))?;
                let asking = daemon.client.semaphore_as(Dialect::Resp, resource, &limit).status();
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
                let is_draining = *self.phase.borrow() >= Phase::Draining;
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
                let version = env!("CARGO_PKG_VERSION");
                let pid = std::process::id();
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

    async fn lock(
        &mut self,
        resources: Vec<String>,
        options: Options,
        memory: Share,
    ) -> Result<(), Stop> {
        let mut options = self.complete(options)?;
        let has = |name: &str| options.iter().position(|(given, _)| *given == name);
        let client = &self.daemon.client;
        let Some(limit) = has("LIMIT") else {
            if has("PERMITS").is_some() {
                return Err("CONFIG PERMITS needs LIMIT".to_owned().into());
            }
            let lock = client.lock(&*resources).options(Dialect::Resp, options);
            let wanted = Wanted { resources: &resources, permits: 0, ttl: lock.wanted_ttl() };
            return self.acquire(wanted, || lock.acquire_as(NO_OWNER), memory).await;
        };
        let [resource] = &*resources else {
            return Err(
                "CONFIG LIMIT takes one resource: a semaphore has permits of a single resource"
                    .to_owned()
                    .into(),
            );
        };
        let (_, limit) = options.remove(limit);
        let semaphore = client.semaphore_as(Dialect::Resp, resource, &limit);
        let semaphore = semaphore.options(Dialect::Resp, options);
        let permits = semaphore.permits_wanted() as usize;
        let wanted = Wanted { resources: &resources, permits, ttl: semaphore.wanted_ttl() };
        self.acquire(wanted, || semaphore.acquire_as(NO_OWNER), memory).await
    }

    /// Acquires a lease for this connection, and replies with its id. `memory` becomes that of the lease.
    async fn acquire(
        &mut self,
        Wanted { resources, permits, ttl }: Wanted<'_>,
        begin: impl FnOnce() -> Pending<quorlock::Result<Lease>>,
        mut memory: Share,
    ) -> Result<(), Stop> {
        if *self.phase.borrow() >= Phase::Draining {
            return Err(CLOSING.to_owned().into());
        }
        let most = self.daemon.max_leases;
        if self.connection.leases() >= most {
            return Err(format!(
                "ERR the connection has {most} leases, and may not have more: UNLOCK also those that were lost"
            )
            .into());
        }
        let named: usize = resources.iter().map(String::len).sum();
        memory.resize(budget::of_lease(named, resources.len(), permits))?;
        let needed = budget::renewals_of(resources.len().max(permits), named * permits.max(1), ttl);
        let renewals = self.daemon.clients.renewals.take(needed);
        let renewals = renewals.map_err(|UsedUp| TOO_MANY_RENEWALS.to_owned())?;
        self.connection.set_waiting(Some(some_names(resources)));
        let acquired = self.attend(begin(), true).await;
        self.connection.set_waiting(None);
        let shares = LeaseShares { _memory: memory, _renewals: renewals };
        let (id, lease) = self.connection.add(acquired??, shares);
        if self.is_pushing {
            self.losses.watch(id, &lease);
        }
        let fence = lease.fences().next().map_or(0, |(_, fence)| fence);
        let slots = lease.slots();
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

    /// Returns the options with the holder's name, unless one is given, and with the heartbeat timeout of the daemon
    /// instead of a longer one. Refuses to hold for longer than the daemon allows.
    fn complete(&self, mut options: Options) -> Result<Options, Refusal> {
        let daemon = &self.daemon;
        if let Some((_, hold)) = options.iter().find(|(name, _)| *name == "MAXHOLD")
            && let Some(most) = daemon.max_hold.filter(|most| is_longer(hold, *most))
        {
            let most = most.as_millis();
            return Err(format!(
                "CONFIG MAXHOLD must be at most {most} ms, the --max-hold of the daemon"
            ));
        }
        if let Some((_, timeout)) = options.iter().find(|(name, _)| *name == HEARTBEAT) {
            let is_off = *timeout == OptionValue::Number(0.0);
            let is_longer = |most: &Duration| is_off || is_longer(timeout, *most);
            // The core also checks the given one, which comes first.
            if let Some(most) = daemon.heartbeat_timeout.filter(is_longer) {
                let most = OptionValue::Number(most.as_secs_f64() * 1e3);
                options.push((HEARTBEAT, most));
            }
        }
        if !options.iter().any(|(name, _)| *name == "HOLDER") {
            options.push(("HOLDER", OptionValue::Text(self.holder())));
        }
        Ok(options)
    }

    /// Returns the default name of a holder: the host, and the name of the client or of its process.
    fn holder(&self) -> String {
        let host = &self.daemon.host;
        let name = self.connection.name();
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

/// What a client wants to lock.
struct Wanted<'a> {
    resources: &'a [String],
    /// Zero for locks.
    permits: usize,
    ttl: Duration,
}

/// Returns the first names of resources, and how many others there are, for the status of the daemon.
fn some_names(resources: &[String]) -> String {
    match resources.split_at_checked(NAMED) {
        Some((first, others @ [_, ..])) => format!("{} and {} more", names(first), others.len()),
        _ => names(resources),
    }
}

/// Whether a value of an option is no limit, or a longer one than `most`.
fn is_longer(value: &OptionValue, most: Duration) -> bool {
    match value {
        OptionValue::Null => true,
        OptionValue::Number(milliseconds) => *milliseconds > most.as_secs_f64() * 1e3,
        _ => false,
    }
}

/// Waits until the daemon is in this phase, or in a later one.
async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    // An error means that the daemon has ended.
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}

/// Waits until the daemon is about to end, and no lease of the connection is valid.
async fn finished(phase: &mut watch::Receiver<Phase>, connection: &Connection) {
    reached(phase, Phase::Draining).await;
    while let Some(lease) = connection.valid_lease() {
        lease.lost().await;
    }
}

/// Waits until a request that began then must have arrived.
async fn overdue(began: Option<Instant>) {
    match began {
        Some(began) => sleep(SLOWEST.saturating_sub(began.elapsed())).await,
        None => std::future::pending().await,
    }
}

/// Waits for input, and reads it. Reads no more than [`CHUNK`], so that no client takes all the time.
async fn read_some(stream: &mut UnixStream, input: &mut Input) -> Result<(), End> {
    stream.readable().await.map_err(|_| End::Gone)?;
    input.make_room()?;
    match (&mut *stream).take(CHUNK as u64).read_buf(&mut input.bytes).await {
        Ok(0) | Err(_) => Err(End::Gone),
        Ok(_) => {
            input.began.get_or_insert_with(Instant::now);
            Ok(())
        }
    }
}

/// Waits for input behind a request that waits, and reads it. If there is no memory for it, or if it is as long as two
/// requests, reads no more from then on, and only waits for the client to go away.
async fn read_behind(
    stream: &mut UnixStream,
    input: &mut Input,
    is_full: &mut bool,
) -> Result<(), End> {
    if *is_full {
        loop {
            sleep(LOOK_FOR_END).await;
            let ready = stream.ready(Interest::READABLE).await.map_err(|_| End::Gone)?;
            if ready.is_read_closed() {
                return Err(End::Gone);
            }
        }
    }
    match read_some(stream, input).await {
        Err(End::UsedUp) => *is_full = true,
        read => {
            read?;
            *is_full = input.bytes.len() > 2 * MAX_REQUEST;
        }
    }
    Ok(())
}

/// Returns for how many milliseconds the lease is certainly valid.
fn valid_for(lease: &Lease) -> u64 {
    u64::try_from(lease.remaining().as_millis()).unwrap_or(u64::MAX)
}

/// Returns an error as clients get it: its code without underscores, and its message.
fn error_text(error: &Error) -> String {
    // All connections share one client of the core. Of several holders, none has its name in the error.
    let holder = error.holder().map_or_else(
        || "another lease of the same daemon".to_owned(),
        |holder| format!("{holder}, through the same daemon"),
    );
    format!("{} {}", error.code().as_str().replace('_', ""), error.text_naming(&holder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Shown;
    use crate::output::Output;
    use crate::serve::budget::Budget;
    use tokio::task::JoinHandle;

    const MEMORY: usize = 1 << 20;

    /// A daemon whose nodes are in memory, under names of this test.
    struct Served {
        daemon: Arc<Daemon>,
        phase: watch::Sender<Phase>,
    }

    impl Served {
        fn new(test: &str) -> Self {
            let nodes = ["a", "b", "c"].map(|name| format!("memory://{test}-{name}"));
            let client = Client::builder().nodes(nodes).build().expect("a client");
            let (sender, phase) = watch::channel(Phase::Serving);
            let output = Output::new(&Shown { json: false, quiet: true, verbose: false });
            let budget = Budget::new(MEMORY);
            let daemon = Daemon {
                client,
                clients: Arc::new(Clients::new(budget).expect("random numbers")),
                max_leases: 10,
                max_hold: Some(Duration::from_secs(60)),
                heartbeat_timeout: None,
                host: "host".to_owned(),
                notes: Notes::new(&output),
                status_queries: sync::Semaphore::new(MAX_STATUS_QUERIES),
                phase,
            };
            Self { daemon: Arc::new(daemon), phase: sender }
        }

        /// Opens a connection.
        fn connect(&self) -> (UnixStream, JoinHandle<End>) {
            let (ours, theirs) = UnixStream::pair().expect("two sockets");
            let memory = self.daemon.clients.memory_for_connection().expect("enough");
            let session = Session::new(Arc::clone(&self.daemon), theirs, memory);
            (ours, tokio::spawn(session.run()))
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
        let earlier = Served::new("earlier");
        let served = Served::new("later");
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
        served.phase.send_replace(Phase::Draining);
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
        served.phase.send_replace(Phase::Draining);
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

    #[tokio::test]
    async fn an_error_repeats_the_resource_as_it_is() {
        let served = Served::new("resource");
        let (mut client, _) = served.connect();
        // As the core calls a lease of another connection.
        let resource = "another lease of this client";
        let mut lock = async |options: &[&str]| {
            let mut request = Replies::default();
            request.array(2 + options.len());
            let words = ["LOCK", resource].into_iter().chain(options.iter().copied());
            words.for_each(|word| request.bulk(word.as_bytes()));
            client.write_all(&request.bytes).await.expect("an open connection");
            read(&mut client).await
        };
        assert!(lock(&["MODE", "shared"]).await.starts_with("*3"));
        let reply = lock(&["WAIT", "0"]).await;
        let expected =
            format!("-TIMEOUT \"{resource}\" is held by another lease of the same daemon (");
        assert!(reply.starts_with(&expected), "{reply}");
    }

    /// Returns the memory that clients use once no more of it is being returned.
    async fn memory_after(served: &Served, expected: usize) -> usize {
        for _ in 0..3000 {
            if served.daemon.clients.budget.used() == expected {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        served.daemon.clients.budget.used()
    }

    #[tokio::test]
    async fn all_memory_is_returned() {
        let served = Served::new("returned");
        let (mut client, ended) = served.connect();
        let idle = served.daemon.clients.budget.used();
        let long = "x".repeat(50_000);
        let mut echo = ask(&mut client, &format!("ECHO {long}")).await;
        while !echo.ends_with("\r\n") || echo.len() < long.len() {
            echo += &read(&mut client).await;
        }
        assert_eq!(echo, format!("$50000\r\n{long}\r\n"));
        assert_eq!(memory_after(&served, idle).await, idle);
        let id = lock(&mut client, "LOCK r").await;
        assert_eq!(served.daemon.clients.budget.used(), idle + budget::of_lease(1, 1, 0));
        ask(&mut client, &format!("UNLOCK {id}")).await;
        assert_eq!(memory_after(&served, idle).await, idle);
        assert!(ask(&mut client, "LOCK r LIMIT 9 PERMITS 3").await.starts_with("*4\r\n"));
        assert_eq!(served.daemon.clients.budget.used(), idle + budget::of_lease(1, 1, 3));
        // The end of the connection returns that of leases, of what waits, and of half a request.
        lock(&mut client, "LOCK r").await;
        client.write_all(b"*2\r\n$4\r\nECHO\r\n$50000\r\n").await.expect("an open connection");
        client.write_all(&[b'x'; 40_000]).await.expect("an open connection");
        drop(client);
        assert_eq!(ended.await.expect("an end"), End::Gone);
        assert_eq!(memory_after(&served, 0).await, 0);
    }

    #[tokio::test]
    async fn a_request_that_was_not_read_is_not_late() {
        let served = Served::new("late");
        let (mut client, theirs) = UnixStream::pair().expect("two sockets");
        let memory = served.daemon.clients.memory_for_connection().expect("enough");
        let mut session = Session::new(Arc::clone(&served.daemon), theirs, memory);
        let begun = Instant::now();
        session.input.bytes = vec![b'x'; 2 * SHORT];
        session.input.began = Some(begun);
        let rest = MEMORY - served.daemon.clients.budget.used();
        let _hog = served.daemon.clients.budget.take(rest).expect("it is left");
        client.write_all(b"x").await.expect("an open connection");
        let waited = session.attend(sleep(LOOK_FOR_END), false).await;
        assert!(waited.is_ok());
        assert!(session.input.began.is_some_and(|began| began > begun));
        assert_eq!(session.input.bytes.len(), 2 * SHORT);
    }

    #[tokio::test]
    async fn what_exceeds_the_memory_is_refused() {
        let served = Served::new("memory");
        let ((mut holder, _), (mut client, ended)) = (served.connect(), served.connect());
        let id = lock(&mut holder, "LOCK r").await;
        let names = ["x", "y"].map(|letter| letter.repeat(8000)).join(" ");
        let long = lock(&mut client, &format!("LOCK {names}")).await;
        let rest = MEMORY - served.daemon.clients.budget.used();
        let hog = served.daemon.clients.budget.take(rest).expect("it is left");
        let refusal = format!("-{USED_UP}\r\n");
        assert!(served.daemon.clients.memory_for_connection().is_none());
        for command in ["LOCK s", "LOCK s WAIT 0", &format!("STATUS {}", "x".repeat(8000))] {
            assert_eq!(ask(&mut client, command).await, refusal);
        }
        // What needs no more memory is done. What has changed something is reported.
        assert_eq!(ask(&mut client, "PING").await, "+PONG\r\n");
        let mut detached = ask(&mut client, &format!("DETACH {long}")).await;
        let header = detached.find('\n').expect("a header") + 1;
        let length: usize = detached[1..header].trim().parse().expect("a length");
        while detached.len() < header + length + 2 {
            detached += &read(&mut client).await;
        }
        assert!(ask(&mut holder, &format!("CHECK {id}")).await.starts_with(':'));
        assert_eq!(ask(&mut holder, &format!("UNLOCK {id}")).await, ":1\r\n");
        let rest = MEMORY - served.daemon.clients.budget.used();
        let rest = served.daemon.clients.budget.take(rest).expect("it is left");
        client.write_all(b"*2\r\n$4\r\nECHO\r\n$50000\r\n").await.expect("an open connection");
        client.write_all(&[b'x'; 49_000]).await.expect("an open connection");
        assert_eq!(ended.await.expect("an end"), End::UsedUp);
        assert_eq!(read(&mut client).await, refusal);
        drop((hog, rest));
        lock(&mut holder, "LOCK s").await;
    }

    #[tokio::test]
    async fn a_reply_that_is_refused_leaves_those_before_it() {
        let served = Served::new("replies");
        let (mut client, _) = served.connect();
        let mut readers = Vec::new();
        for _ in 0..200 {
            let reader = served.daemon.client.lock("r").shared().acquire();
            readers.push(reader.await.expect("a share"));
        }
        let status = b"*2\r\n$6\r\nSTATUS\r\n$1\r\nr\r\n";
        let rest = MEMORY - served.daemon.clients.budget.used();
        let _hog = served.daemon.clients.budget.take(rest).expect("it is left");
        let echo = b"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n";
        client.write_all(&[&echo[..], status].concat()).await.expect("an open connection");
        let expected = format!("$1\r\nx\r\n-{USED_UP}\r\n");
        let mut replies = String::new();
        while replies.len() < expected.len() {
            replies += &read(&mut client).await;
        }
        assert_eq!(replies, expected);
    }
}
