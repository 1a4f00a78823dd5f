//! The properties that must hold in every state.

use super::owned::Owned;
use super::scope::Scope;
use super::settings::{Check, NODES, TERM, Token};
use super::world::{Client, Link, World};
use crate::node::entry::acquire;
use crate::node::readers::LockMode;
use crate::{Event, Moment, NodeSet, Outcome, Round, Vote};
use stateright::Property;

/// The number of ticks after which every key has expired by every clock and no guard applies.
const LONG: u8 = 8;

impl Scope {
    pub(super) fn claims(&self) -> Vec<Property<Self>> {
        let mut claims = vec![
            Property::always("no step violates a rule", |_, world: &World| world.wrong.is_none()),
            Property::always("undone and released keys are gone", |_, world: &World| {
                world.overtaken || world.is_clean()
            }),
            Property::always("the resource is free after the ttl", |_, world: &World| {
                !world.is_quiet() || world.can_be_won_later()
            }),
        ];
        if self.check == Check::Exclusion {
            claims.push(Property::always(
                "at most one lease is valid, or any number of shared ones",
                |_, world: &World| world.valid().count() <= 1 || world.is_shared(),
            ));
            claims.push(Property::always(
                "a majority holds the key of every valid lease",
                |scope: &Self, world: &World| scope.memory_is_lost() || world.is_kept(),
            ));
        }
        for (name, happens) in &self.happens {
            claims.push(Property::sometimes(name, *happens));
        }
        claims
    }
}

impl World {
    /// Checks the rules that concern several successive states. Records a violation in `wrong`.
    pub(super) fn observe(&mut self) {
        for number in 0..self.clients.len() {
            let now = self.now(number);
            for owned in &mut self.clients[number].claims {
                let is_valid = owned.claim.lease().is_valid(now);
                if is_valid && (owned.was_over || !owned.is_held()) {
                    self.wrong = Some("a lease that had ended is valid again");
                }
                owned.was_over |= owned.is_held() && !is_valid;
            }
        }
    }

    /// Whether all valid leases are shared.
    pub(super) fn is_shared(&self) -> bool {
        self.valid().all(|held| held.mode == LockMode::Shared)
    }

    /// Checks the fence of a round that was won in this mode.
    pub(super) fn fence_granted(&mut self, mode: LockMode, fence: u64) {
        let is_shared = mode == LockMode::Shared;
        let last = if is_shared { self.last_exclusive } else { self.last_fence };
        match self.check {
            Check::Exclusion if fence <= last => {
                self.wrong = Some("a fence is not larger than all earlier ones");
            }
            Check::Uniqueness => {
                if self.fences.contains(&fence) {
                    self.wrong = Some("two leases have the same fence");
                }
                self.fences.push(fence);
            }
            Check::Exclusion | Check::Truth => {}
        }
        self.last_fence = fence.max(self.last_fence);
        if !is_shared {
            self.last_exclusive = fence.max(self.last_exclusive);
        }
    }

    /// Whether no message is in flight and no client waits for an answer.
    pub(super) fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| {
            let is_empty = |link: &Link| {
                link.ways().all(Vec::is_empty) && link.down.is_empty() && !link.broken
            };
            client.links.iter().all(is_empty) && !client.claims.iter().any(Owned::is_pending)
        })
    }

    /// Whether every key on a node belongs to a lease that a client holds or has detached. Always `true` while messages
    /// are in flight, and after a crash, which may leave keys.
    fn is_clean(&self) -> bool {
        if !self.is_quiet() || self.clients.iter().any(|client| client.crashed) {
            return true;
        }
        let held = |token| {
            if self.offer.is_some_and(|offer| offer.token == token) {
                return true;
            }
            let mut held = self.clients.iter().filter_map(Client::held);
            held.any(|held| held.token == token || held.giver == Some(token))
        };
        (0..NODES).flat_map(|node| self.tokens_on(node)).all(held)
    }

    /// Whether, for each valid lease, a majority of the nodes stores the token of the lease or of one of its upgrades.
    fn is_kept(&self) -> bool {
        self.valid().all(|held| {
            let keeps_out = |token: &Token| *token == held.token || held.upgrades.contains(token);
            let keeps = |node: &usize| self.tokens_on(*node).iter().any(keeps_out);
            (0..NODES).filter(keeps).count() >= Self::quorum().size()
        })
    }

    /// Whether a client without contention can win the lock with any majority of nodes after all keys have expired.
    fn can_be_won_later(&self) -> bool {
        let mut later = self.clone();
        later.tick += LONG;
        let all_but =
            |down: usize| -> NodeSet { (0..NODES).filter(|node| *node != down).collect() };
        // The last of these sets contains all nodes.
        (0..=NODES).map(all_but).all(|up| later.clone().win(up))
    }

    /// Runs a round that only the nodes in `up` answer. Returns whether the round is won with a fence larger than the
    /// fences of all leases so far.
    fn win(mut self, up: NodeSet) -> bool {
        let now = Moment::from_origin(TERM.ttl);
        let mut round = Round::new(Self::quorum(), now, TERM);
        let token = u8::MAX;
        let proposal = self.wall_clock();
        for node in 0..NODES {
            let time = self.node_time(node);
            let entry = &mut self.nodes[node].entry;
            let vote = match up.contains(node) {
                true => {
                    acquire(&mut [(entry, LockMode::Exclusive)], time, &token, TERM.ttl, proposal)
                }
                false => None,
            };
            let vote = vote.unwrap_or(Vote::Refused);
            let event = Event::Vote { node, vote, in_order: true };
            let mut actions = round.handle(now, event);
            if let Some((nodes, fence)) = actions.raise {
                for node in nodes.iter() {
                    let time = self.node_time(node);
                    let stored = self.nodes[node].entry.raise(
                        time,
                        &token,
                        TERM.ttl,
                        fence,
                        LockMode::Exclusive,
                    );
                    let raised = round.handle(now, Event::Raised { node, stored });
                    actions.outcome = actions.outcome.or(raised.outcome);
                }
            }
            if let Some(outcome) = actions.outcome {
                let larger = |fence| fence > self.last_fence;
                return matches!(outcome, Outcome::Won { fence, .. } if larger(fence));
            }
        }
        false
    }
}
