//! Moments, ttl and drift: when a lease ends for its holder, and by when every node has expired the lease's key.

use core::time::Duration;

/// Rounding allowance in [`Term::drift`]: nodes expire keys with a resolution of 1 ms, and the rounding of
/// two clock readings adds at most another 1 ms.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(2);

/// Upper limit of [`Term::patience`]. If no answer arrives for 10 s, the connection is probably stuck: even a slow node
/// would have answered.
const LONGEST_PATIENCE: Duration = Duration::from_secs(10);

/// A point in time on a local clock that never goes back and never stops, not even while the machine is
/// suspended. Moments of different processes cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// Returns the moment `elapsed` after the clock's origin, which is arbitrary.
    pub const fn from_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is not earlier.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment `duration` later. Saturates after half a trillion years.
    pub fn plus(self, duration: Duration) -> Moment {
        Self(self.0.saturating_add(duration))
    }

    /// Returns the moment `duration` earlier; at the earliest the clock's origin.
    pub fn minus(self, duration: Duration) -> Moment {
        Self(self.0.saturating_sub(duration))
    }

    /// Rounds up to a whole number of `tick`s after the clock's origin.
    pub(super) fn ceil(self, tick: Duration) -> Moment {
        let now = self.0.as_nanos();
        let tick = tick.as_nanos().max(1);
        let rounded = u64::try_from(now.div_ceil(tick) * tick);
        rounded.map_or(self, |nanoseconds| Self(Duration::from_nanos(nanoseconds)))
    }
}

/// The time to live of a key, and the clock drift to allow for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// The time for which the nodes keep the key.
    pub ttl: Duration,
    /// The largest relative difference between the rates of two clocks, from 0 to 0.5. If each clock's rate is within e
    /// of the true rate, a factor f ≥ 2e / (1 + e) is enough: 0.01 covers 0.5 %.
    pub drift_factor: f64,
}

impl Term {
    /// Returns the allowance for clock drift: `ttl × drift_factor + 2 ms`, as in the reference
    /// implementations of the Redlock specification. Saturates.
    ///
    /// # Panics
    ///
    /// If `drift_factor` is negative or not a number.
    pub fn drift(self) -> Duration {
        let drift = self.ttl.as_secs_f64() * self.drift_factor;
        assert!(drift >= 0.0, "the drift factor is not negative");
        seconds(drift).saturating_add(CLOCK_RESOLUTION)
    }

    /// Returns the validity end of a request sent at `sent`: `sent + ttl − drift`. No node expires the key before that
    /// moment, because no node received the request before `sent`.
    pub fn end(self, sent: Moment) -> Moment {
        sent.plus(self.ttl).minus(self.drift())
    }

    /// Returns the maximum time that a renewal or a release waits for a majority's answers: a third of the
    /// ttl, at most 10 s. A slow node that answers within this time still holds the key; giving up
    /// earlier would report a loss that did not happen.
    pub fn patience(self) -> Duration {
        (self.ttl / 3).min(LONGEST_PATIENCE)
    }

    /// Shortens the term, if necessary, so that the validity of a request sent at `sent` ends at `limit`.
    pub(super) fn until(self, sent: Moment, limit: Moment) -> Term {
        let validity = limit.since(sent).saturating_add(CLOCK_RESOLUTION);
        let ttl = seconds(validity.as_secs_f64() / (1.0 - self.drift_factor));
        // Rounding must not end the validity before the limit, hence the extra microsecond.
        Term { ttl: self.ttl.min(ttl.saturating_add(Duration::from_micros(1))), ..self }
    }

    /// Returns the moment by which every node that received the request by `received` has expired the
    /// key: `received + ttl + drift`. The counterpart of [`Term::end`], which subtracts the drift.
    pub fn gone(self, received: Moment) -> Moment {
        received.plus(self.at_least())
    }

    /// Returns the ttl to send for a key that must last for at least `ttl` by every clock: `ttl + drift`.
    pub fn at_least(self) -> Duration {
        self.ttl.saturating_add(self.drift())
    }
}

/// Returns a duration of this many seconds, at most [`Duration::MAX`].
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// How long the nodes keep the keys of a released lease, so that nobody else acquires the lock too soon. The former
/// holder no longer holds the lock, and no lease relies on these keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keep {
    until: Moment,
    drift_factor: f64,
}

impl Keep {
    /// Creates a `Keep` that lasts for `term.ttl` from `released` on.
    pub fn new(term: Term, released: Moment) -> Self {
        Self { until: released.plus(term.ttl), drift_factor: term.drift_factor }
    }

    /// Returns the ttl for the keys in a RELEASE that is sent at `now`; `None` if the time of this `Keep` has passed:
    /// the RELEASE then deletes the keys.
    pub fn ttl(self, now: Moment) -> Option<Duration> {
        let term = Term { ttl: self.until.since(now), drift_factor: self.drift_factor };
        (!term.ttl.is_zero()).then(|| term.at_least())
    }
}
