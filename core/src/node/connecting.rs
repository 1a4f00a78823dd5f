//! A node's connection: how it is opened, watched, given up and replaced.

use super::link::{Link, Slot};
use super::routing::keep_routing;
use super::{Node, RECONNECT_DELAY};
use crate::answer::Failure;
use crate::clock;
use crate::endpoint::Target;
use crate::error::NodeOutcome;
use crate::events;
use crate::runtime;
use crate::timer::{sleep, timeout};
use crate::token;
use crate::wire::{Sight, Wire};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// After so many timeouts in a row the peer is taken for stuck, and the connection is replaced.
const STUCK_AFTER: u32 = 3;

impl Node {
    pub(super) fn timed_out(self: &Arc<Self>, link: &Link) {
        let timeouts = link.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        let age = clock::now().since(link.since);
        // The age keeps a node that is merely slower than the deadline from being reconnected to
        // all the time.
        if timeouts >= STUCK_AFTER && age >= self.connect_timeout {
            let detail = format!("no answer to {timeouts} requests in a row");
            let failure = Failure { outcome: NodeOutcome::Timeout, detail, sent: false };
            if self.leave(|slot| slot.is(link), Slot::Down(failure.clone())) {
                self.health.failed(self.address(), &failure);
            }
        }
    }

    /// It is a replica now. By the same URL there may be a master.
    pub(super) fn demoted(self: &Arc<Self>, link: &Link) {
        // Where there is none, it is not connected to all the time.
        if clock::now().since(link.since) >= self.connect_timeout {
            self.broken(link);
        }
    }

    pub(super) fn broken(self: &Arc<Self>, link: &Link) {
        if self.leave(|slot| slot.is(link), Slot::Connecting) {
            events::disconnected(self.address());
        }
    }

    /// Goes from the state that `from` tells to `to`, and reconnects in the background. Does
    /// nothing in any other state, so that only one task at a time is connecting. Returns whether it
    /// did.
    pub(super) fn leave(self: &Arc<Self>, from: impl Fn(&Slot) -> bool, to: Slot) -> bool {
        let left = self.slot.send_if_modified(|slot| {
            let leaves = from(slot);
            if leaves {
                *slot = to;
            }
            leaves
        });
        if left {
            // The runtime is there: this runs on it.
            let _ = runtime::spawn(Arc::clone(self).connect());
        }
        left
    }

    async fn connect(self: Arc<Self>) {
        // The task must not keep a node alive that nobody uses any more.
        let node = Arc::downgrade(&self);
        drop(self);
        let (mut delay, longest) = RECONNECT_DELAY;
        while let Some(node) = node.upgrade() {
            let opened = timeout(node.connect_timeout, node.open()).await;
            let slot = match opened {
                Ok(Ok(slot)) => slot,
                Ok(Err(failure)) => Slot::Down(failure),
                Err(_) => {
                    let what = node.endpoint.target.no_connection();
                    Slot::Down(Failure::timeout(what, node.connect_timeout, false))
                }
            };
            let failure = match &slot {
                Slot::Down(failure) => Some(failure.clone()),
                _ => None,
            };
            let open = node.slot.send_if_modified(|current| {
                let open = !matches!(current, Slot::Closed);
                if open {
                    *current = slot;
                }
                open
            });
            if !open {
                return;
            }
            let Some(failure) = failure else {
                if node.health.connected(node.address()) {
                    node.counters.reconnects.up();
                }
                return;
            };
            node.health.failed(node.address(), &failure);
            drop(node);
            sleep(delay.mul_f64(token::jitter())).await;
            delay = (delay * 2).min(longest);
        }
    }

    async fn open(self: &Arc<Self>) -> Result<Slot, Failure> {
        if let Target::Cluster(cluster) = &self.endpoint.target {
            let map = self.route(cluster, None).await?;
            // The runtime is there: this runs on it.
            let _ = runtime::spawn(keep_routing(Arc::downgrade(self), self.stale.subscribe()));
            return Ok(Slot::Routed(map));
        }
        let id = Arc::new(());
        let (node, weak_id) = (Arc::downgrade(self), Arc::downgrade(&id));
        let on_broken = move || {
            if let (Some(node), Some(id)) = (node.upgrade(), weak_id.upgrade())
                && node.leave(|slot| slot.has(&id), Slot::Connecting)
            {
                events::disconnected(node.address());
            }
        };
        let wire = Wire::open(&self.endpoint.target, on_broken).await?;
        let sight = wire.prepare().await?;
        self.saw(sight)?;
        let (since, timeouts) = (clock::now(), AtomicU32::new(0));
        let link = Arc::new(Link { wire, id, since, timeouts, owner: self.owner.clone() });
        if self.guard.is_some() || link.wire.is_named_by_others() {
            let _ = runtime::spawn(keep_looking(Arc::downgrade(self), Arc::downgrade(&link)));
        }
        Ok(Slot::Up(link))
    }

    /// Takes in what the server told of itself. Fails if it is the same server as another node.
    fn saw(&self, sight: Option<Sight>) -> Result<(), Failure> {
        let now = clock::now();
        if let Some(mut guard) = self.guard() {
            guard.looked(now, sight.as_ref().map(|sight| (&*sight.memory, sight.uptime)));
            if sight.as_ref().is_some_and(|sight| sight.is_replica) {
                guard.doubted(now);
            }
        }
        if self.owner.strong_count() > 0 {
            // The cluster as a whole told who it is.
            return Ok(());
        }
        let ids = sight.map(|sight| sight.run_id).into_iter().collect();
        self.identities.reached(self.position, ids)
    }
}

/// Looks at the server again and again, for as long as this connection is in use.
async fn keep_looking(node: Weak<Node>, link: Weak<Link>) {
    while let Some(interval) = node.upgrade().map(|node| node.look_interval) {
        sleep(interval).await;
        let (Some(node), Some(link)) = (node.upgrade(), link.upgrade()) else { return };
        if !node.slot.borrow().is(&link) {
            return;
        }
        // That it does not answer is for the requests to find out.
        let looked = timeout(node.connect_timeout, link.wire.look()).await;
        if let Ok(Ok(Some(sight))) = looked
            && node.saw(Some(sight)).is_err()
        {
            return node.broken(&link);
        }
        let current = timeout(node.connect_timeout, link.wire.is_current()).await;
        if matches!(current, Ok(false)) {
            return node.broken(&link);
        }
    }
}
