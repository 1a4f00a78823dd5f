//! Formats durations for error messages and log events. `config/duration.rs` parses durations.

use std::fmt;
use std::time::Duration;

/// Displays a duration in a unit that fits: `500 µs`, `20 ms`, `1.5 s`, `2 h`. Uses hours only for whole hours.
pub(crate) struct HumanDuration(pub(crate) Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            0 => write!(f, "{} µs", self.0.as_micros()),
            ms if ms % 3_600_000 == 0 => write!(f, "{} h", ms / 3_600_000),
            ms if ms >= 1000 => write!(f, "{} s", (ms as f64) / 1000.0),
            ms => write!(f, "{ms} ms"),
        }
    }
}
