//! Repairs new leases: puts the key on the nodes that did not grant it to the winning round.
//!
//! A lease on a bare majority is lost when one of its nodes loses its memory. A finished round
//! starts this; later, each extension repairs the nodes that report the key missing. Which nodes
//! count towards the majority is decided by the protocol alone.

use crate::lock::driver::Driver;
use crate::lock::extend::ExtensionBatch;
use crate::lock::heal::send_heal;
use crate::lock::held::HeldLease;
use crate::runtime::clock;
use futures_util::future::join_all;
use std::sync::Arc;

/// Sends HEAL to the nodes that lack the lease's key, until all of them count for it, the lease
/// ends or the client is closed. The pause between two tries doubles, from the shortest retry delay
/// to a third of the ttl.
///
/// Several tries may be needed: a node may still hold the key of another waiter's round that is about to be
/// undone, or may be slow or unreachable.
pub(crate) async fn repair(driver: &Arc<Driver>, lease: Arc<HeldLease>) {
    let mut pause = driver.options.retry_delay.shortest;
    let longest = (lease.grant.term.ttl / 3).max(pause);
    while !lease.missing().is_empty() || lease.has_uncounted_nodes() {
        if !lease.is_held_after(pause).await {
            return;
        }
        let missing = lease.missing();
        let Some(ttl) = lease.begin_repair(missing) else {
            if !lease.is_valid(clock::now()) {
                return;
            }
            // An upgrade of it is under way, or was.
            continue;
        };
        let requests = |node| send_heal(Arc::clone(driver), node, vec![(Arc::clone(&lease), ttl)]);
        let is_doubtful = join_all(missing.iter().map(requests)).await.contains(&true);
        // Another client may have held the resource on a majority meanwhile: check that a majority confirms
        // this lease.
        if (is_doubtful || lease.has_uncounted_nodes())
            && let Some(item) = lease.begin_verification()
        {
            let mut verifying = ExtensionBatch::start(vec![item]);
            while verifying.step().await {}
        }
        pause = (pause * 2).min(longest);
    }
}
