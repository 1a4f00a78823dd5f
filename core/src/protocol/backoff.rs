//! When to try again after a lost round, and when to give up.

use super::{Loss, Moment};
use core::time::Duration;

/// The range from which the delay between two rounds is drawn, so that contenders that met once
/// do not meet again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelay {
    /// The shortest delay; more than zero.
    pub shortest: Duration,
    /// The longest delay; not less than `shortest`.
    pub longest: Duration,
}

impl RetryDelay {
    /// A delay drawn evenly from the range by `random`, an even random number.
    pub fn draw(self, random: u32) -> Duration {
        let span = self.longest.saturating_sub(self.shortest);
        self.shortest + span.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// How long after a key's expiry to try: never at once, and not all waiters together.
    fn after_expiry(self, random: u32) -> Duration {
        let spread = self.shortest.mul_f64(f64::from(random) / f64::from(u32::MAX));
        Duration::from_millis(1) + spread
    }
}

/// What to do after a lost round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Start another round at this moment.
    TryAt(Moment),
    /// Stop: the last round's loss is the answer.
    GiveUp,
}

/// One caller's wait for a lock.
///
/// Contention is waited out until the deadline, with one last round at the deadline itself. An
/// outage is waited out only for `patience`, counted from the first of an unbroken run of rounds
/// lost to it: long enough for a node to come back from a restart of its connection, short enough
/// that callers learn what is wrong. Whichever the last round was lost to is what the caller is
/// told.
#[derive(Clone, Debug)]
pub struct Waiting {
    deadline: Option<Moment>,
    patience: Duration,
    delay: RetryDelay,
    outage_since: Option<Moment>,
}

impl Waiting {
    /// A wait that began at `now`; `wait` is `None` for ever, zero for a single round.
    pub fn new(now: Moment, wait: Option<Duration>, patience: Duration, delay: RetryDelay) -> Self {
        Self { deadline: wait.map(|wait| now.plus(wait)), patience, delay, outage_since: None }
    }

    /// Decides, at `now`, what follows the round that began at `started` and was lost to `loss`.
    pub fn after(&mut self, now: Moment, started: Moment, loss: Loss, random: u32) -> Next {
        let mut delay = self.delay.draw(random);
        let last = match loss {
            Loss::Contended { free_in } => {
                self.outage_since = None;
                if let Some(free_in) = free_in {
                    delay = delay.min(free_in + self.delay.after_expiry(random));
                }
                self.deadline
            }
            Loss::NoQuorum => {
                let since = *self.outage_since.get_or_insert(started);
                let limit = since.plus(self.patience);
                Some(self.deadline.map_or(limit, |end| end.min(limit)))
            }
        };
        match last {
            Some(last) if now >= last => Next::GiveUp,
            Some(last) => Next::TryAt(now.plus(delay).min(last)),
            None => Next::TryAt(now.plus(delay)),
        }
    }
}
