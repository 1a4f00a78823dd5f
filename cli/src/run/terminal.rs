//! The terminal, and who may read from it: job control, as between a shell and its jobs.

use rustix::process::{Pid, getpgrp, getppid, getsid};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// The terminal that controls this process.
pub(crate) struct Terminal(File);

impl Terminal {
    pub(crate) fn open() -> Option<Self> {
        File::options().read(true).write(true).open("/dev/tty").ok().map(Self)
    }

    /// Whether this process's group is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.0).is_ok_and(|group| group == getpgrp())
    }

    /// Whether whoever sits there deals with this process alone: no other part of a pipeline has a claim.
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

    /// Puts this process's group in the foreground, if that group is there.
    pub(crate) fn take_back(&self, from: Pid) {
        if tcgetpgrp(&self.0).is_ok_and(|group| group == from) {
            self.give(getpgrp());
        }
    }
}

/// Whether there is a shell that would let this process go on if it were stopped.
pub(crate) fn has_shell() -> bool {
    let session = |process| getsid(process).ok();
    getppid().is_some_and(|parent| session(Some(parent)) == session(None))
}

/// Puts the calling process's own group in the foreground. Called between fork and exec.
#[expect(unsafe_code, reason = "a file by its number")]
pub(crate) fn take(terminal: RawFd) {
    // SAFETY: the file is open: the parent has it open while it forks.
    give(unsafe { BorrowedFd::borrow_raw(terminal) }, getpgrp());
}

/// It is no matter if it fails: then the terminal is gone, or the group.
#[expect(unsafe_code, reason = "sigprocmask(2)")]
fn give(terminal: BorrowedFd<'_>, group: Pid) {
    // SAFETY: the sets are initialized by sigemptyset and by the first pthread_sigmask.
    unsafe {
        let (mut stop, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut stop);
        libc::sigaddset(&raw mut stop, libc::SIGTTOU);
        // Whoever is in the background would be stopped for this.
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const stop, &raw mut before);
        let _ = tcsetpgrp(terminal, group);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}
