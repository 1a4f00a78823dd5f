//! A pipelined connection to a server. Any thread may send requests. The server answers in the order of the requests,
//! so each answer goes to the recipient that has waited longest.
//!
//! redis-rs encodes commands. It also parses replies, after `frame.rs` has found that they are whole and small enough.
//! The multiplexed connection of redis-rs is not used, because it passes every request to a task. Here, any thread may
//! call `send`, which writes or queues the request before it returns. `runtime/pipeline.rs` owns the order of writes.
//! If the connection breaks, `on_broken` is called before the recipients get their errors.
//!
//! This module owns the socket and the task that reads from it. It must not interpret replies: the
//! implementation of [`Receive`] in `node/exchange.rs` does that. `node` and `doctor` call this
//! module.

use crate::config::server::Server;
use crate::runtime;
use crate::runtime::cork;
use crate::runtime::panics;
use crate::runtime::pipeline::{self, OnBroken, Pipeline, PipelineState, Pipelined, together};
use crate::transport::frame::Frame;
use crate::transport::lookup::Attempt;
use crate::transport::socket::{self, Plain, ReadHalf, Socket, WriteHalf};
use crate::wire::limits::{self, Limit};
use combine::stream::Decoder;
use futures_util::future::FutureExt;
use redis::{Cmd, ErrorKind, PushKind, RedisError, Value, parse_redis_value_async};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

/// The maximum number of requests in flight. Callers keep further requests, in order, until there is room for them or
/// their deadlines have passed.
const MAX_IN_FLIGHT: usize = 4096;

/// The room that a request takes on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// The request waits until there is room.
    Needed,
    /// The request takes the room of one that was just answered, because it is sent again, or belongs to the handshake.
    Kept,
    /// The request is a renewal. A lease must not expire because its client sends many other requests, and these must
    /// not wait for renewals.
    None,
}

/// There is no room while this many bytes of commands are unanswered. A long command covers many resources and keeps the
/// server busy, so a renewal must not queue behind many of them.
const MAX_UNANSWERED: usize = 512 * 1024;

/// The beginning of the message if the server refused the whole connection: it sent an error that answers no request.
pub(crate) const REFUSED: &str = "the server refuses the connection";

/// If more requests than this are in flight, new requests wait until the runtime flushes the queue. Requests of many
/// callers then share one write. This saves more time than the requests lose by waiting.
const IMMEDIATE_LIMIT: usize = 4;

/// The initial size of the read buffer, in bytes. The buffer grows if a reply is larger.
const CHUNK: usize = 16 * 1024;

pub(crate) type RawReply = Result<Value, RedisError>;
type Encrypted = Box<dyn AsyncWrite + Send + Unpin>;

/// A recipient: it gets the answer to one request.
pub(crate) trait Receive: Send + Sized + 'static {
    /// A request that may share a command with other requests.
    type Request: Send + 'static;

    /// Processes the reply to a command that carried one request.
    fn receive(self, reply: RawReply);

    /// Processes the reply to a command that carried several requests. Returns encoded commands to send next on this
    /// connection. Nothing waits for the replies to these commands.
    fn receive_batch(batch: BatchOf<Self>, reply: RawReply) -> Vec<Vec<u8>>;

    /// Groups requests into commands and encodes them. Returns each command with its requests.
    fn pack(requests: Vec<(Self::Request, Self)>) -> Vec<Packed<Self>>;
}

/// An encoded command, and the requests that it carries, in order and each with its recipient.
pub(crate) type Packed<R> = (Vec<u8>, Vec<(<R as Receive>::Request, R)>);

/// The requests of a command that carries several requests, in order. A recipient is `None` if its request was given
/// up.
pub(crate) type BatchOf<R> = Vec<(<R as Receive>::Request, Option<R>)>;

/// The recipient type of a connection on which only [`Connection::query`] sends commands, so that no request needs a
/// recipient. No value of this type exists.
pub(crate) enum Nobody {}

impl Receive for Nobody {
    type Request = Infallible;

    fn receive(self, _: RawReply) {
        match self {}
    }

    fn receive_batch(_: BatchOf<Self>, _: RawReply) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn pack(_: Vec<(Infallible, Self)>) -> Vec<Packed<Self>> {
        Vec::new()
    }
}

/// The recipient of the answer to one command.
enum Destination<R: Receive> {
    Request(R),
    Batch(BatchOf<R>),
    Caller(oneshot::Sender<RawReply>),
    Nobody,
}

/// An answer that has not arrived yet: its recipient and its largest size.
struct Expected<R: Receive> {
    recipient: Destination<R>,
    /// The size of the command; zero if it takes no room.
    bytes: usize,
    /// The largest size of the answer. Stored here, because the recipient may have been given up before the answer
    /// arrives.
    limit: Limit,
}

impl<R: Receive> Destination<R> {
    /// The number of requests that the command carries.
    fn requests(&self) -> usize {
        if let Self::Batch(batch) = self { batch.len() } else { 1 }
    }

    /// Removes and returns the recipients for which `is_needed` returns `false`.
    fn give_up(&mut self, is_needed: &mut impl FnMut(&R) -> bool) -> Vec<R> {
        match self {
            Self::Request(recipient) if !is_needed(recipient) => {
                match std::mem::replace(self, Self::Nobody) {
                    Self::Request(recipient) => vec![recipient],
                    _ => Vec::new(),
                }
            }
            Self::Batch(batch) => {
                let recipients = batch.iter_mut().map(|(_, recipient)| recipient);
                recipients.filter_map(|recipient| recipient.take_if(|it| !is_needed(it))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Delivers a reply. Returns commands to send next, as [`Receive::receive_batch`] does.
    fn receive(self, reply: RawReply) -> Vec<Vec<u8>> {
        match self {
            Self::Request(recipient) => recipient.receive(reply),
            Self::Batch(batch) => return R::receive_batch(batch, reply),
            // Sending fails if the caller does not wait any more. Nobody needs the reply then.
            Self::Caller(caller) => drop(caller.send(reply)),
            Self::Nobody => {}
        }
        Vec::new()
    }
}

/// A connection to a server. Dropping this value closes the connection, and the requests in flight fail.
pub(crate) struct Connection<R: Receive>(Arc<Shared<R>>);

struct Shared<R: Receive> {
    pipeline: Pipeline<Self>,
    /// The number of reads from the socket that have delivered answers. Answers that arrive together count once.
    received: AtomicU64,
    /// The socket; `None` if the connection is encrypted, because a task then owns the socket.
    socket: Option<Plain>,
    /// Called with each push message of the server, such as a notification. If not set, a push message breaks the
    /// connection.
    on_push: OnceLock<OnPush>,
    /// Why the connection is closed. Set before `is_closed`, so that a closed connection always has a reason.
    end: OnceLock<End>,
    /// Notified when there is room for more requests, or when the connection is closed.
    room: Notify,
    /// Notified when requests must be flushed, and when the connection is dropped.
    attention: Notify,
    /// Notified when there are bytes to encrypt and write.
    unencrypted: Notify,
}

struct End {
    error: RedisError,
    /// The error that the server sent without a request, for example because it has too many clients. `None` if it sent
    /// no such error. This error is not the answer to any request in flight.
    words: Option<RedisError>,
}

impl From<RedisError> for End {
    fn from(error: RedisError) -> Self {
        Self { error, words: None }
    }
}

impl From<io::ErrorKind> for End {
    fn from(kind: io::ErrorKind) -> Self {
        broken(kind.into()).into()
    }
}

type OnPush = Box<dyn Fn(PushKind, &[Value]) + Send + Sync>;

impl<R: Receive> Pipelined for Shared<R> {
    type Recipient = Expected<R>;
    type Unpacked = (R::Request, R);

    fn pipeline(&self) -> &Pipeline<Self> {
        &self.pipeline
    }

    fn pack(out: &mut PipelineState<Self>) {
        for (command, mut requests) in R::pack(std::mem::take(&mut out.unpacked)) {
            let bytes = command.len();
            out.bytes.extend_from_slice(&command);
            out.unanswered_bytes += bytes;
            let (recipient, limit) = match requests.pop() {
                Some((_, single)) if requests.is_empty() => {
                    (Destination::Request(single), limits::USUAL)
                }
                last => {
                    let all = requests.into_iter().chain(last);
                    let all = all.map(|(request, recipient)| (request, Some(recipient)));
                    (Destination::Batch(all.collect()), limits::BATCH)
                }
            };
            out.recipients.push_back(Expected { recipient, bytes, limit });
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.as_ref().map_or(Ok(0), |socket| socket.try_write(bytes))
    }

    fn shut_down(&self) {
        self.socket.iter().for_each(Plain::shut_down);
    }

    fn is_encrypted(&self) -> bool {
        if self.socket.is_none() {
            self.unencrypted.notify_one();
        }
        self.socket.is_none()
    }

    fn flush_later(&self) {
        self.attention.notify_one();
    }

    fn flush_at_uncork(self: &Arc<Self>) -> bool {
        cork::flush_at_uncork(self)
    }

    fn go_on_later(self: &Arc<Self>) {
        let connection = Arc::clone(self);
        runtime::detach_urgent(async move {
            let writing = async {
                while let Some(socket) = &connection.socket {
                    tokio::select! {
                        writable = socket.writable() => if writable.is_err() {
                            return connection.abandon();
                        },
                        // A Unix socket reports no error while the server does not read.
                        () = connection.closed() => {}
                    }
                    if pipeline::go_on(&*connection) {
                        return;
                    }
                }
            };
            if panics::contained(writing).await.is_none() {
                connection.abandon();
            }
        });
    }
}

impl<R: Receive> Connection<R> {
    /// Connects to a server. Has no time limit. Dropping the future cancels the attempt.
    pub(crate) async fn connect(server: &Server) -> Result<Self, RedisError> {
        let Socket { read, write, attempt } = socket::connect(server).await?;
        let (socket, encrypted) = match write {
            WriteHalf::Plain(socket) => (Some(socket), None),
            WriteHalf::Encrypted(encrypted) => (None, Some(encrypted)),
        };
        let shared = Arc::new(Shared {
            pipeline: Pipeline::new(IMMEDIATE_LIMIT),
            received: AtomicU64::new(0),
            socket,
            on_push: OnceLock::new(),
            end: OnceLock::new(),
            room: Notify::new(),
            attention: Notify::new(),
            unencrypted: Notify::new(),
        });
        let serving = Arc::clone(&shared);
        runtime::detach_urgent(async move {
            let served = panics::contained(serving.serve(read, encrypted, attempt)).await;
            // The panic is a bug in quorlock. Close the connection as if it were broken.
            let end = served.unwrap_or_else(|| io::ErrorKind::Other.into());
            let error = end.error.clone();
            let (awaited, on_broken) = serving.close(end);
            if let Some(on_broken) = on_broken {
                on_broken();
            }
            for awaited in awaited {
                // The connection has ended, so nothing can be sent on it.
                drop(awaited.recipient.receive(Err(error.clone())));
            }
        });
        Ok(Self(shared))
    }

    /// Sets the callback `on_broken`, which is called when the connection breaks, before the recipients of the answers
    /// to the requests in flight get their errors. If the connection is already broken, calls `on_broken` immediately.
    pub(crate) fn on_broken(&self, on_broken: impl FnOnce() + Send + 'static) {
        let mut out = self.0.out();
        if out.is_closed {
            drop(out);
            return on_broken();
        }
        out.on_broken = Some(Box::new(on_broken));
    }

    /// Sets the callback that gets each push message from now on. Only the first call has an effect.
    pub(crate) fn on_push(&self, on_push: impl Fn(PushKind, &[Value]) + Send + Sync + 'static) {
        // `set` fails only if a callback is already set, and no caller sets a second one.
        let _ = self.0.on_push.set(Box::new(on_push));
    }

    /// Returns a number that changes whenever answers arrive.
    pub(crate) fn received(&self) -> u64 {
        self.0.received.load(Ordering::Relaxed)
    }

    /// Returns the error with which the connection broke, if the server sent nonsense or a reply that answers no
    /// request. Returns `None` if the connection is open or broke for another reason.
    pub(crate) fn garbage(&self) -> Option<&RedisError> {
        let end = self.0.end.get()?;
        let is_strange =
            matches!(end.error.kind(), ErrorKind::Parse | ErrorKind::UnexpectedReturnType);
        (is_strange || end.words.is_some()).then_some(&end.error)
    }

    /// Sends a request whose answer may be as large as `limit`. Returns the recipient if the request needs room and there
    /// is none now: see [`Connection::room`].
    pub(crate) fn send(
        &self,
        packed: &[u8],
        limit: Limit,
        room: Room,
        recipient: R,
    ) -> Result<(), R> {
        let out = self.0.out();
        if is_full(&out) && room == Room::Needed {
            return Err(recipient);
        }
        self.put(out, packed, Destination::Request(recipient), limit, room);
        Ok(())
    }

    /// Whether a new request would have to wait for a write. If so, use [`Connection::send_batchable`], so that the
    /// request can share a command with other waiting requests.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.pipeline.is_busy() || cork::is_corked()
    }

    /// Like [`Connection::send`], but the request may share a command with other requests that wait to be written.
    pub(crate) fn send_batchable(&self, request: R::Request, recipient: R) -> Result<(), R> {
        let out = self.0.out();
        if is_full(&out) {
            return Err(recipient);
        }
        if out.is_closed {
            drop(out);
            recipient.receive(Err(self.0.error()));
        } else {
            pipeline::put_unpacked(&self.0, out, (request, recipient));
        }
        Ok(())
    }

    /// Sends the command `first`, and directly behind it a request again, for which there is [room](Room::Kept). Discards
    /// the answer to `first`.
    pub(crate) fn send_behind(&self, first: &[u8], packed: &[u8], limit: Limit, recipient: R) {
        let mut out = self.0.out();
        if !out.is_closed {
            out.pack();
            out.in_flight += 1;
            let bytes = first.len();
            out.unanswered_bytes += bytes;
            let recipient = Destination::Nobody;
            out.recipients.push_back(Expected { recipient, bytes, limit: limits::USUAL });
            out.bytes.extend_from_slice(first);
        }
        self.put(out, packed, Destination::Request(recipient), limit, Room::Kept);
    }

    /// Gives up the requests in flight for which `is_needed` returns `false`: their recipients get an error now, and
    /// their answers are discarded later. The connection stays open for the other requests.
    pub(crate) fn give_up(&self, mut is_needed: impl FnMut(&R) -> bool) {
        let mut out = self.0.out();
        out.pack();
        let awaited = out.recipients.iter_mut();
        let given_up = awaited.flat_map(|awaited| awaited.recipient.give_up(&mut is_needed));
        let given_up: Vec<_> = given_up.collect();
        drop(out);
        let error = broken(io::ErrorKind::ConnectionAborted.into());
        given_up.into_iter().for_each(|recipient| recipient.receive(Err(error.clone())));
    }

    fn put(
        &self,
        mut out: MutexGuard<'_, PipelineState<Shared<R>>>,
        packed: &[u8],
        recipient: Destination<R>,
        limit: Limit,
        room: Room,
    ) {
        if out.is_closed {
            drop(out);
            drop(recipient.receive(Err(self.0.error())));
            return;
        }
        let bytes = if room == Room::None { 0 } else { packed.len() };
        out.unanswered_bytes += bytes;
        pipeline::put(&self.0, out, packed, Expected { recipient, bytes, limit });
    }

    /// Waits until there may be room for more requests.
    pub(crate) async fn room(&self) {
        let room = self.0.room.notified();
        if is_full(&self.0.out()) {
            room.await;
        }
    }

    /// Sends commands in one write and waits for all replies. An error that the server returns for a single command is
    /// one of the returned values; any other error fails the whole call. If the server refuses the whole connection
    /// with an error and then closes it, this call fails with the server's error.
    pub(crate) async fn query(&self, commands: &[Cmd]) -> Result<Vec<Value>, RedisError> {
        let send = |command: &Cmd| {
            let (sender, reply) = oneshot::channel();
            let packed = command.get_packed_command();
            let limit = limits::of_command(command);
            self.put(self.0.out(), &packed, Destination::Caller(sender), limit, Room::Kept);
            reply
        };
        let replies: Vec<_> = together(|| commands.iter().map(send).collect());
        let mut values: Vec<Value> = Vec::new();
        for reply in replies {
            let lost = |_| Err(broken(io::ErrorKind::ConnectionAborted.into()));
            let error = match reply.await.unwrap_or_else(lost) {
                Ok(value) => {
                    values.push(value);
                    continue;
                }
                Err(error) => error,
            };
            let words = self.0.end.get().and_then(|end| end.words.clone());
            // If the server refused the connection after the first command was queued, the server's error was taken for
            // the answer to that command.
            let first = if values.len() == 1 { values.pop() } else { None };
            let refusal = first.and_then(|value| value.extract_error().err());
            return Err(words.or(refusal).unwrap_or(error));
        }
        Ok(values)
    }
}

impl<R: Receive> Drop for Connection<R> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl<R: Receive> Shared<R> {
    fn out(&self) -> MutexGuard<'_, PipelineState<Self>> {
        self.pipeline.lock()
    }

    /// Returns the error that ended the connection. Call this only if the connection is closed.
    fn error(&self) -> RedisError {
        let why = self.end.get().map(|end| end.error.clone());
        why.unwrap_or_else(|| broken(io::ErrorKind::NotConnected.into()))
    }

    /// Waits until the connection is closed. Also returns when there is room for more requests.
    async fn closed(&self) {
        let closed = self.room.notified();
        if !self.out().is_closed {
            closed.await;
        }
    }

    /// Makes the reading task close the connection.
    fn abandon(&self) {
        self.out().is_dropped = true;
        self.attention.notify_one();
    }

    /// Reads replies, writes encrypted bytes, and flushes requests whose flush other threads left to the runtime.
    /// Returns the reason when the connection breaks or is dropped.
    async fn serve(
        self: &Arc<Self>,
        socket: ReadHalf,
        encrypted: Option<Encrypted>,
        attempt: Option<Attempt>,
    ) -> End {
        let mut reading = pin!(self.read(socket, attempt));
        let mut encrypting = pin!(self.encrypt(encrypted));
        loop {
            tokio::select! {
                biased;
                end = &mut reading => return end,
                never = &mut encrypting => match never {},
                () = self.attention.notified() => {
                    let out = self.out();
                    if out.is_dropped {
                        return io::ErrorKind::ConnectionAborted.into();
                    }
                    pipeline::flush(self, out);
                }
            }
        }
    }

    /// Writes queued bytes to an encrypted connection. Never returns.
    async fn encrypt(&self, socket: Option<Encrypted>) -> Infallible {
        let Some(mut socket) = socket else { return pending().await };
        loop {
            self.unencrypted.notified().await;
            let bytes = {
                let mut out = self.out();
                out.pack();
                std::mem::take(&mut out.bytes)
            };
            let written = match socket.write_all(&bytes).await {
                Ok(()) => socket.flush().await,
                Err(error) => Err(error),
            };
            // The reading task notices that the connection is broken, and closes it.
            if written.is_err() {
                return pending().await;
            }
        }
    }

    /// Delivers answers to their recipients until the connection breaks. Also delivers the answers that
    /// arrived just before the end of the connection.
    ///
    /// Uses only public functions of redis-rs, so that any version 1.x works. `redis::ValueCodec`
    /// is hidden, and exists in some versions only.
    async fn read(self: &Arc<Self>, mut socket: ReadHalf, mut attempt: Option<Attempt>) -> End {
        let mut buffer = Vec::with_capacity(CHUNK);
        let mut frame = Frame::default();
        let mut decoder = Decoder::new();
        let mut replies = Vec::new();
        let mut recipients = Vec::new();
        loop {
            if buffer.len() == buffer.capacity() {
                buffer.reserve(CHUNK);
            }
            let mut end = match socket.read_buf(&mut buffer).await {
                Ok(0) => Some(broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => None,
                Err(error) => Some(broken(error)),
            };
            let has_filled_buffer = buffer.len() == buffer.capacity();
            let mut at = 0;
            while end.is_none() {
                let is_push = buffer.get(at) == Some(&b'>');
                let limit = || self.limit(is_push, replies.len());
                let length = match frame.scan(&buffer[at..], limit) {
                    Ok(Some(length)) => length,
                    Ok(None) => break,
                    Err(error) => {
                        end = Some(error);
                        break;
                    }
                };
                let mut reply = &buffer[at..at + length];
                at += length;
                // The reply is whole, so parsing never waits for more bytes.
                match parse_redis_value_async(&mut decoder, &mut reply).now_or_never() {
                    // The answers to SUBSCRIBE and UNSUBSCRIBE are also push messages, but they go to a recipient like
                    // a reply.
                    Some(Ok(Value::Push { kind, data }))
                        if !matches!(kind, PushKind::Subscribe | PushKind::Unsubscribe) =>
                    {
                        match self.on_push.get() {
                            Some(on_push) => on_push(kind, &data),
                            None => end = Some(unasked()),
                        }
                    }
                    Some(Ok(value)) => replies.push(value),
                    Some(Err(_)) | None => end = Some((ErrorKind::Parse, "malformed").into()),
                }
            }
            buffer.drain(..at);
            if buffer.len() < CHUNK {
                buffer.shrink_to(CHUNK);
            }
            let (was_full, is_unasked) = {
                let mut out = self.out();
                let was_full = is_full(&out);
                let count = replies.len().min(out.recipients.len());
                let mut bytes = 0;
                let answered = out.recipients.drain(..count).inspect(|it| bytes += it.bytes);
                recipients.extend(answered.map(|awaited| awaited.recipient));
                out.unanswered_bytes -= bytes;
                out.in_flight -= recipients.iter().map(Destination::requests).sum::<usize>();
                let is_message = self.on_push.get().is_some() && buffer.first() == Some(&b'>');
                let begins_unasked = !buffer.is_empty() && out.recipients.is_empty() && !is_message;
                (was_full, replies.len() > count || begins_unasked)
            };
            if !recipients.is_empty() {
                self.received.fetch_add(1, Ordering::Relaxed);
                if let Some(attempt) = attempt.take() {
                    attempt.succeeded();
                }
            }
            let mut words = None;
            let mut recipients = recipients.drain(..);
            for value in replies.drain(..) {
                match recipients.next() {
                    Some(recipient) => {
                        recipient.receive(Ok(value)).iter().for_each(|next| self.put_unasked(next));
                    }
                    None => words = words.or(value.extract_error().err()),
                }
            }
            if was_full {
                self.room.notify_waiters();
            }
            if let Some(words) = words {
                let code = words.code().unwrap_or_default();
                let detail = words.detail();
                let detail = limits::shortened(format!("{code} {}", detail.unwrap_or_default()));
                let error = broken(io::Error::other(format!("{REFUSED}: {detail}")));
                return End { error, words: Some(words) };
            }
            if is_unasked {
                return unasked().into();
            }
            if let Some(error) = end {
                return error.into();
            }
            // A server that sends without a pause must not keep the other tasks waiting.
            if has_filled_buffer {
                yield_now().await;
            }
        }
    }

    /// Sends a command. Its reply is discarded.
    fn put_unasked(self: &Arc<Self>, packed: &[u8]) {
        let out = self.out();
        if !out.is_closed {
            let awaited =
                Expected { recipient: Destination::Nobody, bytes: 0, limit: limits::USUAL };
            pipeline::put(self, out, packed, awaited);
        }
    }

    /// Returns the largest size of the next reply. `behind`: the number of earlier replies that have not been delivered
    /// yet.
    fn limit(&self, is_push: bool, behind: usize) -> Limit {
        if is_push && self.on_push.get().is_some() {
            return limits::MESSAGE;
        }
        self.out().recipients.get(behind).map_or(limits::USUAL, |awaited| awaited.limit)
    }

    /// Marks the connection as closed. Returns the recipients that must get an error for the requests in flight, and
    /// the callback to call before that, if one is set.
    fn close(&self, end: End) -> (VecDeque<Expected<R>>, Option<OnBroken>) {
        // `set` fails only if the end is already set, and `close` is called only once.
        let _ = self.end.set(end);
        let mut out = self.out();
        out.pack();
        out.is_closed = true;
        out.bytes = Vec::new();
        self.room.notify_waiters();
        (std::mem::take(&mut out.recipients), out.on_broken.take())
    }
}

fn is_full<R: Receive>(out: &PipelineState<Shared<R>>) -> bool {
    !out.is_closed && (out.in_flight >= MAX_IN_FLIGHT || out.unanswered_bytes >= MAX_UNANSWERED)
}

fn broken(error: io::Error) -> RedisError {
    error.into()
}

fn unasked() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "unasked", "it answers no request".to_owned()).into()
}

#[cfg(all(test, unix))]
mod tests;
