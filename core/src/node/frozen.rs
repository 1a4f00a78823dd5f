//! Replaces connections on which a frozen node has stopped answering.
//!
//! A server that is frozen, or a firewall that has forgotten a connection, causes no error: only the answers
//! are missing. `mod.rs` reports each request that was not answered by its deadline, and each request that is
//! sent on an idle connection.

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

/// A connection without an answer for this long is idle.
const IDLE: Duration = Duration::from_secs(1);
/// If the first request on an idle connection takes longer than this multiple of the last latency, and longer
/// than [`SHORTEST_DOUBT`], another connection is opened.
const USUAL_LATENCIES: u32 = 4;
const SHORTEST_DOUBT: Duration = Duration::from_millis(20);

impl Node {
    /// Records that a request got no answer within `waited`.
    pub(super) fn timed_out(self: &Arc<Self>, link: &Arc<Link>, waited: Duration) {
        let timeouts = link.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        // Without a minimum age of the connection, a node that is merely slower than the deadline would be
        // reconnected continually.
        if clock::now().since(link.since) < self.connect_timeout {
            return;
        }
        if timeouts >= STUCK_AFTER {
            let detail = format!("no answer to {timeouts} requests in a row");
            let failure = Failure { outcome: NodeOutcome::Timeout, detail, sent: false };
            if self.transition(|state| state.is(link), LinkState::Down(failure.clone())) {
                self.health.failed(self.address(), &failure);
            }
        } else if waited >= self.connect_timeout && !link.is_doubted.swap(true, Ordering::Relaxed) {
            runtime::detach_urgent(Arc::clone(self).replace(Arc::clone(link), link.heard()));
        }
    }

    /// Replaces the connection if it was idle and the request that is sent now is not answered soon. While
    /// the connection was idle, a firewall may have forgotten it. The firewall then drops all packets of
    /// the connection, and no error occurs.
    pub(super) fn doubt_if_idle(self: &Arc<Self>, link: &Arc<Link>) {
        let before = link.heard();
        if clock::now().since(before.at) < IDLE || link.is_doubted.swap(true, Ordering::Relaxed) {
            return;
        }
        let node = Arc::clone(self);
        let link = Arc::clone(link);
        runtime::detach_urgent(async move {
            sleep((link.latency() * USUAL_LATENCIES).max(SHORTEST_DOUBT)).await;
            if link.heard() == before {
                node.replace(link, before).await;
            } else {
                link.is_doubted.store(false, Ordering::Relaxed);
            }
        });
    }

    /// Opens a second connection while `link` may be stuck, and switches to the second connection unless an
    /// answer arrives on `link` meanwhile. `before`: the record of the answers on `link` so far. Waiting
    /// for three timeouts would take too long for a lease that is renewed only twice before it ends.
    ///
    /// If the server itself is stuck, opening the second connection fails. The node then keeps `link`, on
    /// which the server answers as soon as it continues.
    async fn replace(self: Arc<Self>, link: Arc<Link>, before: Heard) {
        let mut state = self.state.subscribe();
        let opened = tokio::select! {
            biased;
            // Once the state has changed, `connect` may run. From then on, only `connect` may record what a
            // server reports about itself.
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
        // Nothing may be awaited between opening the new connection and this switch: `keep_checking` of the
        // new connection might see that the node still uses `link`, and end.
        let is_replaced = self.state.send_if_modified(|state| {
            let is_current = state.is(&link);
            if is_current {
                std::mem::swap(state, &mut new);
            }
            is_current
        });
        if is_replaced {
            events::disconnected(self.address());
            self.health.connected(self.address());
            self.counters.reconnects.up();
            // Requests in flight that may be repeated are sent again on the new connection, before their
            // deadlines.
            link.connection.give_up();
        }
    }
}
