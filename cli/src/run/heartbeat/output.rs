//! The output of the command: this process passes it on unchanged, and takes it for heartbeats.
//!
//! A thread for each of stdout and stderr waits for the reader, as the command itself would. Neither signals nor the
//! lease wait for these threads.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionread, retry_on_intr, write};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use tokio::sync::{Notify, oneshot};

/// How much is read at once: as much as a pipe usually has room for.
const CHUNK: usize = 64 * 1024;

pub(super) struct Relay {
    /// The command's stdout and stderr, before it is started.
    pub(super) pipes: Option<[PipeWriter; 2]>,
    beats: Arc<Notify>,
    /// Closed when the command has ended.
    running: PipeWriter,
    threads: [oneshot::Receiver<io::Result<()>>; 2],
}

impl Relay {
    pub(super) fn new() -> io::Result<Self> {
        let beats = Arc::default();
        let (ended, running) = io::pipe()?;
        let (output, first) = start(Open(io::stdout()), ended.try_clone()?, &beats)?;
        let (errors, second) = start(Open(io::stderr()), ended, &beats)?;
        Ok(Self { pipes: Some([output, errors]), beats, running, threads: [first, second] })
    }

    /// Waits for output. Cancelling it loses none.
    pub(super) async fn next(&mut self) {
        self.beats.notified().await;
    }

    /// Waits until all that the command has written is passed on. Fails if that failed, unless nobody reads it.
    pub(super) async fn finish(self) -> io::Result<()> {
        drop(self.running);
        let mut result = Ok(());
        for thread in self.threads {
            let panicked = |_| Err(io::Error::other("a thread panicked"));
            match thread.await.unwrap_or_else(panicked) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    result = result.and(Err(error))
                }
                _ => {}
            }
        }
        result
    }
}

/// Starts a thread that passes on what is written to the pipe.
fn start(
    to: Open<impl AsFd + Send + 'static>,
    ended: PipeReader,
    beats: &Arc<Notify>,
) -> io::Result<(PipeWriter, oneshot::Receiver<io::Result<()>>)> {
    let (from, pipe) = io::pipe()?;
    let (sender, result) = oneshot::channel();
    let beats = Arc::clone(beats);
    let work = move || {
        let _ = sender.send(pass_on(from, to, &ended, &beats));
    };
    thread::Builder::new().name("quorlock-output".to_owned()).spawn(work)?;
    Ok((pipe, result))
}

/// Passes on what is written to the pipe, until no process can write any more. After the end of the command, passes on
/// what is in the pipe, and does not wait for other processes that can write. Closes the pipe then, and after an error.
fn pass_on(
    mut from: PipeReader,
    mut to: impl Write,
    ended: &PipeReader,
    beats: &Notify,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let mut files = [PollFd::new(&from, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        retry_on_intr(|| poll(&mut files, None))?;
        if !files[1].revents().is_empty() {
            let left = ioctl_fionread(&from)?;
            return io::copy(&mut from.take(left), &mut to).map(drop);
        }
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            length => {
                beats.notify_one();
                to.write_all(&buffer[..length])?;
            }
        }
    }
}

/// A file to which this process writes without a buffer.
struct Open<T>(T);

impl<T: AsFd> Write for Open<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match write(&self.0, bytes) {
                // Another process that has the file open has made it non-blocking.
                Err(Errno::AGAIN) => {
                    let mut files = [PollFd::new(&self.0, PollFlags::OUT)];
                    retry_on_intr(|| poll(&mut files, None))?;
                }
                result => return Ok(result?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
