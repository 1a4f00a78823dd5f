//! When a waiter tries again after a lost round, and when it gives up.
//!
//! This module only computes these times. The driver (`lock/acquire.rs` of the crate `quorlock`) waits and sends the
//! requests.

use crate::round::Loss;
use crate::term::Moment;
use core::time::Duration;

/// The maximum time that is added to a waiter's delay because other waiters are before this waiter in the queue.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The range from which the delay between two rounds is drawn. The delay is random so that contenders
/// that collided once do not collide again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelay {
    /// The shortest delay; must be more than zero.
    pub shortest: Duration,
    /// The longest delay; must not be less than `shortest`.
    pub longest: Duration,
}

impl RetryDelay {
    /// Draws a delay uniformly from the range. `random` must be uniformly distributed over all of `u32`.
    pub fn draw(self, random: u32) -> Duration {
        let span = self.longest.saturating_sub(self.shortest);
        self.shortest + span.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// Draws the delay after which a waiter tries again if no notification arrives. The delay grows with the number of
    /// waiters before this one.
    fn in_queue(self, before: u64, random: u32) -> Duration {
        let delay = self.draw(random);
        let longer = delay.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
        delay + longer.min(LONGEST_PAUSE)
    }

    /// The longest pause between two tries of a waiter in a queue.
    pub(super) fn longest_pause(self) -> Duration {
        self.longest + LONGEST_PAUSE
    }

    /// Returns the pause between the expiry of a key and the next try: at least 1 ms, and longer with more waiters
    /// before this one, so that waiters do not all try together. `before` is `None` for a waiter that is not in the
    /// queues.
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
    /// Stop and report the loss of the last round.
    GiveUp,
}

/// One caller's wait for a lock.
///
/// During contention, the wait continues until the deadline, with one last round at the deadline itself. During an
/// outage, the wait continues only for `patience`, counted from the start of the first round that was lost to this
/// outage. `patience` should be long enough for a reconnect, but short enough that the caller soon learns of the
/// outage. When the wait ends without a lease, the caller gets the loss of the last round.
#[derive(Clone, Debug)]
pub struct Waiting {
    deadline: Option<Moment>,
    patience: Duration,
    delay: RetryDelay,
    outage_since: Option<Moment>,
    before: Option<u64>,
    /// Whether the current round repeats a lost round. Such a round is not repeated itself.
    is_repeating: bool,
}

impl Waiting {
    /// Creates a wait that begins at `now`. `wait` is `None` to wait without a limit, and zero for a single round.
    pub fn new(now: Moment, wait: Option<Duration>, patience: Duration, delay: RetryDelay) -> Self {
        let deadline = wait.map(|wait| now.plus(wait));
        Self { deadline, patience, delay, outage_since: None, before: None, is_repeating: false }
    }

    /// Records how many waiters are before this one in the nodes' queues; `None` if this waiter is not in the queues.
    pub fn stands_behind(&mut self, before: Option<u64>) {
        self.before = before;
    }

    /// Records that other waiters of the same client found an outage, which began at `since`.
    pub fn met_outage(&mut self, since: Moment) {
        self.outage_since = Some(since);
    }

    /// When the current outage began; `None` if the last round was not lost to an outage.
    pub fn outage(&self) -> Option<Moment> {
        self.outage_since
    }

    /// Decides whether to repeat a lost round at once, even if `wait` is zero, and records the decision. `could_win` is
    /// [`Round::could_win_again`](crate::Round::could_win_again). A round that repeats another round is not repeated
    /// itself.
    pub fn repeats(&mut self, could_win: bool) -> bool {
        self.is_repeating = could_win && !self.is_repeating;
        self.is_repeating
    }

    /// Decides at `now` what follows a round that began at `started` and was lost for the reason `loss`. `random` must
    /// be uniformly distributed over all of `u32`.
    pub fn after(&mut self, now: Moment, started: Moment, loss: Loss, random: u32) -> Next {
        self.is_repeating = false;
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
