//! Lists the names of the resources that are held, for operators and tools. No lock relies on this list.
//!
//! Listing reads every key of every node with SCAN, page by page, so its cost grows with the number of keys.

use crate::client::setup::Setup;
use crate::config::resources::Resources;
use crate::error::{Error, ErrorCode, NodeOutcome, NodeReport, Result, needed};
use crate::lock::driver::Driver;
use crate::node::Node;
use crate::runtime::clock;
use crate::wire::answer::{self, Answered, Failure};
use crate::wire::reply::Reply;
use crate::wire::request::Request;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Lists the held resources whose names begin with `prefix`. Returns at most `limit` names, sorted, and whether there
/// may be more names.
///
/// The error is [`ErrorCode::NoQuorum`] if fewer than a majority of the nodes answered. A majority is enough: for each
/// lock that is held, at least one node of any majority has the lock key.
pub(crate) async fn list(setup: &Setup, prefix: &str, limit: usize) -> Result<(Vec<String>, bool)> {
    let driver = setup.driver();
    driver.ready().await?;
    let key_prefix = &setup.options.key_prefix;
    let pattern: Arc<str> = format!("{key_prefix}{prefix}").into();
    let pages = driver.nodes.iter().map(|node| names_of(driver, node, &pattern, limit));
    let answers: Vec<_> = join_all(pages).await;
    let answered = answers.iter().filter(|answer| answer.is_ok()).count();
    let nodes = driver.quorum.nodes();
    if answered < driver.quorum.size() {
        let report = |(node, answer): (&Arc<Node>, &std::result::Result<_, Answered>)| {
            let answered = answer.as_ref().err().cloned().unwrap_or(Ok(Reply::Yes));
            answer::report(node.address(), Some(&answered))
        };
        let reports: Vec<NodeReport> = driver.nodes.iter().zip(&answers).map(report).collect();
        let advice = match reports.iter().any(|report| report.outcome == NodeOutcome::Noperm) {
            true => "; the user needs the permissions scan and getrange, besides those for locking",
            false => "",
        };
        let message = format!(
            "too few nodes could list their keys in time: {answered} of {nodes} did, {}{advice}",
            needed(driver.quorum.size())
        );
        return Err(Error::new(ErrorCode::NoQuorum, message).with_nodes(reports));
    }
    let mut resources = BTreeSet::new();
    let mut is_cut = false;
    for (names, is_all) in answers.into_iter().flatten() {
        is_cut |= !is_all;
        resources.extend(names);
    }
    is_cut |= resources.len() > limit;
    Ok((resources.into_iter().take(limit).collect(), is_cut))
}

/// Returns the resources of the lock keys of one node that begin with `prefix`, and whether these are all of them. Stops
/// reading from a server after the server has returned more than `limit` of them. If a server of the node fails, returns the server's
/// answer as the error.
async fn names_of(
    driver: &Driver,
    node: &Arc<Node>,
    prefix: &Arc<str>,
    limit: usize,
) -> std::result::Result<(BTreeSet<String>, bool), Answered> {
    let servers = node.servers();
    if servers.is_empty() {
        return Err(Err(Failure::unreachable("the masters of the cluster are not known")));
    }
    let servers = servers.iter().map(|server| names_at(driver, server, prefix, limit));
    let mut all = BTreeSet::new();
    let mut is_all = true;
    for answered in join_all(servers).await {
        let (names, is_end) = answered?;
        all.extend(names);
        is_all &= is_end;
    }
    Ok((all, is_all))
}

/// Returns the resources of the lock keys of one server, as [`names_of`] does for all servers of a node.
async fn names_at(
    driver: &Driver,
    server: &Arc<Node>,
    prefix: &Arc<str>,
    limit: usize,
) -> std::result::Result<(BTreeSet<String>, bool), Answered> {
    let mut found = BTreeSet::new();
    let mut cursor = 0;
    // No acquire waits for this listing, so wait at least `connect_timeout` for a slow page.
    let options = &driver.options;
    let patience = options.connect_timeout.max(options.node_timeout(options.ttl));
    loop {
        let request = Request::List { prefix: Arc::clone(prefix), cursor };
        match server.call(request, clock::now(), patience).await {
            // SCAN may return a key more than once, so `found` is a set.
            Ok(Reply::Page { cursor: next, keys }) => {
                found.extend(keys.iter().filter_map(|key| name_of(driver, key)));
                cursor = next;
            }
            other => return Err(other),
        }
        if cursor == 0 || found.len() > limit {
            return Ok((found, cursor == 0));
        }
    }
}

/// Returns the resource that this lock key locks; `None` if there can be none. A key of another program may have a value
/// that looks like a token, and the lock on a permit is not the lock on a resource.
fn name_of(driver: &Driver, key: &str) -> Option<String> {
    let key_prefix = &driver.options.key_prefix;
    let name = key.strip_prefix(&**key_prefix)?;
    let resources = Resources::from(name);
    let keys = resources.check_keys(key_prefix, driver.has_cluster);
    resources.check().and(keys).is_ok().then(|| name.to_owned())
}
