//! The process of the command, on systems that have neither signals nor process groups. Used by `run`.

use crate::signals::Signals;
use std::ffi::OsString;
use std::io;
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
        self.kill();
    }

    pub(crate) fn kill(&mut self) {
        // Fails only if the command has ended.
        let _ = self.0.kill();
    }

    pub(crate) fn is_group_left(&self) -> bool {
        false
    }
}
