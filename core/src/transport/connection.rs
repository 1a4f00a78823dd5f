//! A pipelined connection to a server. Any thread may send requests; answers go to the recipients
//! in the order of the requests.
//!
//! redis-rs packs commands and parses replies. Its multiplexed connection is not used, because it
//! passes every request to a task. Here, a request is written or queued in order before `send`
//! returns, on any thread, and `on_broken` reports a broken connection before its recipients get
//! their errors. `runtime/pipeline.rs` owns the order of writes.
//!
//! This module owns the socket and the task that reads from it. It must not interpret replies: that
//! is up to the [`Receive`] implementations, in `node/exchange.rs`. `node` and `doctor` call it.

use crate::config::server::Server;
use crate::runtime;
use crate::runtime::panics;
use crate::runtime::pipeline::{self, OnBroken, Pipeline, PipelineState, Pipelined, together};
use crate::transport::socket::{self, Plain, ReadHalf, WriteHalf};
use combine::stream::Decoder;
use futures_util::future::FutureExt;
use redis::{Cmd, ErrorKind, PushKind, RedisError, Value, parse_redis_value_async};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::{Arc, MutexGuard, OnceLock};
use tokio::io::{AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, oneshot};

/// The limit of requests in flight. Further ones wait in order, within their own deadlines.
const MAX_IN_FLIGHT: usize = 4096;

/// With more requests in flight than this, new ones wait until the runtime flushes. Requests of
/// many callers then go out in one write, which saves more than the delay costs.
const IMMEDIATE_LIMIT: usize = 4;

/// The initial size of the read buffer, in bytes.
const CHUNK: usize = 16 * 1024;

type Reply = Result<Value, RedisError>;
type Encrypted = Box<dyn AsyncWrite + Send + Unpin>;

/// The recipient of a request's answer.
pub(crate) trait Receive: Send + 'static {
    fn receive(self, reply: Result<Value, RedisError>);
}

/// The recipient type of a connection that only sends commands with [`Connection::query`]. No value
/// of this type exists.
pub(crate) enum Nobody {}

impl Receive for Nobody {
    fn receive(self, _: Result<Value, RedisError>) {
        match self {}
    }
}

/// The recipient of one answer.
enum Recipient<R> {
    Request(R),
    Caller(oneshot::Sender<Reply>),
    Nobody,
}

impl<R: Receive> Recipient<R> {
    fn receive(self, reply: Reply) {
        match self {
            Self::Request(recipient) => recipient.receive(reply),
            // Sending fails if the caller does not wait any more.
            Self::Caller(caller) => drop(caller.send(reply)),
            Self::Nobody => {}
        }
    }
}

/// A connection to a server. Dropping it closes the connection, and the requests in flight fail.
pub(crate) struct Connection<R: Receive>(Arc<Shared<R>>);

struct Shared<R: Receive> {
    pipeline: Pipeline<Recipient<R>>,
    /// `None` if the connection is encrypted; a task then owns the socket.
    socket: Option<Plain>,
    /// Called with each push message of the server, such as a notification.
    on_push: OnceLock<OnPush>,
    /// Notified when there is room for more requests, or when the connection is closed.
    room: Notify,
    /// Notified when there is something to flush, and when the connection is dropped.
    attention: Notify,
    /// Notified when there is something to encrypt.
    unencrypted: Notify,
}

type OnPush = Box<dyn Fn(PushKind, &[Value]) + Send + Sync>;

impl<R: Receive> Pipelined for Shared<R> {
    type Recipient = Recipient<R>;

    fn pipeline(&self) -> &Pipeline<Recipient<R>> {
        &self.pipeline
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.as_ref().map_or(Ok(0), |socket| socket.try_write(bytes))
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

    fn go_on_later(self: &Arc<Self>) {
        let connection = Arc::clone(self);
        runtime::detach_urgent(async move {
            let writing = async {
                while let Some(socket) = &connection.socket {
                    if socket.writable().await.is_err() {
                        return connection.abandon();
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
    /// Connects. Has no time limit; drop the future to cancel.
    pub(crate) async fn connect(server: &Server) -> Result<Self, RedisError> {
        let (read, write) = socket::connect(server).await?;
        let (socket, encrypted) = match write {
            WriteHalf::Plain(socket) => (Some(socket), None),
            WriteHalf::Encrypted(encrypted) => (None, Some(encrypted)),
        };
        let shared = Arc::new(Shared {
            pipeline: Pipeline::new(IMMEDIATE_LIMIT),
            socket,
            on_push: OnceLock::new(),
            room: Notify::new(),
            attention: Notify::new(),
            unencrypted: Notify::new(),
        });
        let serving = Arc::clone(&shared);
        runtime::detach_urgent(async move {
            let served = panics::contained(serving.serve(read, encrypted)).await;
            // A panic is a bug in quorlock; the connection is then closed as if it were broken.
            let error = served.unwrap_or_else(|| broken(io::ErrorKind::Other.into()));
            let (recipients, on_broken) = serving.close();
            if let Some(on_broken) = on_broken {
                on_broken();
            }
            recipients.into_iter().for_each(|recipient| recipient.receive(Err(error.clone())));
        });
        Ok(Self(shared))
    }

    /// Calls `on_broken` when the connection breaks, before the recipients of the requests in
    /// flight get their errors. If the connection is already broken, calls `on_broken` immediately.
    pub(crate) fn on_broken(&self, on_broken: impl FnOnce() + Send + 'static) {
        let mut out = self.0.out();
        if out.is_closed {
            drop(out);
            return on_broken();
        }
        out.on_broken = Some(Box::new(on_broken));
    }

    /// Calls `on_push` with each push message from now on. Only the first call has an effect.
    pub(crate) fn on_push(&self, on_push: impl Fn(PushKind, &[Value]) + Send + Sync + 'static) {
        // Fails only if the callback is already set, and no caller sets it twice.
        let _ = self.0.on_push.set(Box::new(on_push));
    }

    /// Sends a request. Returns the recipient if there is no room now: see [`Connection::room`].
    pub(crate) fn send(&self, packed: &[u8], recipient: R) -> Result<(), R> {
        let out = self.0.out();
        if is_full(&out) {
            return Err(recipient);
        }
        self.put(out, packed, Recipient::Request(recipient));
        Ok(())
    }

    /// Sends `first`, whose answer is discarded, and directly after it a request as in
    /// [`Connection::send`].
    pub(crate) fn send_behind(&self, first: &[u8], packed: &[u8], recipient: R) -> Result<(), R> {
        let mut out = self.0.out();
        if is_full(&out) {
            return Err(recipient);
        }
        if !out.is_closed {
            out.recipients.push_back(Recipient::Nobody);
            out.bytes.extend_from_slice(first);
        }
        self.put(out, packed, Recipient::Request(recipient));
        Ok(())
    }

    /// Fails the requests in flight for which `is_needed` returns `false`. The connection stays open for the others.
    pub(crate) fn give_up(&self, is_needed: impl Fn(&R) -> bool) {
        let mut out = self.0.out();
        let is_given_up = |recipient: &&mut Recipient<R>| match recipient {
            Recipient::Request(request) => !is_needed(request),
            _ => false,
        };
        let given_up = out.recipients.iter_mut().filter(is_given_up);
        let given_up: Vec<_> =
            given_up.map(|recipient| std::mem::replace(recipient, Recipient::Nobody)).collect();
        drop(out);
        let error = broken(io::ErrorKind::ConnectionAborted.into());
        given_up.into_iter().for_each(|recipient| recipient.receive(Err(error.clone())));
    }

    fn put(
        &self,
        out: MutexGuard<'_, PipelineState<Recipient<R>>>,
        packed: &[u8],
        recipient: Recipient<R>,
    ) {
        if out.is_closed {
            drop(out);
            recipient.receive(Err(broken(io::ErrorKind::NotConnected.into())));
            return;
        }
        pipeline::put(&self.0, out, packed, recipient);
    }

    /// Waits until there may be room for more requests.
    pub(crate) async fn room(&self) {
        let room = self.0.room.notified();
        if is_full(&self.0.out()) {
            room.await;
        }
    }

    /// Sends commands in one write and waits for all replies. Errors that the server returns for
    /// single commands are among the values; any other error fails the whole call.
    pub(crate) async fn query(&self, commands: &[Cmd]) -> Result<Vec<Value>, RedisError> {
        let send = |command: &Cmd| {
            let (sender, reply) = oneshot::channel();
            let packed = command.get_packed_command();
            self.put(self.0.out(), &packed, Recipient::Caller(sender));
            reply
        };
        let replies: Vec<_> = together(|| commands.iter().map(send).collect());
        let mut values = Vec::new();
        for reply in replies {
            let lost = |_| Err(broken(io::ErrorKind::ConnectionAborted.into()));
            values.push(reply.await.unwrap_or_else(lost)?);
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
    fn out(&self) -> MutexGuard<'_, PipelineState<Recipient<R>>> {
        self.pipeline.lock()
    }

    /// Makes the reading task close the connection.
    fn abandon(&self) {
        self.out().is_dropped = true;
        self.attention.notify_one();
    }

    /// Reads, encrypts, and flushes what other threads leave to the runtime, until the connection
    /// breaks or is dropped.
    async fn serve(self: &Arc<Self>, socket: ReadHalf, encrypted: Option<Encrypted>) -> RedisError {
        let mut reading = pin!(self.read(socket));
        let mut encrypting = pin!(self.encrypt(encrypted));
        loop {
            tokio::select! {
                biased;
                error = &mut reading => return error,
                never = &mut encrypting => match never {},
                () = self.attention.notified() => {
                    let out = self.out();
                    if out.is_dropped {
                        return broken(io::ErrorKind::ConnectionAborted.into());
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
            let bytes = std::mem::take(&mut self.out().bytes);
            let written = match socket.write_all(&bytes).await {
                Ok(()) => socket.flush().await,
                Err(error) => Err(error),
            };
            // The reading task notices that the connection is broken.
            if written.is_err() {
                return pending().await;
            }
        }
    }

    /// Delivers answers to their recipients until the connection breaks.
    ///
    /// Uses only public functions of redis-rs, so that any version 1.x works. `redis::ValueCodec`
    /// is hidden, and exists in some versions only.
    async fn read(&self, socket: ReadHalf) -> RedisError {
        // The decoder reads in small pieces, hence the buffer.
        let (mut socket, mut decoder) = (BufReader::with_capacity(CHUNK, socket), Decoder::new());
        let (mut replies, mut recipients) = (Vec::new(), Vec::new());
        loop {
            let mut parsed = Some(parse_redis_value_async(&mut decoder, &mut socket).await);
            let end = loop {
                match parsed {
                    // The answers to SUBSCRIBE and UNSUBSCRIBE are push messages, too, but they go
                    // to a recipient like a reply.
                    Some(Ok(Value::Push { kind, data }))
                        if !matches!(kind, PushKind::Subscribe | PushKind::Unsubscribe) =>
                    {
                        if let Some(on_push) = self.on_push.get() {
                            on_push(kind, &data);
                        }
                    }
                    Some(Ok(value)) => replies.push(value),
                    Some(Err(error)) => break Some(error),
                    None => break None,
                }
                // What has arrived already is delivered together. The decoder keeps the part of a
                // value that was parsed before the future is dropped.
                let has_more = !decoder.buffer().is_empty() || !socket.buffer().is_empty();
                parsed = match has_more {
                    true => parse_redis_value_async(&mut decoder, &mut socket).now_or_never(),
                    false => None,
                };
            };
            let was_full = {
                let mut out = self.out();
                let was_full = is_full(&out);
                let count = replies.len().min(out.recipients.len());
                recipients.extend(out.recipients.drain(..count));
                was_full
            };
            let has_extra = replies.len() > recipients.len();
            for (recipient, value) in recipients.drain(..).zip(replies.drain(..)) {
                recipient.receive(Ok(value));
            }
            if was_full {
                self.room.notify_waiters();
            }
            if has_extra {
                return (ErrorKind::UnexpectedReturnType, "an answer to no request").into();
            }
            if let Some(error) = end {
                return error;
            }
        }
    }

    /// Marks the connection as closed. Returns the recipients of the requests in flight, and the
    /// callback to call before they get their errors.
    fn close(&self) -> (VecDeque<Recipient<R>>, Option<OnBroken>) {
        let mut out = self.out();
        out.is_closed = true;
        out.bytes = Vec::new();
        self.room.notify_waiters();
        (std::mem::take(&mut out.recipients), out.on_broken.take())
    }
}

fn is_full<R>(out: &PipelineState<Recipient<R>>) -> bool {
    !out.is_closed && out.recipients.len() >= MAX_IN_FLIGHT
}

fn broken(error: io::Error) -> RedisError {
    error.into()
}
