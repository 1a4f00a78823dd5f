//! The queue of waiters that a node keeps for one resource. A server does the same in
//! `scripts/queue.lua`.
//!
//! The queue decides only which waiter is notified when the resource becomes free, and for how long that waiter goes
//! before others. A lost or corrupted queue costs time, never safety. `record.rs` and `permits.rs` call this module.

use crate::term::Moment;
use crate::turns::{LONGEST_CALL, Turns};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of waiters without a subscriber that one request removes, so that no request takes long.
pub const MOST_GONE: usize = 16;

/// The time without a try after which a node may remove a waiter, because the waiter's process may be suspended. The
/// node removes only a waiter that holds up others: a writer that readers wait for, or a waiter that permits are kept
/// for. The node may take up to three times this long to remove the waiter.
///
/// A live waiter tries more often, unless its `retry_delay` is longer than this time. If the node removes a live
/// waiter, the waiter joins again with the same ticket.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// The name of a waiter, with the waiter's score in a server's sorted set.
pub type Scored = (Arc<str>, i64);

/// The number of values that a *doubt* can have. A waiter's score is its ticket plus its doubt. Tickets are multiples
/// of `DOUBTS`, so a doubt fits between two tickets.
///
/// The doubt is 0 until the node begins to doubt that the waiter is alive. From then on, the doubt tells when that was:
/// the node divides time into periods of three times [`LONGEST_SILENCE`], and the doubt is the number of the third (1
/// to 3) of the period in which the node began to doubt.
///
/// A score is a whole number, which a server stores exactly if it is not above the largest fence.
const DOUBTS: u64 = 4;

/// Returns the ticket of a waiter that arrived at this time by the nodes' clocks, in microseconds. Rounds down to a
/// multiple of `DOUBTS`.
pub fn ticket(arrived: u64) -> u64 {
    arrived - arrived % DOUBTS
}

/// A message to a waiter. The function that sends a message returns whether a subscriber received the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The resource is free for this waiter.
    Free,
    /// Only finds out whether the waiter is subscribed.
    Probe,
}

/// The waiters for one resource, in the order of their tickets.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Queue {
    /// Each waiter with its score: its ticket plus its doubt (see `DOUBTS`).
    waiting: BTreeSet<(u64, Arc<str>)>,
    /// The notified waiters, each with the moment at which its turn ends. The latest moment comes first, as in the
    /// sorted set of a server. More than one waiter is notified only if all of them are readers, or if they want
    /// permits.
    notified: BTreeSet<(Reverse<Moment>, Arc<str>)>,
    /// When the node forgets the whole queue; `None` before the first waiter joins.
    kept_until: Option<Moment>,
}

impl Queue {
    /// Returns the remaining time for which a notified waiter goes before this client; `None` if no other waiter goes
    /// before this client. `waiter` is `None` for a client that is not in the queue. Readers do not wait for the turns
    /// of other readers.
    pub fn is_blocked(
        &mut self,
        now: Moment,
        waiter: Option<&str>,
        is_reader: bool,
    ) -> Option<Duration> {
        self.forget(now);
        if waiter.is_some_and(|waiter| self.is_notified(waiter)) {
            return None;
        }
        let (Reverse(until), first) = self.notified.first()?;
        (stands(now, *until) && !(is_reader && reads(first))).then(|| until.since(now))
    }

    /// Whether this waiter is notified. A writer counts as notified only if it is the first of the notified waiters.
    pub fn is_notified(&self, waiter: &str) -> bool {
        let mut notified = self.notified.iter().map(|(_, notified)| &**notified);
        match reads(waiter) {
            true => notified.any(|notified| notified == waiter),
            false => notified.next() == Some(waiter),
        }
    }

    /// Whether a subscribed writer with a smaller ticket waits; if `ticket` is `None`, whether any subscribed writer
    /// waits. Silent writers (`is_silent`) do not count. Removes each writer that turns out to be silent or to have no
    /// subscriber. `call` sends a message and returns whether a subscriber received it.
    pub fn writer_waits(
        &mut self,
        now: Moment,
        ticket: Option<u64>,
        call: impl Fn(&str, Message) -> bool,
    ) -> bool {
        self.forget(now);
        let is_before = |other: u64| ticket.is_none_or(|ticket| other < ticket);
        let before = self.waiting.iter().filter(|(other, name)| is_before(*other) && !reads(name));
        let writers: Vec<_> = before.map(|(_, name)| Arc::clone(name)).collect();
        for (gone, writer) in writers.into_iter().enumerate() {
            let listens = call(&writer, Message::Probe);
            if gone == MOST_GONE {
                return false;
            }
            if listens && !self.is_silent(now, &writer) {
                return true;
            }
            self.leave(now, &writer);
        }
        false
    }

    /// The first waiter, notified or not; `None` if the queue is empty.
    pub fn first(&mut self, now: Moment) -> Option<&Arc<str>> {
        self.forget(now);
        let waiting = self.waiting.first().map(|(_, name)| name);
        self.notified.first().map(|(_, name)| name).or(waiting)
    }

    /// Inserts the waiter in the order of the tickets. If the waiter was notified, it loses its precedence.
    pub fn join(&mut self, now: Moment, waiter: &Arc<str>, ticket: u64, turns: Turns) {
        self.leave(now, waiter);
        self.waiting.insert((ticket, Arc::clone(waiter)));
        self.kept_until = Some(now.plus(turns.memory));
    }

    /// Removes the waiter, if it is in the queue.
    pub fn leave(&mut self, now: Moment, waiter: &str) {
        self.forget(now);
        self.waiting.retain(|(_, other)| &**other != waiter);
        self.notified.retain(|(_, notified)| &**notified != waiter);
    }

    /// Removes the notified waiters whose turn has ended. Returns the waiters that are not notified, with their scores
    /// and in their order.
    pub(super) fn waiting(&mut self, now: Moment) -> Vec<(u64, Arc<str>)> {
        self.forget(now);
        self.notified.retain(|(Reverse(until), _)| now < *until);
        self.waiting.iter().map(|(score, name)| (*score, Arc::clone(name))).collect()
    }

    /// Whether a waiter has been silent for at least [`LONGEST_SILENCE`]: it has not tried, so its process may be
    /// suspended. Call this for a waiter that holds up others. The first call after a try only records a doubt.
    pub(super) fn is_silent(&mut self, now: Moment, waiter: &Arc<str>) -> bool {
        let place = self.waiting.iter().find(|(_, other)| other == waiter).cloned();
        let Some((score, name)) = place else { return false };
        let clock = now.since(Moment::from_origin(Duration::ZERO)).as_micros();
        let third = (clock / LONGEST_SILENCE.as_micros() % 3) as u64 + 1;
        let since = score % DOUBTS;
        if since == 0 {
            self.waiting.remove(&(score, Arc::clone(&name)));
            self.waiting.insert((score + third, name));
        }
        since > 0 && (third + 3 - since) % 3 == 2
    }

    /// Returns the end of this waiter's turn; `None` if the waiter was not notified, or if its turn has ended.
    pub(super) fn end_of_turn(&mut self, now: Moment, waiter: &str) -> Option<Moment> {
        self.forget(now);
        let mut notified = self.notified.iter().map(|(Reverse(until), other)| (*until, other));
        notified.find(|(until, other)| &***other == waiter && stands(now, *until)).map(|it| it.0)
    }

    /// Whether some waiter has a turn that ends at `end`.
    pub(super) fn has_turn_until(&self, now: Moment, end: Moment) -> bool {
        stands(now, end) && self.notified.iter().any(|(Reverse(until), _)| *until == end)
    }

    /// Gives a notified waiter its turn, which ends at `end`.
    pub(super) fn notified(&mut self, now: Moment, waiter: &Arc<str>, end: Moment) {
        self.leave(now, waiter);
        self.notified.insert((Reverse(end), Arc::clone(waiter)));
    }

    /// Makes a notified waiter's precedence last for `turns.reserve` from now on.
    pub fn reserve(&mut self, now: Moment, waiter: &Arc<str>, turns: Turns) {
        self.go_first(now, waiter, turns.reserve, turns);
    }

    fn go_first(&mut self, now: Moment, waiter: &Arc<str>, length: Duration, turns: Turns) {
        self.leave(now, waiter);
        self.notified.insert((Reverse(now.plus(length)), Arc::clone(waiter)));
        self.kept_until = Some(now.plus(turns.memory));
    }

    /// The number of waiters before this one; `None` if this waiter is not in the queue.
    pub fn rank(&self, waiter: &str) -> Option<u64> {
        let waiting = self.waiting.iter().map(|(_, other)| other);
        let mut all = self.notified.iter().map(|(_, other)| other).chain(waiting);
        all.position(|other| &**other == waiter).map(|before| before as u64)
    }

    /// Notifies the first waiter that is subscribed, unless a notified waiter still has its turn. If the first waiter
    /// wants to read, also notifies the other readers that are before the next writer. Removes waiters without a
    /// subscriber.
    ///
    /// `is_new` is `true` if the resource has just become free: a waiter that was notified before is then notified
    /// again. `call` sends a message and returns whether a subscriber received it.
    pub fn notify_next(
        &mut self,
        now: Moment,
        is_new: bool,
        turns: Turns,
        call: impl Fn(&str, Message) -> bool,
    ) {
        self.forget(now);
        for _ in 0..MOST_GONE {
            let next = match self.notified.first() {
                Some((Reverse(until), _)) if stands(now, *until) && !is_new => return,
                Some((Reverse(until), notified)) => {
                    let stands = stands(now, *until);
                    let notified = Arc::clone(notified);
                    self.leave(now, &notified);
                    // If the waiter did not try in time, another waiter is notified.
                    stands.then_some(notified)
                }
                None => match self.waiting.pop_first() {
                    Some((_, waiter)) => Some(waiter),
                    None => return,
                },
            };
            let Some(next) = next.filter(|next| call(next, Message::Free)) else { continue };
            self.go_first(now, &next, turns.call, turns);
            if reads(&next) {
                self.notify_readers(now, &next, is_new, turns, call);
            }
            return;
        }
    }

    /// Notifies the readers behind `first`, which was notified just now, up to the first writer.
    fn notify_readers(
        &mut self,
        now: Moment,
        first: &str,
        is_new: bool,
        turns: Turns,
        call: impl Fn(&str, Message) -> bool,
    ) {
        let notified = self.notified.iter().map(|(Reverse(until), name)| (Some(*until), name));
        let all = notified.chain(self.waiting.iter().map(|(_, name)| (None, name)));
        let all: Vec<_> = all.map(|(until, name)| (until, Arc::clone(name))).collect();
        for (until, waiter) in all.into_iter().filter(|(_, waiter)| &**waiter != first) {
            let is_notified = until.is_some_and(|until| stands(now, until));
            if until.is_some() && !is_notified {
                self.leave(now, &waiter);
            } else if !reads(&waiter) {
                return;
            } else if is_new || !is_notified {
                match call(&waiter, Message::Free) {
                    true => self.go_first(now, &waiter, turns.call, turns),
                    false => self.leave(now, &waiter),
                }
            }
        }
    }

    /// The number of waiters, including those that are notified.
    pub fn len(&mut self, now: Moment) -> usize {
        self.forget(now);
        self.waiting.len() + self.notified.len()
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
            self.notified.iter().map(|(Reverse(until), name)| (Arc::clone(name), score(until)));
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|(score, waiter)| (Arc::clone(waiter), *score as i64));
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
            let turns = Turns { call: some, reserve: some, memory: 10 * some };
            match random(0..4) {
                0 => {}
                1 => self.reserve(now, &waiter, turns),
                _ => self.join(now, &waiter, random(0..3_000_000_000_000_000), turns),
            }
        }
    }

    /// Whether the queue has no waiter, notified or not.
    pub fn is_empty(&mut self, now: Moment) -> bool {
        self.forget(now);
        self.waiting.is_empty() && self.notified.is_empty()
    }

    fn forget(&mut self, now: Moment) {
        if self.kept_until.is_some_and(|until| until <= now) {
            *self = Self::default();
        }
    }
}

/// Whether a notified waiter has precedence at `now`. An `until` that is more than [`LONGEST_CALL`] ahead does not
/// count, because it shows that the clock was set back.
fn stands(now: Moment, until: Moment) -> bool {
    now < until && until <= now.plus(LONGEST_CALL)
}

/// Returns the name under which a waiter queues: the channel of the waiter's client, and the waiter's number within
/// that client.
pub fn name(channel: &str, number: u64) -> Arc<str> {
    format!("{channel}#{number}").into()
}

/// Returns the name of a waiter in the queue of a resource that it wants to read. In this name, the waiter's number
/// begins with 0. A client that does not know readers can still notify a waiter with such a name.
pub fn reader_name(waiter: &str) -> Arc<str> {
    match parts(waiter) {
        Some((channel, number)) => format!("{channel}#0{number}").into(),
        None => waiter.into(),
    }
}

/// Whether a waiter with this name wants to read.
pub fn reads(waiter: &str) -> bool {
    parts(waiter).is_some_and(|(_, number)| number.len() > 1 && number.starts_with('0'))
}

/// Returns the name of a waiter in the queue of a semaphore. The name ends with the number of permits that the waiter
/// wants, and the waiter's limit.
pub fn name_with_permits(waiter: &str, permits: u32, limit: u32) -> Arc<str> {
    format!("{waiter}*{permits}*{limit}").into()
}

/// Returns how many permits a waiter with this name wants, and its limit. If the name lacks these numbers, the waiter
/// wants one permit, in any slot.
pub fn wanted_permits(waiter: &str) -> (usize, u32) {
    let wants = || {
        let (_, number) = waiter.rsplit_once('#')?;
        let (_, wants) = number.split_once('*')?;
        let (permits, limit) = wants.split_once('*')?;
        Some((permits.parse().ok()?, limit.parse().ok()?))
    };
    wants().unwrap_or((1, u32::MAX))
}

/// Returns the channel and the number in a waiter's name; `None` if `waiter` is not such a name.
pub fn parts(waiter: &str) -> Option<(&str, &str)> {
    let (channel, rest) = waiter.rsplit_once('#')?;
    let mut numbers = rest.split('*');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    numbers.clone().all(is_number).then(|| (channel, numbers.next().unwrap_or_default()))
}
