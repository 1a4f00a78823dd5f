//! Sends HEAL, which sets the keys of held leases on a node that lacks the keys.
//!
//! `extend.rs` chooses the nodes and calls this module. HEAL never overwrites another holder's key. The protocol
//! decides whether the node counts towards the majority again.

use crate::lock::claim::Cleanup;
use crate::lock::claim::held::HeldLease;
use crate::lock::driver::Driver;
use crate::node::exchange::PackedRequest;
use crate::node::fanout::FanOut;
use crate::runtime::clock;
use crate::telemetry::events;
use crate::wire::answer::{Answered, may_be_applied_later};
use crate::wire::reply::Reply;
use crate::wire::request::Request;
use quorlock_protocol::{Healed, Healing, Term};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Sets the keys of these leases on one node, each for the given ttl, unless another client holds the resource on that
/// node. All leases belong to one client.
///
/// Returns whether another client holds any of the resources on the node, or may have held one since the lease was won.
/// Returns `false` if the node does not answer in time; the next extension or repair tries again.
pub(crate) async fn send_heal(
    driver: Arc<Driver>,
    node: usize,
    leases: Vec<(Arc<HeldLease>, Duration)>,
) -> bool {
    let lock =
        |(lease, ttl): &(Arc<HeldLease>, Duration)| (lease.subject(), *ttl, lease.grant.fence);
    let address = driver.nodes[node].address();
    for (lease, _) in &leases {
        events::healing(&lease.grant.resources, lease.grant.fence, address);
    }
    let request = Request::Heal(leases.iter().map(lock).collect());
    let timeouts = leases.iter().map(|(lease, _)| lease.grant.term.ttl);
    let patience = timeouts.map(|ttl| driver.options.node_timeout(ttl)).max().unwrap_or_default();
    let mut fan_out = driver.fan_out(clock::now(), patience);
    fan_out.send(&driver.nodes[node], &PackedRequest::from(request));
    let answered = fan_out.next().await.map(|(_, answered)| answered);
    let healing = answered.as_ref().map_or(Healing::Open, healing);
    let healed = match answered {
        Some(Ok(Reply::Healed(healed))) => healed,
        _ => Vec::new(),
    };
    let is_doubtful = healed.iter().any(|healed| *healed != Healed::Clean);
    for (position, (lease, ttl)) in leases.iter().enumerate() {
        let healed = healed.get(position).copied();
        let healing = healed.map_or(healing, |healed| Healing::Answered(Some(healed)));
        lease.finish_repair(node, *ttl, healing);
    }
    if fan_out.has_late() {
        driver.detach(wait_for_late(&driver, node, fan_out, leases, patience));
    }
    is_doubtful
}

/// Returns what has become of a HEAL whose answer is an error, or came after the deadline.
fn healing(answered: &Answered) -> Healing {
    match answered {
        Err(failure) if !failure.sent => Healing::Unsent,
        answered if may_be_applied_later(answered) => Healing::Open,
        _ => Healing::Answered(None),
    }
}

/// Waits for an answer to HEAL that missed its deadline, and deletes the keys of leases that were released meanwhile.
/// The task ends when the client is closed or dropped.
///
/// A frozen node may never answer, so the task holds only weak references to the driver and the leases.
fn wait_for_late(
    driver: &Arc<Driver>,
    node: usize,
    mut fan_out: FanOut,
    leases: Vec<(Arc<HeldLease>, Duration)>,
    patience: Duration,
) -> impl Future<Output = ()> + Send + use<> {
    let stop_late = driver.stop_late.clone();
    let driver = Arc::downgrade(driver);
    let weak = |(lease, ttl): (Arc<HeldLease>, Duration)| {
        (Arc::downgrade(&lease), (Arc::clone(&lease.grant), lease.subject()), ttl)
    };
    let leases: Vec<_> = leases.into_iter().map(weak).collect();
    async move {
        if let Some(Some((_, answered))) = stop_late.run_until_cancelled(fan_out.late()).await {
            let healing = healing(&answered);
            for (lease, (grant, subject), ttl) in leases {
                if let Some(lease) = lease.upgrade() {
                    // The repaired node does not count towards the majority: only a HEAL that is answered before its
                    // deadline counts.
                    lease.finish_repair(node, ttl, healing);
                    continue;
                }
                // The lease is gone: it was released, it expired after its handle was dropped, or another process has
                // the lease. In the last case, the keys must stay; otherwise, delete the keys that HEAL may have set.
                let Some(driver) = driver.upgrade() else { return };
                if grant.fate.is_elsewhere() {
                    continue;
                }
                let gone_by = Term { ttl, ..grant.term }.gone(clock::now());
                Cleanup::of(subject, grant.term, patience).release(&driver, gone_by, node);
            }
        }
    }
}
