//! Events that a search must reach at least once, so that its properties do not hold vacuously.

use super::owned::Decided;
use super::scope::Happens;
use super::settings::{NODES, TERM};
use super::world::{Client, Reply, Request, World};
use crate::Vote;
use crate::node::readers::LockMode;

fn requested(world: &World, which: impl Fn(&Request) -> bool) -> bool {
    let mut links = world.clients.iter().flat_map(|client| &client.links);
    links.any(|link| link.up.iter().any(&which))
}

fn is_valid(world: &World, token: u8) -> bool {
    world.valid().any(|held| held.token == token)
}

pub(super) const SECOND_WINS: Happens = ("the second round is won", |_, world| is_valid(world, 2));
pub(super) const THIRD_WINS: Happens = ("the third round is won", |_, world| is_valid(world, 3));
pub(super) const FENCE_IS_RAISED: Happens = ("a fence is raised", |_, world| {
    requested(world, |request| matches!(request, Request::Raise { .. }))
});
pub(super) const UNDONE: Happens = ("a round is undone", |_, world| {
    requested(world, |request| matches!(request, Request::Release { is_undo: true, .. }))
});
pub(super) const HEALED: Happens = ("a node is repaired", |_, world| {
    requested(world, |request| matches!(request, Request::Heal { .. }))
});
pub(super) const OVERTAKEN: Happens = ("a request arrives late", |_, world| world.overtaken);
/// Whether this request is an ACQUIRE of a round that was decided as `how`, and whose lease the client does not hold.
fn is_overtaken(client: &Client, request: Option<&Request>, how: Decided) -> bool {
    let Some(Request::Acquire { token, .. }) = request else { return false };
    client.owned(*token).is_some_and(|owned| !owned.is_held() && owned.decided == Some(how))
}

pub(super) const SENT_AGAIN: Happens =
    ("a release overtakes an ACQUIRE that is sent again", |_, world| {
        world.clients.iter().any(|client| {
            let mut links = client.links.iter();
            links.any(|link| is_overtaken(client, link.up.first(), Decided::Won))
        })
    });
pub(super) const LATE: Happens = ("an undo overtakes an ACQUIRE that was given up", |_, world| {
    world.clients.iter().any(|client| {
        let mut links = client.links.iter().filter(|link| link.up.is_empty());
        links.any(|link| is_overtaken(client, link.old.first(), Decided::Lost))
    })
});
pub(super) const RELEASED_AGAIN: Happens =
    ("a late grant is released when all nodes have answered RELEASE", |_, world| {
        let mut claims = world.clients.iter().flat_map(|client| &client.claims);
        claims.any(|owned| (0..NODES).any(|node| owned.claim.releases_again(node)))
    });
pub(super) const EXTENDED: Happens = ("a lease is valid for longer than its ttl", |_, world| {
    world.valid().any(|held| held.token == 1) && world.tick >= 2
});
pub(super) const SPLIT: Happens = ("three tokens on three nodes", |_, world| {
    let mut tokens: Vec<_> = (0..NODES).flat_map(|node| world.tokens_on(node)).collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens.len() == NODES
});
pub(super) const OVERLAP: Happens = ("two leases are valid", |_, world| world.valid().count() == 2);
pub(super) const OUTLASTS: Happens = ("a key lasts longer than its ttl", |_, world| {
    let lasts =
        |node: usize| world.nodes[node].entry.expires_in(world.node_now(node)) > Some(TERM.ttl);
    (0..NODES).any(lasts)
});
pub(super) const READ: Happens =
    ("two readers hold the resource", |_, world| world.valid().count() == 2 && world.is_shared());
pub(super) const WRITTEN: Happens = ("a writer follows a reader", |_, world| {
    world.valid().any(|held| held.mode != LockMode::Shared)
        && world.last_exclusive == world.last_fence
        && world.last_token >= 2
});
pub(super) const SHARE_ENDS: Happens =
    ("the share of a reader ends while another reads", |_, world| {
        (0..NODES).any(|node| {
            let now = world.node_now(node);
            let entry = &world.nodes[node].entry;
            let stored = entry.stored_readers(now).map_or(&[][..], |(shares, _)| shares);
            entry.is_read(now) && stored.iter().any(|(_, until)| *until <= now)
        })
    });
pub(super) const WRITTEN_LAST: Happens =
    ("a writer follows two readers whose shares have ended", |_, world| {
        let mut readers = world.clients.iter().filter_map(Client::held);
        readers.clone().filter(|held| held.mode == LockMode::Shared).count() == 2
            && readers.any(|held| {
                held.mode == LockMode::Exclusive && held.claim.lease().fence() == world.last_fence
            })
            && world.valid().count() == 1
            && !world.is_shared()
    });
pub(super) const RELEASED_BESIDE: Happens =
    ("a reader releases its share while another reads", |_, world| {
        let mut links = world.clients.iter().flat_map(|client| client.links.iter().enumerate());
        links.any(|(node, link)| {
            let Some(Request::Release { token, .. }) = link.up.first() else { return false };
            let tokens = world.tokens_on(node);
            tokens.len() == 2 && tokens.contains(token)
        }) && world.valid().next().is_some()
    });
/// Whether the next request on some connection is a reader's HEAL to a node where others hold the resource: other
/// readers if `is_read` is `true`, else a writer.
fn heal_meets_others(world: &World, is_read: bool) -> bool {
    let mut links = world.clients.iter().flat_map(|client| client.links.iter().enumerate());
    links.any(|(node, link)| {
        let Some(Request::Heal { token, mode: LockMode::Shared, .. }) = link.up.first() else {
            return false;
        };
        let tokens = world.tokens_on(node);
        let entry = &world.nodes[node].entry;
        !tokens.is_empty()
            && !tokens.contains(token)
            && entry.is_read(world.node_now(node)) == is_read
    })
}
pub(super) const HEALED_BESIDE: Happens =
    ("a HEAL of a reader meets another reader", |_, world| heal_meets_others(world, true));
pub(super) const HEALED_LATE: Happens =
    ("a HEAL of a reader meets a writer", |_, world| heal_meets_others(world, false));
pub(super) const JOINED_LATE: Happens =
    ("a reader that holds the resource joins another one late", |_, world| {
        world.clients.iter().any(|client| {
            let held = client.held().filter(|held| held.mode == LockMode::Shared);
            client.links.iter().enumerate().any(|(node, link)| {
                let mut replies = link.down.iter();
                let is_late = |reply: &Reply| match reply {
                    Reply::Vote(token, Vote::Granted { .. }, false) => {
                        held.is_some_and(|held| held.token == *token)
                    }
                    _ => false,
                };
                replies.any(is_late) && world.tokens_on(node).len() == 2
            })
        })
    });
pub(super) const SHARED: Happens = ("a reader joins a lease that was downgraded", |_, world| {
    world.is_shared() && world.valid().count() == 2 && world.last_exclusive > 0
});
pub(super) const UPGRADED: Happens =
    ("a lease is upgraded", |_, world| world.valid().any(|held| held.mode == LockMode::Upgraded));
pub(super) const STILL_LONG: Happens =
    ("a lease is valid for longer than the term of its failed upgrade", |_, world| {
        world.clients.iter().enumerate().any(|(number, client)| {
            let now = world.now(number);
            client.held().is_some_and(|held| {
                let lease = held.claim.lease();
                let is_long = lease.is_valid(now) && lease.end() > TERM.end(now);
                is_long && !lease.is_upgrading() && !held.upgrades.is_empty()
            })
        })
    });
pub(super) const STUCK: Happens =
    ("the TRANSFER of a failed upgrade arrives after an extension", |_, world| {
        world.clients.iter().any(|client| {
            client.links.iter().enumerate().any(|(node, link)| {
                let Some(Request::Acquire { giver: Some(giver), mode, .. }) = link.old.first()
                else {
                    return false;
                };
                let now = world.node_now(node);
                let entry = &world.nodes[node].entry;
                *mode == LockMode::Upgraded
                    && entry.reads_alone(now, giver)
                    && entry.expires_in(now) > Some(TERM.ttl)
            })
        })
    });
pub(super) const RELEASE_WAITS: Happens =
    ("a release waits for the end of an upgrade", |_, world| {
        let mut claims = world.clients.iter().flat_map(|client| &client.claims);
        claims.any(|owned| owned.is_releasing() && owned.claim.lease().is_upgrading())
    });
pub(super) const UPGRADE_RELEASED: Happens =
    ("a failed upgrade gives nothing back to a lease that was released", |_, world| {
        requested(world, |request| match request {
            Request::Release { giver: None, mode: LockMode::Upgraded, is_undo, .. } => *is_undo,
            _ => false,
        })
    });
pub(super) const FORGOTTEN: Happens =
    ("a node has forgotten the fence it granted when another lease is won", |_, world| {
        let lost = |node: &usize| {
            let wall = world.node_time(*node).wall;
            world.nodes[*node].entry.has_forgotten(wall)
        };
        world.last_token >= 2 && world.valid().next().is_some() && (0..NODES).any(|n| lost(&n))
    });
pub(super) const REMEMBERED: Happens =
    ("a lease survives the restart of a node that granted it", |_, world| {
        world.valid().any(|held| held.token == 1) && world.nodes.iter().any(|node| node.memory > 0)
    });
pub(super) const ADOPTED: Happens = ("a lease is adopted", |_, world| {
    world.offer.is_some_and(|offer| offer.is_adopted) && world.valid().next().is_some()
});
pub(super) const GIVEN_BACK: Happens = ("a lost adoption is given back", |_, world| {
    requested(world, |request| matches!(request, Request::Release { giver: Some(_), .. }))
});
pub(super) const SILENT: Happens =
    ("a lease is adopted although a node has not answered its giver", |_, world| {
        world.offer.is_some_and(|offer| offer.is_adopted && !offer.silent.is_empty())
    });
pub(super) const ADOPTED_AFTER_UPGRADE: Happens = (
    "a lease is adopted whose failed upgrade a node has not undone",
    |_, world| {
        world.offer.is_some_and(|offer| {
            let is_undo = |request: &Request| {
                matches!(request, Request::Release { giver, mode: LockMode::Upgraded, .. } if *giver == Some(offer.token))
            };
            offer.is_adopted && requested(world, is_undo)
        })
    },
);
