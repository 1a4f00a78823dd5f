//! Time: when a lease ends.

use core::time::Duration;

/// Rounding allowance in [`Term::end`]: nodes expire keys with a resolution of one millisecond, and
/// reading two clocks costs at most another one.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(2);

/// The longest [`Term::patience`]: after this, with a long ttl, the connections are more likely to be stuck
/// than the nodes to be slow.
const LONGEST_PATIENCE: Duration = Duration::from_secs(10);

/// A point in time on one local clock that never goes back and never stops, not even while the
/// machine is suspended. Moments of different processes can't be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment `elapsed` after the clock's origin, which is arbitrary.
    pub const fn from_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long before this moment `earlier` was; zero if it was not earlier.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `duration` later. Saturates after half a trillion years.
    pub fn plus(self, duration: Duration) -> Moment {
        Self(self.0.saturating_add(duration))
    }

    /// The moment `duration` earlier, or the clock's origin.
    pub fn minus(self, duration: Duration) -> Moment {
        Self(self.0.saturating_sub(duration))
    }

    /// This moment, or the next one that is a whole number of `tick`s after the clock's origin.
    pub(super) fn ceil(self, tick: Duration) -> Moment {
        let (now, tick) = (self.0.as_nanos(), tick.as_nanos().max(1));
        let rounded = u64::try_from(now.div_ceil(tick) * tick);
        rounded.map_or(self, |nanoseconds| Self(Duration::from_nanos(nanoseconds)))
    }
}

/// What the nodes are asked for: a time to live, and by how much clocks may disagree about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// How long the nodes keep the key.
    pub ttl: Duration,
    /// The clocks' largest relative rate error, 0.01 being one per cent; 0 to 0.5.
    pub drift_factor: f64,
}

impl Term {
    /// The allowance for clocks: `ttl × drift_factor + 2 ms`, as in the Redlock specification's
    /// reference implementations.
    pub fn drift(self) -> Duration {
        self.ttl.mul_f64(self.drift_factor) + CLOCK_RESOLUTION
    }

    /// The validity end of what was asked for at `sent`: `sent + ttl − drift`. No node forgets the
    /// key before it, since none received the request before it was sent.
    pub fn end(self, sent: Moment) -> Moment {
        sent.plus(self.ttl).minus(self.drift())
    }

    /// How long a majority's answers about a held lease are waited for, in an automatic extension or a
    /// release: a third of the ttl, at most 10 s. A node that is slow but answers within that time holds
    /// the key; to give up earlier would report a loss that did not happen.
    pub fn patience(self) -> Duration {
        (self.ttl / 3).min(LONGEST_PATIENCE)
    }

    /// This term, or the shorter one whose validity, if it is sent at `sent`, ends at `limit`.
    pub(super) fn until(self, sent: Moment, limit: Moment) -> Term {
        let validity = limit.since(sent) + CLOCK_RESOLUTION;
        // A microsecond more than enough: the validity must not end before the limit by rounding.
        let ttl = validity.div_f64(1.0 - self.drift_factor) + Duration::from_micros(1);
        Term { ttl: self.ttl.min(ttl), ..self }
    }

    /// The moment by which every node that ever received a request sent at `sent`, and received it
    /// by `received`, has expired the key of itself: the opposite rounding of [`Term::end`].
    pub fn gone(self, received: Moment) -> Moment {
        received.plus(self.ttl).plus(self.drift())
    }
}
