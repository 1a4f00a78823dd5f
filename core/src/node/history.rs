//! How the last connections of a node ended, which decides whether the next attempt to connect waits first. `connect.rs`
//! and `frozen.rs` record the ends.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The pause between attempts to connect grows from the first to the second value.
pub(super) const RECONNECT_DELAY: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_secs(1));

/// How the last connections of a node ended.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The number of connections that ended because the server sent nonsense. A connection that was up for longer than
    /// the longest [`RECONNECT_DELAY`] sets the count back to 0 first.
    garbled: AtomicU32,
    /// Whether the last connection that broke was up for at most the longest [`RECONNECT_DELAY`].
    was_short_lived: AtomicBool,
    /// Whether the next attempt to connect waits first.
    waits_to_connect: AtomicBool,
    /// The number of connections in a row that were replaced because the server answered no request.
    pub(super) silent: AtomicU32,
}

impl History {
    /// Records the end of a connection on which the server sent nonsense after `lived`.
    pub(super) fn garbled(&self, lived: Duration) {
        self.is_short_lived(lived);
        self.garbled.fetch_add(1, Ordering::Relaxed);
        self.waits_to_connect.store(true, Ordering::Relaxed);
    }

    /// Records the end of a connection that broke after `lived`.
    pub(super) fn broken(&self, lived: Duration) {
        let is_short_lived = self.is_short_lived(lived);
        let repeats = self.was_short_lived.swap(is_short_lived, Ordering::Relaxed);
        self.waits_to_connect.store(repeats && is_short_lived, Ordering::Relaxed);
    }

    /// Whether a connection has ended soon. If not, resets the backoff.
    fn is_short_lived(&self, lived: Duration) -> bool {
        let is_short_lived = lived <= RECONNECT_DELAY.1;
        if !is_short_lived {
            self.garbled.store(0, Ordering::Relaxed);
        }
        is_short_lived
    }

    /// Returns the pause before the next attempt to connect; `None` if the way in which the last connection ended
    /// requires no pause.
    pub(super) fn pause(&self) -> Option<Duration> {
        let (shortest, longest) = RECONNECT_DELAY;
        let doublings = self.garbled.load(Ordering::Relaxed).saturating_sub(1).min(8);
        let waits = self.waits_to_connect.swap(false, Ordering::Relaxed);
        waits.then(|| (shortest * (1 << doublings)).min(longest))
    }
}
