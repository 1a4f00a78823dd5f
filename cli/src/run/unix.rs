//! The process of the command on Unix. It has a process group of its own, and this process controls it like a
//! shell controls a job. Used by `run`.

#[cfg(target_os = "linux")]
use super::descendants::Descendants;
use super::terminal::{self, Terminal};
use crate::exit;
use crate::signals::{Signals, is_withheld, restore, stop_job};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, test_kill_process_group, wait,
};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep_until};

/// Returns a reader of stdin that reads no more than it is asked for.
pub(crate) fn stdin() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

/// The running command, and its process group.
pub(crate) struct Child {
    /// The id of the process, and of its group.
    id: Pid,
    /// Whether no process of the group was left when this was checked last.
    is_group_gone: bool,
    /// Receives SIGCHLD, which means that the command may have ended or was stopped.
    changes: unix::Signal,
    terminal: Option<Terminal>,
    #[cfg(target_os = "linux")]
    descendants: Descendants,
    kill_after: Duration,
    /// When to kill a command that may be unable to receive the SIGTERM that was passed on to it.
    kill_at: Option<Instant>,
}

impl Child {
    /// Starts the command with these changes to the environment. `pipes` are its stdout and stderr; without them, it
    /// has those of this process. `kill_after` is how long it may run after a SIGTERM that it inherits as blocked or
    /// ignored.
    pub(crate) fn spawn(
        arguments: &[OsString],
        environment: &[(&str, Option<String>)],
        pipes: Option<[PipeWriter; 2]>,
        kill_after: Duration,
    ) -> io::Result<Self> {
        let changes = unix::signal(SignalKind::child())?;
        #[cfg(target_os = "linux")]
        let descendants = Descendants::begin();
        let terminal = Terminal::open();
        let given = terminal.as_ref().filter(|terminal| terminal.is_for_us_alone());
        let given = given.map(Terminal::number);
        let mut command = Command::new(&arguments[0]);
        command.args(&arguments[1..]).process_group(0);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some([stdout, stderr]) = pipes {
            command.stdout(stdout).stderr(stderr);
        }
        let parent = getpid();
        #[expect(unsafe_code, reason = "what is to be done between fork and exec")]
        // SAFETY: the closure only makes system calls that are safe between fork and exec.
        unsafe {
            command.pre_exec(move || before_exec(parent, given));
        }
        let spawned = command.spawn();
        if let (Err(_), Some(terminal), Some(_)) = (&spawned, &terminal, given) {
            // The child may have put its group in the foreground before it failed, so put ours back.
            terminal.give(rustix::process::getpgrp());
        }
        let id = i32::try_from(spawned?.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("the system gave it no number"))?;
        Ok(Self {
            id,
            is_group_gone: false,
            changes,
            terminal,
            #[cfg(target_os = "linux")]
            descendants,
            kill_after,
            kill_at: None,
        })
    }

    /// Waits until the command ends, and returns its exit status. Passes signals on to its group. If the call
    /// is cancelled, it can be repeated. A command that was stopped is resumed only if `may_go_on` returns true at that
    /// time.
    pub(crate) async fn wait(
        &mut self,
        signals: &mut Signals,
        may_go_on: impl Fn() -> bool,
    ) -> io::Result<u8> {
        loop {
            if let Some(status) = self.look(&may_go_on)? {
                if let Some(terminal) = &self.terminal {
                    terminal.take_back(self.id);
                }
                return Ok(status);
            }
            tokio::select! {
                _ = self.changes.recv() => {}
                signal = signals.next() => self.pass_on(signal, &may_go_on),
                () = sleep_until(self.kill_at.unwrap_or_else(Instant::now)), if self.kill_at.is_some() => {
                    self.kill_at = None;
                    self.signal(Signal::KILL);
                }
            }
        }
    }

    /// Passes a signal on to the command's group. A command that was stopped handles a request to end only after it is
    /// resumed, so it is.
    fn pass_on(&mut self, signal: Signal, may_go_on: &impl Fn() -> bool) {
        let ends = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&signal);
        if signal != Signal::CONT {
            self.signal(signal);
        }
        if (ends || signal == Signal::CONT) && may_go_on() {
            self.signal(Signal::CONT);
        }
        if signal == Signal::TERM && is_withheld(signal) {
            self.kill_at.get_or_insert(Instant::now() + self.kill_after);
        }
    }

    /// Asks the command's process group to end, with SIGTERM.
    pub(crate) fn stop(&self) {
        self.signal(Signal::TERM);
        // A stopped process handles SIGTERM only after it is resumed.
        self.signal(Signal::CONT);
    }

    /// Kills the command's process group, and on Linux also processes that have left the group. Fails if this user may
    /// not kill some of them.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let killed = match self.is_group_gone {
            // Another group may have its number.
            true => Ok(()),
            false => kill_process_group(self.id, Signal::KILL)
                .or_else(|error| if is_gone(error) { Ok(()) } else { Err(error) }),
        };
        #[cfg(target_os = "linux")]
        let killed = killed.and(self.descendants.kill());
        Ok(killed?)
    }

    /// After the command itself has ended, asks orphans that have left the group to end. Returns whether any process
    /// that [`Self::kill`] would kill is left.
    pub(crate) fn ask_rest_to_end(&mut self) -> bool {
        // A zombie counts as left, so orphans of the group are reaped first.
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        self.is_group_gone |= test_kill_process_group(self.id).is_err_and(is_gone);
        #[cfg(target_os = "linux")]
        let is_any_outside = self.descendants.ask_to_end(self.id);
        #[cfg(not(target_os = "linux"))]
        let is_any_outside = false;
        !self.is_group_gone || is_any_outside
    }

    fn signal(&self, signal: Signal) {
        // Fails if no process of the group is left, or this user may signal none of them, which `kill` reports.
        let _ = kill_process_group(self.id, signal);
    }

    fn look(&self, may_go_on: &impl Fn() -> bool) -> io::Result<Option<u8>> {
        while let Some((id, status)) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
            // An orphan that became a child of this process, which reaps it.
            if id != self.id {
                continue;
            }
            if let Some(status) = status.exit_status() {
                return Ok(Some(status as u8));
            }
            if let Some(signal) = status.terminating_signal() {
                return Ok(Some(exit::SIGNAL + signal as u8));
            }
            if let Some(signal) = status.stopping_signal() {
                self.stopped(signal, may_go_on);
            }
        }
        Ok(None)
    }

    /// Handles a stop of the command by a signal. On a terminal, this process is a job of a shell and stops
    /// as well.
    fn stopped(&self, signal: i32, may_go_on: &impl Fn() -> bool) {
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&signal);
        let gives = wants_terminal && terminal.is_ours();
        if !gives && terminal::has_shell() {
            // No process of the command may go on while nothing renews the lease.
            self.signal(Signal::STOP);
            terminal.take_back(self.id);
            // This call returns when the shell resumes the job. Until then, the lease is not renewed.
            stop_job();
        }
        if wants_terminal && !terminal.is_ours() {
            // Nobody can give the terminal to the command now, so it would be stopped again at once. SIGCONT from a
            // shell is passed on.
            return;
        }
        if may_go_on() {
            // Another part of a pipeline may use the terminal. The command gets it when it uses it.
            if gives || terminal.is_for_us_alone() {
                terminal.give(self.id);
            }
            self.signal(Signal::CONT);
        }
    }
}

/// Whether this error of a signal to a process group means that none of its processes is left. Some systems report EPERM
/// for those that have ended and were not reaped yet.
fn is_gone(error: Errno) -> bool {
    error == Errno::SRCH || error == Errno::PERM && !cfg!(target_os = "linux")
}

/// Prepares the child process, between fork and exec.
fn before_exec(parent: Pid, terminal: Option<RawFd>) -> io::Result<()> {
    // The child must not outlive this process, which renews its lease. The kernel clears this setting if the
    // child executes a program as another user.
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::other("its parent is gone"));
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
    for number in 0..=2 {
        // SAFETY: if the number is not an open file, the call fails, and the error is ignored.
        #[expect(unsafe_code, reason = "the standard streams by their numbers")]
        let stream = unsafe { BorrowedFd::borrow_raw(number) };
        // Node.js sets close-on-exec on the standard streams, which the command needs.
        let _ = fcntl_setfd(stream, FdFlags::empty());
    }
    if let Some(terminal) = terminal {
        terminal::take(terminal);
    }
    restore();
    Ok(())
}
