//! Implements `Lock::locked`: asks the nodes whether a lock is held.
//!
//! The query is read-only: it creates no key and joins no queue. The result may be outdated when the query returns, so
//! no other code of quorlock may rely on the result. `client/lock.rs` calls [`locked`].

use crate::config::resources::Resources;
use crate::error::Result;
use crate::lock::driver::Driver;
use crate::runtime::clock;
use crate::runtime::timer::timeout;
use crate::wire::keys::Keys;
use crate::wire::reply::Reply;
use crate::wire::request::Request;
use quorlock_protocol::Quorum;
use std::sync::Arc;
use std::time::Duration;

/// Returns whether the lock is held. The lock counts as free only if all its resources are free on a majority of the
/// nodes: only then could an acquire win now. Waits for the nodes' answers for at most `patience`.
///
/// Fails with `NoQuorum` if too few nodes answer to decide whether the lock is held.
pub(crate) async fn locked(
    driver: &Driver,
    resources: &Resources,
    keys: Arc<[Keys]>,
    patience: Duration,
) -> Result<bool> {
    let mut fan_out = driver.broadcast(Request::Exists(keys), clock::now(), patience);
    let mut answers = vec![None; driver.nodes.len()];
    let (mut held, mut free, mut unknown) = (0, 0, 0);
    while let Some((node, answered)) = fan_out.next().await {
        match answered {
            Ok(Reply::Yes) => held += 1,
            Ok(Reply::No) => free += 1,
            // The answer of a guarded node counts as unknown: the node may have lost the key in a restart.
            _ => unknown += 1,
        }
        answers[node] = Some(answered);
        match decide(driver.quorum, held, free, unknown) {
            None => {}
            Some(Some(locked)) => return Ok(locked),
            Some(None) => break,
        }
    }
    // Collects more answers, so that the error reports the nodes that are up.
    let others = async {
        while let Some((node, answered)) = fan_out.next().await {
            answers[node] = Some(answered);
        }
    };
    let _ = timeout(driver.options.retry_delay.longest, others).await;
    Err(driver.no_quorum(resources, &answers, patience))
}

/// Decides from the numbers of nodes that report the lock as held, that report it as free, and whose answers do not
/// count. Returns `Some(Some(locked))` if further answers cannot change the result, `Some(None)` if too many answers
/// are unknown for a decision, and `None` if more answers are needed.
///
/// `locked` is `true` unless the resources are free on a majority of the nodes.
fn decide(quorum: Quorum, held: usize, free: usize, unknown: usize) -> Option<Option<bool>> {
    if free >= quorum.size() {
        Some(Some(false))
    } else if held > quorum.tolerated() {
        Some(Some(true))
    } else if unknown > quorum.tolerated() {
        Some(None)
    } else {
        (held + free + unknown == quorum.nodes()).then_some(Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::{Quorum, decide};

    #[test]
    fn a_look_is_decided_as_soon_as_nothing_can_change_it() {
        for nodes in 1..=7 {
            let quorum = Quorum::over(nodes).expect("valid");
            for held in 0..=nodes {
                for free in 0..=nodes - held {
                    for unknown in 0..=nodes - held - free {
                        let left = nodes - held - free - unknown;
                        let decision = decide(quorum, held, free, unknown);
                        let says_free = free >= quorum.size();
                        let never_free = free + left + unknown < quorum.size();
                        let too_few = unknown > quorum.tolerated();
                        let expected = match (says_free, never_free, too_few) {
                            (true, ..) => Some(Some(false)),
                            (_, true, _) => Some(Some(true)),
                            (.., true) => Some(None),
                            // Only missing or unknown answers could make a majority free. After the last answer, the
                            // lock counts as held.
                            _ => (left == 0).then_some(Some(true)),
                        };
                        assert_eq!(decision, expected, "{held} {free} {unknown} of {nodes}");
                    }
                }
            }
        }
    }
}
