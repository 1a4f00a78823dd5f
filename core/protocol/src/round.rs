//! One round of an acquire: collects the nodes' votes on one ACQUIRE, and decides whether the round is won. The rounds
//! of adopters and of upgrades send TRANSFER instead of ACQUIRE. What this module says about ACQUIRE also holds for
//! TRANSFER.
//!
//! This module owns the outcome of a round, and decides which nodes get UNDO. The round sends nothing:
//! [`Claim`](crate::Claim) turns the returned [`Actions`] into commands for the driver.

use crate::fence::{Settlement, settle};
use crate::quorum::{NodeSet, Quorum};
use crate::term::{Moment, Term};
use core::time::Duration;

/// A node's answer to ACQUIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// The node stored this round's token and granted this fence.
    Granted {
        /// The node's fence for this grant.
        fence: u64,
    },
    /// The node did not grant the resource: another client holds the resource there, or the node's queue gives
    /// precedence to other waiters. For a TRANSFER: the giver does not hold the resource there.
    Held {
        /// The time until the resource may be free; `None` if that is unknown, as for a TRANSFER, or if the key never
        /// expires.
        expires_in: Option<Duration>,
    },
    /// The request was sent, but got no usable answer. The node may have applied the request, or may apply it later.
    Unknown,
    /// The node did not apply the request: the request was never sent, or the node answered with an error.
    Refused,
    /// The node may have stored the token, but its vote does not count: see [`Guard`](super::Guard).
    Guarded,
}

impl Vote {
    /// Whether this round's token may be on the node, now or later.
    pub(crate) fn may_be_applied(self) -> bool {
        matches!(self, Vote::Granted { .. } | Vote::Unknown | Vote::Guarded)
    }

    /// Whether this is a counted vote, for or against.
    fn is_answer(self) -> bool {
        matches!(self, Vote::Granted { .. } | Vote::Held { .. })
    }
}

/// An event that a round must handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node's vote; exactly one per node. The driver reports [`Vote::Unknown`] if the node has not answered by the
    /// deadline, so that every node eventually votes.
    Vote {
        /// The node's position.
        node: usize,
        /// Its vote.
        vote: Vote,
        /// Whether the node processed the ACQUIRE before every request that was sent to the node later. `false` if the
        /// ACQUIRE was sent a second time (the node did not know the script, or the Redis Cluster slot had moved) or if
        /// the connection to the node was replaced since.
        in_order: bool,
    },
    /// A node's answer to ACQUIRE that arrived after the deadline, when [`Vote::Unknown`] was already counted. If the
    /// connection broke before an answer arrived, the vote is `Unknown` again. Report this event after the votes of all
    /// nodes, and after [`Event::Abandon`] if the round is abandoned.
    Late {
        /// The node's position.
        node: usize,
        /// Its answer.
        vote: Vote,
    },
    /// A node's answer to RAISE. The driver reports `stored: false` if the node has not answered by the deadline.
    Raised {
        /// The node's position.
        node: usize,
        /// Whether the node held this round's token and now stores the fence.
        stored: bool,
    },
    /// The lock is no longer wanted: the caller was cancelled, or the lease that was won is given up.
    ///
    /// A won round returns no UNDO for this event. If the lease is released, the driver sends RELEASE to all nodes: on
    /// the connection that carried the ACQUIRE, if that connection is still open. Later votes may still make the round
    /// return an UNDO. The driver must wait until every RELEASE was answered or has reached its deadline, and only then
    /// send that UNDO.
    Abandon,
}

/// Why a round was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A majority voted, and too many of these nodes voted against the request ([`Vote::Held`]).
    Contended {
        /// The time until enough keys have expired for a round to win a majority, if no key is extended. `None` if that
        /// time is unknown.
        free_in: Option<Duration>,
    },
    /// No majority was possible: too many nodes did not vote, or voted too late.
    NoQuorum,
}

/// The decision of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A majority granted in time and stores the fence.
    Won {
        /// The fence of the lease.
        fence: u64,
        /// The validity end.
        end: Moment,
    },
    /// This round cannot win a majority.
    Lost(Loss),
}

/// The actions that the caller must carry out now. The default is no action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Actions {
    /// Send RAISE with this fence to these nodes; `None` if no RAISE is needed.
    pub raise: Option<(NodeSet, u64)>,
    /// Send UNDO (compare-and-delete of this round's token) to these nodes: on the connection that carried the ACQUIRE,
    /// if that connection is still open. If the round belongs to an adopter or an upgrade and was not
    /// [won](Round::has_won), send GIVE BACK instead of UNDO, so that the giver's lease gets its keys back.
    pub undo: NodeSet,
    /// The decision; `None` unless the event that was just handled has decided the round.
    pub outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Voting,
    /// A majority granted different fences. `fence` is the largest fence among the `counted` nodes. Only the counted
    /// nodes get RAISE and may acknowledge it.
    Raising {
        fence: u64,
        counted: NodeSet,
        stored: NodeSet,
        failed: NodeSet,
    },
    Won,
    /// Won, and the lease has been given up since.
    Released,
    /// Lost and undone, but it is not yet certain whether the reason is contention or an outage.
    Losing,
    Lost,
}

/// One attempt to win a majority, with one token.
///
/// Create the round before the first ACQUIRE is sent. Pass every [`Event`] to [`Round::handle`] and carry out the
/// returned [`Actions`], even after the decision: a grant that arrives late joins the lease or is undone, however late
/// it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    quorum: Quorum,
    end: Moment,
    votes: Vec<Option<Vote>>,
    phase: Phase,
}

impl Round {
    /// Creates a round whose first ACQUIRE is sent at `sent` or later.
    pub fn new(quorum: Quorum, sent: Moment, term: Term) -> Self {
        Self {
            quorum,
            end: term.end(sent),
            votes: vec![None; quorum.nodes()],
            phase: Phase::Voting,
        }
    }

    /// The nodes that may hold this round's token, now or later: all nodes except those whose vote rules this out.
    pub fn holders(&self) -> NodeSet {
        let may_hold = |vote: &Option<Vote>| vote.is_none_or(Vote::may_be_applied);
        (0..self.votes.len()).filter(|node| may_hold(&self.votes[*node])).collect()
    }

    /// The nodes that have not answered and may still grant the token: those whose vote is missing or
    /// [`Vote::Unknown`].
    pub fn unanswered(&self) -> NodeSet {
        let is_open = |vote: &Option<Vote>| vote.is_none_or(|vote| vote == Vote::Unknown);
        (0..self.votes.len()).filter(|node| is_open(&self.votes[*node])).collect()
    }

    /// Whether the round was won, even if its lease was given up since.
    pub fn has_won(&self) -> bool {
        matches!(self.phase, Phase::Won | Phase::Released)
    }

    /// Whether the round was lost or abandoned. Such a round cannot win any more.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Losing | Phase::Lost)
    }

    /// The nodes that have granted the token so far. When the round is won, pass this set to
    /// [`Lease::new`](super::Lease::new).
    pub fn granted(&self) -> NodeSet {
        self.grants().map(|(node, _)| node).collect()
    }

    /// Whether a new round could win at once, although this round is lost. `lost` are the nodes whose connection turned
    /// out to be closed before they answered. These nodes have probably not received the request, so they may grant the
    /// new round.
    ///
    /// The ACQUIRE itself must not be sent again: the node may have applied it, and must not apply the same ACQUIRE
    /// twice. The new round has a fresh token, and its requests follow the undo of this round.
    pub fn could_win_again(&self, lost: NodeSet) -> bool {
        let may_grant = |node: &usize| {
            lost.contains(*node)
                || self.votes[*node].is_none_or(|vote| matches!(vote, Vote::Granted { .. }))
        };
        !lost.is_empty() && (0..self.votes.len()).filter(may_grant).count() >= self.quorum.size()
    }

    /// Handles one event that the caller learned of at `now`.
    ///
    /// # Panics
    ///
    /// If the event's node is not below the number of nodes. Debug builds also panic on a second vote of a node, on a
    /// late answer of a node whose vote was not `Unknown`, and on an answer to RAISE from a node to which no RAISE was
    /// sent.
    pub fn handle(&mut self, now: Moment, event: Event) -> Actions {
        match event {
            Event::Vote { node, vote, in_order } => self.vote(now, node, vote, in_order),
            Event::Late { node, vote } => self.late(node, vote),
            Event::Raised { node, stored } => self.raised(now, node, stored),
            Event::Abandon => self.abandon(),
        }
    }

    fn vote(&mut self, now: Moment, node: usize, vote: Vote, in_order: bool) -> Actions {
        debug_assert!(self.votes[node].is_none(), "a node votes once");
        self.votes[node] = Some(vote);
        match self.phase {
            Phase::Voting => self.decide(now),
            // No undo is needed: a grant joins the lease, whose extensions and release go to all nodes.
            Phase::Raising { .. } | Phase::Won => Actions::default(),
            // On this node, the RELEASE follows this ACQUIRE, so the token does not stay there. In all other cases, the
            // node may store the token after the RELEASE.
            Phase::Released if in_order && vote.is_answer() => Actions::default(),
            Phase::Released | Phase::Losing | Phase::Lost => {
                let mut actions = Actions::default();
                if vote.may_be_applied() {
                    actions.undo.insert(node);
                }
                actions.outcome = self.name_loss(now);
                actions
            }
        }
    }

    fn late(&mut self, node: usize, vote: Vote) -> Actions {
        debug_assert!(matches!(self.votes[node], Some(Vote::Unknown)), "its vote was Unknown");
        let is_over = match self.phase {
            // The late answer does not count: the vote stays `Unknown`. A later UNDO or RELEASE reaches the node after
            // the ACQUIRE.
            Phase::Voting | Phase::Raising { .. } => return Actions::default(),
            // No undo is needed: a late grant joins the lease, whose release goes to all nodes.
            Phase::Won => false,
            Phase::Released | Phase::Losing | Phase::Lost => true,
        };
        self.votes[node].replace(vote);
        let undone = (is_over && vote.may_be_applied()).then_some(node);
        Actions { undo: undone.into_iter().collect(), ..Actions::default() }
    }

    fn decide(&mut self, now: Moment) -> Actions {
        let granted = self.count(|vote| matches!(vote, Vote::Granted { .. }));
        let pending = self.votes.iter().filter(|vote| vote.is_none()).count();
        if now >= self.end || granted + pending < self.quorum.size() {
            return self.lose(now);
        }
        if granted < self.quorum.size() {
            return Actions::default();
        }
        match settle(self.quorum, self.grants()) {
            Settlement::Stored(fence) => self.win(fence),
            Settlement::Raise(fence) => {
                let counted = self.grants().map(|(node, _)| node).collect();
                let (stored, failed) = Default::default();
                self.phase = Phase::Raising { fence, counted, stored, failed };
                Actions { raise: Some((counted, fence)), ..Actions::default() }
            }
        }
    }

    fn raised(&mut self, now: Moment, node: usize, acknowledged: bool) -> Actions {
        let Phase::Raising { fence, counted, stored, failed } = &mut self.phase else {
            return Actions::default();
        };
        debug_assert!(counted.contains(node), "only counted nodes are asked to raise");
        if acknowledged {
            stored.insert(node)
        } else {
            failed.insert(node)
        }
        let fence = *fence;
        let stored = stored.len();
        let left = counted.len() - failed.len();
        if now >= self.end || left < self.quorum.size() {
            self.lose(now)
        } else if stored >= self.quorum.size() {
            self.win(fence)
        } else {
            Actions::default()
        }
    }

    fn abandon(&mut self) -> Actions {
        let (state, undo) = match self.phase {
            Phase::Voting | Phase::Raising { .. } => (Phase::Lost, self.applied()),
            // No undo is needed: if the lease is released, RELEASE goes to all nodes.
            Phase::Won | Phase::Released => (Phase::Released, NodeSet::EMPTY),
            // The round is already undone.
            Phase::Losing | Phase::Lost => (Phase::Lost, NodeSet::EMPTY),
        };
        self.phase = state;
        Actions { undo, ..Actions::default() }
    }

    fn win(&mut self, fence: u64) -> Actions {
        self.phase = Phase::Won;
        let outcome = Outcome::Won { fence, end: self.end };
        Actions { outcome: Some(outcome), ..Actions::default() }
    }

    fn lose(&mut self, now: Moment) -> Actions {
        self.phase = Phase::Losing;
        Actions { undo: self.applied(), outcome: self.name_loss(now), raise: None }
    }

    /// Returns the loss, and records that the round is over, if the reason for the loss is certain by now: contention
    /// if a majority answered but fewer than a majority granted, an outage if too many nodes did not answer or granted
    /// too late. Returns `None` if the reason is not certain yet, and after the loss was returned.
    fn name_loss(&mut self, now: Moment) -> Option<Outcome> {
        if self.phase != Phase::Losing {
            return None;
        }
        let granted = self.count(|vote| matches!(vote, Vote::Granted { .. }));
        let answers = self.count(Vote::is_answer);
        let silent = self.count(|vote| !vote.is_answer());
        let loss = if granted < self.quorum.size() && answers >= self.quorum.size() {
            Loss::Contended { free_in: self.free_in() }
        } else if granted >= self.quorum.size()
            || silent > self.quorum.tolerated()
            || now >= self.end
        {
            Loss::NoQuorum
        } else {
            return None;
        };
        self.phase = Phase::Lost;
        Some(Outcome::Lost(loss))
    }

    /// Returns the time until enough keys have expired for a majority of the nodes to be free; `None` if that time is
    /// unknown. The nodes that granted this round count as free, because the round is undone immediately.
    fn free_in(&self) -> Option<Duration> {
        let granted = self.count(|vote| matches!(vote, Vote::Granted { .. }));
        let missing = self.quorum.size().saturating_sub(granted);
        let mut expiries: Vec<Duration> = self
            .votes
            .iter()
            .filter_map(|vote| match vote {
                Some(Vote::Held { expires_in }) => *expires_in,
                _ => None,
            })
            .collect();
        expiries.sort_unstable();
        expiries.get(missing.checked_sub(1)?).copied()
    }

    fn count(&self, which: impl Fn(Vote) -> bool) -> usize {
        self.votes.iter().flatten().filter(|vote| which(**vote)).count()
    }

    fn applied(&self) -> NodeSet {
        let applied = |vote: &Option<Vote>| vote.is_some_and(Vote::may_be_applied);
        (0..self.votes.len()).filter(|node| applied(&self.votes[*node])).collect()
    }

    /// The nodes that have granted the round, each with its fence.
    pub(crate) fn grants(&self) -> impl Iterator<Item = (usize, u64)> + Clone {
        self.votes.iter().enumerate().filter_map(|(node, vote)| match vote {
            Some(Vote::Granted { fence }) => Some((node, *fence)),
            _ => None,
        })
    }
}
