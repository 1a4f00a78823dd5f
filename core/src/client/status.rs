//! Who holds a resource, node by node, for those who look after a system. Nothing relies on it.

use crate::client::lock::Lock;
use crate::client::setup::Setup;
use crate::command::answer::{self, Answered};
use crate::command::keys::Keys;
use crate::command::reply::{Holder, Reply};
use crate::command::request::{Request, Subject};
use crate::error::{NodeOutcome, NodeReport, Result};
use crate::lock::driver::Driver;
use crate::node::Node;
use crate::node::exchange::PackedRequest;
use crate::runtime::Pending;
use crate::runtime::clock;
use quorlock_protocol::Quorum;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What the nodes say together about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// A majority of the nodes is free.
    Free,
    /// A majority of the nodes holds the same token.
    Held,
    /// No majority is free, and none is known to hold the same token: several contend at this moment, or
    /// what one of them left has not expired.
    Contested,
    /// Too few nodes answered to tell.
    Unknown,
}

impl State {
    /// The state as programs see it, such as `held`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Contested => "contested",
            Self::Unknown => "unknown",
        }
    }
}

/// What one node keeps of a resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's URL, without user and password.
    pub address: String,
    /// `held`, `missing` if it is free there, or why the node does not say.
    pub outcome: NodeOutcome,
    /// More about it, such as the server's error text; may be empty.
    pub detail: String,
    /// What the key holds; `None` if there is none, or if it is no text.
    pub token: Option<String>,
    /// When the key expires, in milliseconds from now; `None` if never, or if there is none.
    pub expires_in_ms: Option<u64>,
    /// The last fencing token that the node gave out, for as long as it keeps that.
    pub fence: Option<u64>,
    /// How many clients stand in the node's queue; `None` if that could not be seen.
    pub waiters: Option<u64>,
}

/// What is known of a resource; see [`Client::status`](crate::Client::status).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// What may be locked.
    pub resource: String,
    /// Whether it is.
    pub state: State,
    /// The token that a majority of the nodes holds, if it is held.
    pub token: Option<String>,
    /// The largest fencing token that was given out: the holder's, if it is held; else the last
    /// holder's, or that of an attempt that failed.
    pub fence: Option<u64>,
    /// When so many keys will have expired that a majority is free, in milliseconds from now, if
    /// nobody extends them; `None` if it is free, or if that can't be told.
    pub expires_in_ms: Option<u64>,
    /// How many clients wait for it, by the longest queue.
    pub waiters: u64,
    /// The nodes, in the order in which the client was given them.
    pub nodes: Vec<NodeStatus>,
}

impl Status {
    /// The status as JSON, with the names of the fields.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("there is nothing in it that JSON can't hold")
    }

    pub(crate) fn of(resource: &str, quorum: Quorum, nodes: Vec<NodeStatus>) -> Self {
        let state = state(quorum, &nodes);
        let held = |node: &&NodeStatus| node.outcome == NodeOutcome::Held;
        let most = most_held(&nodes).filter(|_| state == State::Held);
        // When each node that said something is free: now, then, or never.
        let free_at = |node: &NodeStatus| match node.outcome {
            NodeOutcome::Missing => Some(0),
            NodeOutcome::Held => node.expires_in_ms,
            _ => None,
        };
        let mut free_at: Vec<_> = nodes.iter().filter_map(free_at).collect();
        free_at.sort_unstable();
        let expires_in_ms = free_at.get(quorum.size() - 1).copied();
        Self {
            resource: resource.to_owned(),
            state,
            token: most.and_then(|(token, _)| token.map(str::to_owned)),
            fence: match state {
                State::Held => nodes.iter().filter(held).filter_map(|node| node.fence).max(),
                _ => nodes.iter().filter_map(|node| node.fence).max(),
            },
            expires_in_ms: expires_in_ms.filter(|_| state != State::Free),
            waiters: nodes.iter().filter_map(|node| node.waiters).max().unwrap_or_default(),
            nodes,
        }
    }
}

/// What most of the nodes that are held hold, and how many do; `None` stands for any value that is no text.
fn most_held(nodes: &[NodeStatus]) -> Option<(Option<&str>, usize)> {
    let mut holders = HashMap::<_, usize>::new();
    for node in nodes.iter().filter(|node| node.outcome == NodeOutcome::Held) {
        *holders.entry(node.token.as_deref()).or_default() += 1;
    }
    holders.into_iter().max_by_key(|(_, count)| *count)
}

fn state(quorum: Quorum, nodes: &[NodeStatus]) -> State {
    let count = |outcome| nodes.iter().filter(|node| node.outcome == outcome).count();
    let (free, held) = (count(NodeOutcome::Missing), count(NodeOutcome::Held));
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
            // What it says is told, but does not count.
            Ok(Reply::Uncounted(reply, _)) => match *reply {
                Reply::Seen(info) => Some(info),
                _ => None,
            },
            _ => None,
        };
        let milliseconds = |left: Duration| u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Self {
            address,
            outcome,
            detail,
            token: info.as_ref().and_then(|info| match &info.holder {
                Holder::Token(token) => Some(token.clone()),
                Holder::Nobody | Holder::Other => None,
            }),
            expires_in_ms: info.as_ref().and_then(|info| info.expires_in.map(milliseconds)),
            fence: info.as_ref().and_then(|info| info.fence),
            waiters: info.as_ref().and_then(|info| info.waiters),
        }
    }
}

/// Asks all nodes what they keep of the resource.
pub(crate) fn status(setup: &Arc<Setup>, resource: String) -> Pending<Result<Status>> {
    start(setup, resource, async |driver, keys, resource| {
        let request = |_| Some(Request::Inspect(Arc::clone(&keys)));
        let nodes = ask(&driver, request).await.into_iter();
        let nodes = nodes.map(|(report, answered)| NodeStatus::of(report, answered)).collect();
        Status::of(&resource, driver.quorum, nodes)
    })
}

/// Deletes on each node what was seen there.
pub(crate) fn release(setup: &Arc<Setup>, seen: &Status) -> Pending<Result<Vec<NodeReport>>> {
    let tokens: Vec<_> = seen.nodes.iter().map(|node| node.token.clone()).collect();
    start(setup, seen.resource.clone(), async move |driver, keys, _| {
        let turns = driver.turns();
        let release = |node: usize| {
            let (keys, token) = (Arc::clone(&keys), tokens.get(node)?.clone()?);
            Some(Request::release(&Arc::new(Subject { keys, token, waiter: None }), turns))
        };
        ask(&driver, release).await.into_iter().map(|(report, _)| report).collect()
    })
}

/// Deletes on each node what it keeps of a resource that nobody holds or waits for.
pub(crate) fn forget(setup: &Arc<Setup>, resource: String) -> Pending<Result<Vec<NodeReport>>> {
    start(setup, resource, async |driver, keys, _| {
        let forget = |_| Some(Request::Forget(Arc::clone(&keys)));
        ask(&driver, forget).await.into_iter().map(|(report, _)| report).collect()
    })
}

/// Does something about a resource in the background, once the nodes are connected or known to be down.
fn start<T, F>(
    setup: &Arc<Setup>,
    resource: String,
    work: impl FnOnce(Arc<Driver>, Arc<[Keys]>, String) -> F + Send + 'static,
) -> Pending<Result<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send,
{
    let lock = Lock::new(Arc::clone(setup), resource.clone().into());
    let started = lock.prepare().and_then(|keys| {
        let driver = Arc::clone(setup.driver());
        let (sender, receiver) = oneshot::channel();
        let task = {
            let driver = Arc::clone(&driver);
            async move {
                let done = match driver.ready().await {
                    Ok(()) => Ok(work(driver, keys, resource).await),
                    Err(error) => Err(error.about(lock.resources())),
                };
                let _ = sender.send(done);
            }
        };
        driver.begin(task).map(|()| Pending::new(receiver))
    });
    started.unwrap_or_else(|error| Pending::ready(Err(error)))
}

/// Asks each node what `request` makes for it, and waits for all answers. A node that is not asked
/// has nothing of the resource.
async fn ask(
    driver: &Driver,
    request: impl Fn(usize) -> Option<Request>,
) -> Vec<(NodeReport, Answered)> {
    let (began, patience) = (clock::now(), driver.options.node_timeout(driver.options.ttl));
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
