//! Replaces connections on which a frozen node has stopped answering.
//!
//! A server that is frozen, or a firewall that has forgotten a connection, causes no error: only the answers
//! are missing. `mod.rs` calls this module before it sends a request, and after a request was not answered by
//! its deadline.

use super::Node;
use super::link::{Heard, Link, LinkState};
use crate::error::NodeOutcome;
use crate::runtime;
use crate::runtime::clock;
use crate::runtime::timer::sleep;
use crate::telemetry::events;
use crate::wire::answer::Failure;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// After this many consecutive timeouts, a connection is considered stuck and is replaced.
const STUCK_AFTER: u32 = 3;

/// How often the time after which a connection is replaced may double while no request is answered.
const MAX_DOUBLINGS: u32 = 6;

/// A connection without an answer for this long is idle.
const IDLE: Duration = Duration::from_secs(1);
/// If the first request on an idle connection takes longer than this multiple of the last latency, and longer
/// than [`SHORTEST_DOUBT`], another connection is opened. Also if the request takes longer than `connect_timeout`.
const USUAL_LATENCIES: u32 = 4;
const SHORTEST_DOUBT: Duration = Duration::from_millis(20);

impl Node {
    /// Records that a request got no answer within `waited`. Replaces the connection if it seems stuck.
    pub(super) fn timed_out(self: &Arc<Self>, link: &Arc<Link>, waited: Duration) {
        let timeouts = link.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        // Replace only a connection that is at least `connect_timeout` old. Without this rule, a node that
        // merely answers after the deadline would be reconnected continually.
        if clock::now().since(link.since) < self.patience(self.connect_timeout) {
            return;
        }
        if timeouts >= STUCK_AFTER {
            let detail = format!("no answer to {timeouts} requests in a row");
            let failure = Failure { outcome: NodeOutcome::Timeout, detail, sent: false };
            if self.transition(|state| state.is(link), LinkState::Down(failure.clone())) {
                self.history.silent.fetch_add(1, Ordering::Relaxed);
                self.health.failed(self.address(), &failure);
            }
        } else if waited >= self.connect_timeout && !link.is_doubted.swap(true, Ordering::Relaxed) {
            runtime::detach_urgent(Arc::clone(self).replace(Arc::clone(link), link.heard()));
        }
    }

    /// Returns for how long a connection is kept without an answer, if it is kept for `once` after an answer. After each
    /// replacement without an answer, twice as long: the old connections stay open for late answers, so there must not be
    /// many of them.
    fn patience(&self, once: Duration) -> Duration {
        let doublings = self.history.silent.load(Ordering::Relaxed).min(MAX_DOUBLINGS);
        once * (1 << doublings)
    }

    /// Replaces the connection if it was idle and no answer arrives soon. Called before a request is sent on
    /// the connection. While a connection is idle, a firewall may forget it. The firewall then drops all
    /// packets of the connection, and no error occurs.
    pub(super) fn doubt_if_idle(self: &Arc<Self>, link: &Arc<Link>) {
        let before = link.heard();
        if clock::now().since(before.at) < self.patience(IDLE)
            || link.is_doubted.swap(true, Ordering::Relaxed)
        {
            return;
        }
        // The limit matters if this process was stopped while it waited for the last answer: the latency is then very
        // long.
        let patience =
            (link.latency() * USUAL_LATENCIES).min(self.connect_timeout).max(SHORTEST_DOUBT);
        let (node, link) = (Arc::downgrade(self), Arc::downgrade(link));
        runtime::detach_urgent(async move {
            sleep(patience).await;
            let (Some(node), Some(link)) = (node.upgrade(), link.upgrade()) else { return };
            if link.heard() == before {
                node.replace(link, before).await;
            } else {
                link.is_doubted.store(false, Ordering::Relaxed);
            }
        });
    }

    /// Opens a second connection because `link` may be stuck. Switches to the second connection unless an answer
    /// arrives on `link` meanwhile. `before`: an earlier record of the answers on `link`.
    ///
    /// Does not wait for [`STUCK_AFTER`] timeouts, because a lease that is renewed only twice before it ends
    /// could end first.
    ///
    /// If the server itself is stuck, the second connection cannot be opened. The node then keeps `link`, because
    /// the server answers on `link` as soon as the server continues.
    async fn replace(self: Arc<Self>, link: Arc<Link>, before: Heard) {
        let mut state = self.state.subscribe();
        let opened = tokio::select! {
            biased;
            // After the state has changed, `connect` may run. Then only `connect` may record what the server
            // reports about itself, so stop here.
            _ = state.wait_for(|state| !state.is(&link)) => return,
            opened = self.open_in_time() => opened,
        };
        link.is_doubted.store(false, Ordering::Relaxed);
        let mut new = match opened {
            Ok(new) => new,
            // `open_in_time` has recorded that the node is a duplicate, so all requests for its vote fail
            // until `connect` finds another server.
            Err(failure) if failure.outcome == NodeOutcome::Duplicate => {
                if self.transition(|state| state.is(&link), LinkState::Down(failure.clone())) {
                    self.health.failed(self.address(), &failure);
                }
                return;
            }
            Err(_) => return,
        };
        if link.heard() != before {
            return;
        }
        // This task must not await between opening the new connection and this switch. `keep_checking` of the
        // new connection could run meanwhile, see that the node still uses `link`, and end. The new connection
        // would then never be checked.
        let is_replaced = self.state.send_if_modified(|state| {
            let is_current = state.is(&link);
            if is_current {
                std::mem::swap(state, &mut new);
            }
            is_current
        });
        if is_replaced {
            self.history.silent.fetch_add(1, Ordering::Relaxed);
            events::disconnected(self.address());
            self.health.connected(self.address());
            self.counters.reconnects.up();
            // Gives up the old connection. So requests in flight that may be repeated are sent again on the new
            // connection now, and not only at their deadlines.
            link.connection.give_up();
        }
    }
}
