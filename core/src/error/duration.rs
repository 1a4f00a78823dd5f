//! Durations as they appear in error messages and log events. Called wherever a message mentions a duration. This
//! module only formats durations; it does not parse them.

use std::fmt;
use std::time::Duration;

/// Displays a duration in the largest fitting unit: `500 µs`, `20 ms`, `1.5 s`, `2 h`.
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
