//! A pipelined connection to a server: any thread puts its requests on it, and the answers go, in that
//! order, to whoever is to have each.
//!
//! redis-rs packs the commands and understands the answers. Its own multiplexed connection hands every
//! request to a task and every answer back, which costs several times as much.

use crate::asking::Sink;
use crate::runtime;
use crate::server::Server;
use crate::socket::{self, Plain, ReadHalf, WriteHalf};
use crate::wire::receive;
use redis::{Cmd, ErrorKind, PushKind, RedisError, Value, ValueCodec};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio_util::bytes::BytesMut;
use tokio_util::codec::Decoder;

/// Requests in flight; further ones wait in order, within their own deadlines.
const MOST: usize = 4096;

/// With more than so many in flight, requests wait until the runtime gets to writing them: then those of
/// many callers go out together, which is worth more than the time until then.
const FEW: usize = 4;

/// What is read at once, at most.
const CHUNK: usize = 16 * 1024;

type Reply = Result<Value, RedisError>;
type Encrypted = Box<dyn AsyncWrite + Send + Unpin>;

/// Who is to have an answer.
pub(crate) enum Recipient {
    Request(Sink),
    Caller(oneshot::Sender<Reply>),
    Nobody,
}

impl Recipient {
    fn receive(self, reply: Reply) {
        match self {
            Self::Request(sink) => receive(sink, reply),
            // An error means that nobody waits any more.
            Self::Caller(caller) => drop(caller.send(reply)),
            Self::Nobody => {}
        }
    }
}

/// A connection; closed when it is dropped.
pub(crate) struct Pipe(Arc<Shared>);

struct Shared {
    out: Mutex<Out>,
    /// `None` if a task has it, which encrypts what it writes.
    socket: Option<Plain>,
    /// Is called with what the server tells without being asked.
    on_push: OnceLock<OnPush>,
    /// Notified when there is room for more requests, or none will go out any more.
    room: Notify,
    /// Notified when there is something to write, and when the connection is dropped.
    attention: Notify,
    /// Notified when there is something to encrypt.
    unencrypted: Notify,
}

type OnPush = Box<dyn Fn(PushKind, &[Value]) + Send + Sync>;

struct Out {
    /// What is still to be written.
    bytes: Vec<u8>,
    /// Who waits for the answers to what was written, and to `bytes`.
    recipients: VecDeque<Recipient>,
    /// A thread writes, or, when the socket takes no more for now, a task goes on when it does.
    is_writing: bool,
    /// Somebody will write it soon: the thread that put something on it last, or the runtime.
    is_held_back: bool,
    is_dropped: bool,
    is_closed: bool,
    on_broken: Option<Box<dyn FnOnce() + Send>>,
}

thread_local! {
    /// The connections on which this thread holds requests back.
    static HELD_BACK: RefCell<Option<Vec<Arc<Shared>>>> = const { RefCell::new(None) };
}

/// Requests that this thread makes within `work` go out together, one write for each node.
pub(crate) fn together<T>(work: impl FnOnce() -> T) -> T {
    struct Flush(bool);
    impl Drop for Flush {
        fn drop(&mut self) {
            if self.0 {
                let pipes = HELD_BACK.take().unwrap_or_default();
                pipes.iter().for_each(|pipe| pipe.flush(pipe.out()));
            }
        }
    }
    let is_outermost = HELD_BACK.with_borrow_mut(|pipes| match pipes {
        Some(_) => false,
        None => {
            *pipes = Some(Vec::new());
            true
        }
    });
    let _flush = Flush(is_outermost);
    work()
}

impl Pipe {
    /// Connects, without a time limit.
    pub(crate) async fn connect(server: &Server) -> Result<Self, RedisError> {
        let (read, write) = socket::connect(server).await?;
        let (socket, encrypted) = match write {
            WriteHalf::Plain(socket) => (Some(socket), None),
            WriteHalf::Encrypted(encrypted) => (None, Some(encrypted)),
        };
        let out = Out {
            bytes: Vec::new(),
            recipients: VecDeque::new(),
            is_writing: false,
            is_held_back: false,
            is_dropped: false,
            is_closed: false,
            on_broken: None,
        };
        let shared = Arc::new(Shared {
            out: Mutex::new(out),
            socket,
            on_push: OnceLock::new(),
            room: Notify::new(),
            attention: Notify::new(),
            unencrypted: Notify::new(),
        });
        let serving = Arc::clone(&shared);
        // The runtime is there: this runs on it.
        let _ = runtime::spawn(async move {
            let error = serving.serve(read, encrypted).await;
            let (recipients, on_broken) = serving.close();
            if let Some(on_broken) = on_broken {
                on_broken();
            }
            recipients.into_iter().for_each(|recipient| recipient.receive(Err(error.clone())));
        });
        Ok(Self(shared))
    }

    /// `on_broken` is called when the connection breaks, before those who wait for answers are told; or
    /// now, if it is broken already.
    pub(crate) fn on_broken(&self, on_broken: impl FnOnce() + Send + 'static) {
        let mut out = self.0.out();
        if out.is_closed {
            drop(out);
            return on_broken();
        }
        out.on_broken = Some(Box::new(on_broken));
    }

    /// `on_push` is called with what the server tells from now on without being asked.
    pub(crate) fn on_push(&self, on_push: impl Fn(PushKind, &[Value]) + Send + Sync + 'static) {
        // Nobody sets it twice.
        let _ = self.0.on_push.set(Box::new(on_push));
    }

    /// Puts a request on it. Returns the sink if there is no room for it now: see [`Pipe::room`].
    pub(crate) fn send(&self, packed: &[u8], sink: Sink) -> Result<(), Sink> {
        let out = self.0.out();
        if out.is_full() {
            return Err(sink);
        }
        self.put(out, packed, Recipient::Request(sink));
        Ok(())
    }

    /// Puts a request on it as [`Pipe::send`] does, and before it one whose answer nobody wants.
    pub(crate) fn send_behind(&self, first: &[u8], packed: &[u8], sink: Sink) -> Result<(), Sink> {
        let mut out = self.0.out();
        if out.is_full() {
            return Err(sink);
        }
        if !out.is_closed {
            out.recipients.push_back(Recipient::Nobody);
            out.bytes.extend_from_slice(first);
        }
        self.put(out, packed, Recipient::Request(sink));
        Ok(())
    }

    fn put(&self, mut out: MutexGuard<'_, Out>, packed: &[u8], recipient: Recipient) {
        if out.is_closed {
            drop(out);
            recipient.receive(Err(broken(io::ErrorKind::NotConnected.into())));
            return;
        }
        out.recipients.push_back(recipient);
        out.bytes.extend_from_slice(packed);
        if out.is_held_back {
            return;
        }
        out.is_held_back = true;
        if out.recipients.len() > FEW {
            self.0.attention.notify_one();
        } else if !self.hold_back() {
            self.0.flush(out);
        }
    }

    /// Waits until there may be room for more requests.
    pub(crate) async fn room(&self) {
        let room = self.0.room.notified();
        if self.0.out().is_full() {
            room.await;
        }
    }

    /// Sends commands together. The errors of single ones are among the replies.
    pub(crate) async fn ask_all(&self, commands: &[Cmd]) -> Result<Vec<Value>, RedisError> {
        let ask = |command: &Cmd| {
            let (sender, reply) = oneshot::channel();
            let packed = command.get_packed_command();
            self.put(self.0.out(), &packed, Recipient::Caller(sender));
            reply
        };
        let replies: Vec<_> = together(|| commands.iter().map(ask).collect());
        let mut values = Vec::new();
        for reply in replies {
            let lost = |_| Err(broken(io::ErrorKind::ConnectionAborted.into()));
            values.push(reply.await.unwrap_or_else(lost)?);
        }
        Ok(values)
    }

    /// Whether this thread is to write what was put on it, later.
    fn hold_back(&self) -> bool {
        let held_back = HELD_BACK.try_with(|pipes| match &mut *pipes.borrow_mut() {
            Some(pipes) => {
                pipes.push(Arc::clone(&self.0));
                true
            }
            None => false,
        });
        held_back.unwrap_or(false)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.0.out().is_dropped = true;
        self.0.attention.notify_one();
    }
}

impl Shared {
    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads, and writes what others leave to it, until the connection breaks or is dropped.
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
                    self.flush(out);
                }
            }
        }
    }

    /// Writes what is to be written, or lets a task do so when the socket takes it.
    fn flush(self: &Arc<Self>, mut out: MutexGuard<'_, Out>) {
        out.is_held_back = false;
        let Some(socket) = &self.socket else { return self.unencrypted.notify_one() };
        if out.is_writing {
            return;
        }
        out.is_writing = true;
        if !self.write(socket, out) {
            let pipe = Arc::clone(self);
            // Without a runtime there are no connections either.
            let _ = runtime::spawn(async move {
                while let Some(socket) = &pipe.socket
                    && !pipe.unblock(socket).await
                {}
            });
        }
    }

    /// Writes all that there is, also what others add meanwhile: nobody waits for the one who writes.
    /// Returns whether that was all.
    fn write<'a>(&'a self, socket: &Plain, mut out: MutexGuard<'a, Out>) -> bool {
        let mut bytes = Vec::new();
        while !out.bytes.is_empty() {
            std::mem::swap(&mut bytes, &mut out.bytes);
            drop(out);
            let written = socket.try_write(&bytes);
            out = self.out();
            match written {
                Ok(written) => drop(bytes.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    out.bytes.splice(..0, bytes);
                    return false;
                }
                // Whoever reads gets to know that it is broken.
                Err(_) => {
                    bytes.clear();
                    out.bytes.clear();
                }
            }
            // What others added comes after what is left.
            bytes.append(&mut out.bytes);
            std::mem::swap(&mut bytes, &mut out.bytes);
        }
        out.is_writing = false;
        true
    }

    /// Returns whether nothing is to be written any more.
    async fn unblock(&self, socket: &Plain) -> bool {
        let writable = socket.writable().await;
        let mut out = self.out();
        if writable.is_err() || out.is_closed {
            out.is_writing = false;
            return true;
        }
        self.write(socket, out)
    }

    /// Writes what there is on an encrypted connection, for ever.
    async fn encrypt(&self, socket: Option<Encrypted>) -> Infallible {
        let Some(mut socket) = socket else { return pending().await };
        loop {
            self.unencrypted.notified().await;
            let bytes = std::mem::take(&mut self.out().bytes);
            let written = match socket.write_all(&bytes).await {
                Ok(()) => socket.flush().await,
                Err(error) => Err(error),
            };
            // Whoever reads gets to know that it is broken.
            if written.is_err() {
                return pending().await;
            }
        }
    }

    /// Hands out the answers, until there can be no more.
    async fn read(&self, mut socket: ReadHalf) -> RedisError {
        let (mut bytes, mut codec) = (BytesMut::with_capacity(CHUNK), ValueCodec::default());
        let (mut replies, mut recipients) = (Vec::new(), Vec::new());
        loop {
            bytes.reserve(CHUNK / 4);
            match socket.read_buf(&mut bytes).await {
                Ok(0) => return broken(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => return broken(error),
            }
            let end = loop {
                match codec.decode(&mut bytes) {
                    // The answer to SUBSCRIBE is a push, too.
                    Ok(Some(Value::Push { kind, data })) if kind != PushKind::Subscribe => {
                        if let Some(on_push) = self.on_push.get() {
                            on_push(kind, &data);
                        }
                    }
                    Ok(Some(value)) => replies.push(value),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            let was_full = {
                let mut out = self.out();
                let was_full = out.is_full();
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

    /// Returns who waits in vain, and who is to be told first.
    fn close(&self) -> (VecDeque<Recipient>, Option<Box<dyn FnOnce() + Send>>) {
        let mut out = self.out();
        out.is_closed = true;
        out.bytes = Vec::new();
        self.room.notify_waiters();
        (std::mem::take(&mut out.recipients), out.on_broken.take())
    }
}

impl Out {
    fn is_full(&self) -> bool {
        !self.is_closed && self.recipients.len() >= MOST
    }
}

fn broken(error: io::Error) -> RedisError {
    error.into()
}
