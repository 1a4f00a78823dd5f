//! Writes the steps of a run for the trace checker (`proof/tie`): one JSON array for each step.
//!
//! The environment variable `STEPS` names the directory that gets a file for each world. Without this variable, nothing
//! is written. `applied.rs` reports the requests that nodes apply, and what the nodes store afterwards; `lock/steps.rs`
//! and `node/connect.rs` report what clients decide. Times are in nanoseconds.

use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The file of one world.
pub(super) struct Steps(Mutex<LineWriter<File>>);

impl Steps {
    /// Creates the file of the world with this name. Returns `None` if no steps are to be written.
    pub(super) fn of(name: &str) -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os("STEPS")?);
        let file = File::create(directory.join(name.replace("::", "-")).with_extension("jsonl"));
        Some(Self(Mutex::new(LineWriter::new(file.expect("STEPS is a directory")))))
    }

    /// Writes a step that happened at the true time `now`. `step` contains the elements that follow the time in the
    /// array.
    pub(super) fn write(&self, now: Duration, step: &str) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "[{},{step}]", now.as_nanos()).expect("the steps can be written");
    }
}
