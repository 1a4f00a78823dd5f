//! Leases that outlive the process that acquired them, for scripts that have no process to hold them.
//!
//! [`keep`] lets a lease go and returns a text; [`resume`] makes a lease of the text in another process. Meanwhile
//! nothing renews or repairs the lease, so it ends by its ttl unless it is resumed and extended in time. The text has
//! the token, so it is a secret: anyone who has it can extend and release the lease. Any number of processes may use
//! it; they share the lease.

use crate::client::lock::Lock;
use crate::client::setup::Setup;
use crate::client::status::ask;
use crate::command::keys::Keys;
use crate::command::reply::Reply;
use crate::command::request::{Request, Subject};
use crate::command::text::{self, TextKind};
use crate::command::token::Token;
use crate::config::mode::Modes;
use crate::config::options::Options;
use crate::config::resources::Resources;
use crate::error::{Error, ErrorCode, NodeReport, Result};
use crate::lock::driver::Driver;
use crate::lock::held::{Grant, HeldLease};
use crate::lock::lease::Lease;
use crate::runtime::clock;
use futures_util::future::join_all;
use quorlock_protocol::{self as protocol, FENCE_LIMIT, Footprint, NodeSet};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// What a text contains.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    resources: Vec<String>,
    /// The positions of the resources that are shared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shared: Vec<usize>,
    token: String,
    pub(crate) fence: u64,
    pub(crate) ttl: Duration,
    /// The positions of the nodes that counted for the lease.
    pub(crate) sound: Vec<usize>,
    /// Tells nodes and key prefix from others.
    nodes: u32,
}

impl Kept {
    /// Reads a text for a client with so many nodes. `fingerprint` is a number that differs for other nodes or another key
    /// prefix.
    pub(crate) fn read(text: &str, nodes: usize, fingerprint: u32) -> Result<Self> {
        let kept: Self = text::read(TextKind::Kept, text)?;
        if kept.nodes != fingerprint {
            return Err(Error::config(
                "the lease was acquired on other nodes or with another key prefix: give the same nodes, in the \
                 same order, and the same key prefix",
            ));
        }
        if kept.is_possible(nodes) { Ok(kept) } else { Err(text::damaged()) }
    }

    /// Whether [`keep`] can have written this, for a client with so many nodes. [`Lock`] checks the resources.
    fn is_possible(&self, nodes: usize) -> bool {
        Options::is_ttl(self.ttl)
            && (1..FENCE_LIMIT).contains(&self.fence)
            && Token::from(&*self.token).is_whole()
            && self.sound.iter().all(|node| *node < nodes)
            && self.shared.iter().all(|position| *position < self.resources.len())
    }
}

/// Stops renewing the lease, and returns it with the text from which [`resume`] makes a lease. The nodes keep the keys until
/// they expire.
///
/// Waits until all nodes have granted the lease, but at most `node_timeout`: the others would not count later.
pub(crate) async fn keep(setup: &Setup, lease: Lease) -> Result<(Lease, String)> {
    lease.check()?;
    let Some(held) = lease.held().map(Arc::clone) else { return Err(Error::closed()) };
    if held.grant.permits.is_some() {
        return Err(Error::config("permits of a semaphore cannot be kept: detach the lease"));
    }
    let ttl = held.grant.term.ttl;
    held.wait_until(|state| state.lease.missing().is_empty()).await;
    let sound = held.state().lease.sound().iter().collect();
    if !lease.let_go() {
        return Err(held.lost_error());
    }
    let resources = lease.resources().to_vec();
    let token = lease.token().to_owned();
    let nodes = fingerprint(setup);
    let shared = held.modes().shared_positions(&held.grant.resources);
    let kept = Kept { resources, shared, token, fence: held.grant.fence, ttl, sound, nodes };
    Ok((lease, text::write(TextKind::Kept, &kept)))
}

/// Makes a lease of the text of [`keep`]. It is not renewed or repaired.
///
/// The result is [`ErrorCode::LeaseLost`] if the lease has ended; what is left of it on the nodes is then released. It
/// is [`ErrorCode::NoQuorum`] if too few nodes answer to tell, and [`ErrorCode::Config`] for a text that is damaged, or
/// of other nodes.
pub(crate) async fn resume(setup: &Arc<Setup>, text: &str) -> Result<Lease> {
    let kept = Kept::read(text, setup.endpoints.len(), fingerprint(setup))?;
    let resources = Resources::from(kept.resources);
    let modes = Modes::with_shared_positions(&resources, &kept.shared);
    let lock = Lock::new(Arc::clone(setup), resources.clone()).modes(modes.clone());
    let keys = lock.prepare()?;
    let renewer = setup.renewer();
    let driver = setup.driver();
    driver.ready().await.map_err(|error| error.about(&resources))?;
    let subject = Arc::new(Subject::new(keys, kept.token.into(), None));
    let sent = clock::now();
    let StoredToken { left, missing, reports } = find(driver, &subject).await;
    let is_missing = |node: &usize| missing.contains(*node);
    let sound: NodeSet = kept.sound.into_iter().filter(|node| !is_missing(node)).collect();
    let quorum = driver.quorum;
    let factor = driver.options.drift_factor;
    let resumed = protocol::Lease::resume(quorum, sound, kept.fence, sent, factor, &left);
    let nodes = quorum.nodes();
    let needed = quorum.size();
    if resumed.is_none() && sound.len() >= needed {
        let message = format!(
            "too few nodes answered about the lease of {resources} in time: {} of {nodes} did, {needed} are \
             needed",
            left.len()
        );
        return Err(Error::new(ErrorCode::NoQuorum, message).about(&resources).with_nodes(reports));
    }
    let Some(resumed) = resumed.filter(|lease| lease.is_valid(clock::now())) else {
        // No other process can bring it back, so what is left of it only blocks others.
        let release = |(node, _): &(usize, Duration)| {
            let patience = driver.options.node_timeout(kept.ttl);
            let request = Request::release(&subject, driver.turns());
            driver.call(*node, request, clock::now(), patience)
        };
        join_all(left.iter().map(release)).await;
        let message = format!(
            "the lease of {resources} has ended: {} of {nodes} nodes still held it, {needed} are needed",
            left.len()
        );
        return Err(Error::new(ErrorCode::LeaseLost, message)
            .about(&resources)
            .with_nodes(reports));
    };
    let grant = Grant {
        permits: None,
        resources,
        modes,
        subject,
        fence: kept.fence,
        term: driver.options.term(kept.ttl),
        sent,
        end: resumed.end(),
        max_hold: None,
        auto_extend: false,
        keep: None,
        is_resumed: true,
        owner: None,
    };
    // A node that has not answered may hold the key, or have a request of the first process under way.
    let holders = quorum.all().iter().filter(|node| !is_missing(node)).collect();
    let unanswered = quorum.all().iter().filter(|node| !resumed.sound().contains(*node)).collect();
    let gone_by = grant.term.gone(clock::now());
    let footprint = Footprint::with(holders, unanswered, gone_by);
    let held = HeldLease::with(driver, grant, resumed, footprint);
    let lease = Lease::new(renewer, held);
    if driver.closing.is_cancelled() {
        // `Client::close` may have missed this lease. Then another process may still resume it.
        lease.let_go();
        return Err(Error::closed().about(lease.resources()));
    }
    Ok(lease)
}

/// What the nodes know about a token.
struct StoredToken {
    /// The nodes that hold the token for all resources, with the time until the first of the keys expires.
    left: Vec<(usize, Duration)>,
    /// The nodes that do not hold it for all resources.
    missing: NodeSet,
    reports: Vec<NodeReport>,
}

/// Asks all nodes for a token.
async fn find(driver: &Driver, subject: &Subject) -> StoredToken {
    let about = |keys: &Keys| {
        let request = Request::Inspect([keys.clone()].into());
        async move { ask(driver, |_| Some(request.clone())).await }
    };
    let answers = join_all(subject.keys.iter().map(about)).await;
    let mut left = HashMap::new();
    let mut missing = NodeSet::EMPTY;
    let mut unknown = NodeSet::EMPTY;
    for (node, (_, answered)) in answers.iter().flat_map(|answers| answers.iter().enumerate()) {
        match answered {
            Ok(Reply::Seen(stored)) => match stored.left(&subject.token) {
                Some(ttl) => {
                    let shortest = left.entry(node).or_insert(ttl);
                    *shortest = (*shortest).min(ttl);
                }
                None => missing.insert(node),
            },
            // It has not answered, or it is guarded and may have lost the key.
            _ => unknown.insert(node),
        }
    }
    left.retain(|node, _| !missing.contains(*node) && !unknown.contains(*node));
    let reports = answers.into_iter().next().unwrap_or_default();
    StoredToken {
        left: left.into_iter().collect(),
        missing,
        reports: reports.into_iter().map(|(report, _)| report).collect(),
    }
}

/// A number that differs for other nodes, another order of them, or another key prefix.
fn fingerprint(setup: &Setup) -> u32 {
    let addresses = setup.endpoints.iter().map(|endpoint| &*endpoint.address);
    let parts: Vec<_> = addresses.chain([&*setup.options.key_prefix]).collect();
    text::checksum(&parts.join("\n"))
}
