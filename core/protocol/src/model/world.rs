//! The state of the model.

use super::action::Awaited;
use super::owned::{Extending, Owned};
use super::settings::{Check, EPOCH, Faults, NODES, Token};
use crate::node::entry::{Entry, Time};
use crate::node::readers::LockMode;
use crate::{Guard, Healed, Moment, NodeSet, Origin, Quorum, Vote};
use std::time::Duration;

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
    /// The fences of all leases, for [`Check::Uniqueness`] only.
    pub(super) fences: Vec<u64>,
    pub(super) check: Check,
    /// Whether a request that can leave a key was delivered after its connection had broken.
    pub(super) overtaken: bool,
    /// The mode in which each client acquires.
    pub(super) modes: [LockMode; 3],
    /// The largest fence of all exclusive leases so far.
    pub(super) last_exclusive: u64,
    /// The detached lease; `None` if no lease was detached.
    pub(super) offer: Option<Offer>,
    /// A violation that a step found and that is not visible in a single state.
    pub(super) wrong: Option<&'static str>,
}

/// A lease that its holder has detached, for others to adopt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) token: Token,
    /// The nodes that have not answered all requests that may set the key of this lease.
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
    /// The tokens that the client holds, and the tokens with requests that are not answered yet, oldest first.
    pub(super) claims: Vec<Owned>,
    pub(super) links: [Link; NODES],
}

/// The connections between a client and a node.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct Link {
    /// Requests in flight, in order.
    pub(super) up: Vec<Request>,
    /// Replies in flight, in order; only those that the client waits for.
    pub(super) down: Vec<Reply>,
    /// Requests in flight on a replaced connection that is still open, in order. The node still answers these requests.
    pub(super) old: Vec<Request>,
    /// Requests still in flight from broken connections. Their answers are lost.
    pub(super) late: Vec<Request>,
    /// Whether the node has restarted and the client does not know yet. Undos and releases that the client sends before
    /// it reconnects are delivered after the reconnect.
    pub(super) broken: bool,
    /// `None` if the restart guard is off.
    pub(super) guard: Option<Guard>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// TRANSFER if there is a giver.
    Acquire {
        token: Token,
        giver: Option<Token>,
        mode: LockMode,
        proposal: u64,
        /// Whether the request was sent a second time. The request then arrives after those that were sent between the
        /// first and the second time.
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
    /// Nodes do not answer DOWNGRADE, because an answer would change nothing in the model.
    Downgrade {
        token: Token,
    },
    /// RELEASE or UNDO; GIVE BACK if there is a giver. The answer arrives at once, because a delay would change little
    /// in the model.
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
    /// The requests in flight on the current connection, on a replaced connection and on broken connections.
    pub(super) fn ways(&self) -> impl Iterator<Item = &Vec<Request>> {
        [&self.up, &self.old, &self.late].into_iter()
    }

    /// Whether a RELEASE is already in flight after every request that may store the token.
    pub(super) fn is_released(&self, token: Token) -> bool {
        let mut up = self.up.iter().rev();
        up.find(|request| request.brings(token) || request.releases(token))
            .is_some_and(|request| request.releases(token))
    }

    /// Whether the node's votes count in a round or extension begun at `began`.
    pub(super) fn counts(&self, began: Moment) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.counts(began))
    }
}

impl Request {
    pub(super) fn release(token: Token, mode: LockMode) -> Self {
        Self::Release { token, giver: None, mode, is_undo: false }
    }

    /// Whether the request may store this token.
    pub(super) fn brings(&self, token: Token) -> bool {
        match self {
            Self::Acquire { token: other, .. } | Self::Heal { token: other, .. } => *other == token,
            Self::Release { giver, .. } => *giver == Some(token),
            _ => false,
        }
    }

    fn releases(&self, token: Token) -> bool {
        matches!(self, Self::Release { token: other, .. } if *other == token)
    }
}

impl Reply {
    /// The request that this reply answers.
    pub(super) fn to(&self) -> Awaited {
        match self {
            Self::Vote(token, ..) => Awaited::Vote(*token),
            Self::Raised(token, _) => Awaited::Raise(*token),
            Self::Extended(number, _) => Awaited::Extension(*number),
            Self::Healed(token, _) => Awaited::Heal(*token),
        }
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

    /// The tokens that hold the resource on a node: more than one only if all of them are readers.
    pub(super) fn tokens_on(&self, node: usize) -> Vec<Token> {
        let now = self.node_now(node);
        let entry = &self.nodes[node].entry;
        match entry.is_read(now) {
            true => entry.shares(now).map(|(token, _)| *token).collect(),
            false => entry.token(now).copied().into_iter().collect(),
        }
    }

    /// The leases that are valid by their holders' clocks.
    pub(super) fn valid(&self) -> impl Iterator<Item = &Owned> {
        let clients = self.clients.iter().enumerate();
        clients.flat_map(|(number, client)| {
            let now = self.now(number);
            client.claims.iter().filter(move |owned| owned.claim.lease().is_valid(now))
        })
    }
}

impl Client {
    /// The claim of the lease that the client holds, whether the lease is valid or not.
    pub(super) fn held(&self) -> Option<&Owned> {
        self.claims.iter().find(|owned| owned.is_held())
    }

    pub(super) fn held_mut(&mut self) -> Option<&mut Owned> {
        self.claims.iter_mut().find(|owned| owned.is_held())
    }

    pub(super) fn owned(&self, token: Token) -> Option<&Owned> {
        self.claims.iter().find(|owned| owned.token == token)
    }

    pub(super) fn owned_mut(&mut self, token: Token) -> Option<&mut Owned> {
        self.claims.iter_mut().find(|owned| owned.token == token)
    }

    /// The extension under way.
    pub(super) fn extending(&self) -> Option<&Extending> {
        self.held()?.extending.as_ref()
    }

    /// Whether a round is undecided.
    pub(super) fn is_busy(&self) -> bool {
        self.claims.iter().any(|owned| owned.decided.is_none())
    }

    /// Forgets tokens that are neither held nor pending. Keeps the shared lease of a failed upgrade while answers to
    /// the upgrade may arrive, because the state of this lease decides what happens to the upgrade's keys.
    pub(super) fn forget(&mut self) {
        let is_kept = |owned: &Owned| owned.is_held() || owned.is_pending();
        let upgraded: Vec<_> = self
            .claims
            .iter()
            .filter(|owned| is_kept(owned))
            .filter(|owned| owned.claim.origin() == Origin::Upgraded && owned.is_undone())
            .filter_map(|owned| owned.giver)
            .collect();
        self.claims.retain(|owned| is_kept(owned) || upgraded.contains(&owned.token));
    }
}
