//! The shared state of one client in one process: its nodes, options and background tasks.
//!
//! All code in `lock/` sends its requests through the [`Driver`]. The driver decides nothing about votes, leases or
//! waiting.
//! `client/setup.rs` creates one driver for each client and, after a fork, another one for the child process.

use crate::config::endpoint::Endpoint;
use crate::config::holder;
use crate::config::options::Options;
use crate::config::resources::Resources;
use crate::error::{Error, ErrorCode, NodeOutcome, NodeReport, Result, needed};
use crate::lock::claim::handover::Namespace;
use crate::lock::waiting::permits::Semaphores;
use crate::lock::waiting::subscriber::Subscriber;
use crate::lock::waiting::waiters::Waiters;
use crate::node::Node;
use crate::node::clocks::Clocks;
use crate::node::exchange::PackedRequest;
use crate::node::fanout::FanOut;
use crate::node::identity::Identities;
use crate::runtime::clock;
use crate::runtime::deadline::Deadlines;
use crate::runtime::timer::timeout;
use crate::runtime::{self, Pending};
use crate::telemetry::stats::{Stats, Totals};
use crate::wire::answer::{self, Answered};
use crate::wire::request::Request;
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorlock_protocol::{Moment, Quorum, Turns};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OnceCell, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A client's options, nodes and background tasks. All leases and tasks of the client share one driver.
pub(crate) struct Driver {
    pub(crate) options: Options,
    pub(crate) quorum: Quorum,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) semaphores: Semaphores,
    pub(crate) closing: CancellationToken,
    /// Ends the waits for late answers. Cancelled with `closing`, and when the driver is dropped.
    pub(crate) stop_late: CancellationToken,
    pub(crate) totals: Totals,
    /// The holder name of a lease whose lock sets no name: the name of this process.
    pub(crate) process_name: Arc<str>,
    deadlines: Arc<Deadlines>,
    pub(crate) tasks: TaskTracker,
    has_run_tasks: AtomicBool,
    /// Whether any node is a Redis Cluster, where each request may only contain keys of one slot.
    pub(crate) has_cluster: bool,
    /// Set when the first call of [`Driver::ready`] has given every node time to connect. Before that, no lock is
    /// granted, because duplicate nodes might not have been found yet.
    first_connections: OnceCell<()>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The tasks that wait for late answers do not keep the driver alive. These tasks could wait forever, so stop
        // them here.
        self.stop_late.cancel();
    }
}

impl Driver {
    pub(crate) fn new(options: Options, quorum: Quorum, endpoints: &[Endpoint]) -> Arc<Self> {
        let addresses = endpoints.iter().map(|endpoint| endpoint.address.clone()).collect();
        let identities = Identities::new(addresses);
        let deadlines = Arc::default();
        let clocks = Arc::new(Clocks::new(endpoints.len()));
        let node = |(position, endpoint): (usize, &Endpoint)| {
            Node::new(endpoint.clone(), position, &options, &identities, &deadlines, &clocks)
        };
        let closing = CancellationToken::new();
        let patience = options.connect_timeout;
        let prefix = &options.key_prefix;
        let subscriber = Subscriber::new(endpoints, patience, prefix, &closing);
        Arc::new(Self {
            quorum,
            nodes: endpoints.iter().enumerate().map(node).collect(),
            identities,
            options,
            semaphores: Semaphores::default(),
            waiters: Waiters::new(Arc::clone(&clocks), subscriber),
            clocks,
            stop_late: closing.child_token(),
            closing,
            totals: Totals::default(),
            process_name: holder::of_this_process().into(),
            deadlines,
            tasks: TaskTracker::new(),
            has_run_tasks: AtomicBool::new(false),
            has_cluster: endpoints.iter().any(Endpoint::is_cluster),
            first_connections: OnceCell::new(),
        })
    }

    pub(crate) fn stats(&self) -> Stats {
        let nodes = self.nodes.iter().map(|node| node.stats()).collect();
        self.totals.read(self.waiters.count(), nodes)
    }

    /// Runs a task in the background. [`Driver::close`] waits for the task. Polls the task for the first time on this
    /// thread, to save a thread switch before the first request of an operation. Fails if the runtime cannot be
    /// started.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        self.has_run_tasks.store(true, Ordering::Release);
        runtime::begin(self.tasks.track_future(task))
    }

    /// Runs a task in the background. [`Driver::close`] waits for the task. Must be called on the runtime.
    pub(crate) fn detach(&self, task: impl Future<Output = ()> + Send + 'static) {
        runtime::detach(self.tasks.track_future(task));
    }

    /// Begins `task` as [`Driver::begin`] does. The returned `Pending` waits for the result that the task sends.
    pub(crate) fn begin_for<T, F>(
        &self,
        task: impl FnOnce(oneshot::Sender<T>) -> F,
    ) -> Result<Pending<T>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.begin(task(sender))?;
        Ok(Pending::new(receiver))
    }

    /// Begins a task that calls `work` with this driver, and sends the result to the returned `Pending`.
    pub(crate) fn ask<T, F>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Result<Pending<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send,
    {
        let driver = Arc::clone(self);
        self.begin_for(|caller| async move {
            // Sending fails if the caller does not wait any more.
            let _ = caller.send(work(driver).await);
        })
    }

    /// Waits until the background tasks have ended, but at most `connect_timeout`, then closes the
    /// connections.
    pub(crate) fn close(self: &Arc<Self>) -> Pending<()> {
        if !self.has_run_tasks.load(Ordering::Acquire) {
            return Pending::ready(());
        }
        let (sender, receiver) = oneshot::channel();
        let driver = Arc::clone(self);
        let closing = async move {
            driver.tasks.close();
            let _ = timeout(driver.options.connect_timeout, driver.tasks.wait()).await;
            driver.nodes.iter().for_each(|node| node.close());
            let _ = sender.send(());
        };
        match runtime::spawn(closing) {
            Ok(()) => Pending::new(receiver),
            Err(_) => Pending::ready(()),
        }
    }

    /// Waits until a majority of the nodes is connected, or until every node is either connected or known to be down.
    /// Takes at most `connect_timeout`.
    ///
    /// The first call also gives the other nodes time to connect, so that duplicate nodes are found before a lock is
    /// granted. Later calls return at once if a majority is connected. Fails if duplicate nodes are known.
    pub(crate) async fn ready(&self) -> Result<()> {
        let up = |node: &&Arc<Node>| node.start_connecting() == Some(true);
        if self.nodes.iter().filter(up).count() < self.quorum.size()
            || !self.first_connections.initialized()
        {
            self.wait_for_connections().await;
        }
        self.identities.mistake().map_or(Ok(()), Err)
    }

    async fn wait_for_connections(&self) {
        let began = clock::now();
        let mut settling: FuturesUnordered<_> =
            self.nodes.iter().map(|node| node.settled()).collect();
        let mut up = 0;
        while up < self.quorum.size()
            && let Some(is_up) = settling.next().await
        {
            up += usize::from(is_up);
        }
        let others = async {
            let patience = self.options.connect_timeout / 4;
            let patience = patience.max(clock::now().since(began));
            let _ = timeout(patience, settling.count()).await;
        };
        self.first_connections.get_or_init(|| others).await;
    }

    /// Returns the queue settings of a request that reserves no resource for its waiter.
    pub(crate) fn turns(&self) -> Turns {
        Turns::new(self.options.retry_delay)
    }

    /// Returns an empty fan-out for an operation that began at `began`. `patience` is the time limit for the answer to
    /// each request of the fan-out, counted from this call.
    pub(crate) fn fan_out(&self, began: Moment, patience: Duration) -> FanOut {
        FanOut::new(&self.deadlines, began, patience, self.nodes.len())
    }

    /// Sends one request to all nodes concurrently. See [`Driver::fan_out`] for the arguments.
    pub(crate) fn broadcast(
        &self,
        request: impl Into<PackedRequest>,
        began: Moment,
        patience: Duration,
    ) -> FanOut {
        let mut fan_out = self.fan_out(began, patience);
        let packed_request = request.into();
        self.nodes.iter().for_each(|node| fan_out.send(node, &packed_request));
        fan_out
    }

    /// Sends these requests to one node in the background, one after the other. Takes each request from `requests` just
    /// before its first try, and repeats the request until the node answers or `horizon` has passed. After the client is
    /// closed, sends each request at most once more. Each try waits for an answer for `patience`. Must be called on the
    /// runtime.
    pub(crate) fn deliver(
        &self,
        node: usize,
        requests: impl IntoIterator<Item = Request, IntoIter: Send> + Send + 'static,
        patience: Duration,
        horizon: Moment,
    ) {
        let target = Arc::clone(&self.nodes[node]);
        let closing = self.closing.clone();
        self.detach(async move {
            for request in requests {
                target.deliver(request, patience, horizon, &closing).await;
            }
        });
    }

    /// Returns each node's answer as a report for an error.
    pub(crate) fn reports(&self, answers: &[Option<Answered>]) -> Vec<NodeReport> {
        let nodes = self.nodes.iter().zip(answers);
        nodes.map(|(node, answer)| answer::report(node.address(), answer.as_ref())).collect()
    }

    /// Returns the nodes and the key prefix. A detached lease can be adopted only by a client with the same nodes and
    /// prefix.
    pub(crate) fn namespace(&self) -> Namespace<'_> {
        let addresses = self.nodes.iter().map(|node| node.address()).collect();
        Namespace { addresses, key_prefix: &self.options.key_prefix }
    }

    /// Returns the `NoQuorum` error for an operation with these answers. `node_timeout` was the time limit for the
    /// answers.
    pub(crate) fn no_quorum(
        &self,
        resources: &Resources,
        answers: &[Option<Answered>],
        node_timeout: Duration,
    ) -> Error {
        let answered = answers.iter().flatten().filter(|answer| answer::is_counted(answer)).count();
        let count = |outcome| {
            let same = |answer: &&Answered| answer::outcome(answer) == outcome;
            answers.iter().flatten().filter(same).count()
        };
        let guarded = match count(NodeOutcome::Guarded) {
            0 => String::new(),
            count => format!(", {count} may have restarted not long ago"),
        };
        let advice = match count(NodeOutcome::Timeout) {
            0 => String::new(),
            _ => self.options.node_timeout_advice(node_timeout),
        };
        let nodes = self.quorum.nodes();
        let needed = needed(self.quorum.size());
        let message = format!(
            "too few nodes could vote on {resources}: {answered} of {nodes} could{guarded}, {needed}{advice}"
        );
        Error::new(ErrorCode::NoQuorum, message).about(resources).with_nodes(self.reports(answers))
    }
}

/// Sends the result of `work` to `caller`. Drops `work` if the caller stops waiting.
pub(crate) async fn run_for<T>(mut caller: oneshot::Sender<T>, work: impl Future<Output = T>) {
    let result = tokio::select! {
        biased;
        () = caller.closed() => return,
        result = work => result,
    };
    // Sending fails if the caller is gone. A lease in the result is then dropped, and thereby released.
    let _ = caller.send(result);
}
