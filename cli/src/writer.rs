//! A thread that writes messages to a stream whose reader may be slow, or may not read at all.
//!
//! The threads of the command renew leases, pass on signals and end processes. None of them may wait for the reader of
//! stderr: a pipe can be full, and Ctrl-S stops a terminal.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How many messages may wait to be written.
pub(crate) const QUEUE: usize = 64;
/// How long [`Writer::finish`] waits for the reader.
// Longer in unit tests, which a loaded machine may delay.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// Writes messages in order. Drops those for which there is no room; the next message says how many that were.
pub(crate) struct Writer {
    dropped: Arc<AtomicU64>,
    /// `None` after [`Writer::finish`].
    thread: Mutex<Option<Thread>>,
}

struct Thread {
    queue: SyncSender<String>,
    /// Disconnected once the thread has written everything.
    written: Receiver<()>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("dropped", &self.dropped).finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts the thread. It calls `write` with each message.
    pub(crate) fn start(mut write: impl FnMut(&str) + Send + 'static) -> io::Result<Self> {
        let (queue, queued) = sync_channel::<String>(QUEUE);
        let (writing, written) = sync_channel(0);
        let dropped = Arc::<AtomicU64>::default();
        let count = Arc::clone(&dropped);
        let work = move || {
            let _writing: SyncSender<()> = writing;
            let write_count = |write: &mut dyn FnMut(&str)| match count.swap(0, Ordering::Relaxed) {
                0 => {}
                dropped => write(&format!("quorlock: messages left out: {dropped}\n")),
            };
            for message in queued {
                write_count(&mut write);
                write(&message);
            }
            write_count(&mut write);
        };
        std::thread::Builder::new().name("quorlock-writer".to_owned()).spawn(work)?;
        Ok(Self { dropped, thread: Mutex::new(Some(Thread { queue, written })) })
    }

    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message. Never waits.
    pub(crate) fn write(&self, message: String) {
        let is_queued =
            self.thread().as_ref().is_some_and(|thread| thread.queue.try_send(message).is_ok());
        if !is_queued {
            self.leave_out();
        }
    }

    /// Counts a message that is left out.
    pub(crate) fn leave_out(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all messages are written, for at most a second. Later messages are dropped.
    pub(crate) fn finish(&self) {
        let thread = self.thread().take();
        if let Some(Thread { queue, written }) = thread {
            drop(queue);
            let _ = written.recv_timeout(PATIENCE);
        }
    }
}

/// Runs `work`, which may block, on a thread of its own, and returns its result. Dropping the future does not stop it.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    let run = move || drop(sender.send(work()));
    std::thread::Builder::new().name("quorlock-aside".to_owned()).spawn(run)?;
    done.await.map_err(|_| io::Error::other("it panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_reader_that_does_not_read_delays_nothing() {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (reader, (read, may_read)) = (Arc::clone(&lines), channel::<()>());
        let (done, is_done) = channel();
        let writing = std::thread::spawn(move || {
            let writer = Writer::start(move |line| {
                let _ = may_read.recv();
                reader.lock().expect("no panic").push(line.to_owned());
            });
            let writer = writer.expect("a thread");
            (0..1000).for_each(|number| writer.write(number.to_string()));
            let _ = done.send(());
            writer.finish();
        });
        let in_time = is_done.recv_timeout(Duration::from_secs(30));
        drop(read);
        writing.join().expect("no panic");
        assert!(in_time.is_ok(), "a message waits for the reader");
        let lines = lines.lock().expect("no panic");
        let left_out = |line: &String| {
            line.strip_prefix("quorlock: messages left out: ")?.trim().parse::<usize>().ok()
        };
        let dropped: usize = lines.iter().filter_map(left_out).sum();
        let written = lines.iter().filter(|line| left_out(line).is_none()).count();
        assert_eq!(written + dropped, 1000);
        assert!(written <= QUEUE + 1, "{written}");
    }
}
