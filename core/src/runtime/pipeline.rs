//! What is put on a connection, until it is written.
//!
//! Any thread may put requests on a connection and write them. What is put is written exactly once, in the
//! order in which it was put, and nothing is left behind:
//!
//! - All state is in one mutex, so there is one order of all changes, and no memory ordering is left to
//!   choose. `bytes` and `recipients` grow in one step: the order of the answers is that of the bytes.
//! - `is_held_back` is set by the thread that puts something on it when nobody is about to flush. That
//!   thread then flushes, lets the runtime do so, or does so when [`together`] ends. The flag is cleared, with
//!   the mutex held, only by [`flush`], before it looks at `bytes`. So whoever finds it set has put its
//!   bytes before that look.
//! - `is_writing` lets one thread write at a time. It is cleared, with the mutex held, only when `bytes` is
//!   empty, or the connection is broken. So whoever finds it set has put its bytes before the writer's last
//!   look.
//! - The writer takes `bytes` out to write without the mutex. What the socket did not take goes back before
//!   what others have put meanwhile.
//!
//! `interleavings/writing.rs` checks this in every order of events, up to a bound.

use super::sync::{Mutex, MutexGuard, lock, thread_local};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// What an pipeline is of.
pub(crate) trait Pipelined: Send + Sync + Sized + 'static {
    type Recipient: Send;

    fn pipeline(&self) -> &Pipeline<Self::Recipient>;

    /// Writes as much as the socket takes now.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Notifies the task that encrypts `bytes`. Returns whether there is one.
    fn is_encrypted(&self) -> bool;

    /// Lets the runtime call [`flush`] soon.
    fn flush_later(&self);

    /// Lets the runtime call [`go_on`] when the socket takes more.
    fn go_on_later(self: &Arc<Self>);
}

/// Called when the connection breaks.
pub(crate) type OnBroken = Box<dyn FnOnce() + Send>;

pub(crate) struct Pipeline<R> {
    out: Mutex<PipelineState<R>>,
    /// With more requests in flight than this, they wait until the runtime gets to writing them: then
    /// those of many callers go out together, which is worth more than the time until then.
    few: usize,
}

pub(crate) struct PipelineState<R> {
    /// What is still to be written.
    pub(crate) bytes: Vec<u8>,
    /// Who waits for the answers to what was written, and to `bytes`.
    pub(crate) recipients: VecDeque<R>,
    /// A thread writes, or, when the socket takes no more for now, a task goes on when it does.
    is_writing: bool,
    /// Somebody will flush it soon.
    is_held_back: bool,
    pub(crate) is_dropped: bool,
    pub(crate) is_closed: bool,
    pub(crate) on_broken: Option<OnBroken>,
}

type Guard<'a, C> = MutexGuard<'a, PipelineState<<C as Pipelined>::Recipient>>;

thread_local! {
    /// The connections on which this thread holds requests back.
    static HELD_BACK: RefCell<Option<Vec<Arc<dyn Flush>>>> = RefCell::new(None);
}

trait Flush {
    fn flush(self: Arc<Self>);
}

impl<C: Pipelined> Flush for C {
    fn flush(self: Arc<Self>) {
        flush(&self, self.pipeline().lock());
    }
}

impl<R> Pipeline<R> {
    pub(crate) fn new(few: usize) -> Self {
        let out = PipelineState {
            bytes: Vec::new(),
            recipients: VecDeque::new(),
            is_writing: false,
            is_held_back: false,
            is_dropped: false,
            is_closed: false,
            on_broken: None,
        };
        Self { out: Mutex::new(out), few }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, PipelineState<R>> {
        lock(&self.out)
    }
}

impl<R> PipelineState<R> {
    /// Whether nobody writes, or is about to.
    #[cfg(test)]
    #[allow(dead_code, reason = "for the tests that compile this file a second time")]
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_writing && !self.is_held_back
    }
}

/// What this thread puts on connections within `work` goes out together, one write for each connection.
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
    let is_outermost = HELD_BACK.with(|held_back| match &mut *held_back.borrow_mut() {
        Some(_) => false,
        none => {
            *none = Some(Vec::new());
            true
        }
    });
    let _flush_all = FlushAll(is_outermost);
    work()
}

/// Puts a request on a connection that is not closed.
pub(crate) fn put<C: Pipelined>(
    connection: &Arc<C>,
    mut out: Guard<'_, C>,
    packed: &[u8],
    recipient: C::Recipient,
) {
    out.recipients.push_back(recipient);
    out.bytes.extend_from_slice(packed);
    if out.is_held_back {
        return;
    }
    out.is_held_back = true;
    if out.recipients.len() > connection.pipeline().few {
        connection.flush_later();
    } else if !hold_back(connection) {
        flush(connection, out);
    }
}

/// Whether this thread is to flush the connection later.
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

/// Writes what is to be written, or lets a task do so when the socket takes it.
pub(crate) fn flush<C: Pipelined>(connection: &Arc<C>, mut out: Guard<'_, C>) {
    out.is_held_back = false;
    if connection.is_encrypted() || out.is_writing {
        return;
    }
    out.is_writing = true;
    if !write(&**connection, out) {
        connection.go_on_later();
    }
}

/// Goes on writing when the socket takes more. Returns whether nothing is to be written any more.
pub(crate) fn go_on<C: Pipelined>(connection: &C) -> bool {
    let mut out = connection.pipeline().lock();
    if out.is_closed {
        out.is_writing = false;
        return true;
    }
    write(connection, out)
}

/// Writes all that there is, also what others add meanwhile: nobody waits for the one who writes.
/// Returns whether that was all.
fn write<'a, C: Pipelined>(connection: &'a C, mut out: Guard<'a, C>) -> bool {
    let mut bytes = Vec::new();
    while !out.bytes.is_empty() {
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
