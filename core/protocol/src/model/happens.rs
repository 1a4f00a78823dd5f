//! Events that a search must reach at least once, so that its claims do not hold vacuously.

use super::scope::Happens;
use super::settings::NODES;
use super::world::{Client, Decided, Request, World};
use crate::node::readers::Mode;

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
/// Whether this request is an ACQUIRE of a round that was decided as `how`, and the client no longer holds
/// its token.
fn is_overtaken(client: &Client, request: Option<&Request>, how: Decided) -> bool {
    let Some(Request::Acquire { token, .. }) = request else { return false };
    client.held.as_ref().is_none_or(|held| held.token != *token)
        && client.attempts.iter().any(|a| a.token == *token && a.decided == Some(how))
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
pub(super) const READ: Happens =
    ("two readers hold the resource", |_, world| world.valid().count() == 2 && world.is_shared());
pub(super) const WRITTEN: Happens = ("a writer follows a reader", |_, world| {
    let writes = |number| world.modes[number] == Mode::Exclusive;
    world.holders().any(writes) && world.last_exclusive == world.last_fence && world.last_token >= 2
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
