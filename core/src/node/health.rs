//! Reports changes of a node's health as events: one event when a problem begins, and one when it ends. Refusals are an
//! exception: no event reports that a node stops refusing requests, and a refusal is reported at most once per
//! [`REFUSED_AGAIN`]. This module decides nothing. `mod.rs`, `connect.rs` and `frozen.rs` call it.

use crate::error::NodeOutcome;
use crate::runtime::clock;
use crate::telemetry::events;
use crate::wire::answer::{Answered, Failure, outcome};
use crate::wire::reply::Reply;
use quorlock_protocol::Moment;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The minimum time between two reports of refusals by one node. Without this pause, a node that refuses
/// some keys and accepts others could cause a report for each refused request.
const REFUSED_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Whether the last event about the restart guard reported that the node's votes do not count yet.
    guarded: AtomicBool,
    state: Mutex<HealthState>,
}

#[derive(Debug, Default)]
struct HealthState {
    was_connected: bool,
    /// The time at which the node went down; `None` if it is not down.
    down: Option<Moment>,
    /// When an event last reported a refusal by this node; `None` if no event has.
    refused: Option<Moment>,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the node is connected, and emits an event. Returns whether the node had been connected before.
    pub(crate) fn connected(&self, node: &str) -> bool {
        let (was_connected, down) = {
            let mut state = self.state();
            (std::mem::replace(&mut state.was_connected, true), state.down.take())
        };
        match down {
            Some(since) => events::up(node, clock::now().since(since)),
            None => events::connected(node),
        }
        was_connected
    }

    /// Records that an attempt to connect failed, or that the node stopped answering. Emits one event per outage.
    pub(crate) fn failed(&self, node: &str, failure: &Failure) {
        let is_new = {
            let mut state = self.state();
            let is_new = state.down.is_none();
            state.down.get_or_insert_with(clock::now);
            is_new
        };
        // Do not report duplicate nodes here, because `identity.rs` reports them.
        if is_new && failure.outcome != NodeOutcome::Duplicate {
            events::down(node, failure.outcome, &failure.detail);
        }
    }

    /// Emits the events that follow from the node's answer to a request for its vote, or from the failure of that
    /// request.
    pub(crate) fn voted(&self, node: &str, answered: &Answered) {
        match answered {
            Ok(Reply::Uncounted(_, from)) => {
                if !self.guarded.swap(true, Ordering::Relaxed) {
                    events::guarded(node, from.since(clock::now()));
                }
            }
            Ok(_) => {
                // A load is cheaper than a swap, and the flag is rarely set.
                if self.guarded.load(Ordering::Relaxed)
                    && self.guarded.swap(false, Ordering::Relaxed)
                {
                    events::counts(node);
                }
            }
            Err(failure) if failure.is_transport() => {}
            Err(failure) => self.refused(node, outcome(answered), &failure.detail),
        }
    }

    fn refused(&self, node: &str, outcome: NodeOutcome, detail: &str) {
        if outcome == NodeOutcome::Duplicate {
            return;
        }
        let now = clock::now();
        let is_due = {
            let mut state = self.state();
            let is_due = state.refused.is_none_or(|last| now.since(last) >= REFUSED_AGAIN);
            if is_due {
                state.refused = Some(now);
            }
            is_due
        };
        if is_due {
            events::refused(node, outcome, detail);
        }
    }
}
