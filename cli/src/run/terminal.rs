//! Job control: decides which process group is in the foreground of the terminal, as a shell does for its jobs.
//! Used by `unix`. It relies on `signals::keep_running`: a change of the terminal from the background must not stop this
//! process.

use rustix::process::{Pid, getpgrp, getppid, getsid};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// The controlling terminal of this process.
pub(crate) struct Terminal(File);

impl Terminal {
    pub(crate) fn open() -> Option<Self> {
        File::options().read(true).write(true).open("/dev/tty").ok().map(Self)
    }

    /// Whether this process's group is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.0).is_ok_and(|group| group == getpgrp())
    }

    /// Whether this process alone uses the terminal: its group is in the foreground, and neither stdin nor stdout
    /// is connected to another part of a pipeline.
    pub(crate) fn is_for_us_alone(&self) -> bool {
        self.is_ours() && isatty(std::io::stdin()) && isatty(std::io::stdout())
    }

    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Puts a group in the foreground.
    pub(crate) fn give(&self, group: Pid) {
        give(self.0.as_fd(), group);
    }

    /// Puts this process's group in the foreground, if the group `from` is there now.
    pub(crate) fn take_back(&self, from: Pid) {
        if tcgetpgrp(&self.0).is_ok_and(|group| group == from) {
            self.give(getpgrp());
        }
    }
}

/// Whether this process has a parent in its session, such as a shell, that could resume it after a stop.
pub(crate) fn has_shell() -> bool {
    let session = |process| getsid(process).ok();
    getppid().is_some_and(|parent| session(Some(parent)) == session(None))
}

/// Puts the group of the calling process in the foreground. Called between fork and exec.
#[expect(unsafe_code, reason = "a file by its number")]
pub(crate) fn take(terminal: RawFd) {
    // SAFETY: the file is open, because the parent keeps it open while it forks.
    give(unsafe { BorrowedFd::borrow_raw(terminal) }, getpgrp());
}

/// Puts a group in the foreground of a terminal. Ignores errors: they mean that the terminal or the group is gone.
fn give(terminal: BorrowedFd<'_>, group: Pid) {
    let _ = tcsetpgrp(terminal, group);
}
