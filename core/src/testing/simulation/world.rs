//! A simulated world: its nodes and its history.

use super::history::History;
use super::node::Node;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use tokio::runtime::Builder;

/// Runs a hand-written scenario in virtual time, which passes only while all tasks wait.
pub(super) fn in_virtual_time(story: impl Future<Output = ()>) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime without IO");
    runtime.block_on(story);
}

pub(super) struct World {
    history: Arc<History>,
    pub(super) nodes: Vec<Arc<Node>>,
}

impl World {
    /// `seed` is `None` for a hand-written scenario, which is identified by the name of its test.
    pub(super) fn new(
        nodes: Vec<Arc<Node>>,
        random: fastrand::Rng,
        seed: Option<u64>,
        is_traced: bool,
    ) -> Arc<Self> {
        let name = match seed {
            Some(seed) => format!("seed-{seed}"),
            None => thread::current().name().unwrap_or("test").to_owned(),
        };
        let history = Arc::new(History::new(random, is_traced, &name));
        nodes.iter().for_each(|node| node.belongs_to(&history));
        let described = || nodes.iter().map(|node| node.described()).collect::<Vec<_>>().join(",");
        history.record(|| format!("\"world\",{name:?},[{}]", described()));
        Arc::new(Self { history, nodes })
    }
}

impl Deref for World {
    type Target = History;

    fn deref(&self) -> &History {
        &self.history
    }
}
