//! Whether a node can do its part, as far as it was told: each trouble is told once, and its end.

use crate::command::answer::{Answered, Failure, outcome};
use crate::command::reply::Reply;
use crate::error::NodeOutcome;
use crate::runtime::clock;
use crate::telemetry::events;
use quorlock_protocol::Moment;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A node that refuses is told again after this: what it refuses may depend on the key.
const REFUSED_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Whether it was told that the node is guarded.
    guarded: AtomicBool,
    state: Mutex<HealthState>,
}

#[derive(Debug, Default)]
struct HealthState {
    was_connected: bool,
    /// Since when it is down.
    down: Option<Moment>,
    /// When it was last told that the node refuses.
    refused: Option<Moment>,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node was connected. Returns whether it had been before.
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

    /// The node could not be connected, or does not answer any more.
    pub(crate) fn failed(&self, node: &str, failure: &Failure) {
        let is_new = {
            let mut state = self.state();
            let is_new = state.down.is_none();
            state.down.get_or_insert_with(clock::now);
            is_new
        };
        // A duplicate is told as such, where it is found out.
        if is_new && failure.outcome != NodeOutcome::Duplicate {
            events::down(node, failure.outcome, &failure.detail);
        }
    }

    /// What came of a vote that the node was asked for.
    pub(crate) fn voted(&self, node: &str, answered: &Answered) {
        match answered {
            Ok(Reply::Uncounted(_, from)) => {
                if !self.guarded.swap(true, Ordering::Relaxed) {
                    events::guarded(node, from.since(clock::now()));
                }
            }
            Ok(_) => {
                // Looked at first, because that is cheaper, and nearly always enough.
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
