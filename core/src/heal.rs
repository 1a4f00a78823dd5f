//! Healing: the nodes that lack a held lease's key get it, so that the lease is on all nodes that can be
//! reached and not on a bare majority, and survives when they forget it one after the other.

use crate::clock;
use crate::driver::Driver;
use crate::events;
use crate::exchange::Parcel;
use crate::extend::Extending;
use crate::fanout::Asking;
use crate::held::Held;
use crate::protocol::Healed;
use crate::request::{Reply, Request};
use futures_util::future::join_all;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Sets the keys of these leases again on one node, where they are free, each for so long. Returns whether
/// the node has granted any of the resources to somebody else since the lease was won.
pub(crate) async fn heal(
    driver: Arc<Driver>,
    node: usize,
    leases: Vec<(Arc<Held>, Duration)>,
) -> bool {
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
    let mut asking = driver.ask(clock::now(), patience);
    asking.ask(&driver.nodes[node], &Parcel::from(request));
    let answered = asking.next().await.map(|(_, answered)| answered);
    let healed = match answered {
        Some(Ok(Reply::Healed(healed))) => healed,
        // The next extension or repair tries again.
        _ => Vec::new(),
    };
    let is_doubtful = healed.iter().any(|healed| *healed != Healed::Clean);
    for (position, (lease, ttl)) in leases.iter().enumerate() {
        lease.healed(node, *ttl, healed.get(position).copied()).await;
    }
    if asking.has_late() {
        driver.detach(wait_for_late(&driver, node, asking, leases, patience));
    }
    is_doubtful
}

/// Takes back what a node sets after its deadline if the lease is released by then, until the client is
/// closed or gone. It may wait for ever, and so keeps neither the driver nor the leases.
fn wait_for_late(
    driver: &Arc<Driver>,
    node: usize,
    mut asking: Asking,
    leases: Vec<(Arc<Held>, Duration)>,
    patience: Duration,
) -> impl Future<Output = ()> + Send + use<> {
    let (unused, driver) = (driver.unused.clone(), Arc::downgrade(driver));
    let weak =
        |(lease, ttl): (Arc<Held>, Duration)| (Arc::downgrade(&lease), Arc::clone(&lease.won), ttl);
    let leases: Vec<_> = leases.into_iter().map(weak).collect();
    async move {
        if let Some(Some(_)) = unused.run_until_cancelled(asking.late()).await {
            for (lease, won, ttl) in leases {
                if let Some(lease) = lease.upgrade() {
                    // Whether the node counts is for a HEAL to tell that is answered in time.
                    lease.healed(node, ttl, None).await;
                    continue;
                }
                // It was released.
                let Some(driver) = driver.upgrade() else { return };
                let request = Request::release(&won.subject, driver.turns());
                driver.deliver(node, request, patience, won.healed_until(ttl));
            }
        }
    }
}

/// Heals the nodes that lack a new lease's key, again and again until all of them have it or the lease is
/// over: those where a contender was first, as soon as it has left, and those that did not answer. A
/// lease that a bare majority holds is lost when one more node forgets it.
pub(crate) async fn repair(driver: &Arc<Driver>, lease: Arc<Held>) {
    let mut pause = driver.options.retry_delay.shortest;
    let longest = (lease.won.term.ttl / 3).max(pause);
    while !lease.missing().is_empty() || lease.has_passed() {
        if !lease.is_held_after(pause).await {
            return;
        }
        let missing = lease.missing();
        let Some(ttl) = lease.heal(missing) else { return };
        let healing = |node| heal(Arc::clone(driver), node, vec![(Arc::clone(&lease), ttl)]);
        let is_doubtful = join_all(missing.iter().map(healing)).await.contains(&true);
        // Somebody else had a node in between, or still has it: does a majority stand by this lease?
        if (is_doubtful || lease.has_passed())
            && let Some(item) = lease.begin_verification()
        {
            let mut verifying = Extending::start(vec![item]);
            while verifying.step().await {}
        }
        pause = (pause * 2).min(longest);
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
