//! What is claimed of every state.

use super::scopes::{Claim, Scope};
use super::world::{Link, NODES, Request, TERM, World};
use crate::entry::acquire;
use crate::protocol::{Event, Moment, NodeSet, Outcome, Round, Vote};
use stateright::Property;

/// After so many ticks every key has expired by every clock, and every guard is over.
const LONG: u8 = 8;

impl Scope {
    pub(super) fn claims(&self) -> Vec<Property<Self>> {
        let mut claims = vec![
            Property::always("nothing goes wrong in a step", |_, world: &World| {
                world.wrong.is_none()
            }),
            Property::always("what is taken back is gone", |_, world: &World| {
                world.overtaken || world.is_clean()
            }),
            Property::always("free after the ttl, whatever happened", |_, world: &World| {
                !world.is_quiet() || world.can_be_won_later()
            }),
        ];
        if self.claim == Claim::Exclusion {
            claims.push(Property::always("at most one lease is valid", |_, world: &World| {
                world.valid().count() <= 1
            }));
            claims.push(Property::always(
                "a majority keeps what is valid",
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
    /// Looks at what a single state does not show.
    pub(super) fn observe(&mut self) {
        for number in 0..self.clients.len() {
            let now = self.now(number);
            let Some(held) = &mut self.clients[number].held else { continue };
            let is_valid = held.lease.is_valid(now);
            if is_valid && held.was_over {
                self.wrong = Some("a lease that was over is valid again");
            }
            held.was_over |= !is_valid;
        }
    }

    /// A round was won with this fence.
    pub(super) fn fence_granted(&mut self, fence: u64) {
        match self.claim {
            Claim::Exclusion if fence <= self.last_fence => {
                self.wrong = Some("a fence is not larger than all before");
            }
            Claim::Uniqueness => {
                if self.fences.contains(&fence) {
                    self.wrong = Some("two leases have the same fence");
                }
                self.fences.push(fence);
            }
            Claim::Exclusion | Claim::Truth => {}
        }
        self.last_fence = fence.max(self.last_fence);
    }

    /// Nothing is on its way, and nobody waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| {
            let is_empty = |link: &Link| {
                link.ways().all(Vec::is_empty) && link.down.is_empty() && !link.broken
            };
            client.links.iter().all(is_empty) && client.attempts.is_empty()
        })
    }

    /// No node has anything but what is held, or was held by a client that crashed.
    fn is_clean(&self) -> bool {
        if !self.is_quiet() || self.clients.iter().any(|client| client.crashed) {
            return true;
        }
        let held = |token| {
            let held = self.clients.iter().filter_map(|client| client.held.as_ref());
            held.into_iter().any(|held| held.token == token)
        };
        (0..NODES).filter_map(|node| self.token_on(node)).all(held)
    }

    /// A majority of the nodes has the token of each valid lease.
    fn is_kept(&self) -> bool {
        self.valid().all(|held| {
            let keeps = |node: &usize| self.token_on(*node) == Some(held.token);
            (0..NODES).filter(keeps).count() >= Self::quorum().size()
        })
    }

    /// When all keys have expired, anybody who is alone gets the lock, with any majority.
    fn can_be_won_later(&self) -> bool {
        let mut later = self.clone();
        later.tick += LONG;
        let all_but =
            |down: usize| -> NodeSet { (0..NODES).filter(|node| *node != down).collect() };
        // The last one is all nodes.
        (0..=NODES).map(all_but).all(|up| later.clone().win(up))
    }

    /// Whether a round that only these nodes answer is won, with a larger fence than all before.
    fn win(mut self, up: NodeSet) -> bool {
        let now = Moment::from_origin(TERM.ttl);
        let mut round = Round::new(Self::quorum(), now, TERM);
        let (token, proposal) = (u8::MAX, self.wall_clock());
        for node in 0..NODES {
            let time = self.node_time(node);
            let entry = &mut self.nodes[node].entry;
            let vote = match up.contains(node) {
                true => acquire(&mut [entry], time, &token, TERM.ttl, proposal),
                false => None,
            };
            let vote = vote.unwrap_or(Vote::Refused);
            let event = Event::Vote { node, vote, in_order: true };
            let mut actions = round.handle(now, event);
            if let Some((nodes, fence)) = actions.raise {
                for node in nodes.iter() {
                    let time = self.node_time(node);
                    let stored = self.nodes[node].entry.raise(time, &token, TERM.ttl, fence);
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

/// Things that have to happen somewhere, so that the claims are not about nothing.
pub(super) mod happens {
    use super::super::world::{Client, Decided};
    use super::{NODES, Request, Scope, World};

    pub(in super::super) type Happens = (&'static str, fn(&Scope, &World) -> bool);

    fn requested(world: &World, which: impl Fn(&Request) -> bool) -> bool {
        let mut links = world.clients.iter().flat_map(|client| &client.links);
        links.any(|link| link.up.iter().any(&which))
    }

    fn is_valid(world: &World, token: u8) -> bool {
        world.valid().any(|held| held.token == token)
    }

    pub(in super::super) const SECOND_WINS: Happens =
        ("the second round is won", |_, world| is_valid(world, 2));
    pub(in super::super) const THIRD_WINS: Happens =
        ("the third round is won", |_, world| is_valid(world, 3));
    pub(in super::super) const FENCE_IS_RAISED: Happens = ("a fence is raised", |_, world| {
        requested(world, |request| matches!(request, Request::Raise { .. }))
    });
    pub(in super::super) const UNDONE: Happens = ("a round is undone", |_, world| {
        requested(world, |request| matches!(request, Request::Release { is_undo: true, .. }))
    });
    pub(in super::super) const HEALED: Happens = ("a node is healed", |_, world| {
        requested(world, |request| matches!(request, Request::Heal { .. }))
    });
    pub(in super::super) const OVERTAKEN: Happens =
        ("a request comes late", |_, world| world.overtaken);
    /// Whether this ACQUIRE is on the way, and its round is over.
    fn is_overtaken(client: &Client, request: Option<&Request>, how: Decided) -> bool {
        let Some(Request::Acquire { token, .. }) = request else { return false };
        client.held.as_ref().is_none_or(|held| held.token != *token)
            && client.attempts.iter().any(|a| a.token == *token && a.decided == Some(how))
    }

    pub(in super::super) const SENT_AGAIN: Happens =
        ("a release overtakes an ACQUIRE that is sent again", |_, world| {
            world.clients.iter().any(|client| {
                let mut links = client.links.iter();
                links.any(|link| is_overtaken(client, link.up.first(), Decided::Won))
            })
        });
    pub(in super::super) const LATE: Happens =
        ("an undo overtakes an ACQUIRE that was given up", |_, world| {
            world.clients.iter().any(|client| {
                let mut links = client.links.iter().filter(|link| link.up.is_empty());
                links.any(|link| is_overtaken(client, link.old.first(), Decided::Lost))
            })
        });
    pub(in super::super) const EXTENDED: Happens =
        ("a lease lives longer than its ttl", |_, world| {
            world.valid().any(|held| held.token == 1) && world.tick >= 2
        });
    pub(in super::super) const SPLIT: Happens = ("three tokens on three nodes", |_, world| {
        let mut tokens: Vec<_> = (0..NODES).filter_map(|node| world.token_on(node)).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens.len() == NODES
    });
    pub(in super::super) const OVERLAP: Happens =
        ("two leases are valid", |_, world| world.valid().count() == 2);
    pub(in super::super) const FORGOTTEN: Happens =
        ("a node that gave out a fence has forgotten it when another lease is won", |_, world| {
            let lost = |node: &usize| {
                let wall = world.node_time(*node).wall;
                world.nodes[*node].entry.has_forgotten(wall)
            };
            world.last_token >= 2 && world.valid().next().is_some() && (0..NODES).any(|n| lost(&n))
        });
    pub(in super::super) const REMEMBERED: Happens =
        ("a lease outlives the restart of a node that grants it", |_, world| {
            world.valid().any(|held| held.token == 1)
                && world.nodes.iter().any(|node| node.memory > 0)
        });
}
