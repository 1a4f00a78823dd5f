//! One round of an acquire: ACQUIRE to all nodes at once, votes back, a decision.

use crate::fence::{Settlement, settle};
use crate::quorum::{NodeSet, Quorum};
use crate::term::{Moment, Term};
use core::time::Duration;

/// What one node answered to ACQUIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// The node stored this round's token and gave out this fence.
    Granted {
        /// The node's fence for this grant.
        fence: u64,
    },
    /// The key exists: somebody holds the resource there.
    Held {
        /// When the key expires; `None` if never.
        expires_in: Option<Duration>,
    },
    /// No usable answer to a request that was sent: it may have been applied, now or later.
    Unknown,
    /// The node certainly did not apply the request: it was never sent, or answered by an error.
    Refused,
    /// The node may have stored the token, but its word does not count: see [`Guard`](super::Guard).
    Guarded,
}

impl Vote {
    /// Whether this round's token may be, or may come to be, on the node.
    fn may_be_applied(self) -> bool {
        matches!(self, Vote::Granted { .. } | Vote::Unknown | Vote::Guarded)
    }

    /// Whether the node could vote at all.
    fn is_answer(self) -> bool {
        matches!(self, Vote::Granted { .. } | Vote::Held { .. })
    }
}

/// Something that happened to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node's vote; each node has one. A driver reports [`Vote::Unknown`] when the node's
    /// deadline passes, so every node votes in the end.
    Vote {
        /// The node's position.
        node: usize,
        /// Its vote.
        vote: Vote,
        /// Whether the node processed the ACQUIRE before everything that was sent to it later. `false` if
        /// the ACQUIRE was sent a second time (the node did not know the script, or has given the slot
        /// away) or if its connection was replaced since.
        in_order: bool,
    },
    /// A node's answer to ACQUIRE after its deadline, when it was counted as [`Vote::Unknown`]; again
    /// `Unknown` if the connection broke instead. Comes after the votes of all nodes, and after [`Event::Abandon`]
    /// if that is due.
    Late {
        /// The node's position.
        node: usize,
        /// Its answer.
        vote: Vote,
    },
    /// A node's answer to RAISE; also due by the node's deadline.
    Raised {
        /// The node's position.
        node: usize,
        /// Whether it held this round's token and stores the fence now.
        stored: bool,
    },
    /// Nobody wants the lock any more: the caller is gone, or the lease that was won is released. Then the
    /// driver has sent RELEASE to all nodes, behind the ACQUIRE on the same connection where that still
    /// stands, and has their answers or was refused them until their deadlines.
    Abandon,
}

/// Why a round was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A majority could vote, and too many of the votes said that somebody holds it.
    Contended {
        /// When so many keys will have expired that a majority can be won, if none is extended.
        free_in: Option<Duration>,
    },
    /// So many nodes could not vote (in time) that no majority was possible.
    NoQuorum,
}

/// The decision of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A majority granted in time, and stores the fence.
    Won {
        /// The fencing token.
        fence: u64,
        /// The validity end.
        end: Moment,
    },
    /// No majority can be won in this round.
    Lost(Loss),
}

/// What the driver has to do now. Empty by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Actions {
    /// Send RAISE with this fence to these nodes.
    pub raise: Option<(NodeSet, u64)>,
    /// Send UNDO (compare-and-delete of this round's token) to these nodes, behind the ACQUIRE on
    /// the same connection where that still stands.
    pub undo: NodeSet,
    /// The decision, reported once.
    pub outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Voting,
    /// A majority granted with different fences; `counted` are the grants that `fence` is the
    /// largest of, and only they may acknowledge it.
    Raising {
        fence: u64,
        counted: NodeSet,
        stored: NodeSet,
        failed: NodeSet,
    },
    Won,
    /// It was won, and the lease is released.
    Released,
    /// Undone, but it is not settled yet whether to contention or to an outage.
    Losing,
    Lost,
}

/// One attempt to win a majority, with one token.
///
/// Create it with the moment before the first ACQUIRE is sent, feed it every [`Event`], carry out
/// the [`Actions`]. Keep feeding it after the decision: a late grant joins the lease or is undone,
/// however late it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    quorum: Quorum,
    end: Moment,
    votes: Vec<Option<Vote>>,
    state: State,
}

impl Round {
    /// A round whose first ACQUIRE is sent at `sent` or later.
    pub fn new(quorum: Quorum, sent: Moment, term: Term) -> Self {
        Self {
            quorum,
            end: term.end(sent),
            votes: vec![None; quorum.nodes()],
            state: State::Voting,
        }
    }

    /// The nodes that hold this round's token, or may come to hold it: all but those whose vote
    /// says otherwise.
    pub fn holders(&self) -> NodeSet {
        let may_hold = |vote: &Option<Vote>| vote.is_none_or(Vote::may_be_applied);
        (0..self.votes.len()).filter(|node| may_hold(&self.votes[*node])).collect()
    }

    /// The nodes that have granted the token so far. Taken when the round is won, these are the nodes
    /// that [`Lease::new`](super::Lease::new) counts on.
    pub fn granted(&self) -> NodeSet {
        self.grants().map(|(node, _)| node).collect()
    }

    /// Takes in one event that the driver learned of at `now`.
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
        match self.state {
            State::Voting => self.decide(now),
            // A late grant joins the lease; extension and release go to all nodes anyway.
            State::Raising { .. } | State::Won => Actions::default(),
            // The release came behind what the node has granted in order. Whatever else may have stored the
            // token may have come after the release.
            State::Released if in_order && vote.is_answer() => Actions::default(),
            State::Released | State::Losing | State::Lost => {
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
        debug_assert!(matches!(self.votes[node], Some(Vote::Unknown)), "it had no answer before");
        let is_over = match self.state {
            // It does not count. Whatever ends the round comes after it on the node.
            State::Voting | State::Raising { .. } => return Actions::default(),
            // It joins the lease; the release goes to all nodes.
            State::Won => false,
            State::Released | State::Losing | State::Lost => true,
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
                self.state = State::Raising { fence, counted, stored, failed };
                Actions { raise: Some((counted, fence)), ..Actions::default() }
            }
        }
    }

    fn raised(&mut self, now: Moment, node: usize, acknowledged: bool) -> Actions {
        let State::Raising { fence, counted, stored, failed } = &mut self.state else {
            return Actions::default();
        };
        debug_assert!(counted.contains(node), "only counted nodes are asked to raise");
        if acknowledged {
            stored.insert(node)
        } else {
            failed.insert(node)
        }
        let (fence, stored, left) = (*fence, stored.len(), counted.len() - failed.len());
        if now >= self.end || left < self.quorum.size() {
            self.lose(now)
        } else if stored >= self.quorum.size() {
            self.win(fence)
        } else {
            Actions::default()
        }
    }

    fn abandon(&mut self) -> Actions {
        let (state, undo) = match self.state {
            State::Voting | State::Raising { .. } => (State::Lost, self.applied()),
            // What was granted is released with the lease.
            State::Won | State::Released => (State::Released, NodeSet::EMPTY),
            // What was lost is undone already.
            State::Losing | State::Lost => (State::Lost, NodeSet::EMPTY),
        };
        self.state = state;
        Actions { undo, ..Actions::default() }
    }

    fn win(&mut self, fence: u64) -> Actions {
        self.state = State::Won;
        let outcome = Outcome::Won { fence, end: self.end };
        Actions { outcome: Some(outcome), ..Actions::default() }
    }

    fn lose(&mut self, now: Moment) -> Actions {
        self.state = State::Losing;
        Actions { undo: self.applied(), outcome: self.name_loss(now), raise: None }
    }

    /// The loss, once it is certain which of the two it is: contention if a majority voted but did
    /// not grant; an outage if so many nodes could not vote, or came too late, that none could.
    fn name_loss(&mut self, now: Moment) -> Option<Outcome> {
        if self.state != State::Losing {
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
        self.state = State::Lost;
        Some(Outcome::Lost(loss))
    }

    /// The time until enough held keys have expired that, with the nodes that granted and will be
    /// free again, a majority could be won.
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

    fn grants(&self) -> impl Iterator<Item = (usize, u64)> + Clone {
        self.votes.iter().enumerate().filter_map(|(node, vote)| match vote {
            Some(Vote::Granted { fence }) => Some((node, *fence)),
            _ => None,
        })
    }
}
