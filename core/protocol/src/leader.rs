//! Observing an election: which holder an observer may report as the leader.
//!
//! An observer reads what the nodes store, and never contends for the lock. The driver (`client/watch.rs` of the crate
//! `quorlock`) reads the nodes and calls this module. The returned leader is only a hint: the leader may have lost the
//! lock since the driver read the nodes. Only the nodes decide who holds the lock.

use crate::quorum::Quorum;

/// Returns the leader: the token that a majority of the nodes stores *with the same fence*, and that fence. `None` if
/// no token has such a majority, or if the fence is not larger than `after`.
///
/// `stored` has, for each node that answered, the token in the lock key and the fence counter of that node. Each node
/// may appear only once. The caller need not read the nodes at the same moment.
///
/// A majority must store the same fence, because a single node may store a larger one. When a round is won, a majority
/// stores exactly the fence of the lease (`fence.rs`). But a node that granted late, and was not counted, may store a
/// larger fence, which may even exceed the fence of the next leader. If an observer reported this larger fence, it
/// would then skip the next leader, because an observer never goes back to a smaller fence. A fence that a majority
/// stores is safe: the majority of every later lease includes one of these nodes, so every later lease has a larger
/// fence.
///
/// A majority may store the same fence even before the round is won. Until RAISE has reached the nodes, that fence may
/// be smaller than the fence of the lease. So a later call may return the same leader again, with a larger fence.
pub fn next_leader<T: PartialEq>(
    quorum: Quorum,
    after: u64,
    stored: &[(T, u64)],
) -> Option<&(T, u64)> {
    let count = |leader: &(T, u64)| stored.iter().filter(|other| *other == leader).count();
    stored.iter().find(|leader| leader.1 > after && count(leader) >= quorum.size())
}

/// Whether a detached lease with this fence was adopted. `stored` has, for each node that answered, whether the node
/// still holds the token of the lease, and the node's fence counter. It must not contain the nodes that
/// [lacked the key](crate::Lease::missing) when the lease was detached: they may have granted the resource to others. The
/// result is meaningful only until the keys of the lease expire.
///
/// Until the keys expire, a node that has the key grants the resource only to adopters, and such a grant replaces the
/// token and raises the counter. So if a majority of the nodes have larger counters and another token or none, they have
/// granted the resource to adopters. Usually, all these grants went to one adopter, which won the lease and may have
/// released the lease since. If the grants went to several adopters, these adopters try again until one of them wins. A
/// larger counter on a node that still holds the token shows no adoption: the node granted the resource to another client
/// before the lease's key was restored there.
pub fn is_adopted(quorum: Quorum, fence: u64, stored: &[(bool, u64)]) -> bool {
    let has_passed = |(holds_token, counter): &&(bool, u64)| !holds_token && *counter > fence;
    stored.iter().filter(has_passed).count() >= quorum.size()
}
