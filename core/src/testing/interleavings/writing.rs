//! Whatever is put on a connection is written in order, exactly once, and nothing is left behind.

use super::check;
use super::pipeline::{self, Pipeline, Pipelined, together};
use super::sync::{Condvar, Mutex, lock, wait};
use loom::thread;
use std::io;
use std::sync::Arc;

/// With more than one request in flight, the runtime flushes.
const FEW: usize = 1;
/// Messages are of two bytes, so that parts of them are written.
const ROOM: usize = 3;

/// A connection with a socket that takes [`ROOM`] bytes until the runtime finds it writable.
struct Line {
    pipeline: Pipeline<[u8; 2]>,
    socket: Mutex<Socket>,
    due: Mutex<Due>,
    changed: Condvar,
}

struct Socket {
    written: Vec<u8>,
    room: usize,
}

/// What the runtime has to do.
#[derive(Default)]
struct Due {
    flush: bool,
    go_on: bool,
    is_over: bool,
}

impl Pipelined for Line {
    type Recipient = [u8; 2];

    fn pipeline(&self) -> &Pipeline<[u8; 2]> {
        &self.pipeline
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = lock(&self.socket);
        let count = bytes.len().min(socket.room);
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        socket.written.extend_from_slice(&bytes[..count]);
        socket.room -= count;
        Ok(count)
    }

    fn is_encrypted(&self) -> bool {
        false
    }

    fn flush_later(&self) {
        self.make_due(|due| due.flush = true);
    }

    fn go_on_later(self: &Arc<Self>) {
        self.make_due(|due| due.go_on = true);
    }
}

impl Line {
    fn new() -> Arc<Self> {
        let socket = Socket { written: Vec::new(), room: ROOM };
        let (socket, due, changed) = (Mutex::new(socket), Mutex::default(), Condvar::new());
        Arc::new(Self { pipeline: Pipeline::new(FEW), socket, due, changed })
    }

    fn make_due(&self, change: impl FnOnce(&mut Due)) {
        change(&mut lock(&self.due));
        self.changed.notify_one();
    }

    fn put(self: &Arc<Self>, message: [u8; 2]) {
        pipeline::put(self, self.pipeline.lock(), &message, message);
    }

    /// What the runtime does, until it is over and there is nothing to do.
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

/// Lets a thread put what `first` does on a line while another one puts two messages, and checks what is written.
fn check_writing(puts: fn(&Arc<Line>)) {
    check(move || {
        let line = Line::new();
        let (runtime, other) = (Arc::clone(&line), Arc::clone(&line));
        let runtime = thread::spawn(move || runtime.run());
        let other = thread::spawn(move || puts(&other));
        line.put(*b"a1");
        line.put(*b"a2");
        other.join().expect("it does not panic");
        line.make_due(|due| due.is_over = true);
        runtime.join().expect("it does not panic");

        let out = line.pipeline.lock();
        assert!(out.is_idle() && out.bytes.is_empty(), "something is left behind");
        let recipients: Vec<_> = out.recipients.iter().copied().collect();
        assert_eq!(lock(&line.socket).written, recipients.concat());
        for of in [b'a', b'b'] {
            let own: Vec<_> = recipients.iter().filter(|recipient| recipient[0] == of).collect();
            assert_eq!(own, [&[of, b'1'], &[of, b'2']]);
        }
    });
}

#[test]
fn what_two_threads_put_on_a_connection_is_written_in_order() {
    check_writing(|line| {
        line.put(*b"b1");
        line.put(*b"b2");
    });
}

#[test]
fn what_is_held_back_is_written_in_order() {
    check_writing(|line| {
        together(|| {
            line.put(*b"b1");
            line.put(*b"b2");
        });
    });
}
