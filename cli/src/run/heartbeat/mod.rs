//! The heartbeats of the command, for `--heartbeat-timeout`: messages to a socket, as for the watchdog of systemd, or
//! output. Used by `run`.
//!
//! This module passes heartbeats on to the lease, which decides whether it is renewed. It does not stop the command.

mod notify;
mod output;

use crate::args::{Heartbeat, Run};
use crate::duration;
use crate::output::Failure;
use notify::{Beat, Socket};
use output::Relay;
use quorlock::Lease;
use std::io::{self, PipeWriter};
use std::time::Duration;
use tokio::time::Instant;

/// Receives the heartbeats of the command. Dropping it removes the socket.
pub(crate) struct Heartbeats {
    timeout: Duration,
    last: Instant,
    source: Source,
}

/// Where the heartbeats come from.
enum Source {
    /// There are none: `--heartbeat-timeout` is off.
    Nowhere,
    Notify(Socket),
    Output(Relay),
}

impl Heartbeats {
    pub(crate) fn new(wanted: &Run) -> Result<Self, Failure> {
        let timeout = wanted.heartbeat_timeout.as_ref().and_then(duration::of).unwrap_or_default();
        let source = match wanted.heartbeat {
            _ if timeout.is_zero() => Ok(Source::Nowhere),
            Heartbeat::Notify => Socket::new().map(Source::Notify),
            Heartbeat::Output => Relay::new().map(Source::Output),
        };
        let source =
            source.map_err(|error| Failure::own("no heartbeats can be received", &error))?;
        Ok(Self { timeout, last: Instant::now(), source })
    }

    /// Returns the changes to the environment of the command.
    pub(crate) fn environment(&self) -> Vec<(&'static str, Option<String>)> {
        let Source::Notify(socket) = &self.source else { return Vec::new() };
        vec![
            ("NOTIFY_SOCKET", Some(socket.address.clone())),
            ("WATCHDOG_USEC", Some(self.timeout.as_micros().to_string())),
            // With it, only the process with this number would send heartbeats.
            ("WATCHDOG_PID", None),
        ]
    }

    /// Returns the command's stdout and stderr; `None` if it inherits both.
    pub(crate) fn pipes(&mut self) -> Option<[PipeWriter; 2]> {
        match &mut self.source {
            Source::Output(relay) => relay.pipes.take(),
            Source::Nowhere | Source::Notify(_) => None,
        }
    }

    /// Records a heartbeat.
    pub(crate) fn beat(&mut self, lease: &Lease) {
        // Before the lease does, so that renewal has not stopped before `missing` says so.
        self.last = Instant::now();
        // A lease that has ended is noticed elsewhere.
        let _ = lease.heartbeat();
    }

    /// Records heartbeats, until the command asks to be handled as if there was none. Cancelling it loses no heartbeat.
    pub(crate) async fn triggered(&mut self, lease: &Lease) {
        loop {
            match &mut self.source {
                Source::Nowhere => std::future::pending().await,
                Source::Notify(socket) => match socket.next().await {
                    Beat::Alive => {}
                    Beat::Trigger => return,
                },
                Source::Output(relay) => relay.next().await,
            }
            self.beat(lease);
        }
    }

    /// Returns the timeout if there was no heartbeat for so long.
    pub(crate) fn missing(&self) -> Option<Duration> {
        let is_on = !self.timeout.is_zero();
        (is_on && self.last.elapsed() >= self.timeout).then_some(self.timeout)
    }

    /// Waits until all that the command has sent is passed on, after its end. Removes the socket.
    pub(crate) async fn finish(self) -> io::Result<()> {
        match self.source {
            Source::Nowhere => {}
            Source::Notify(socket) => socket.finish(),
            Source::Output(relay) => relay.finish().await?,
        }
        Ok(())
    }
}
