//! Healing: after a majority has granted a lock or confirmed its extension, the nodes that lack the
//! key get it. So a lease survives that all nodes are restarted, one after the other.

use crate::clock;
use crate::driver::Driver;
use crate::events;
use crate::held::Held;
use crate::protocol::NodeSet;
use crate::request::Request;
use crate::timer::sleep;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// Sets the keys of these leases again on one node, where they are free, each for so long.
pub(crate) async fn heal(driver: Arc<Driver>, node: usize, leases: Vec<(Arc<Held>, Duration)>) {
    let lock = |(lease, ttl): &(Arc<Held>, Duration)| {
        (Arc::clone(&lease.won.subject), *ttl, lease.won.fence)
    };
    let address = driver.nodes[node].address();
    for (lease, _) in &leases {
        events::healing(&lease.won.resources, lease.won.fence, address);
    }
    let request = Request::Heal(leases.iter().map(lock).collect());
    let timeouts = leases.iter().map(|(lease, _)| lease.won.term.ttl);
    let patience = timeouts.map(|ttl| driver.options.node_timeout(ttl)).max().unwrap_or_default();
    // What it did not reach is healed with the next extension.
    let _ = driver.call(node, request, clock::now(), patience).await;
    for (lease, _) in leases {
        lease.healed(node).await;
    }
}

/// Sets the key of a new lease on the nodes where those were who lost to it, as soon as they have
/// left: a lease that a bare majority holds is lost when one more node forgets it.
pub(crate) async fn spread(driver: &Arc<Driver>, lease: Arc<Held>, lacking: NodeSet) {
    if lacking.is_empty() {
        return;
    }
    sleep(driver.options.retry_delay.shortest).await;
    if let Some(ttl) = lease.heal(lacking) {
        let healing = |node| heal(Arc::clone(driver), node, vec![(Arc::clone(&lease), ttl)]);
        join_all(lacking.iter().map(healing)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::heal;
    use crate::{Client, runtime};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_node_that_is_healed_after_the_release_is_released_again() {
        // Another test lets the clock of this process go ahead, by less than this.
        let builder = Client::builder().nodes(["memory://healed-late"]).ttl(60 * PATIENCE);
        let client = builder.build().expect("valid");
        let lock = client.lock("r");
        let lease = lock.acquire().wait(PATIENCE).expect("in time").expect("free");
        let held = Arc::clone(lease.held().expect("it is of this process"));
        assert!(lease.release().wait(PATIENCE).expect("in time"));

        let healing = heal(Arc::clone(held.driver()), 0, vec![(held, 60 * PATIENCE)]);
        let healing = runtime::spawn(healing).expect("a runtime");
        while !healing.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let began = Instant::now();
        while lock.locked().wait(PATIENCE).expect("in time").expect("a node") {
            assert!(began.elapsed() < PATIENCE, "the key stays");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
