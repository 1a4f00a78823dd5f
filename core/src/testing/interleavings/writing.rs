//! Checks `runtime/pipeline.rs`: requests that are put on a connection are written in order, completely and exactly
//! once.

use super::check;
use super::pipeline::{self, Pipeline, PipelineState, Pipelined, together};
use super::sync::{Condvar, Mutex, lock, thread_local, wait};
use loom::thread;
use std::cell::Cell;
use std::io;
use std::sync::Arc;

/// With more requests in flight than this, new requests wait until the runtime flushes.
const FEW: usize = 1;
/// The number of bytes that the socket accepts at a time. A message has two bytes, so some messages are written in
/// parts.
const ROOM: usize = 3;

thread_local! {
    static IS_CORKED: Cell<bool> = Cell::new(false);
}

/// A connection whose socket accepts [`ROOM`] bytes until the runtime finds it writable again.
struct Connection {
    pipeline: Pipeline<Self>,
    socket: Mutex<Socket>,
    due: Mutex<Due>,
    changed: Condvar,
}

struct Socket {
    written: Vec<u8>,
    room: usize,
    /// The number of writes after which one write fails.
    writes_before_failure: usize,
    is_shut_down: bool,
}

/// What the runtime must do next.
#[derive(Default)]
struct Due {
    flush: bool,
    go_on: bool,
    is_over: bool,
}

impl Pipelined for Connection {
    /// The messages of a command.
    type Recipient = Vec<[u8; 2]>;
    type Unpacked = [u8; 2];

    fn pipeline(&self) -> &Pipeline<Self> {
        &self.pipeline
    }

    fn pack(out: &mut PipelineState<Self>) {
        let messages = std::mem::take(&mut out.unpacked);
        out.bytes.extend(messages.concat());
        out.recipients.push_back(messages);
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = lock(&self.socket);
        let count = bytes.len().min(socket.room);
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if socket.writes_before_failure == 0 {
            socket.writes_before_failure = usize::MAX;
            return Err(io::ErrorKind::Other.into());
        }
        socket.writes_before_failure -= 1;
        socket.written.extend_from_slice(&bytes[..count]);
        socket.room -= count;
        Ok(count)
    }

    fn shut_down(&self) {
        lock(&self.socket).is_shut_down = true;
    }

    fn is_encrypted(&self) -> bool {
        false
    }

    fn flush_later(&self) {
        self.make_due(|due| due.flush = true);
    }

    fn flush_at_uncork(self: &Arc<Self>) -> bool {
        IS_CORKED.with(Cell::get)
    }

    fn go_on_later(self: &Arc<Self>) {
        self.make_due(|due| due.go_on = true);
    }
}

impl Connection {
    fn new() -> Arc<Self> {
        Self::failing_after(usize::MAX)
    }

    fn failing_after(writes: usize) -> Arc<Self> {
        let socket = Mutex::new(Socket {
            written: Vec::new(),
            room: ROOM,
            writes_before_failure: writes,
            is_shut_down: false,
        });
        let changed = Condvar::new();
        Arc::new(Self { pipeline: Pipeline::new(FEW), socket, due: Mutex::default(), changed })
    }

    fn make_due(&self, change: impl FnOnce(&mut Due)) {
        change(&mut lock(&self.due));
        self.changed.notify_one();
    }

    /// Puts a message by itself.
    fn put(self: &Arc<Self>, message: [u8; 2]) {
        pipeline::put(self, self.pipeline.lock(), &message, vec![message]);
    }

    /// Puts a message that may share a command with others if it has to wait.
    fn put_batchable(self: &Arc<Self>, message: [u8; 2]) {
        if self.pipeline.is_busy() || self.flush_at_uncork() {
            pipeline::put_unpacked(self, self.pipeline.lock(), message);
        } else {
            self.put(message);
        }
    }

    /// Acts as the runtime: does what is due, until the test is over and nothing is due.
    fn run(self: &Arc<Self>) {
        loop {
            let Due { flush, go_on, .. } = {
                let mut due = lock(&self.due);
                while !due.flush && !due.go_on {
                    if due.is_over {
                        return;
                    }
                    due = wait(&self.changed, due);
                }
                let is_over = due.is_over;
                std::mem::replace(&mut *due, Due { is_over, ..Due::default() })
            };
            if flush {
                pipeline::flush(self, self.pipeline.lock());
            }
            if go_on {
                lock(&self.socket).room = ROOM;
                if !pipeline::go_on(&**self) {
                    self.go_on_later();
                }
            }
        }
    }
}

/// Runs `puts` on one thread while another thread puts two messages.
fn write(connection: &Arc<Connection>, puts: fn(&Arc<Connection>)) {
    let runtime = Arc::clone(connection);
    let other = Arc::clone(connection);
    let runtime = thread::spawn(move || runtime.run());
    let other = thread::spawn(move || puts(&other));
    connection.put(*b"a1");
    connection.put(*b"a2");
    other.join().expect("no panic");
    connection.make_due(|due| due.is_over = true);
    runtime.join().expect("no panic");
}

/// Runs `puts` on one thread while another thread puts two messages, and checks what was written.
fn check_writing(puts: fn(&Arc<Connection>)) {
    check(move || {
        let connection = Connection::new();
        write(&connection, puts);

        let out = connection.pipeline.lock();
        assert!(out.is_idle() && out.bytes.is_empty(), "bytes are left in the pipeline");
        assert!(out.unpacked.is_empty(), "a message was not packed");
        let recipients: Vec<_> = out.recipients.iter().flatten().copied().collect();
        assert_eq!(out.in_flight, recipients.len());
        assert_eq!(lock(&connection.socket).written, recipients.concat());
        for of in [b'a', b'b'] {
            let own: Vec<_> = recipients.iter().filter(|recipient| recipient[0] == of).collect();
            assert_eq!(own, [&[of, b'1'], &[of, b'2']]);
        }
    });
}

#[test]
fn requests_of_two_threads_are_written_in_order() {
    check_writing(|connection| {
        connection.put(*b"b1");
        connection.put(*b"b2");
    });
}

#[test]
fn requests_that_share_commands_are_written_in_order() {
    check_writing(|connection| {
        connection.put_batchable(*b"b1");
        connection.put(*b"b2");
    });
    check_writing(|connection| {
        together(|| {
            connection.put(*b"b1");
            connection.put_batchable(*b"b2");
        });
    });
}

#[test]
fn requests_of_a_corked_thread_are_written_in_order() {
    check_writing(|connection| {
        IS_CORKED.with(|is_corked| is_corked.set(true));
        connection.put_batchable(*b"b1");
        connection.put_batchable(*b"b2");
        IS_CORKED.with(|is_corked| is_corked.set(false));
        pipeline::flush(connection, connection.pipeline.lock());
    });
}

#[test]
fn nothing_is_written_after_a_write_that_failed() {
    for writes in 0..2 {
        check(move || {
            let connection = Connection::failing_after(writes);
            write(&connection, |connection| {
                connection.put_batchable(*b"b1");
                connection.put(*b"b2");
            });

            let out = connection.pipeline.lock();
            let recipients: Vec<_> = out.recipients.iter().flatten().copied().collect();
            let socket = lock(&connection.socket);
            assert!(recipients.concat().starts_with(&socket.written));
            assert!(socket.is_shut_down || socket.writes_before_failure != usize::MAX);
        });
    }
}

#[test]
fn held_back_requests_are_written_in_order() {
    check_writing(|connection| {
        together(|| {
            connection.put(*b"b1");
            connection.put(*b"b2");
        });
    });
}
