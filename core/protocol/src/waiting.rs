//! When to try again after a lost round, and when to give up.

use crate::round::Loss;
use crate::term::Moment;
use core::time::Duration;

/// How much longer than others the waiters at the end of a queue sleep at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

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

    /// [`RetryDelay::draw`] for a waiter that is to be called, and tries in case nobody does: the more
    /// others are before it, the longer.
    fn in_queue(self, before: u64, random: u32) -> Duration {
        let delay = self.draw(random);
        let longer = delay.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
        delay + longer.min(LONGEST_PAUSE)
    }

    /// The longest pause between two tries of a waiter.
    pub(super) fn longest_pause(self) -> Duration {
        self.longest + LONGEST_PAUSE
    }

    /// How long after a key's expiry to try: never at once, not all waiters together, and those in a
    /// queue in its order.
    fn after_expiry(self, before: Option<u64>, random: u32) -> Duration {
        let chance = f64::from(random) / f64::from(u32::MAX);
        let spread = match before {
            Some(before) => self.shortest.mul_f64((before.min(1_000) as f64 + chance) / 4.0),
            None => self.shortest.mul_f64(chance),
        };
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
    before: Option<u64>,
}

impl Waiting {
    /// A wait that began at `now`; `wait` is `None` for ever, zero for a single round.
    pub fn new(now: Moment, wait: Option<Duration>, patience: Duration, delay: RetryDelay) -> Self {
        let (deadline, outage_since, before) = (wait.map(|wait| now.plus(wait)), None, None);
        Self { deadline, patience, delay, outage_since, before }
    }

    /// How many waiters are before this one in the nodes' queues, if it is in them.
    pub fn stands_behind(&mut self, before: Option<u64>) {
        self.before = before;
    }

    /// Others of the same client met an outage, which began then.
    pub fn met_outage(&mut self, since: Moment) {
        self.outage_since = Some(since);
    }

    /// When the outage began that the last round was lost to.
    pub fn outage(&self) -> Option<Moment> {
        self.outage_since
    }

    /// Decides, at `now`, what follows the round that began at `started` and was lost to `loss`.
    pub fn after(&mut self, now: Moment, started: Moment, loss: Loss, random: u32) -> Next {
        let mut delay = self.delay.draw(random);
        let last = match loss {
            Loss::Contended { free_in } => {
                delay = self.delay.in_queue(self.before.unwrap_or(0), random);
                self.outage_since = None;
                if let Some(free_in) = free_in {
                    delay = delay.min(free_in + self.delay.after_expiry(self.before, random));
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
