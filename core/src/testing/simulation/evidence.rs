//! What really happened in a world, by which the verdicts that its clients reach are judged.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What nodes answered, and what kept them from answering, at which time since the beginning of the world.
#[derive(Default)]
pub(super) struct Evidence(Mutex<EvidenceState>);

#[derive(Default)]
struct EvidenceState {
    /// When a node last refused the lock on this key to this process, because it was held by another token or
    /// it was another waiter's turn.
    refusals: HashMap<(String, String), Duration>,
    troubles: Vec<Trouble>,
}

/// Something that may keep a node from answering in time.
struct Trouble {
    node: usize,
    /// `None` if all processes are concerned.
    process: Option<String>,
    /// `None` while it lasts.
    to: Option<Duration>,
}

/// Names a trouble that lasts.
pub(super) struct Lasting(usize);

impl Evidence {
    fn state(&self) -> MutexGuard<'_, EvidenceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn refused(&self, now: Duration, process: String, lock: &str) {
        self.state().refusals.insert((process, lock.to_owned()), now);
    }

    /// When one of these locks was last refused to this process.
    pub(super) fn last_refusal(&self, process: &str, locks: &[String]) -> Option<Duration> {
        let state = self.state();
        let refusal = |lock: &String| state.refusals.get(&(process.to_owned(), lock.clone()));
        locks.iter().filter_map(refusal).max().copied()
    }

    /// A trouble begins.
    pub(super) fn begin(&self, node: usize, process: Option<&str>) -> Lasting {
        let troubles = &mut self.state().troubles;
        troubles.push(Trouble { node, process: process.map(str::to_owned), to: None });
        Lasting(troubles.len() - 1)
    }

    pub(super) fn end(&self, now: Duration, Lasting(trouble): Lasting) {
        self.state().troubles[trouble].to = Some(now);
    }

    /// How many nodes were in trouble for this process at any time since then.
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
