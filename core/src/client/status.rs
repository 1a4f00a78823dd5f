//! The status of a resource, node by node, for operators and tools. No lock relies on this status.
//!
//! This module also has the two operations that operators use after they have read a status: force-release and forget.

use crate::client::lock::Lock;
use crate::client::setup::Setup;
use crate::error::{Error, NodeOutcome, NodeReport, Result};
use crate::lock::driver::Driver;
use crate::node::Node;
use crate::node::exchange::PackedRequest;
use crate::runtime::Pending;
use crate::runtime::clock;
use crate::wire::answer::{self, Answered};
use crate::wire::keys::Keys;
use crate::wire::reply::{Holder, Reply};
use crate::wire::request::{Request, Subject};
use crate::wire::token::Token;
use futures_util::future::join_all;
use quorlock_protocol::{FENCE_WINDOW, Quorum};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The state of a resource, derived from the reports of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// The resource is free on a majority of the nodes.
    Free,
    /// A majority of the nodes holds the same token.
    Held,
    /// The resource is neither free nor held on a majority: several clients are trying to acquire the resource, or the
    /// keys of an attempt that failed have not expired.
    Contested,
    /// Too few nodes answered to determine the state.
    Unknown,
}

impl State {
    /// The state as a stable string for programs, such as `held`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Contested => "contested",
            Self::Unknown => "unknown",
        }
    }
}

/// A reader of a resource: the holder of a lease in shared mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Reader {
    /// The name of the reader; `None` if the reader has no name.
    pub holder: Option<String>,
    /// The first 8 characters of the reader's token, which tell readers apart. The rest of the token is secret.
    pub token: String,
    /// The whole token of the reader.
    #[serde(skip)]
    pub(crate) value: Token,
    /// The time in milliseconds until the reader's lease expires on this node, unless the lease is extended. In
    /// [`Status::readers`]: the time until fewer than a majority of the nodes hold the lease.
    pub expires_in_ms: u64,
}

/// What one node reports about a resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's URL, without user and password.
    pub address: String,
    /// `held` if the resource is held on this node, and `missing` if the resource is free there. Any other outcome says
    /// why there is no report, or why the report does not count.
    pub outcome: NodeOutcome,
    /// Details, such as the server's error text; may be empty.
    pub detail: String,
    /// The name of the holder; `None` if the holder has no name, if there are readers, or if another program stored the
    /// key.
    pub holder: Option<String>,
    /// The holders in shared mode. Empty if the resource is free, or if its holder holds it exclusively.
    pub readers: Vec<Reader>,
    /// The first 8 characters of the token in the lock key, which tell holders apart. `None` if there is no key, if the
    /// value of the key is not text, or if there are readers. The rest of the token is secret.
    pub token: Option<String>,
    /// The whole value of the lock key, for a force-release; `None` if there is no key, or if the value is not text.
    #[serde(skip)]
    pub(crate) value: Option<Token>,
    /// The time until the key expires, in milliseconds; `None` if the key never expires, or if there is no key.
    pub expires_in_ms: Option<u64>,
    /// The last fencing token that the node granted for the resource; `None` if the node has forgotten that token.
    pub fence: Option<u64>,
    /// The number of clients in the node's queue; `None` if the queue could not be read.
    pub waiters: Option<u64>,
}

/// The status of a resource; see [`Client::status`](crate::Client::status).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The name of the resource.
    pub resource: String,
    /// The state of the resource, such as [`State::Held`].
    pub state: State,
    /// The name of the holder. `None` if the state is not [`State::Held`], if the holder has no name, if there are
    /// readers, or if another program holds the resource. The holder chooses its own name.
    pub holder: Option<String>,
    /// The holders in shared mode: those whose tokens a majority of the nodes stores.
    pub readers: Vec<Reader>,
    /// The first 8 characters of the token that a majority of the nodes holds. These characters tell holders apart.
    /// `None` if the state is not [`State::Held`], or if there are readers. The rest of the token is secret.
    pub token: Option<String>,
    /// When the holder acquired the resource, in milliseconds since the Unix epoch by the nodes' clocks. `None` if the
    /// state is not [`State::Held`], if another program holds the resource, if the fence is unknown, or if the time
    /// would lie in the future.
    ///
    /// The time is derived from the fence, which is normally the median of the nodes' clocks. If a node's fence counter
    /// was ahead of the clocks, this time is later than the true time.
    pub since_ms: Option<u64>,
    /// The fencing token of the holder, if the resource is held. Otherwise the largest fencing token that any node
    /// still stores, from the last holder or from a failed attempt; `None` if no node stores one.
    pub fence: Option<u64>,
    /// The time in milliseconds until the resource is free on a majority of the nodes, unless a lease is extended.
    /// `None` if the resource is free, or if the time is unknown.
    pub expires_in_ms: Option<u64>,
    /// The number of clients that wait for the resource: the length of the longest queue on any node.
    pub waiters: u64,
    /// What each node reports, in the order of the client's list.
    pub nodes: Vec<NodeStatus>,
}

impl Status {
    /// Whether a force-release would delete anything. For the command line.
    #[doc(hidden)]
    pub fn would_release(&self) -> bool {
        self.nodes.iter().any(|node| node.value.is_some())
    }

    /// Returns the status as JSON. The keys are the names of the fields.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it contains only values that JSON can represent")
    }

    /// Derives the status from the nodes' reports. `now` is the current time of the nodes' clocks, in microseconds
    /// since the Unix epoch.
    pub(crate) fn of(resource: &str, quorum: Quorum, now: u64, nodes: Vec<NodeStatus>) -> Self {
        let state = state(quorum, &nodes);
        let held = |node: &&NodeStatus| node.outcome == NodeOutcome::Held;
        let token = most_held(&nodes).filter(|_| state == State::Held).and_then(|(token, _)| token);
        // The time in milliseconds until the resource is free on this node; `None` if the key never expires, or if the
        // node's report does not count.
        let free_at = |node: &NodeStatus| match node.outcome {
            NodeOutcome::Missing => Some(0),
            NodeOutcome::Held => node.expires_in_ms,
            _ => None,
        };
        let mut free_at: Vec<_> = nodes.iter().filter_map(free_at).collect();
        free_at.sort_unstable();
        let expires_in_ms = free_at.get(quorum.size() - 1).copied();
        let fence = match state {
            State::Held => nodes.iter().filter(held).filter_map(|node| node.fence).max(),
            _ => nodes.iter().filter_map(|node| node.fence).max(),
        };
        // Accept a fence that is slightly ahead of `now`: the nodes' clocks may differ by `FENCE_WINDOW`.
        let is_past =
            |fence: &u64| Duration::from_micros(fence.saturating_sub(now)) <= FENCE_WINDOW;
        let since = fence.filter(is_past).filter(|_| token.is_some_and(Token::is_own));
        Self {
            resource: resource.to_owned(),
            state,
            holder: token.and_then(Token::holder).map(str::to_owned),
            readers: readers(quorum, &nodes),
            token: token.filter(|token| !token.is_marker()).map(Token::shown),
            since_ms: since.map(|fence| fence.min(now) / 1_000),
            fence,
            expires_in_ms: expires_in_ms.filter(|_| state != State::Free),
            waiters: nodes.iter().filter_map(|node| node.waiters).max().unwrap_or_default(),
            nodes,
        }
    }
}

/// Returns the most frequent value of the lock key, and the number of nodes that have this value. A value of `None`
/// stands for all values that are not text.
fn most_held(nodes: &[NodeStatus]) -> Option<(Option<&Token>, usize)> {
    let mut holders = HashMap::<_, usize>::new();
    for node in nodes.iter().filter(|node| node.outcome == NodeOutcome::Held) {
        *holders.entry(node.value.as_ref()).or_default() += 1;
    }
    holders.into_iter().max_by_key(|(_, count)| *count)
}

/// Returns the readers whose tokens a majority of the nodes stores.
fn readers(quorum: Quorum, nodes: &[NodeStatus]) -> Vec<Reader> {
    let counted = || nodes.iter().filter(|node| node.outcome == NodeOutcome::Held);
    let mut left = HashMap::<_, Vec<_>>::new();
    for reader in counted().flat_map(|node| &node.readers) {
        left.entry(&reader.value).or_default().push(reader.expires_in_ms);
    }
    let of_majority = |(token, mut left): (&Token, Vec<u64>)| {
        left.sort_unstable();
        let last = left.len().checked_sub(quorum.size())?;
        Some(Reader::of(token, left[last]))
    };
    let mut readers: Vec<_> = left.into_iter().filter_map(of_majority).collect();
    readers.sort_by(|one, other| one.value.as_str().cmp(other.value.as_str()));
    readers
}

impl Reader {
    fn of(token: &Token, expires_in_ms: u64) -> Self {
        let holder = token.holder().map(str::to_owned);
        Self { holder, token: token.shown(), value: token.clone(), expires_in_ms }
    }
}

fn state(quorum: Quorum, nodes: &[NodeStatus]) -> State {
    let count = |outcome| nodes.iter().filter(|node| node.outcome == outcome).count();
    let free = count(NodeOutcome::Missing);
    let held = count(NodeOutcome::Held);
    let most = most_held(nodes).map_or(0, |(_, count)| count);
    if most >= quorum.size() {
        State::Held
    } else if free >= quorum.size() {
        State::Free
    } else if held > quorum.tolerated() {
        State::Contested
    } else {
        State::Unknown
    }
}

impl NodeStatus {
    fn of(report: NodeReport, answered: Answered) -> Self {
        let NodeReport { address, outcome, detail } = report;
        let info = match answered {
            Ok(Reply::Seen(info)) => Some(info),
            // Show what a guarded node reports, although the report does not count. The outcome is `guarded`.
            Ok(Reply::Uncounted(reply, _)) => match *reply {
                Reply::Seen(info) => Some(info),
                _ => None,
            },
            _ => None,
        };
        let value = info.as_ref().and_then(|info| match &info.holder {
            Holder::Token(token) => Some(token.clone()),
            Holder::Nobody | Holder::Other => None,
        });
        Self {
            address,
            outcome,
            detail,
            holder: value.as_ref().and_then(Token::holder).map(str::to_owned),
            readers: info.as_ref().map_or_else(Vec::new, |info| {
                let reader =
                    |(token, left): &(Token, Duration)| Reader::of(token, milliseconds(*left));
                info.readers.iter().map(reader).collect()
            }),
            token: value.as_ref().filter(|token| !token.is_marker()).map(Token::shown),
            value,
            expires_in_ms: info.as_ref().and_then(|info| info.expires_in.map(milliseconds)),
            fence: info.as_ref().and_then(|info| info.fence),
            waiters: info.as_ref().and_then(|info| info.waiters),
        }
    }
}

pub(crate) fn status(setup: &Arc<Setup>, resource: String) -> Pending<Result<Status>> {
    let lock = Lock::new(Arc::clone(setup), resource.into());
    lock.query(async |driver, keys, resources| Ok(look(&driver, &keys, &resources[0]).await))
}

/// Deletes, on each node, the tokens that `seen` contains for that node.
pub(crate) fn release(setup: &Arc<Setup>, seen: &Status) -> Pending<Result<Vec<NodeReport>>> {
    let own = setup.endpoints.iter().map(|endpoint| &*endpoint.address);
    if !own.eq(seen.nodes.iter().map(|node| &*node.address)) {
        return Pending::ready(Err(Error::config(
            "the status is that of a client with other nodes, or with the same nodes in another order: pass a status \
             of this client",
        )));
    }
    let seen = seen.clone();
    let lock = Lock::new(Arc::clone(setup), seen.resource.as_str().into());
    lock.query(async move |driver, keys, _| Ok(delete(&driver, &keys, seen).await))
}

/// Queries all nodes, and then deletes, on each node, the tokens that the query found there.
pub(crate) fn release_holder(
    setup: &Arc<Setup>,
    resource: String,
) -> Pending<Result<Vec<NodeReport>>> {
    let lock = Lock::new(Arc::clone(setup), resource.into());
    lock.query(async |driver, keys, resources| {
        let seen = look(&driver, &keys, &resources[0]).await;
        Ok(delete(&driver, &keys, seen).await)
    })
}

async fn look(driver: &Driver, keys: &Arc<[Keys]>, resource: &str) -> Status {
    let request = |_| Some(Request::Inspect(Arc::clone(keys)));
    let nodes = ask(driver, request).await.into_iter();
    let nodes = nodes.map(|(report, answered)| NodeStatus::of(report, answered)).collect();
    let now = driver.clocks.at(clock::now()).unwrap_or_else(clock::wall_clock_micros);
    Status::of(resource, driver.quorum, now, nodes)
}

/// Deletes the tokens in `seen`: those of the readers, or else the value of the lock key. For a node without a token in
/// `seen`, returns the report from `seen`.
async fn delete(driver: &Driver, keys: &Arc<[Keys]>, seen: Status) -> Vec<NodeReport> {
    let began = clock::now();
    let patience = driver.options.node_timeout(driver.options.ttl);
    let keys_of_readers: Arc<[Keys]> = keys.iter().map(|keys| keys.clone().shared()).collect();
    let release = |keys: &Arc<[Keys]>, token: &Token| {
        let subject = Arc::new(Subject::new(Arc::clone(keys), token.clone(), None));
        Request::release(&subject, driver.turns())
    };
    // The marker is the same for all readers, so deleting it would end those that joined later.
    let releases = |node: &NodeStatus| -> Vec<_> {
        match &*node.readers {
            [] => node.value.iter().map(|token| release(keys, token)).collect(),
            readers => {
                readers.iter().map(|reader| release(&keys_of_readers, &reader.value)).collect()
            }
        }
    };
    let delete = |(node, seen): (&Arc<Node>, NodeStatus)| {
        let node = Arc::clone(node);
        let calls = releases(&seen).into_iter().map(|release| node.call(release, began, patience));
        let calls = join_all(calls);
        async move {
            let answers = calls.await;
            let reports =
                answers.iter().map(|answered| answer::report(node.address(), Some(answered)));
            let NodeStatus { address, outcome, detail, .. } = seen;
            // Of several readers, some may have left before. A failure to release one of them must be reported.
            let reported = reports.min_by_key(|report| match report.outcome {
                NodeOutcome::Missing => 2,
                NodeOutcome::Confirmed => 1,
                _ => 0,
            });
            reported.unwrap_or(NodeReport { address, outcome, detail })
        }
    };
    join_all(driver.nodes.iter().zip(seen.nodes).map(delete)).await
}

/// Deletes the fence counter of an unused resource on each node.
pub(crate) fn forget(setup: &Arc<Setup>, resource: String) -> Pending<Result<Vec<NodeReport>>> {
    let lock = Lock::new(Arc::clone(setup), resource.into());
    lock.query(async |driver, keys, _| {
        let forget = |_| Some(Request::Forget(Arc::clone(&keys)));
        Ok(ask(&driver, forget).await.into_iter().map(|(report, _)| report).collect())
    })
}

pub(crate) fn milliseconds(left: Duration) -> u64 {
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
}

/// Sends each node the request that `request` returns for that node. Waits for the answers for at most `node_timeout`.
/// A node for which `request` returns `None` is reported as [`NodeOutcome::Missing`].
pub(crate) async fn ask(
    driver: &Driver,
    request: impl Fn(usize) -> Option<Request>,
) -> Vec<(NodeReport, Answered)> {
    let began = clock::now();
    let patience = driver.options.node_timeout(driver.options.ttl);
    let mut fan_out = driver.fan_out(began, patience);
    for (position, node) in driver.nodes.iter().enumerate() {
        if let Some(request) = request(position) {
            fan_out.send(node, &PackedRequest::from(request));
        }
    }
    let mut answers: Vec<Answered> = driver.nodes.iter().map(|_| Ok(Reply::No)).collect();
    while let Some((position, answered)) = fan_out.next().await {
        answers[position] = answered;
    }
    let report = |(node, answered): (&Arc<Node>, Answered)| {
        (answer::report(node.address(), Some(&answered)), answered)
    };
    driver.nodes.iter().zip(answers).map(report).collect()
}
