//! Turns: which waiter tries next when a resource becomes free.
//!
//! Each node keeps a queue of waiters and notifies the first of them when the resource becomes free there. A waiter
//! that is notified by a majority tries immediately. Notifications and queues only decide which waiter tries first: a
//! round is won only by the votes of a majority. A notification that is lost, late or forged costs a round, or delays
//! the waiter until its next planned try ([`Waiting`](super::Waiting)).
//!
//! In public names, a notification is a `call`. The driver (`lock/acquire.rs` of the crate `quorlock`) and the model
//! use this module.

use crate::quorum::{NodeSet, Quorum};
use crate::term::Moment;
use crate::waiting::RetryDelay;
use core::time::Duration;

/// A waiter for several resources may reserve one that is free. The reservation lasts for 1/8 of the time that the
/// waiter has waited, but at least for [`Turns::call`] and at most for [`LONGEST_CALL`].
const RESERVED_PART: u32 = 8;
/// After a reservation, the waiter cannot reserve again for 4 times the length of that reservation. So other waiters
/// can use the resource for most of the time while this waiter waits for its other resources.
const PAUSE_AFTER_RESERVING: u32 = 4;

/// If some nodes, but not a majority, have notified a waiter, the waiter hurries: it divides its random delay by this
/// number.
const HURRY: u32 = 16;

/// How long a waiter for permits waits for the other nodes, if a majority has notified the waiter but the nodes of that
/// majority offer different permits.
const AGREEMENT_WAIT: Duration = Duration::from_millis(1);

/// The longest time for which a notified waiter goes before all others. A notification that appears valid for longer is
/// ignored: the node's clock must have been set back.
pub const LONGEST_CALL: Duration = Duration::from_secs(60);

/// The time for which a node keeps a queue, in addition to the longest pause between two tries of a waiter.
const QUEUE_MEMORY: Duration = Duration::from_secs(3);

/// The queue settings that a client sends in every ACQUIRE, UNDO and RELEASE that concerns a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// The time for which a notified waiter goes before all others; at most [`LONGEST_CALL`].
    pub call: Duration,
    /// The time for which a notified waiter that also needs another resource reserves this one; zero if the waiter lets
    /// others go first.
    pub reserve: Duration,
    /// The time for which a node keeps a queue that no waiter joins. A waiter joins again with every try.
    pub memory: Duration,
}

impl Turns {
    /// Returns the settings of a waiter that waits with `delay` and reserves nothing.
    pub fn new(delay: RetryDelay) -> Self {
        let memory = delay.longest_pause() + QUEUE_MEMORY;
        Self { call: delay.shortest.min(LONGEST_CALL), reserve: Duration::ZERO, memory }
    }

    /// Whether a notification that arrived at `called` still gives the waiter precedence at `now`.
    fn stands(self, now: Moment, called: Moment) -> bool {
        now < called.plus(self.call)
    }
}

/// The notifications that one waiter has received.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    quorum: Quorum,
    turns: Turns,
    arrived: Moment,
    /// The newest notification of each node for each resource: node, position of the resource, moment of arrival.
    heard: Vec<(usize, usize, Moment)>,
    /// The end of the waiter's last reservation.
    reserved_until: Moment,
    /// The moment from which the waiter may reserve a resource again.
    reserves_again: Moment,
    /// The moment from which the waiter may hurry again: try early although no majority has notified the waiter.
    hurries_again: Moment,
}

impl Calls {
    /// Creates the state of a waiter that began to wait at `arrived`, with no notification yet.
    pub fn new(quorum: Quorum, arrived: Moment, turns: Turns) -> Self {
        Self {
            quorum,
            turns,
            arrived,
            heard: Vec::new(),
            reserved_until: arrived,
            reserves_again: arrived,
            hurries_again: arrived,
        }
    }

    /// Records a notification from `node` for the resource at position `resource`. Returns when to try:
    /// at `next`, the planned moment, or earlier.
    ///
    /// The waiter tries immediately if a majority has notified it. If fewer nodes have notified it, there are two
    /// possible reasons: another client holds the resource on the other nodes, or the nodes notified different waiters.
    /// If the nodes notified different waiters, a try helps: the undo of the lost round makes all nodes notify the same
    /// waiter. So the waiter hurries: it tries soon. But if another client holds the resource, hurrying does not help,
    /// so the waiter hurries at most once per longest delay.
    pub fn add(
        &mut self,
        now: Moment,
        node: usize,
        resource: usize,
        next: Moment,
        delay: RetryDelay,
        random: u32,
    ) -> Moment {
        self.heard.retain(|&(other, of, arrived)| {
            (other, of) != (node, resource) && self.turns.stands(now, arrived)
        });
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

    /// Records that `node` offers permits, and returns when to try, as [`Calls::add`] does. `agree`: whether a majority
    /// offers the same permits, and enough of them.
    ///
    /// If a majority has notified the waiter but `agree` is `false`, a round would probably be lost. In that case, the
    /// waiter waits a moment for the nodes that have not notified it yet, if any.
    pub fn add_offer(
        &mut self,
        now: Moment,
        node: usize,
        agree: bool,
        next: Moment,
        delay: RetryDelay,
        random: u32,
    ) -> Moment {
        let at = self.add(now, node, 0, next, delay, random);
        let notified_by: NodeSet = self.heard.iter().map(|call| call.0).collect();
        let is_last = notified_by.len() == self.quorum.nodes();
        if agree || is_last || !self.is_turn(now) { at } else { next.min(now.plus(AGREEMENT_WAIT)) }
    }

    /// Whether a majority has notified the waiter for the same resource.
    pub fn is_turn(&self, now: Moment) -> bool {
        self.heard.iter().any(|(_, resource, _)| {
            let of_it = self
                .heard
                .iter()
                .filter(|call| call.1 == *resource && self.turns.stands(now, call.2));
            of_it.map(|call| call.0).collect::<NodeSet>().len() >= self.quorum.size()
        })
    }

    /// Begins a round: forgets the notifications so far and returns the settings to send in ACQUIRE. If a majority has
    /// notified the waiter, these settings let the waiter reserve a resource that it cannot use yet. The settings of the
    /// following rounds keep this reservation until its end. Afterwards, the waiter cannot reserve again for some time.
    pub fn begin(&mut self, now: Moment) -> Turns {
        let is_turn = self.is_turn(now);
        self.heard.clear();
        if now < self.reserved_until {
            return Turns { reserve: self.reserved_until.since(now), ..self.turns };
        }
        if !is_turn || now < self.reserves_again {
            return self.turns;
        }
        let reserve =
            self.turns.call.max(now.since(self.arrived) / RESERVED_PART).min(LONGEST_CALL);
        self.reserved_until = now.plus(reserve);
        self.reserves_again = now.plus(reserve * (1 + PAUSE_AFTER_RESERVING));
        Turns { reserve, ..self.turns }
    }
}
