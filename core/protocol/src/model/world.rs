//! The state of the model.

use super::settings::{Claim, EPOCH, Faults, NODES};
use crate::node::entry::{Entry, Time};
use crate::{Answer, Extension, Guard, Healed, Lease, Moment, NodeSet, Quorum, Round, Vote};
use std::time::Duration;

/// A round's token.
pub(super) type Token = u8;

/// Everything there is at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct World {
    /// The time that has passed.
    pub(super) tick: u8,
    /// See [`Rates`](super::settings::Rates).
    pub(super) client_rates: [u64; 3],
    pub(super) node_rates: [u64; NODES],
    /// How far wall clocks go in a tick, in microseconds.
    pub(super) wall_tick: u64,
    /// By how much each node's wall clock is ahead, in microseconds.
    pub(super) node_clocks: [i64; NODES],
    pub(super) nodes: [Node; NODES],
    pub(super) clients: Vec<Client>,
    /// What may still go wrong.
    pub(super) left: Faults,
    pub(super) last_token: Token,
    /// The largest fence of all leases so far.
    pub(super) last_fence: u64,
    /// The fences of all leases, if they are claimed to be different but not to grow.
    pub(super) fences: Vec<u64>,
    pub(super) claim: Claim,
    /// A request that can leave a key was delivered on a connection that had broken already.
    pub(super) overtaken: bool,
    /// What went wrong in a step, as opposed to what is wrong with a state.
    pub(super) wrong: Option<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct Node {
    pub(super) entry: Entry<Token>,
    /// Grows when the memory is lost.
    pub(super) memory: u8,
    /// The tick in which it was started; long ago in the beginning.
    pub(super) started: i8,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Client {
    pub(super) crashed: bool,
    pub(super) rounds_left: u8,
    pub(super) extensions_left: u8,
    pub(super) repairs_left: u8,
    /// Rounds that not all votes are in of, oldest first.
    pub(super) attempts: Vec<Attempt>,
    pub(super) held: Option<Held>,
    pub(super) links: [Link; NODES],
}

/// A client's way to a node.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct Link {
    /// Requests on the way, in order.
    pub(super) up: Vec<Request>,
    /// Replies on the way, in order; only those that somebody waits for.
    pub(super) down: Vec<Reply>,
    /// Requests on a connection that is replaced but stands, in order. They are answered, too.
    pub(super) old: Vec<Request>,
    /// Requests of connections that broke, on the way still. Nobody hears what becomes of them.
    pub(super) late: Vec<Request>,
    /// The node has restarted, and the client does not know yet. What it has to deliver meanwhile, it
    /// delivers when it is connected again.
    pub(super) broken: bool,
    /// `None` if the restart guard is off.
    pub(super) guard: Option<Guard>,
}

/// A round, and what it was told.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    pub(super) token: Token,
    pub(super) round: Round,
    pub(super) began: Moment,
    pub(super) decided: Option<Decided>,
    /// `None` while the vote is awaited.
    pub(super) votes: [Option<Vote>; NODES],
    /// Whether the answer is still awaited, after its deadline.
    pub(super) late: [bool; NODES],
    /// Whether all votes were in once, when it was known where to spread to.
    pub(super) raises: [Raise; NODES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Decided {
    Won,
    Lost,
    Abandoned,
}

/// Whether a node was told to raise the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Raise {
    Unasked,
    Awaited,
    Answered { stored: bool },
}

/// A lease, from when it was won.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Held {
    pub(super) token: Token,
    pub(super) fence: u64,
    pub(super) lease: Lease,
    pub(super) extending: Option<Extending>,
    /// All votes of its round are in: nodes that lack it can be healed.
    pub(super) is_complete: bool,
    /// Nodes whose answer to HEAL is awaited.
    pub(super) healing: NodeSet,
    /// The last round that had begun when it was won.
    pub(super) last_token: Token,
    /// A round that began later is won, too.
    pub(super) is_overtaken: bool,
    /// It was seen not to be valid.
    pub(super) was_over: bool,
}

/// An extension, and what it was told.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Extending {
    pub(super) number: u8,
    pub(super) extension: Extension,
    pub(super) began: Moment,
    pub(super) is_confirmed: bool,
    /// Somebody else had won the resource before it was sent.
    pub(super) is_overtaken: bool,
    /// `None` while the answer is awaited.
    pub(super) answers: [Option<Answer>; NODES],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Acquire {
        token: Token,
        proposal: u64,
        /// It was sent a second time, behind what was sent meanwhile.
        is_again: bool,
    },
    Raise {
        token: Token,
        fence: u64,
    },
    /// With the extension's number.
    Extend {
        token: Token,
        ttl: Duration,
        number: u8,
    },
    Heal {
        token: Token,
        ttl: Duration,
        fence: u64,
    },
    /// RELEASE, and UNDO. What the holder learns of it changes nothing, so it is not answered.
    Release {
        token: Token,
        is_undo: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    /// With whether the request was in order.
    Vote(Token, Vote, bool),
    Raised(Token, bool),
    Extended(u8, bool),
    Healed(Token, Healed),
}

impl Link {
    /// The requests on the way, of each connection.
    pub(super) fn ways(&self) -> impl Iterator<Item = &Vec<Request>> {
        [&self.up, &self.old, &self.late].into_iter()
    }
}

impl World {
    pub(super) fn quorum() -> Quorum {
        Quorum::over(NODES).expect("a valid number")
    }

    /// Whether any client has done anything. Before, time makes no difference.
    pub(super) fn has_begun(&self) -> bool {
        self.last_token > 0
    }

    /// The time by a client's clock.
    pub(super) fn now(&self, client: usize) -> Moment {
        // Later than any uptime, so that no moment is before the origin.
        let milliseconds = 1_000_000 + u64::from(self.tick) * self.client_rates[client];
        Moment::from_origin(Duration::from_millis(milliseconds))
    }

    /// The time by a node's clock.
    pub(super) fn node_now(&self, node: usize) -> Moment {
        Moment::from_origin(Duration::from_millis(u64::from(self.tick) * self.node_rates[node]))
    }

    /// The right time, in microseconds.
    pub(super) fn wall_clock(&self) -> u64 {
        EPOCH + u64::from(self.tick) * self.wall_tick
    }

    /// The time at a node.
    pub(super) fn node_time(&self, node: usize) -> Time {
        let wall = self.wall_clock().saturating_add_signed(self.node_clocks[node]);
        Time { now: self.node_now(node), wall }
    }

    /// A client has connected to a node, and looks at it.
    pub(super) fn look(&mut self, client: usize, node: usize) {
        let now = self.now(client);
        let Node { memory, started, .. } = self.nodes[node];
        let uptime = u64::try_from(self.tick as i8 - started).expect("it was started before");
        let uptime = Duration::from_secs(uptime);
        if let Some(guard) = &mut self.clients[client].links[node].guard {
            // A restart also changes the name of the memory that was kept.
            guard.looked(now, Some((&format!("{memory} {started}"), uptime)));
        }
    }

    /// The token that a node has.
    pub(super) fn token_on(&self, node: usize) -> Option<Token> {
        self.nodes[node].entry.token(self.node_now(node)).copied()
    }

    /// The leases that their holders may rely on.
    pub(super) fn valid(&self) -> impl Iterator<Item = &Held> {
        let held = self.clients.iter().enumerate().filter(|(_, client)| !client.crashed);
        held.filter_map(|(number, client)| {
            client.held.as_ref().filter(|held| held.lease.is_valid(self.now(number)))
        })
    }
}
