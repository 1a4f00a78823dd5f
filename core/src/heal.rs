//! Healing: after an extension that a majority confirmed, the nodes that lost the key get it back.
//! So a lease survives that all nodes are restarted, one after the other.

use crate::clock;
use crate::driver::Driver;
use crate::held::Held;
use crate::request::Request;
use std::sync::Arc;
use std::time::Duration;

/// Sets the keys of these leases again on one node, where they are free, each for so long.
pub(crate) async fn heal(driver: Arc<Driver>, node: usize, leases: Vec<(Arc<Held>, Duration)>) {
    let lock = |(lease, ttl): &(Arc<Held>, Duration)| {
        (Arc::clone(&lease.won.subject), *ttl, lease.won.fence)
    };
    let request = Request::Heal(leases.iter().map(lock).collect());
    let timeouts = leases.iter().map(|(lease, _)| lease.won.term.ttl);
    let patience = timeouts.map(|ttl| driver.options.node_timeout(ttl)).max().unwrap_or_default();
    // What it did not reach is healed with the next extension.
    let _ = driver.call(node, request, clock::now(), patience).await;
    for (lease, _) in leases {
        lease.healed(node);
    }
}
