//! The process of the command on systems that have neither signals nor process groups. Used by `run`.

use crate::args::Run;
use crate::duration;
use crate::output::Failure;
use crate::signals::Signals;
use quorlock::Lease;
use std::ffi::OsString;
use std::future::pending;
use std::io::{self, PipeWriter};
use std::process::{self, Command};
use std::time::Duration;
use tokio::time::sleep;

/// The interval at which to check whether the command has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Returns a reader of stdin.
#[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
pub(crate) fn stdin() -> io::Result<io::Stdin> {
    Ok(io::stdin())
}

/// The running command.
pub(crate) struct Child(process::Child);

impl Child {
    pub(crate) fn spawn(
        arguments: &[OsString],
        environment: &[(&str, Option<String>)],
        _pipes: Option<[PipeWriter; 2]>,
        _kill_after: Duration,
    ) -> io::Result<Self> {
        let mut command = Command::new(&arguments[0]);
        command.args(&arguments[1..]);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.spawn().map(Self)
    }

    /// Waits until the command ends, and returns its exit status. Does not pass on Ctrl-C, because the
    /// console itself reports it to the command.
    pub(crate) async fn wait(
        &mut self,
        signals: &mut Signals,
        _may_go_on: impl Fn() -> bool,
    ) -> io::Result<u8> {
        loop {
            if let Some(status) = self.0.try_wait()? {
                let status = status.code().and_then(|code| u8::try_from(code).ok());
                return Ok(status.unwrap_or(u8::MAX));
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                _ = signals.end() => {}
            }
        }
    }

    /// Kills the command: these systems have no way to ask it to end.
    pub(crate) fn stop(&mut self) {
        // `run` repeats it later, and reports a failure.
        let _ = self.kill();
    }

    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.0.kill()
    }

    pub(crate) fn ask_rest_to_end(&mut self) -> bool {
        false
    }
}

/// There are no heartbeats on these systems.
pub(crate) struct Heartbeats;

impl Heartbeats {
    pub(crate) fn new(wanted: &Run) -> Result<Self, Failure> {
        match wanted.heartbeat_timeout.as_ref().and_then(duration::of) {
            Some(timeout) if !timeout.is_zero() => {
                Err(Failure::Usage("this system has no --heartbeat-timeout".to_owned()))
            }
            _ => Ok(Self),
        }
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, Option<String>)> {
        Vec::new()
    }

    pub(crate) fn pipes(&mut self) -> Option<[PipeWriter; 2]> {
        None
    }

    pub(crate) fn beat(&mut self, _: &Lease) {}

    pub(crate) async fn triggered(&mut self, _: &Lease) {
        pending().await
    }

    pub(crate) fn missing(&self) -> Option<Duration> {
        None
    }

    pub(crate) async fn finish(self) -> io::Result<()> {
        Ok(())
    }
}
