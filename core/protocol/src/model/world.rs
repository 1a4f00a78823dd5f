//! The state of the model.

use super::settings::{Claim, EPOCH, Faults, NODES};
use crate::node::entry::{Entry, Time};
use crate::node::readers::LockMode;
use crate::{
    Answer, Extension, Footprint, Guard, Healed, Lease, Moment, NodeSet, Quorum, Round, Vote,
};
use std::time::Duration;

/// A round's token.
pub(super) type Token = u8;

/// The whole state at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct World {
    /// The number of ticks that have passed.
    pub(super) tick: u8,
    /// The milliseconds that pass in a tick by each client's clock; `node_rates` is the same for the nodes.
    pub(super) client_rates: [u64; 3],
    pub(super) node_rates: [u64; NODES],
    /// The microseconds that pass on wall clocks in a tick.
    pub(super) wall_tick: u64,
    /// The error of each node's wall clock, in microseconds; positive if it is ahead of the true time.
    pub(super) node_clocks: [i64; NODES],
    pub(super) nodes: [Node; NODES],
    pub(super) clients: Vec<Client>,
    /// The faults that may still happen.
    pub(super) left: Faults,
    pub(super) last_token: Token,
    /// The largest fence of all leases so far.
    pub(super) last_fence: u64,
    /// The fences of all leases, for [`Claim::Uniqueness`] only.
    pub(super) fences: Vec<u64>,
    pub(super) claim: Claim,
    /// Whether a request that can leave a key was delivered after its connection had broken.
    pub(super) overtaken: bool,
    /// The mode in which each client acquires.
    pub(super) modes: [LockMode; 3],
    /// The largest fence of all exclusive leases so far.
    pub(super) last_exclusive: u64,
    /// The lease that was detached; `None` before that.
    pub(super) offer: Option<Offer>,
    /// A violation that a step found and that is not visible in a single state.
    pub(super) wrong: Option<&'static str>,
}

/// A lease that its holder has given up, for others to adopt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) token: Token,
    /// The nodes that have not answered all requests that set its key.
    pub(super) silent: NodeSet,
    /// Whether an adopter has won.
    pub(super) is_adopted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct Node {
    pub(super) entry: Entry<Token>,
    /// The identity of the node's memory: incremented when the memory is lost.
    pub(super) memory: u8,
    /// The tick in which the node was started; initially long ago.
    pub(super) started: i8,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Client {
    pub(super) crashed: bool,
    pub(super) rounds_left: u8,
    pub(super) extensions_left: u8,
    pub(super) changes_left: u8,
    pub(super) repairs_left: u8,
    /// Rounds that are undecided or still lack answers, oldest first.
    pub(super) attempts: Vec<Attempt>,
    pub(super) held: Option<Held>,
    pub(super) links: [Link; NODES],
}

/// The connections between a client and a node.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct Link {
    /// Requests in flight, in order.
    pub(super) up: Vec<Request>,
    /// Replies in flight, in order; only those that the client waits for.
    pub(super) down: Vec<Reply>,
    /// Requests in flight on a replaced connection that is still open, in order. They are answered too.
    pub(super) old: Vec<Request>,
    /// Requests still in flight from broken connections. Their answers are lost.
    pub(super) late: Vec<Request>,
    /// Whether the node has restarted and the client does not know yet. Undos and releases sent
    /// meanwhile are delivered after the reconnect.
    pub(super) broken: bool,
    /// `None` if the restart guard is off.
    pub(super) guard: Option<Guard>,
}

/// A round and the events that it has handled.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    pub(super) token: Token,
    /// The token that an adopter or an upgrade takes over.
    pub(super) giver: Option<Token>,
    pub(super) mode: LockMode,
    pub(super) round: Round,
    pub(super) began: Moment,
    pub(super) decided: Option<Decided>,
    /// `None` while the vote is pending.
    pub(super) votes: [Option<Vote>; NODES],
    /// Whether the answer is still pending after its deadline.
    pub(super) late: [bool; NODES],
    /// The state of RAISE on each node.
    pub(super) raises: [Raise; NODES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Decided {
    Won,
    Lost,
    Abandoned,
}

/// The state of a RAISE on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Raise {
    Unasked,
    Awaited,
    Answered { stored: bool },
}

/// A lease and its history since it was won.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Held {
    pub(super) token: Token,
    /// The token that it took over, if it was adopted or upgraded.
    pub(super) giver: Option<Token>,
    pub(super) mode: LockMode,
    /// The tokens of the upgrades of this lease that were begun. Where one of them has the key, it keeps others out
    /// for the lease.
    pub(super) upgrades: Vec<Token>,
    pub(super) fence: u64,
    pub(super) lease: Lease,
    pub(super) extending: Option<Extending>,
    /// Whether all votes of its round have arrived, so that nodes that lack the key can be repaired.
    pub(super) is_complete: bool,
    /// Nodes whose answer to HEAL is pending.
    pub(super) healing: NodeSet,
    pub(super) footprint: Footprint<Token>,
    /// Nodes whose answer to GIVE BACK of the last upgrade is pending.
    pub(super) giving_back: NodeSet,
    /// The token of the last round that had begun when the lease was won.
    pub(super) last_token: Token,
    /// Whether a round that began after the lease was won has been won too.
    pub(super) is_overtaken: bool,
    /// Whether the lease was invalid in an earlier state.
    pub(super) was_over: bool,
}

/// An extension and the answers that it has received.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Extending {
    pub(super) number: u8,
    pub(super) extension: Extension,
    pub(super) began: Moment,
    pub(super) is_confirmed: bool,
    /// Whether another client had won the resource before the extension was sent.
    pub(super) is_overtaken: bool,
    /// `None` while the answer is pending.
    pub(super) answers: [Option<Answer>; NODES],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// TRANSFER if there is a giver.
    Acquire {
        token: Token,
        giver: Option<Token>,
        mode: LockMode,
        proposal: u64,
        /// Whether the request was sent a second time. It then arrives after the requests that were sent
        /// between the first and the second time.
        is_again: bool,
    },
    Raise {
        token: Token,
        mode: LockMode,
        fence: u64,
    },
    /// `number` identifies the extension.
    Extend {
        token: Token,
        mode: LockMode,
        ttl: Duration,
        number: u8,
    },
    Heal {
        token: Token,
        giver: Option<Token>,
        mode: LockMode,
        ttl: Duration,
        fence: u64,
    },
    /// Not answered, because the answer changes nothing in the model.
    Downgrade {
        token: Token,
    },
    /// RELEASE or UNDO, or GIVE BACK if there is a giver. The answer arrives at once, because it changes little in the
    /// model.
    Release {
        token: Token,
        giver: Option<Token>,
        mode: LockMode,
        is_undo: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    /// The last field has the meaning of [`Event::Vote::in_order`](crate::Event::Vote::in_order).
    Vote(Token, Vote, bool),
    Raised(Token, bool),
    Extended(u8, bool),
    Healed(Token, Healed),
}

impl Link {
    /// The requests in flight on the current connection, on a replaced one and from broken ones.
    pub(super) fn ways(&self) -> impl Iterator<Item = &Vec<Request>> {
        [&self.up, &self.old, &self.late].into_iter()
    }
}

impl World {
    pub(super) fn quorum() -> Quorum {
        Quorum::over(NODES).expect("NODES is a valid number of nodes")
    }

    /// Whether any round has begun. Before that, time makes no difference.
    pub(super) fn has_begun(&self) -> bool {
        self.last_token > 0
    }

    /// The time by a client's clock.
    pub(super) fn now(&self, client: usize) -> Moment {
        // The initial time is later than any uptime, so that no moment is before the origin.
        let milliseconds = 1_000_000 + u64::from(self.tick) * self.client_rates[client];
        Moment::from_origin(Duration::from_millis(milliseconds))
    }

    /// The time by a node's clock.
    pub(super) fn node_now(&self, node: usize) -> Moment {
        Moment::from_origin(Duration::from_millis(u64::from(self.tick) * self.node_rates[node]))
    }

    /// The true time, in microseconds since the Unix epoch.
    pub(super) fn wall_clock(&self) -> u64 {
        EPOCH + u64::from(self.tick) * self.wall_tick
    }

    /// The time by both clocks of a node.
    pub(super) fn node_time(&self, node: usize) -> Time {
        let wall = self.wall_clock().saturating_add_signed(self.node_clocks[node]);
        Time { now: self.node_now(node), wall }
    }

    /// Reports the node's memory ID and uptime to the client's guard, as a client does after every
    /// connect.
    pub(super) fn examine(&mut self, client: usize, node: usize) {
        let now = self.now(client);
        let Node { memory, started, .. } = self.nodes[node];
        let uptime = u64::try_from(self.tick as i8 - started).expect("a node starts in the past");
        let uptime = Duration::from_secs(uptime);
        if let Some(guard) = &mut self.clients[client].links[node].guard {
            // A restart changes the identity even if the memory was kept.
            guard.looked(now, Some((&format!("{memory} {started}"), uptime)));
        }
    }

    /// The tokens that hold the resource on a node: more than one only if all of them read it.
    pub(super) fn tokens_on(&self, node: usize) -> Vec<Token> {
        let now = self.node_now(node);
        let entry = &self.nodes[node].entry;
        match entry.is_read(now) {
            true => entry.shares(now).map(|(token, _)| *token).collect(),
            false => entry.token(now).copied().into_iter().collect(),
        }
    }

    /// The clients whose lease is valid by their own clock.
    pub(super) fn holders(&self) -> impl Iterator<Item = usize> {
        let is_valid = |number: &usize| {
            let Client { crashed, held, .. } = &self.clients[*number];
            let now = self.now(*number);
            !crashed && held.as_ref().is_some_and(|held| held.lease.is_valid(now))
        };
        (0..self.clients.len()).filter(is_valid)
    }

    /// The leases that are valid by their holders' clocks.
    pub(super) fn valid(&self) -> impl Iterator<Item = &Held> {
        self.holders().filter_map(|number| self.clients[number].held.as_ref())
    }
}
