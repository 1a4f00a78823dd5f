//! Observing an election: which holder an observer may report as the leader.
//!
//! An observer reads what the nodes store, and takes no part in the lock. The driver (`client/watch.rs` of the
//! crate `quorlock`) reads the nodes and calls this. What it returns is a hint: the leader may be gone
//! by then, and only the nodes decide who holds the lock.

use crate::quorum::Quorum;

/// Returns the leader that comes after the fence `after`: the token that a majority of the nodes stores *with the
/// same fence*, and that fence. `None` if there is none, or if the fence is not larger than `after`.
///
/// `stored` has, for each node that answered, the token in the lock key and the fence counter beside it. Each node may
/// be in it once. The nodes need not be read at the same moment.
///
/// Why a majority must store the same fence: a majority stores exactly the lease's fence when the lease is returned
/// (`fence.rs`), but a node that granted late, and was not counted, may store a larger one. Reporting the
/// largest fence of the token could exceed the next leader's, and an observer that never goes back would then skip that
/// leader. A fence that a majority stores is smaller than the fence of every later lease, because the majority of that
/// lease includes one of these nodes.
///
/// A majority with the same fence may exist before the round is won, and it may be a smaller one than the
/// lease's, until RAISE has reached the nodes. So a leader may be returned again with a larger fence.
pub fn next_leader<T: PartialEq>(
    quorum: Quorum,
    after: u64,
    stored: &[(T, u64)],
) -> Option<&(T, u64)> {
    let count = |leader: &(T, u64)| stored.iter().filter(|other| *other == leader).count();
    stored.iter().find(|leader| leader.1 > after && count(leader) >= quorum.size())
}

/// Whether a lease with this fence that its holder has detached was adopted, by the fence counters of the nodes that
/// answered. Only meaningful while the keys of the lease have not expired.
///
/// Until then, only an adopter gets a grant of a node that has the key. So a majority of larger counters is that of an
/// adopter's round, even if the adopter has released the lease since. (Or of the rounds of several adopters, which then
/// try again until one of them wins.)
pub fn is_passed(quorum: Quorum, fence: u64, counters: &[u64]) -> bool {
    counters.iter().filter(|counter| **counter > fence).count() >= quorum.size()
}
