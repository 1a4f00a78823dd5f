//! The messages of the daemon on stderr.
//!
//! The reader of stderr may be slow, or not read at all. So a thread of its own writes them: the thread of the daemon also
//! renews the leases, and must never wait for that reader.

use crate::output::Output;
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many messages may wait to be written.
const QUEUE: usize = 64;
/// How many limited messages may come at once.
const BURST: u32 = 10;
/// The shortest time between limited messages after those.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the end of the daemon waits for the last messages.
// Longer in unit tests, which a loaded machine may delay.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// Writes messages, and drops those for which there is no room. The next message says how many that were.
pub(crate) struct Notes {
    output: Output,
    state: Mutex<State>,
    dropped: Arc<AtomicU64>,
}

struct State {
    /// `None` once the last message was queued.
    queue: Option<SyncSender<String>>,
    /// How many limited messages may come now, and since when.
    budget: (u32, Instant),
    /// Disconnected once the thread has written everything.
    written: Option<Receiver<()>>,
}

impl Notes {
    /// Starts the thread. It calls `write` with each line.
    pub(crate) fn start(
        output: &Output,
        mut write: impl FnMut(&str) + Send + 'static,
    ) -> io::Result<Self> {
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
            for line in queued {
                write_count(&mut write);
                write(&line);
            }
            write_count(&mut write);
        };
        std::thread::Builder::new().name("quorlock-notes".to_owned()).spawn(work)?;
        let budget = (BURST, Instant::now());
        let state = State { queue: Some(queue), budget, written: Some(written) };
        Ok(Self { output: output.clone(), state: Mutex::new(state), dropped })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a message, as [`Output::note`] does.
    pub(crate) fn note(&self, message: impl Display) {
        if let Some(line) = self.output.line(message)
            && let Some(queue) = &self.state().queue
            && queue.try_send(line).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes a message that any client can cause, so a limited number of them.
    pub(crate) fn note_limited(&self, message: impl Display) {
        match self.may_note() {
            true => self.note(message),
            false if self.output.line("").is_some() => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            false => {}
        }
    }

    fn may_note(&self) -> bool {
        let budget = &mut self.state().budget;
        if budget.1.elapsed() >= INTERVAL {
            *budget = (BURST.min(budget.0 + 1), Instant::now());
        }
        let left = budget.0.checked_sub(1);
        budget.0 = left.unwrap_or_default();
        left.is_some()
    }

    /// Waits until all messages are written, but not for long.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        state.queue = None;
        let written = state.written.take();
        drop(state);
        let _ = written.map(|written| written.recv_timeout(PATIENCE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Shown;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    #[test]
    fn a_reader_that_does_not_read_delays_nothing() {
        let output = Output::new(&Shown { json: false, quiet: false, verbose: false });
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (reader, (read, may_read)) = (Arc::clone(&lines), channel::<()>());
        let (done, is_done) = channel();
        let noting = std::thread::spawn(move || {
            let notes = Notes::start(&output, move |line| {
                let _ = may_read.recv();
                reader.lock().expect("no panic").push(line.to_owned());
            });
            let notes = notes.expect("a thread");
            (0..1000).for_each(|number| notes.note(number));
            let _ = done.send(());
            notes.finish();
        });
        let in_time = is_done.recv_timeout(Duration::from_secs(30));
        drop(read);
        noting.join().expect("no panic");
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

    #[test]
    fn messages_that_clients_cause_are_limited() {
        let output = Output::new(&Shown { json: false, quiet: false, verbose: false });
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let reader = Arc::clone(&lines);
        let write = move |line: &str| reader.lock().expect("no panic").push(line.to_owned());
        let notes = Notes::start(&output, write).expect("a thread");
        (0..1000).for_each(|number| notes.note_limited(number));
        notes.note("other");
        notes.finish();
        let lines = lines.lock().expect("no panic");
        assert!(lines.len() < 100, "{}", lines.len());
        assert_eq!(lines.last().map(String::as_str), Some("quorlock: other\n"));
        assert!(lines.iter().any(|line| line.starts_with("quorlock: messages left out: ")));
    }
}
