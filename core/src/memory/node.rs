//! In-memory nodes (`memory://name`), for unit tests that users write. The nodes answer the same requests as a server.
//! Keys expire by the same clock that measures the validity of leases.
//!
//! This module owns the nodes of the process, their connections, and the faults that tests inject. `entries.rs` has the
//! data of a node. `node/connection.rs` and `node/subscription.rs` connect to nodes; `client/test_nodes.rs` injects the
//! faults.

use crate::error::NodeOutcome;
use crate::memory::entries::{MessageCallback, NodeMemory};
use crate::runtime::clock;
use crate::runtime::fork::PerProcess;
use crate::runtime::mutex::Mutex;
use crate::wire::answer::{Answered, Failure};
use crate::wire::request::Request;
use quorlock_protocol::Moment;
use quorlock_protocol::node::entry::Time;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The in-memory nodes of this process. Like a server, a node exists even while no client uses it. The node exists
/// until it is removed or the process ends.
static NODES: PerProcess<Mutex<HashMap<String, Arc<MemoryNode>>>> = PerProcess::new();

#[derive(Debug, Default)]
pub(crate) struct MemoryNode {
    state: Mutex<MemoryState>,
    /// Notified when a fault ends.
    recovered: watch::Sender<()>,
}

#[derive(Default)]
struct MemoryState {
    entries: NodeMemory,
    /// The requests that have arrived since the node was frozen, in order; `None` if the node is not
    /// frozen.
    frozen: Option<VecDeque<UnansweredRequest>>,
    /// Whether the node refuses connections.
    is_cut: bool,
    /// When the node was last restarted; `None` if it never was.
    restarted: Option<Moment>,
    restarts: u64,
    /// The function to call when a connection breaks, by the number of the connection.
    connections: HashMap<u64, Arc<dyn Fn() + Send + Sync>>,
    last_connection: u64,
}

/// A request that arrived while the node was frozen, and the callback for its answer.
struct UnansweredRequest {
    request: Arc<Request>,
    on_answer: Box<dyn FnOnce(Answered) + Send>,
}

/// A fault of an in-memory node, or the end of such a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The node accepts connections and requests, but answers none until it is thawed, like a stopped process or a
    /// machine that hangs. After [`Fault::Thaw`], the node handles the waiting requests in order.
    Freeze,
    /// Ends [`Fault::Freeze`].
    Thaw,
    /// All connections break, and the node refuses new connections until [`Fault::Mend`].
    Cut,
    /// Ends [`Fault::Cut`].
    Mend,
    /// The node restarts without its data: it forgets all keys, and all connections break.
    Forget,
}

impl Fault {
    /// Returns the fault with this name in language bindings: the name of the variant in lower case.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "freeze" => Self::Freeze,
            "thaw" => Self::Thaw,
            "cut" => Self::Cut,
            "mend" => Self::Mend,
            "forget" => Self::Forget,
            _ => return None,
        })
    }
}

impl MemoryNode {
    /// Returns the node with this name. Creates the node if it does not exist.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        Arc::clone(NODES.get_or_init(Mutex::default).lock().entry(name.to_owned()).or_default())
    }

    /// Removes the node with this name. The next use of this name creates a new node.
    pub(crate) fn remove(name: &str) {
        NODES.get_or_init(Mutex::default).lock().remove(name);
    }

    /// Opens a connection. `on_broken` is called when the connection breaks. Fails if the node refuses connections.
    pub(crate) fn connect(
        self: &Arc<Self>,
        on_broken: impl Fn() + Send + Sync + 'static,
    ) -> Result<MemoryConnection, Failure> {
        let mut state = self.state.lock();
        if state.is_cut {
            return Err(Failure::unreachable("connection refused by a test"));
        }
        state.last_connection += 1;
        let number = state.last_connection;
        state.connections.insert(number, Arc::new(on_broken));
        Ok(MemoryConnection { node: Arc::clone(self), number })
    }

    /// Returns a future that completes when a fault next ends.
    pub(crate) fn recovered(&self) -> impl Future<Output = ()> + use<> {
        let mut recovered = self.recovered.subscribe();
        async move {
            if recovered.changed().await.is_err() {
                // The node is gone, so no fault can end.
                pending().await
            }
        }
    }

    /// Waits while the node is frozen.
    async fn answers(&self) {
        loop {
            let recovered = self.recovered();
            if self.state.lock().frozen.is_none() {
                return;
            }
            recovered.await;
        }
    }

    /// Applies a fault, or ends one. Must be called on the runtime.
    pub(crate) fn apply(&self, fault: Fault) {
        match fault {
            Fault::Freeze => {
                self.state.lock().frozen.get_or_insert_default();
            }
            Fault::Thaw => self.thaw(),
            Fault::Cut => self.break_connections(|state| state.is_cut = true),
            Fault::Mend => self.state.lock().is_cut = false,
            Fault::Forget => self.break_connections(|state| {
                state.entries = NodeMemory::default();
                state.restarts += 1;
                state.restarted = Some(clock::now());
            }),
        }
        if matches!(fault, Fault::Thaw | Fault::Mend) {
            self.recovered.send_replace(());
        }
    }

    /// Handles the requests that arrived while the node was frozen, in order.
    fn thaw(&self) {
        loop {
            let (answered, on_answer) = {
                let mut state = self.state.lock();
                let Some(waiting) = state.frozen.as_mut().and_then(VecDeque::pop_front) else {
                    state.frozen = None;
                    return;
                };
                (state.answer(&waiting.request), waiting.on_answer)
            };
            // Must be called after the state is unlocked: `on_answer` may send another request, which locks the state.
            on_answer(answered);
        }
    }

    /// Applies `change` and breaks all connections, in one step. Requests that were not handled yet are lost.
    fn break_connections(&self, change: impl FnOnce(&mut MemoryState)) {
        let (connections, requests) = {
            let mut state = self.state.lock();
            change(&mut state);
            state.entries.forget_listeners();
            let requests = state.frozen.as_mut().map(std::mem::take).unwrap_or_default();
            (std::mem::take(&mut state.connections), requests)
        };
        // As on a socket, a broken connection is reported before its requests fail.
        connections.into_values().for_each(|on_broken| on_broken());
        requests.into_iter().for_each(|waiting| (waiting.on_answer)(Err(disconnected())));
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.state.lock().entries.size()
    }

    /// Deletes lock keys, even if they are held.
    pub(crate) fn delete(&self, locks: &[&str]) {
        let entries = &mut self.state.lock().entries;
        locks.iter().for_each(|lock| entries.delete(lock));
    }
}

impl MemoryState {
    fn answer(&mut self, request: &Request) -> Answered {
        let time = Time { now: clock::now(), wall: wall_clock_micros() };
        self.entries.answer(time, request).map_err(Failure::refused)
    }
}

impl fmt::Debug for MemoryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.fmt(f)
    }
}

/// A connection to an in-memory node. Dropping this value closes the connection.
pub(crate) struct MemoryConnection {
    node: Arc<MemoryNode>,
    number: u64,
}

/// Information that an in-memory node reports about itself.
pub(crate) struct MemoryInfo {
    /// Identifies the node, and changes when it restarts.
    pub(crate) run_id: String,
    pub(crate) uptime: Duration,
    /// The node's time in microseconds since the Unix epoch.
    pub(crate) clock: u64,
}

impl MemoryConnection {
    /// Sends a request. `on_answer` is called with the node's answer, or with a failure if the connection is broken.
    pub(crate) fn ask(
        &self,
        request: &Arc<Request>,
        on_answer: impl FnOnce(Answered) + Send + 'static,
    ) {
        let answered = {
            let mut state = self.node.state.lock();
            if !state.connections.contains_key(&self.number) {
                Err(disconnected())
            } else if let Some(waiting) = &mut state.frozen {
                let request = Arc::clone(request);
                let on_answer = Box::new(on_answer);
                return waiting.push_back(UnansweredRequest { request, on_answer });
            } else {
                state.answer(request)
            }
        };
        on_answer(answered);
    }

    /// Queries information about the node. Waits while the node is frozen. Fails if the connection is broken.
    pub(crate) async fn info(&self) -> Result<MemoryInfo, Failure> {
        self.node.answers().await;
        let state = self.node.state.lock();
        if !state.connections.contains_key(&self.number) {
            return Err(disconnected());
        }
        Ok(MemoryInfo {
            run_id: format!("{:p}-{}", Arc::as_ptr(&self.node), state.restarts),
            uptime: state.restarted.map_or(Duration::MAX, |moment| clock::now().since(moment)),
            clock: wall_clock_micros(),
        })
    }

    /// From now on, passes all messages on this channel to `listener`. Waits while the node is frozen. Fails if the
    /// connection is broken.
    pub(crate) async fn listen(
        &self,
        channel: &str,
        listener: MessageCallback,
    ) -> Result<(), Failure> {
        self.node.answers().await;
        let mut state = self.node.state.lock();
        if !state.connections.contains_key(&self.number) {
            return Err(disconnected());
        }
        state.entries.listen(channel, listener);
        Ok(())
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        let on_broken = self.node.state.lock().connections.remove(&self.number);
        // Must not be dropped while the state is locked: the callback may own other connections, and dropping a
        // connection locks the state.
        drop(on_broken);
    }
}

/// The nodes' wall clock in microseconds since the Unix epoch. If a test moves [`clock::now`] ahead, this wall clock
/// moves ahead by the same time, so that fences expire as on a server.
fn wall_clock_micros() -> u64 {
    let ahead = u64::try_from(clock::ahead().as_micros()).unwrap_or(u64::MAX);
    clock::wall_clock_micros().saturating_add(ahead)
}

fn disconnected() -> Failure {
    let detail = "the connection was closed by a test".to_owned();
    Failure { outcome: NodeOutcome::Disconnected, detail, sent: true }
}
