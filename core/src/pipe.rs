//! A pipelined connection to a server: any thread puts its requests on it, and the answers go, in that
//! order, to whoever is to have each.
//!
//! redis-rs packs the commands and understands the answers. Its own multiplexed connection hands every
//! request to a task and every answer back, which costs several times as much.

use crate::asking::Sink;
use crate::runtime;
use crate::wire::receive;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, Value, ValueCodec};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::net::tcp;
#[cfg(unix)]
use tokio::net::{UnixStream, unix};
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

/// Who is to have an answer.
pub(crate) enum Recipient {
    Request(Sink),
    Caller(oneshot::Sender<Reply>),
}

impl Recipient {
    fn receive(self, reply: Reply) {
        match self {
            Self::Request(sink) => receive(sink, reply),
            // An error means that nobody waits any more.
            Self::Caller(caller) => drop(caller.send(reply)),
        }
    }
}

/// A connection; closed when it is dropped.
pub(crate) struct Pipe(Arc<Shared>);

struct Shared {
    out: Mutex<Out>,
    socket: WriteHalf,
    /// Notified when there is room for more requests, or none will go out any more.
    room: Notify,
    /// Notified when there is something to write, and when the connection is dropped.
    attention: Notify,
}

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
}

enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    #[cfg(unix)]
    Unix(unix::OwnedWriteHalf),
}

type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;

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
    /// Connects, without a time limit. `on_broken` is called when the connection breaks, before those
    /// who wait for answers are told.
    pub(crate) async fn connect(
        info: &ConnectionInfo,
        on_broken: impl Fn() + Send + 'static,
    ) -> Result<Self, RedisError> {
        let (read, socket) = connect(info).await?;
        let out = Out {
            bytes: Vec::new(),
            recipients: VecDeque::new(),
            is_writing: false,
            is_held_back: false,
            is_dropped: false,
            is_closed: false,
        };
        let (room, attention) = (Notify::new(), Notify::new());
        let shared = Arc::new(Shared { out: Mutex::new(out), socket, room, attention });
        let serving = Arc::clone(&shared);
        // The runtime is there: this runs on it.
        let _ = runtime::spawn(async move {
            let error = serving.serve(read).await;
            let recipients = serving.close();
            on_broken();
            recipients.into_iter().for_each(|recipient| recipient.receive(Err(error.clone())));
        });
        Ok(Self(shared))
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
    async fn serve(self: &Arc<Self>, socket: ReadHalf) -> RedisError {
        let mut reading = pin!(self.read(socket));
        loop {
            tokio::select! {
                biased;
                error = &mut reading => return error,
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
        if out.is_writing {
            return;
        }
        out.is_writing = true;
        if !self.write(out) {
            let pipe = Arc::clone(self);
            // Without a runtime there are no connections either.
            let _ = runtime::spawn(async move { while !pipe.unblock().await {} });
        }
    }

    /// Writes all that there is, also what others add meanwhile: nobody waits for the one who writes.
    /// Returns whether that was all.
    fn write<'a>(&'a self, mut out: MutexGuard<'a, Out>) -> bool {
        let mut bytes = Vec::new();
        while !out.bytes.is_empty() {
            std::mem::swap(&mut bytes, &mut out.bytes);
            drop(out);
            let written = self.socket.try_write(&bytes);
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
    async fn unblock(&self) -> bool {
        let writable = self.socket.writable().await;
        let mut out = self.out();
        if writable.is_err() || out.is_closed {
            out.is_writing = false;
            return true;
        }
        self.write(out)
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
                    // What the server tells of itself answers nothing.
                    Ok(Some(Value::Push { .. })) => {}
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

    /// Returns who waits in vain.
    fn close(&self) -> VecDeque<Recipient> {
        let mut out = self.out();
        out.is_closed = true;
        out.bytes = Vec::new();
        self.room.notify_waiters();
        std::mem::take(&mut out.recipients)
    }
}

impl Out {
    fn is_full(&self) -> bool {
        !self.is_closed && self.recipients.len() >= MOST
    }
}

impl WriteHalf {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(socket) => socket.try_write(bytes),
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.writable().await,
            #[cfg(unix)]
            Self::Unix(socket) => socket.writable().await,
        }
    }
}

fn broken(error: io::Error) -> RedisError {
    error.into()
}

async fn connect(info: &ConnectionInfo) -> Result<(ReadHalf, WriteHalf), RedisError> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let socket = TcpStream::connect((&**host, *port)).await?;
            set_up(&socket, info.tcp_settings())?;
            let (read, write) = socket.into_split();
            Ok((Box::new(read), WriteHalf::Tcp(write)))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            Ok((Box::new(read), WriteHalf::Unix(write)))
        }
        _ => Err((ErrorKind::InvalidClientConfig, "this kind of address is not supported").into()),
    }
}

fn set_up(socket: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    socket.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(socket);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}
