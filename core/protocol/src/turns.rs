//! Turns: who tries next when a resource becomes free.
//!
//! Each node keeps a queue of waiters, and calls the first of them when the resource becomes free
//! there. A waiter that a majority calls tries at once. Calls and queues decide nothing else: whoever
//! tries wins by the votes of a majority, or not at all. A call that is lost, late or forged costs a
//! round, or the time until the waiter tries anyway ([`Waiting`](super::Waiting)).

use crate::quorum::{NodeSet, Quorum};
use crate::term::Moment;
use crate::waiting::RetryDelay;
use core::time::Duration;

/// A waiter for several resources keeps one that is free from others for this part of the time that it
/// has waited, if that is longer than the time of a call.
const KEPT_PART: u32 = 8;
/// And then for so many times as long not again, so that others get most of what it cannot use.
const PAUSE_AFTER_KEEPING: u32 = 4;

/// What is tried soon is tried after this part of the random delay.
const HURRY: u32 = 16;

/// No waiter goes before others for longer than this, whatever it waits for and however long it has. A
/// call that stands for longer by a node's clock is none: the clock was set back.
pub const LONGEST_CALL: Duration = Duration::from_secs(60);

/// A queue is kept for so much longer than the pause between two tries.
const QUEUE_MEMORY: Duration = Duration::from_secs(3);

/// What a node is told about turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// For how long a waiter that is called goes before all others.
    pub call: Duration,
    /// For how long a waiter that was called, and needs another resource as well, keeps this one from
    /// others; zero if it lets them go first.
    pub keep: Duration,
    /// How long a queue is kept that nobody joins. Every try of a waiter makes sure of its place.
    pub memory: Duration,
}

impl Turns {
    /// What is asked for by who keeps nothing from others, and waits with these delays.
    pub fn new(delay: RetryDelay) -> Self {
        let memory = delay.longest_pause() + QUEUE_MEMORY;
        Self { call: delay.shortest.min(LONGEST_CALL), keep: Duration::ZERO, memory }
    }

    /// Whether a call of that time is of any use.
    fn stands(self, now: Moment, called: Moment) -> bool {
        now < called.plus(self.call)
    }
}

/// The calls that one waiter gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    quorum: Quorum,
    turns: Turns,
    arrived: Moment,
    /// Which node called, for which of its resources, and when.
    heard: Vec<(usize, usize, Moment)>,
    keeps_again: Moment,
    hurries_again: Moment,
}

impl Calls {
    /// Those of a waiter that arrived then.
    pub fn new(quorum: Quorum, arrived: Moment, turns: Turns) -> Self {
        let (heard, keeps_again, hurries_again) = (Vec::new(), arrived, arrived);
        Self { quorum, turns, arrived, heard, keeps_again, hurries_again }
    }

    /// A node called, for a resource that is named by its position. Returns when to try, where it would
    /// be at `next` otherwise.
    ///
    /// At once if a majority calls. If just some nodes do, either somebody has the others, or nodes call
    /// different waiters. The latter ends when these try: what they take back is offered to the
    /// same one by all nodes. So the waiter tries soon, but not again and again, since it may be the former.
    pub fn add(
        &mut self,
        now: Moment,
        node: usize,
        resource: usize,
        next: Moment,
        delay: RetryDelay,
        random: u32,
    ) -> Moment {
        self.heard.retain(|(_, _, at)| self.turns.stands(now, *at));
        self.heard.push((node, resource, now));
        if self.is_turn(now) {
            return now;
        }
        let mut pause = delay.draw(random);
        if now >= self.hurries_again {
            self.hurries_again = now.plus(delay.longest);
            pause /= HURRY;
        }
        next.min(now.plus(pause))
    }

    /// Whether a majority calls.
    pub fn is_turn(&self, now: Moment) -> bool {
        self.heard.iter().any(|(_, resource, _)| {
            let of_it = self
                .heard
                .iter()
                .filter(|call| call.1 == *resource && self.turns.stands(now, call.2));
            of_it.map(|call| call.0).collect::<NodeSet>().len() >= self.quorum.size()
        })
    }

    /// A round begins. What was heard led to it, or is overtaken by it. Returns what the nodes are to be
    /// told: a waiter that was called may keep what it can't use yet, but not again and again.
    pub fn begin(&mut self, now: Moment) -> Turns {
        let is_turn = self.is_turn(now);
        self.heard.clear();
        if !is_turn || now < self.keeps_again {
            return self.turns;
        }
        let keep = self.turns.call.max(now.since(self.arrived) / KEPT_PART).min(LONGEST_CALL);
        self.keeps_again = now.plus(keep * (1 + PAUSE_AFTER_KEEPING));
        Turns { keep, ..self.turns }
    }
}
