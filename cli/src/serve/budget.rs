//! Budgets of memory and renewals, shared by all clients. Each connection, request and lease takes its share first, and is
//! refused if too little is left. So no number of clients and requests can exhaust the memory of the daemon, or keep the
//! nodes busy with renewals.
//!
//! Shares are estimates, which `tests/cli/test_serve_limits.py` checks against the memory of a daemon.

use crate::serve::command::Refusal;
use quorlock::MAX_PERMITS;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What a connection takes while it is idle or handles short requests.
pub(crate) const CONNECTION: usize = 12 * 1024;
/// What a lease takes, without the names of its resources.
const LEASE: usize = 8 * 1024;
/// What a resource of a lease takes, without its name.
const RESOURCE: usize = 512;
/// What a permit takes, without the name of its resource.
const PERMIT: usize = 1536;
/// What a key takes while the nodes are asked for it, without the name of its resource.
const QUERIED: usize = 256;
/// The number of copies of a lease's names, of a permit's name, and of a request in progress: as words, as keys, and in
/// requests to nodes.
pub(crate) const COPIES: usize = 7;

/// The error of a request for which there is no memory left.
pub(crate) const USED_UP: &str =
    "ERR the clients of the daemon use all of its memory: see --max-memory";

/// Returns the memory of a lease, in bytes. `names` is the total length of the names of its resources.
pub(crate) fn of_lease(names: usize, resources: usize, permits: usize) -> usize {
    LEASE + resources * RESOURCE + COPIES * names + permits * (PERMIT + COPIES * names)
}

/// Returns the memory of a query for all permits of a resource with a name of this length: each slot has two keys.
pub(crate) fn of_permit_query(name: usize) -> usize {
    2 * MAX_PERMITS as usize * (QUERIED + COPIES * name)
}

/// How many renewals of a resource or permit the nodes can do in a second besides other work, for all clients together.
const MAX_RENEWALS: usize = 20_000;
/// The period of the budget of renewals, in seconds. A lease with a long ttl needs less than one renewal in a second.
const PERIOD: usize = 1_000;

/// The renewal of a name of this length takes as much time as that of another resource.
const LONG_NAME: usize = 256;

/// The error of a lease that would need too many renewals.
pub(crate) const TOO_MANY_RENEWALS: &str = "ERR the daemon's leases would need more than 20000 renewals per second: use fewer resources or permits, or a longer TTL";

/// Returns the budget of renewals.
pub(crate) fn renewals() -> Arc<Budget> {
    Budget::new(MAX_RENEWALS * PERIOD)
}

/// Returns the renewals in [`PERIOD`] seconds of a lease with this many resources or permits, at three per ttl. `names` is
/// the total length of their names: long names count as further resources.
pub(crate) fn renewals_of(resources: usize, names: usize, ttl: Duration) -> usize {
    let each = 3.0 * PERIOD as f64 / ttl.as_secs_f64();
    (resources + names / LONG_NAME) * each.ceil() as usize
}

/// What a lease takes.
pub(crate) struct LeaseShares {
    pub(crate) _memory: Share,
    pub(crate) _renewals: Share,
}

/// Something that all clients share: memory, in bytes, or renewals.
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// There is not enough left.
#[derive(Debug)]
pub(crate) struct UsedUp;

impl From<UsedUp> for Refusal {
    fn from(_: UsedUp) -> Self {
        USED_UP.to_owned()
    }
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns a share of nothing, which can become larger.
    pub(crate) fn nothing(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), bytes: 0 }
    }

    /// Takes a share, which is returned when it is dropped.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<Share, UsedUp> {
        let mut share = self.nothing();
        share.resize(bytes)?;
        Ok(share)
    }
}

/// A part of the budget that is in use.
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Share {
    /// Changes the size of the share. If there is not enough left, the share stays as it is.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), UsedUp> {
        let used = &self.budget.used;
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let fits = |used: usize| used.checked_add(more).filter(|sum| *sum <= self.budget.limit);
            used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| UsedUp)?;
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, of_lease, renewals, renewals_of};
    use std::time::Duration;

    #[test]
    fn each_resource_and_each_permit_takes_memory() {
        let one = of_lease(100, 1, 0);
        assert!(of_lease(100, 64, 0) > one + 63 * 500);
        assert!(of_lease(100, 1, 10) > one + 10 * (1_500 + 700));
    }

    #[test]
    fn the_budget_of_renewals_depends_on_resources_and_ttl() {
        let fits = |resources, ttl| renewals().take(renewals_of(resources, 100, ttl)).is_ok();
        assert!(fits(60, Duration::from_millis(10)) && !fits(70, Duration::from_millis(10)));
        assert!(fits(60_000, Duration::from_secs(10)) && !fits(70_000, Duration::from_secs(10)));
        assert!(fits(1_000_000, Duration::from_secs(86_400)));
        assert_eq!(renewals_of(64, 64 * 256, Duration::from_secs(3)), 2 * 64 * 1_000);
    }

    #[test]
    fn shares_never_exceed_the_limit() {
        let budget = Budget::new(100);
        let mut first = budget.take(60).expect("there is enough");
        let second = budget.take(40).expect("there is enough");
        assert!(budget.take(1).is_err() && first.resize(61).is_err());
        assert!(budget.take(usize::MAX).is_err());
        assert_eq!(budget.used(), 100);
        drop(second);
        first.resize(100).expect("the other share was returned");
        first.resize(10).expect("less is always possible");
        assert_eq!(budget.used(), 10);
        drop(first);
        assert_eq!(budget.used(), 0);
    }
}
