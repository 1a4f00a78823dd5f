//! The queue of waiters that a node keeps for one resource. A server does the same in
//! `scripts/queue.lua`.
//!
//! The queue decides only which waiter is notified when the resource becomes free, and that this waiter
//! goes before others for a short time. A lost or corrupted queue costs time, never safety. Called by
//! `record.rs`.

use crate::term::Moment;
use crate::turns::{LONGEST_CALL, Turns};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of waiters that a node tries to notify before it gives up because none is subscribed.
pub const MOST_GONE: usize = 16;

/// A waiter's name with its score in a server's sorted set.
pub type Scored = (Arc<str>, i64);

/// The waiters for one resource, in the order of their tickets.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Queue {
    waiting: BTreeSet<(u64, Arc<str>)>,
    /// The waiter that was notified last and until when it goes before all others.
    notified: Option<(Arc<str>, Moment)>,
    /// When the node forgets the whole queue.
    kept_until: Option<Moment>,
}

impl Queue {
    /// Returns the remaining time for which a notified waiter goes before this client; `None` if no other
    /// waiter is notified. `waiter` is `None` for a client that is not in the queue.
    pub fn is_blocked(&mut self, now: Moment, waiter: Option<&str>) -> Option<Duration> {
        self.forget(now);
        let (notified, until) = self.notified.as_ref()?;
        (Some(&**notified) != waiter && stands(now, *until)).then(|| until.since(now))
    }

    /// Whether this waiter was notified last.
    pub fn is_notified(&self, waiter: &str) -> bool {
        self.notified.as_ref().is_some_and(|(notified, _)| &**notified == waiter)
    }

    /// Inserts the waiter in the order of its ticket. A notified waiter loses its precedence.
    pub fn join(&mut self, now: Moment, waiter: &Arc<str>, ticket: u64, turns: Turns) {
        self.leave(now, waiter);
        self.waiting.insert((ticket, Arc::clone(waiter)));
        self.kept_until = Some(now.plus(turns.memory));
    }

    /// Removes the waiter, if it is in the queue.
    pub fn leave(&mut self, now: Moment, waiter: &str) {
        self.forget(now);
        self.waiting.retain(|(_, other)| &**other != waiter);
        self.notified.take_if(|(notified, _)| &**notified == waiter);
    }

    /// Prolongs the precedence of a notified waiter by `turns.keep` from now.
    pub fn keep(&mut self, now: Moment, waiter: &Arc<str>, turns: Turns) {
        self.go_first(now, waiter, turns.keep, turns);
    }

    fn go_first(&mut self, now: Moment, waiter: &Arc<str>, length: Duration, turns: Turns) {
        self.notified = Some((Arc::clone(waiter), now.plus(length)));
        self.kept_until = Some(now.plus(turns.memory));
    }

    /// The number of waiters before this one; `None` if it is not in the queue.
    pub fn rank(&self, waiter: &str) -> Option<u64> {
        let before = self.waiting.iter().position(|(_, other)| &**other == waiter)?;
        Some((before + usize::from(self.notified.is_some())) as u64)
    }

    /// Notifies the first waiter that is subscribed, unless one was notified already. A waiter without
    /// a subscriber is removed.
    ///
    /// `is_new` is `true` if the resource has just become free: a waiter that was notified before is then
    /// notified again. `call` sends the notification and returns whether a subscriber received it.
    pub fn notify_next(
        &mut self,
        now: Moment,
        is_new: bool,
        turns: Turns,
        call: impl Fn(&str) -> bool,
    ) {
        self.forget(now);
        for _ in 0..MOST_GONE {
            let next = match self.notified.take() {
                Some((notified, until)) if stands(now, until) => {
                    if !is_new {
                        self.notified = Some((notified, until));
                        return;
                    }
                    Some(notified)
                }
                // The notified waiter did not try in time, so another one is notified.
                Some(_) => continue,
                None => self.waiting.pop_first().map(|(_, waiter)| waiter),
            };
            let Some(next) = next else { return };
            if call(&next) {
                return self.go_first(now, &next, turns.call, turns);
            }
        }
    }

    /// The number of waiters, including a notified one.
    pub fn len(&mut self, now: Moment) -> usize {
        self.forget(now);
        self.waiting.len() + usize::from(self.notified.is_some())
    }

    /// The queue as a server stores it: every waiter with its score, in order, and the time until the
    /// queue expires. `None` if a server would have no queue.
    pub fn stored(&mut self, now: Moment) -> Option<(Vec<Scored>, Duration)> {
        self.forget(now);
        let score = |until: &Moment| {
            let microseconds = until.since(Moment::from_origin(Duration::ZERO)).as_micros();
            -i64::try_from(microseconds).expect("microseconds fit into i64")
        };
        let notified =
            self.notified.iter().map(|(waiter, until)| (Arc::clone(waiter), score(until)));
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|(ticket, waiter)| (Arc::clone(waiter), *ticket as i64));
        let all: Vec<_> = notified.chain(waiting).collect();
        let kept_until = self.kept_until.filter(|_| !all.is_empty())?;
        Some((all, kept_until.since(now)))
    }

    /// Corrupts the queue at random, for tests.
    pub fn forge<'a>(
        &mut self,
        now: Moment,
        channels: impl Iterator<Item = &'a str>,
        random: &dyn Fn(std::ops::Range<u64>) -> u64,
    ) {
        let waiting: Vec<_> = std::mem::take(&mut self.waiting).into_iter().collect();
        let mut waiters: Vec<_> = waiting.into_iter().map(|(_, waiter)| waiter).collect();
        waiters.extend(channels.map(|channel| name(channel, random(0..20))));
        waiters.extend(["nonsense".into(), name("nobody", 1)]);
        for waiter in waiters {
            let some = Duration::from_millis(random(0..1_000));
            let turns = Turns { call: some, keep: some, memory: 10 * some };
            match random(0..4) {
                0 => {}
                1 => self.keep(now, &waiter, turns),
                _ => self.join(now, &waiter, random(0..3_000_000_000_000_000), turns),
            }
        }
    }

    /// Whether the queue has no waiter, notified or not.
    pub fn is_empty(&mut self, now: Moment) -> bool {
        self.forget(now);
        self.waiting.is_empty() && self.notified.is_none()
    }

    fn forget(&mut self, now: Moment) {
        if self.kept_until.is_some_and(|until| until <= now) {
            *self = Self::default();
        }
    }
}

/// Whether a notified waiter has precedence at `now`. An `until` too far ahead does not count: the clock
/// was set back.
fn stands(now: Moment, until: Moment) -> bool {
    now < until && until <= now.plus(LONGEST_CALL)
}

/// Returns a waiter's name in queues: its client's channel and its number within the client.
pub fn name(channel: &str, number: u64) -> Arc<str> {
    format!("{channel}#{number}").into()
}

/// Returns the channel and the number in a waiter's name; `None` if it is not such a name.
pub fn parts(waiter: &str) -> Option<(&str, u64)> {
    let (channel, number) = waiter.rsplit_once('#')?;
    Some((channel, number.parse().ok()?))
}
