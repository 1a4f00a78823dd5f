//! Observing an election: which holder an observer may report as the leader.
//!
//! An observer reads what the nodes store, and takes no part in the lock. The driver (`client/watch.rs` of the crate
//! `quorlock`) reads the nodes and calls this module. The leader that this module returns is a hint: the leader may
//! have lost the lock since the nodes were read, and only the nodes decide who holds the lock.

use crate::quorum::Quorum;

/// Returns the leader, if its fence is larger than `after`: the token that a majority of the nodes stores *with the
/// same fence*, and that fence. `None` if there is no such token.
///
/// `stored` has, for each node that answered, the token in the lock key and the fence counter of that node. Each node
/// may appear only once. The nodes need not be read at the same moment.
///
/// Why a majority must store the same fence: a majority stores exactly the lease's fence when the lease is returned
/// (`fence.rs`), but a node that granted late, and was not counted, may store a larger fence. If the observer reported
/// the largest fence of the token, that fence could exceed the fence of the next leader. The observer never goes back
/// to a smaller fence, so it would then skip the next leader. A fence that a majority stores is smaller than the fence
/// of every later lease, because the majority of the later lease includes one of these nodes.
///
/// A majority may store the same fence even before the round is won. Until RAISE has reached the nodes, that fence may
/// be smaller than the fence of the lease. So this function may return the same leader again, with a larger fence.
pub fn next_leader<T: PartialEq>(
    quorum: Quorum,
    after: u64,
    stored: &[(T, u64)],
) -> Option<&(T, u64)> {
    let count = |leader: &(T, u64)| stored.iter().filter(|other| *other == leader).count();
    stored.iter().find(|leader| leader.1 > after && count(leader) >= quorum.size())
}

/// Whether a detached lease with this fence was adopted. `counters` are the fence counters of the nodes that answered.
/// The result is only meaningful while the keys of the lease have not expired.
///
/// Until the keys expire, a node that has the key grants the resource only to an adopter. So if a majority has larger
/// counters, the round of an adopter raised them, even if the adopter has released the lease since. (The rounds of
/// several adopters may also have raised them; these adopters then try again until one of them wins.)
pub fn is_passed(quorum: Quorum, fence: u64, counters: &[u64]) -> bool {
    counters.iter().filter(|counter| **counter > fence).count() >= quorum.size()
}
