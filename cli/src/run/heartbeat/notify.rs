//! A socket for the messages of sd_notify(3), in a directory that only this user can enter.

use crate::manager;
use crate::writer::Writer;
use std::fs::{DirBuilder, remove_dir_all};
use std::future::pending;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use tokio::net::UnixDatagram;

/// The longest message of which systemd takes note, in bytes.
const LONGEST: usize = 4096;

/// The beginnings of the lines that are not passed on to the service manager. They are about this socket, about files
/// that came with the message, or name the command as the process that the service manager is to watch.
const OWN: [&str; 5] = ["BARRIER=", "FD", "MAINPID", "WATCHDOG_USEC=", "WATCHDOG=trigger"];

/// What the command has sent.
pub(super) enum Beat {
    Alive,
    /// It asks to be handled as if there was no heartbeat.
    Trigger,
}

pub(super) struct Socket {
    /// The path of the socket.
    pub(super) address: String,
    socket: UnixDatagram,
    /// Sends messages to the service manager of this process, if it has one.
    manager: Option<Writer>,
    _directory: Directory,
}

/// A directory that is removed with all that is in it.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // Fails only if somebody else has removed it.
        let _ = remove_dir_all(&self.0);
    }
}

impl Socket {
    pub(super) fn new() -> io::Result<Self> {
        let place = std::path::absolute(std::env::temp_dir())?;
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("no socket in {}: {error}", place.display()))
        };
        let path = place.join(format!("quorlock-{:016x}", getrandom::u64()?));
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let directory = Directory(path);
        let path = directory.0.join("notify");
        let socket = UnixDatagram::bind(&path).map_err(failed)?;
        let address = path.into_os_string().into_string();
        let address = address.map_err(|_| failed(io::Error::other("the path is not UTF-8")))?;
        Ok(Self { address, socket, manager: manager::writer()?, _directory: directory })
    }

    /// Waits for a message about heartbeats. Cancelling it loses none.
    pub(super) async fn next(&mut self) -> Beat {
        let mut buffer = [0; LONGEST];
        loop {
            // Files that come with a message are closed. The sender of a BARRIER waits for that.
            let Ok(length) = self.socket.recv(&mut buffer).await else { return pending().await };
            if let Some(beat) = self.handle(&buffer[..length]) {
                return beat;
            }
        }
    }

    fn handle(&self, message: &[u8]) -> Option<Beat> {
        // Programs in C may send the NUL at the end of a text, too.
        let message = message.strip_suffix(b"\0").unwrap_or(message);
        if let (Some(manager), Some(text)) = (&self.manager, passed_on(message)) {
            manager.write(text);
        }
        let mut lines = message.split(|byte| *byte == b'\n');
        lines.find_map(|line| match line {
            b"WATCHDOG=1" => Some(Beat::Alive),
            b"WATCHDOG=trigger" => Some(Beat::Trigger),
            _ => None,
        })
    }

    /// Passes on all messages that have arrived, and removes the socket. Waits for the service manager for at most a
    /// second.
    pub(super) fn finish(self) {
        let mut buffer = [0; LONGEST];
        while let Ok(length) = self.socket.try_recv(&mut buffer) {
            let _ = self.handle(&buffer[..length]);
        }
        if let Some(manager) = &self.manager {
            manager.finish();
        }
    }
}

/// Returns the part of a message that is passed on to the service manager.
fn passed_on(message: &[u8]) -> Option<String> {
    let message = String::from_utf8_lossy(message);
    let lines = message.lines().filter(|line| {
        !line.is_empty() && !OWN.iter().any(|beginning| line.starts_with(beginning))
    });
    let lines: Vec<_> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::passed_on;

    #[test]
    fn what_concerns_this_process_is_not_passed_on() {
        let message = b"READY=1\nMAINPID=7\nWATCHDOG=1\nSTATUS=\xff\nFDSTORE=1\n";
        let expected = "READY=1\nWATCHDOG=1\nSTATUS=\u{fffd}";
        assert_eq!(passed_on(message).as_deref(), Some(expected));
        for message in ["BARRIER=1", "WATCHDOG=trigger\n", "WATCHDOG_USEC=5", ""] {
            assert_eq!(passed_on(message.as_bytes()), None);
        }
    }
}
