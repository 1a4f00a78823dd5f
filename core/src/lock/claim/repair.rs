//! Repairs new leases: sets the keys on the nodes that did not grant the winning round.
//!
//! If only a bare majority of the nodes holds a lease's key, the lease is lost when one of these nodes loses its
//! memory. A finished round starts the repair. Later, each extension repairs the nodes that report a missing key. Only
//! the protocol decides which nodes count towards the majority.

use crate::lock::claim::extend::verify;
use crate::lock::claim::heal::send_heal;
use crate::lock::claim::held::HeldLease;
use crate::lock::driver::Driver;
use crate::runtime::clock;
use futures_util::future::join_all;
use std::sync::Arc;

/// Sends HEAL to the nodes that lack the lease's key, until all nodes count for the lease, the lease ends or the client
/// is closed. The pause between two tries doubles, from the shortest retry delay to a third of the ttl.
///
/// Several tries may be needed: a node may still hold the key of another waiter's round that is about to be
/// undone, or may be slow or unreachable.
pub(crate) async fn repair(driver: &Arc<Driver>, lease: Arc<HeldLease>) {
    let mut pause = driver.options.retry_delay.shortest;
    let longest = (lease.grant.term.ttl / 3).max(pause);
    while needs_repair(&lease) {
        if !lease.is_held_after(pause).await {
            return;
        }
        let missing = lease.state().claim.lease().missing();
        let Some(ttl) = lease.begin_repair(missing) else {
            if !lease.is_valid(clock::now()) || lease.grant.fate.is_elsewhere() {
                return;
            }
            // An upgrade of the lease is under way or has just ended, so try again after the next pause.
            continue;
        };
        let requests = |node| send_heal(Arc::clone(driver), node, vec![(Arc::clone(&lease), ttl)]);
        let is_doubtful = join_all(missing.iter().map(requests)).await.contains(&true);
        // Another client may have held the resource on a majority meanwhile: check that a majority confirms
        // this lease.
        if is_doubtful || has_uncounted_nodes(&lease) {
            verify(&lease).await;
        }
        pause = (pause * 2).min(longest);
    }
}

fn needs_repair(lease: &HeldLease) -> bool {
    has_uncounted_nodes(lease) || !lease.state().claim.lease().missing().is_empty()
}

/// Whether any nodes hold the key but do not count towards the majority, because they may have granted the resource to
/// another lease since this lease was won. A verification makes these nodes count again.
fn has_uncounted_nodes(lease: &HeldLease) -> bool {
    lease.state().claim.lease().has_passed()
}
