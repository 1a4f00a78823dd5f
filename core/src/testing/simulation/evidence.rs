//! Records what the nodes answered and which nodes were disturbed, to check the errors that clients report.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The refusals of nodes and the troubles that may have kept nodes from answering. Times are true times
/// since the beginning of the world.
#[derive(Default)]
pub(super) struct Evidence(Mutex<EvidenceState>);

#[derive(Default)]
struct EvidenceState {
    /// For each process and lock key, when a node last refused the lock. A node refuses a lock if another token holds
    /// it, or if another waiter has precedence.
    refusals: HashMap<(String, String), Duration>,
    /// For each process, when a request of this process last raised a fence.
    raises: HashMap<String, Duration>,
    troubles: Vec<Trouble>,
}

/// Something that may keep a node from answering in time.
struct Trouble {
    node: usize,
    /// `None` if all processes are affected.
    process: Option<String>,
    /// When the trouble ended. `None` while it lasts.
    to: Option<Duration>,
}

/// Identifies a trouble that has not ended.
pub(super) struct Lasting(usize);

impl Evidence {
    fn state(&self) -> MutexGuard<'_, EvidenceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn refused(&self, now: Duration, process: String, lock: &str) {
        self.state().refusals.insert((process, lock.to_owned()), now);
    }

    /// Returns when one of these locks was last refused to this process.
    pub(super) fn last_refusal(&self, process: &str, locks: &[String]) -> Option<Duration> {
        let state = self.state();
        let refusal = |lock: &String| state.refusals.get(&(process.to_owned(), lock.clone()));
        locks.iter().filter_map(refusal).max().copied()
    }

    pub(super) fn raised(&self, now: Duration, process: &str) {
        self.state().raises.insert(process.to_owned(), now);
    }

    /// Whether this process has raised a fence at any time since `since`.
    pub(super) fn has_raised(&self, process: &str, since: Duration) -> bool {
        self.state().raises.get(process).is_some_and(|raised| *raised >= since)
    }

    /// Records the beginning of a trouble.
    pub(super) fn begin(&self, node: usize, process: Option<&str>) -> Lasting {
        let troubles = &mut self.state().troubles;
        troubles.push(Trouble { node, process: process.map(str::to_owned), to: None });
        Lasting(troubles.len() - 1)
    }

    pub(super) fn end(&self, now: Duration, Lasting(trouble): Lasting) {
        self.state().troubles[trouble].to = Some(now);
    }

    /// Returns the number of nodes that were in trouble for this process at any time since `since`.
    pub(super) fn troubled(&self, process: &str, since: Duration) -> usize {
        let state = self.state();
        let concerns = |trouble: &&Trouble| {
            trouble.process.as_deref().is_none_or(|name| name == process)
                && trouble.to.is_none_or(|to| to >= since)
        };
        let mut nodes: Vec<_> =
            state.troubles.iter().filter(concerns).map(|trouble| trouble.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }
}
