//! Finds out which nodes can vote now, for probes. Sends only the queries that this decision needs, and returns soon
//! after it has found enough nodes that can vote. Called by `Client::votes`.

use super::examine::{Depth, Examined, examine};
use super::judge::{guard_left, obstacle};
use super::together::duplicate_of;
use crate::config::endpoint::Endpoint;
use crate::config::options::Options;
use crate::error::duration::HumanDuration;
use crate::error::{Error, NodeOutcome, NodeReport, Result, same_server};
use crate::runtime::timer::timeout;
use crate::wire::answer::{self, Failure};
use futures_util::stream::{FuturesUnordered, StreamExt};

/// Reports for each node whether it can vote; see `Client::votes`.
pub(crate) async fn votes(
    endpoints: &[Endpoint],
    options: &Options,
    enough: usize,
) -> Result<Vec<NodeReport>> {
    let limit = options.connect_timeout + options.node_timeout(options.ttl);
    let examine = async |node: usize| {
        let examined = timeout(limit, examine(&endpoints[node], options, Depth::Vote)).await;
        (node, examined.unwrap_or_else(|_| vec![Examined::late(&endpoints[node], limit)]))
    };
    let mut examining: FuturesUnordered<_> = (0..endpoints.len()).map(examine).collect();
    // The entry of a node is empty until the node has been examined.
    let mut nodes: Vec<Vec<Examined>> = endpoints.iter().map(|_| Vec::new()).collect();
    let able =
        |servers: &&Vec<Examined>| !servers.is_empty() && obstacle_of(servers, options).is_none();
    while nodes.iter().filter(able).count() < enough
        && let Some((node, servers)) = examining.next().await
    {
        nodes[node] = servers;
    }
    // Enough nodes can vote, or all nodes have been examined. To complete the report, wait only a little longer for the
    // other nodes.
    let others = async {
        while let Some((node, servers)) = examining.next().await {
            nodes[node] = servers;
        }
    };
    let _ = timeout(options.connect_timeout / 4, others).await;

    let duplicate = |node| duplicate_of(&nodes, node).map(|first| (first, node));
    if let Some((first, second)) = (0..nodes.len()).find_map(duplicate) {
        let node = |node: usize| (node, &*endpoints[node].address);
        return Err(Error::config(same_server(node(first), node(second))));
    }
    let report = |(endpoint, servers): (&Endpoint, &Vec<Examined>)| match (
        servers.is_empty(),
        obstacle_of(servers, options),
    ) {
        (true, _) => answer::report(&endpoint.address, None),
        (_, Some(failure)) => answer::report(&endpoint.address, Some(&Err(failure))),
        _ => NodeReport {
            address: endpoint.address.clone(),
            outcome: NodeOutcome::Granted,
            detail: String::new(),
        },
    };
    Ok(endpoints.iter().zip(&nodes).map(report).collect())
}

/// Returns why one of a node's servers cannot vote; `None` if all servers can vote.
fn obstacle_of(servers: &[Examined], options: &Options) -> Option<Failure> {
    servers.iter().find_map(|server| obstacle(server).or_else(|| guard(server, options)))
}

/// Returns a failure if the restart guard keeps a server from voting; `None` otherwise. If the server does not report
/// its uptime, this function assumes that the server has just started, as the module `node` does.
fn guard(server: &Examined, options: &Options) -> Option<Failure> {
    let left = guard_left(server.age().unwrap_or_default(), options);
    (!left.is_zero()).then(|| Failure {
        outcome: NodeOutcome::Guarded,
        detail: format!(
            "it may have restarted not long ago; its votes count in {}",
            HumanDuration(left)
        ),
        sent: true,
    })
}
