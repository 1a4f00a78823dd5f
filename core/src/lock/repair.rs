//! Repair: a lease that was won on a bare majority gets its key on the other nodes, too.

use crate::lock::driver::Driver;
use crate::lock::extend::ExtensionBatch;
use crate::lock::heal::send_heal;
use crate::lock::held::HeldLease;
use futures_util::future::join_all;
use std::sync::Arc;

/// Heals the nodes that lack a new lease's key, again and again until all of them have it or the lease is
/// over: those where a contender was first, as soon as it has left, and those that did not answer. A
/// lease that a bare majority holds is lost when one more node forgets it.
pub(crate) async fn repair(driver: &Arc<Driver>, lease: Arc<HeldLease>) {
    let mut pause = driver.options.retry_delay.shortest;
    let longest = (lease.grant.term.ttl / 3).max(pause);
    while !lease.missing().is_empty() || lease.has_uncounted_nodes() {
        if !lease.is_held_after(pause).await {
            return;
        }
        let missing = lease.missing();
        let Some(ttl) = lease.begin_repair(missing) else { return };
        let requests = |node| send_heal(Arc::clone(driver), node, vec![(Arc::clone(&lease), ttl)]);
        let is_doubtful = join_all(missing.iter().map(requests)).await.contains(&true);
        // Somebody else had a node in between, or still has it: does a majority stand by this lease?
        if (is_doubtful || lease.has_uncounted_nodes())
            && let Some(item) = lease.begin_verification()
        {
            let mut verifying = ExtensionBatch::start(vec![item]);
            while verifying.step().await {}
        }
        pause = (pause * 2).min(longest);
    }
}
