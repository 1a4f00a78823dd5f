//! The requests that are queued on a connection until they are written.
//!
//! Any thread may queue requests and write them. Requests are written in the order in which they were queued. Each
//! request is written exactly once, and no request stays in the queue. The reasons are:
//!
//! - All state is behind one mutex, so all changes have one order, and the code needs no explicit memory orderings. A
//!   request is added to `bytes` and its recipient to `recipients` in one step. So `recipients` and the requests in
//!   `bytes` have the same order. The answers also arrive in this order.
//! - A request that has to wait for a write may be left in `unpacked`, so that it can share a command with other
//!   waiting requests. All requests in `unpacked` come after those in `bytes`. They are packed before another request
//!   is added to `bytes`, and whenever bytes are taken to be written.
//! - `is_held_back` means that a flush is due. A thread that queues a request while no flush is due sets this flag.
//!   That thread then flushes immediately, leaves the flush to the runtime, or flushes when [`together`] ends. Only
//!   [`flush`] clears the flag, with the mutex held and before it reads the queue. So if a thread finds the flag set
//!   when it queues a request, `flush` reads the queue later, and writes this request.
//! - A corked thread (see `cork.rs`) leaves a request in `unpacked`, and the flush to the end of its cork. It does not
//!   set `is_held_back`, so it delays no other request: the next flush writes all requests.
//! - `is_writing` lets one thread write at a time. This flag is cleared, with the mutex held, only when `unpacked` and
//!   `bytes` are empty or the connection is closed. So a thread that finds `is_writing` set has queued its request
//!   before the writer's last read of the queue.
//! - After a write that failed, `is_writing` stays set, so nothing more is written. Otherwise, the server could miss a
//!   request, and every later answer would go to a wrong recipient.
//! - The writer takes `bytes` out and writes them without the mutex. Bytes that the socket did not accept go back to
//!   the front of `bytes`, before the bytes that other threads have queued meanwhile.
//!
//! `interleavings/writing.rs` checks these claims in every order of events, up to a bound.
//!
//! This module owns the queue and the order of writes. It must not block, and must not hold the mutex while it writes.
//! `transport/connection.rs` implements [`Pipelined`]. That file and `executor.rs` call this module.

use super::sync::{Mutex, MutexGuard, lock, thread_local};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A connection that has a [`Pipeline`].
pub(crate) trait Pipelined: Send + Sync + Sized + 'static {
    type Recipient: Send;
    /// A request that is not encoded yet, with its recipient.
    type Unpacked: Send;

    fn pipeline(&self) -> &Pipeline<Self>;

    /// Encodes all unpacked requests: groups them into commands, appends these commands to `bytes`, and appends the
    /// recipient of each command to `recipients`.
    fn pack(out: &mut PipelineState<Self>);

    /// Writes as many bytes as the socket accepts now.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Closes the socket, because a write has failed. The task that reads from the socket then closes the connection.
    fn shut_down(&self);

    /// Whether the connection is encrypted. If so, a separate task encrypts and writes `bytes`, and this method
    /// notifies that task.
    fn is_encrypted(&self) -> bool;

    /// Makes the runtime call [`flush`] soon.
    fn flush_later(&self);

    /// If the calling thread is corked, makes sure that [`flush`] is called when the thread is uncorked. Returns
    /// whether the thread is corked.
    fn flush_at_uncork(self: &Arc<Self>) -> bool;

    /// Makes the runtime call [`go_on`] when the socket accepts more bytes.
    fn go_on_later(self: &Arc<Self>);
}

/// A callback that is called when the connection breaks.
pub(crate) type OnBroken = Box<dyn FnOnce() + Send>;

pub(crate) struct Pipeline<C: Pipelined> {
    out: Mutex<PipelineState<C>>,
    /// If more requests than this are in flight, new requests wait until the runtime flushes. Requests of many callers
    /// then share one write. This saves more time than the requests lose by waiting.
    immediate_limit: usize,
}

pub(crate) struct PipelineState<C: Pipelined> {
    /// Bytes that are not written yet.
    pub(crate) bytes: Vec<u8>,
    /// The recipients of the answers to all commands that were written or are in `bytes`, in order.
    pub(crate) recipients: VecDeque<C::Recipient>,
    /// Requests that are not encoded yet. They are encoded and written after `bytes`, so that they can share commands.
    pub(crate) unpacked: Vec<C::Unpacked>,
    /// The number of requests in flight: those of `recipients` and `unpacked`.
    pub(crate) in_flight: usize,
    /// The size of the commands of `recipients` that take room, in bytes. The connection counts them.
    pub(crate) unanswered_bytes: usize,
    /// Whether a thread is writing, or a task will continue to write when the socket accepts more bytes.
    is_writing: bool,
    /// Whether a flush is due: a thread or the runtime will call [`flush`] soon.
    is_held_back: bool,
    pub(crate) is_dropped: bool,
    pub(crate) is_closed: bool,
    pub(crate) on_broken: Option<OnBroken>,
}

type StateGuard<'a, C> = MutexGuard<'a, PipelineState<C>>;

/// If this many requests wait on one connection, they are written even if their thread is corked. The server can then
/// process them while the thread queues further requests.
const ENOUGH: usize = 32;

thread_local! {
    /// The connections that this thread will flush when [`together`] ends; `None` outside [`together`].
    static HELD_BACK: RefCell<Option<Vec<Arc<dyn Flush>>>> = RefCell::new(None);
}

/// A connection of any type whose queued requests can be written.
pub(crate) trait Flush: Send + Sync {
    fn flush(self: Arc<Self>);
}

impl<C: Pipelined> Flush for C {
    fn flush(self: Arc<Self>) {
        flush(&self, self.pipeline().lock());
    }
}

impl<C: Pipelined> Pipeline<C> {
    pub(crate) fn new(immediate_limit: usize) -> Self {
        let out = PipelineState {
            bytes: Vec::new(),
            recipients: VecDeque::new(),
            unpacked: Vec::new(),
            in_flight: 0,
            unanswered_bytes: 0,
            is_writing: false,
            is_held_back: false,
            is_dropped: false,
            is_closed: false,
            on_broken: None,
        };
        Self { out: Mutex::new(out), immediate_limit }
    }

    pub(crate) fn lock(&self) -> StateGuard<'_, C> {
        lock(&self.out)
    }

    /// Whether a request that is queued now would have to wait for a write. Such a request can share a command with
    /// other waiting requests. Returns `false` for the first request within [`together`], although that request also
    /// waits.
    pub(crate) fn is_busy(&self) -> bool {
        let out = self.lock();
        out.is_held_back || out.is_writing || out.in_flight >= self.immediate_limit
    }
}

impl<C: Pipelined> PipelineState<C> {
    pub(crate) fn pack(&mut self) {
        if !self.unpacked.is_empty() {
            C::pack(self);
        }
    }

    /// Whether no thread writes or is about to write.
    #[cfg(test)]
    #[allow(dead_code, reason = "for the tests that compile this file a second time")]
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_writing && !self.is_held_back
    }
}

/// Runs `work`, and afterwards writes all requests that this thread queued during `work`, with one write per
/// connection.
pub(crate) fn together<T>(work: impl FnOnce() -> T) -> T {
    struct FlushAll(bool);
    impl Drop for FlushAll {
        fn drop(&mut self) {
            if self.0 {
                let connections = HELD_BACK.with(|held_back| held_back.borrow_mut().take());
                connections.unwrap_or_default().into_iter().for_each(Flush::flush);
            }
        }
    }
    let is_outermost = HELD_BACK.try_with(|held_back| match &mut *held_back.borrow_mut() {
        Some(_) => false,
        none => {
            *none = Some(Vec::new());
            true
        }
    });
    // A thread that ends loses its thread-local values. It then writes each request at once.
    let _flush_all = FlushAll(is_outermost.unwrap_or(false));
    work()
}

/// Queues a request on a connection, and writes the request now or soon. The connection must not be closed.
pub(crate) fn put<C: Pipelined>(
    connection: &Arc<C>,
    mut out: StateGuard<'_, C>,
    packed: &[u8],
    recipient: C::Recipient,
) {
    out.pack();
    out.recipients.push_back(recipient);
    out.bytes.extend_from_slice(packed);
    queued(connection, out);
}

/// Queues a request that may share a command with others, and writes it now or soon. The connection must not be closed.
pub(crate) fn put_unpacked<C: Pipelined>(
    connection: &Arc<C>,
    mut out: StateGuard<'_, C>,
    unpacked: C::Unpacked,
) {
    out.unpacked.push(unpacked);
    if out.is_held_back || !connection.flush_at_uncork() {
        return queued(connection, out);
    }
    out.in_flight += 1;
    if out.unpacked.len() >= ENOUGH {
        flush(connection, out);
    }
}

/// Counts a request that was queued, and makes sure that it is written.
fn queued<C: Pipelined>(connection: &Arc<C>, mut out: StateGuard<'_, C>) {
    out.in_flight += 1;
    if out.is_held_back {
        return;
    }
    out.is_held_back = true;
    if out.in_flight > connection.pipeline().immediate_limit {
        connection.flush_later();
    } else if !hold_back(connection) {
        flush(connection, out);
    }
}

/// If this thread runs within [`together`], postpones the flush to the end of [`together`]. Returns whether it does.
fn hold_back<C: Pipelined>(connection: &Arc<C>) -> bool {
    let is_held_back = HELD_BACK.try_with(|held_back| match &mut *held_back.borrow_mut() {
        Some(connections) => {
            connections.push(Arc::clone(connection) as Arc<dyn Flush>);
            true
        }
        None => false,
    });
    is_held_back.unwrap_or(false)
}

/// Writes the queued bytes. If the socket does not accept all of them, leaves the rest to a task.
pub(crate) fn flush<C: Pipelined>(connection: &Arc<C>, mut out: StateGuard<'_, C>) {
    out.is_held_back = false;
    if connection.is_encrypted() || out.is_writing {
        return;
    }
    out.is_writing = true;
    if !write(&**connection, out) {
        connection.go_on_later();
    }
}

/// Continues to write. Called when the socket accepts more bytes. Returns `true` if nothing is left to write, if the
/// write failed, or if the connection is closed.
pub(crate) fn go_on<C: Pipelined>(connection: &C) -> bool {
    let mut out = connection.pipeline().lock();
    if out.is_closed {
        out.is_writing = false;
        return true;
    }
    write(connection, out)
}

/// Writes all queued bytes, including those that other threads queue meanwhile, because these threads rely on this
/// writer. Returns `false` if the socket did not accept all bytes, and `true` if nothing is left to write or the write
/// failed.
fn write<'a, C: Pipelined>(connection: &'a C, mut out: StateGuard<'a, C>) -> bool {
    let mut bytes = Vec::new();
    loop {
        out.pack();
        if out.bytes.is_empty() {
            break;
        }
        std::mem::swap(&mut bytes, &mut out.bytes);
        drop(out);
        let written = connection.try_write(&bytes);
        out = connection.pipeline().lock();
        match written {
            Ok(written) => drop(bytes.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                out.bytes.splice(..0, bytes);
                return false;
            }
            Err(_) => {
                drop(out);
                connection.shut_down();
                return true;
            }
        }
        // Bytes that other threads have queued meanwhile go behind the bytes that are left.
        bytes.append(&mut out.bytes);
        std::mem::swap(&mut bytes, &mut out.bytes);
    }
    out.is_writing = false;
    true
}
