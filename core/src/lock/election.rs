//! Elections: the messages that candidates, leaders and observers exchange through the nodes, and the hand-over from a
//! leader to a named successor.
//!
//! All messages are hints, and a lost message only costs time. A leader is the holder of an ordinary lease, and only
//! the nodes decide who holds that lease. An adopter wins the lease with TRANSFER. `client/election.rs` and
//! `client/watch.rs` receive the messages, and `lease.rs` starts hand-overs.

use crate::error::Result;
use crate::lock::claim::detach::detach;
use crate::lock::claim::held::{Grant, HeldLease};
use crate::lock::driver::Driver;
use crate::node::fanout::FanOut;
use crate::runtime::clock;
use crate::runtime::timer::sleep;
use crate::telemetry::events;
use crate::wire::keys::Keys;
use crate::wire::reply::{Holder, Reply, StoredLock};
use crate::wire::request::Request;
use crate::wire::token::Token;
use quorlock_protocol::{Moment, Term, is_adopted, next_leader};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The first and the longest delay between two reads from the nodes while a successor adopts the lease.
const LOOK_DELAY: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// The interval at which the text of a lease is sent again until the successor has adopted the lease.
const RESEND_INTERVAL: Duration = Duration::from_millis(250);
/// The message that is sent only to count listeners. Listeners can tell this message from the text of a lease, which is
/// never empty.
const PROBE: &str = "";

/// Returns the channel on which a candidate of this name gets the text of a lease that is handed over to it.
///
/// The length of the resource's name makes the channel unique, even if resources and names contain `:`.
pub(crate) fn candidate_channel(key_prefix: &str, resource: &str, holder: &str) -> String {
    format!("{key_prefix}quorlock:candidate:{}:{resource}:{holder}", resource.len())
}

/// Returns the channel on which new leaders of a resource announce themselves to observers.
pub(crate) fn leader_channel(key_prefix: &str, resource: &str) -> String {
    format!("{key_prefix}quorlock:leader:{resource}")
}

/// Queries the nodes for a leader whose fence is larger than `after`. Returns the token and the fence of this leader as
/// soon as enough nodes have answered; `None` if there is no such leader, or if too few nodes answer.
pub(crate) async fn look(driver: &Driver, keys: &Arc<[Keys]>, after: u64) -> Option<(Token, u64)> {
    let mut stored = Vec::new();
    read(driver, keys, |_, seen| {
        // The values of readers and of other libraries are not those of leaders.
        if let (Holder::Token(token), Some(fence)) = (seen.holder, seen.fence)
            && token.is_own()
        {
            stored.push((token, fence));
        }
        next_leader(driver.quorum, after, &stored).cloned()
    })
    .await
}

/// Whether a successor has adopted this detached lease. The successor may have released the lease since.
async fn has_successor(driver: &Driver, held: &HeldLease) -> bool {
    let Grant { subject, fence, .. } = &*held.grant;
    let missing = held.state().claim.lease().missing();
    let mut stored = Vec::new();
    let adopted = read(driver, &subject.keys, |node, seen| {
        let holds_token = matches!(&seen.holder, Holder::Token(token) if *token == subject.token);
        let counter = seen.fence.filter(|_| !missing.contains(node));
        stored.extend(counter.map(|counter| (holds_token, counter)));
        is_adopted(driver.quorum, *fence, &stored).then_some(())
    });
    adopted.await.is_some()
}

/// Calls `decide` with each node and what it stores about a resource, and returns the first `Some` that `decide` returns;
/// `None` if all nodes have answered or timed out without such a result.
async fn read<T>(
    driver: &Driver,
    keys: &Arc<[Keys]>,
    mut decide: impl FnMut(usize, StoredLock) -> Option<T>,
) -> Option<T> {
    let patience = driver.options.node_timeout(driver.options.ttl);
    let mut fan_out = driver.broadcast(Request::Inspect(Arc::clone(keys)), clock::now(), patience);
    while let Some((node, answered)) = fan_out.next().await {
        // The answer of a guarded node does not count: the node may have lost the keys of a later leader.
        if let Ok(Reply::Seen(seen)) = answered
            && let Some(decided) = decide(node, seen)
        {
            return Some(decided);
        }
    }
    None
}

/// Tells observers that a resource has a new leader, in the background. Must be called on the runtime.
pub(crate) fn announce(driver: &Arc<Driver>, keys: &Arc<[Keys]>, resource: &str, fence: u64) {
    let channel = leader_channel(&driver.options.key_prefix, resource);
    publish(driver, keys, &channel, &fence.to_string());
}

/// Publishes a message on this channel of all nodes, in the background. Must be called on the runtime.
fn publish(driver: &Arc<Driver>, keys: &Arc<[Keys]>, channel: &str, message: &str) {
    let mut fan_out = publishing(driver, keys, channel, message);
    driver.detach(async move { while fan_out.next().await.is_some() {} });
}

/// Whether any node has a listener on a channel. Returns as soon as one node has reported a listener.
async fn has_listener(driver: &Driver, keys: &Arc<[Keys]>, channel: &str) -> bool {
    let mut fan_out = publishing(driver, keys, channel, PROBE);
    while let Some((_, answered)) = fan_out.next().await {
        if matches!(answered, Ok(Reply::Published(1..))) {
            return true;
        }
    }
    false
}

fn publishing(driver: &Driver, keys: &Arc<[Keys]>, channel: &str, message: &str) -> FanOut {
    let patience = driver.options.node_timeout(driver.options.ttl);
    let keys = Arc::clone(keys);
    let channel = channel.into();
    let message = message.into();
    driver.broadcast(Request::Publish { keys, channel, message }, clock::now(), patience)
}

/// Hands a lease over to the candidate of this name, and tells `caller` whether the candidate has adopted the lease.
/// The candidate must adopt the lease within the ttl of `term`.
///
/// The lease stays as it is if there is no such candidate, or if the caller stops waiting before the lease ends.
pub(crate) async fn hand_over(
    held: Arc<HeldLease>,
    successor: Arc<str>,
    term: Term,
    mut caller: oneshot::Sender<Result<bool>>,
) {
    let driver = Arc::clone(&held.driver);
    let keys = Arc::clone(&held.grant.subject.keys);
    let resource = held.grant.resources.first().map(String::as_str).unwrap_or_default();
    let channel = candidate_channel(&driver.options.key_prefix, resource, &successor);
    // No key of the detached lease expires before this moment, unless `max_hold` ends the lease first.
    let kept_until = term.end(clock::now());
    let detaching = async {
        if !has_listener(&driver, &keys, &channel).await {
            return Ok(None);
        }
        detach(Arc::clone(&held), term).await.map(Some)
    };
    let detached = tokio::select! {
        biased;
        () = caller.closed() => return,
        detached = detaching => detached,
    };
    let taken = match detached {
        Err(error) => Err(error),
        Ok(None) => Ok(false),
        Ok(Some(detached)) => {
            let text = detached.into_text();
            let kept_until = kept_until.min(held.state().claim.lease().end());
            let transferring = transfer(&driver, &held, &channel, &text, kept_until);
            let taken = driver.closing.run_until_cancelled(transferring).await.unwrap_or(false);
            if taken {
                driver.totals.handed_over.up();
            } else {
                // After this release, an adoption that has already begun can still win if a majority of the nodes has
                // already transferred the keys to the adopter.
                held.release_detached();
            }
            let grant = &held.grant;
            let leader = (grant.fence, grant.holder());
            events::handed_over(&grant.resources, leader, &successor, taken);
            Ok(taken)
        }
    };
    // Sending fails if the caller is gone.
    let _ = caller.send(taken);
}

/// Sends the text of a lease to its successor until the successor has adopted the lease. Gives up when no node has a
/// listener any more, or when the keys may have expired, because others may then acquire the lock. Returns whether the
/// successor has adopted the lease.
async fn transfer(
    driver: &Arc<Driver>,
    held: &HeldLease,
    channel: &str,
    text: &str,
    kept_until: Moment,
) -> bool {
    let keys = &held.grant.subject.keys;
    let (mut delay, longest) = LOOK_DELAY;
    publish(driver, keys, channel, text);
    let mut sent = clock::now();
    loop {
        sleep(delay).await;
        let has_successor = has_successor(driver, held).await;
        let now = clock::now();
        if has_successor || now >= kept_until {
            return has_successor && now < kept_until;
        }
        delay = (delay * 2).min(longest);
        if now.since(sent) >= RESEND_INTERVAL {
            if !has_listener(driver, keys, channel).await {
                return false;
            }
            publish(driver, keys, channel, text);
            sent = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::candidate_channel;
    use std::collections::HashSet;

    #[test]
    fn no_two_candidates_share_a_channel() {
        let names = ["a", "a:b", "b", "b:c", ":", "1:a"];
        let pairs = names.iter().flat_map(|one| names.map(|other| (*one, other)));
        let channels: HashSet<_> =
            pairs.clone().map(|(r, h)| candidate_channel("", r, h)).collect();
        assert_eq!(channels.len(), pairs.count());
    }
}
