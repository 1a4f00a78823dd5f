//! Leases that outlive the process that acquired them. Such leases are for scripts, which have no long-running process
//! that could hold a lease.
//!
//! [`keep`] stops managing a lease and returns a text; [`resume`] turns the text into a lease in another process.
//! Between the two calls, nothing renews or repairs the lease, so it expires after its ttl, unless a process resumes
//! and extends it in time. The text contains the token, so it is a secret: anyone who has the text can extend and
//! release the lease. Any number of processes may use the text; they share the lease.

use crate::client::lock::Lock;
use crate::client::setup::Setup;
use crate::client::status::ask;
use crate::config::mode::Modes;
use crate::config::options::Options;
use crate::config::resources::Resources;
use crate::error::{Error, ErrorCode, NodeReport, Result, needed};
use crate::lock::claim::Claim;
use crate::lock::claim::held::{Fate, Grant, HeldLease};
use crate::lock::driver::Driver;
use crate::lock::lease::Lease;
use crate::runtime::clock;
use crate::wire::keys::Keys;
use crate::wire::reply::Reply;
use crate::wire::request::{Request, Subject};
use crate::wire::text::{self, TextKind};
use crate::wire::token::Token;
use futures_util::future::join_all;
use quorlock_protocol::{FENCE_LIMIT, NodeSet, StoredToken, Unresumable};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The contents of the text of a kept lease.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    resources: Vec<String>,
    /// The positions of the resources that are shared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shared: Vec<usize>,
    token: String,
    pub(crate) fence: u64,
    pub(crate) ttl: Duration,
    /// The positions of the nodes whose votes counted for the lease.
    pub(crate) sound: Vec<usize>,
    /// The [`fingerprint`] of the nodes and the key prefix.
    nodes: u32,
}

impl Kept {
    /// Reads the text of a kept lease, for a client that has `nodes` nodes. `fingerprint` is the client's
    /// [`fingerprint`]; fails if the fingerprint in the text differs.
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

    /// Whether [`keep`] could have written these values for a client that has `nodes` nodes. Does not check the names
    /// of the resources; [`Lock`] checks them.
    fn is_possible(&self, nodes: usize) -> bool {
        Options::is_ttl(self.ttl)
            && (1..FENCE_LIMIT).contains(&self.fence)
            && Token::from(&*self.token).is_whole()
            && self.sound.iter().all(|node| *node < nodes)
            && Modes::are_positions(&self.shared, self.resources.len())
    }
}

/// Stops renewing the lease. Returns the lease, and the text from which [`resume`] makes a lease. The keys stay on the
/// nodes until they expire.
///
/// First waits until all nodes have granted the lease, but for at most `node_timeout`: a node that grants the lease
/// only after the text is written does not count for the resumed lease.
pub(crate) async fn keep(setup: &Setup, lease: Lease) -> Result<(Lease, String)> {
    lease.check()?;
    let Some(held) = lease.held().map(Arc::clone) else { return Err(Error::closed()) };
    if held.grant.permits.is_some() {
        return Err(Error::config("permits of a semaphore cannot be kept: detach the lease"));
    }
    let ttl = held.grant.term.ttl;
    held.wait_a_moment_until(|state| state.claim.lease().missing().is_empty()).await;
    let sound = lease.pass_on()?.iter().collect();
    let resources = lease.resources().to_vec();
    let token = lease.token().to_owned();
    let nodes = fingerprint(setup);
    let shared = held.modes().shared_positions(&held.grant.resources);
    let kept = Kept { resources, shared, token, fence: held.grant.fence, ttl, sound, nodes };
    Ok((lease, text::write(TextKind::Kept, &kept)))
}

/// Makes a lease from a text that [`keep`] returned. Nothing renews or repairs this lease.
///
/// The error is [`ErrorCode::LeaseLost`] if the lease has ended. In that case, this function releases the keys of the
/// lease that are still on nodes, unless a majority may have them: another process may then use the lease. The error is
/// [`ErrorCode::NoQuorum`] if too few nodes answer to tell whether the lease has ended, and [`ErrorCode::Config`] if the
/// text is damaged or was made for other nodes.
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
    let (stored, reports) = find(driver, &subject).await;
    let sound = kept.sound.into_iter().collect();
    let term = driver.options.term(kept.ttl);
    let quorum = driver.quorum;
    let now = clock::now();
    let claim = Claim::resume(Arc::clone(&subject), quorum, sound, kept.fence, term, &stored, now);
    let nodes = quorum.nodes();
    let needed = needed(quorum.size());
    let holders = stored.left.len();
    let claim = match claim {
        Ok(claim) => claim,
        Err(Unresumable::Unknown) => {
            let message = format!(
                "too few nodes answered about the lease of {resources} in time: {holders} of {nodes} did, {needed}"
            );
            let error = Error::new(ErrorCode::NoQuorum, message);
            return Err(error.about(&resources).with_nodes(reports));
        }
        Err(Unresumable::Ended(nodes_left)) => {
            let patience = driver.options.node_timeout(kept.ttl);
            let request = Request::release(&subject, driver.turns());
            let release = |node: usize| driver.nodes[node].call(request.clone(), now, patience);
            join_all(nodes_left.iter().map(release)).await;
            let message = if holders < quorum.size() {
                format!(
                    "the lease of {resources} has ended: {holders} of {nodes} nodes still held it, {needed}"
                )
            } else {
                format!(
                    "the lease of {resources} has ended: too few of its first nodes still held it"
                )
            };
            let error = Error::new(ErrorCode::LeaseLost, message);
            return Err(error.about(&resources).with_nodes(reports));
        }
    };
    let grant = Grant {
        permits: None,
        resources,
        modes,
        subject,
        fence: kept.fence,
        term,
        sent: stored.asked,
        max_hold: None,
        auto_extend: false,
        heartbeat_timeout: None,
        keep: None,
        owner: None,
        fate: Fate::default(),
    };
    let held = HeldLease::new(driver, grant, claim);
    let lease = Lease::new(renewer, held);
    if driver.closing.is_cancelled() {
        // `Client::close` may have run before this lease was added to the renewer. Give the lease up without releasing
        // it, so that another process can still resume the lease.
        let _ = lease.pass_on();
        return Err(Error::closed().about(lease.resources()));
    }
    Ok(lease)
}

/// Asks each node whether it holds the subject's token for all resources, and how soon the first of these keys expires.
/// Returns the answers, and a report of each node for error messages.
async fn find(driver: &Driver, subject: &Subject) -> (StoredToken, Vec<NodeReport>) {
    let asked = clock::now();
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
            // The node did not answer, or it is guarded: a guarded node may have lost the key.
            _ => unknown.insert(node),
        }
    }
    left.retain(|node, _| !missing.contains(*node) && !unknown.contains(*node));
    let reports = answers.into_iter().next().unwrap_or_default();
    let left = left.into_iter().collect();
    let reports = reports.into_iter().map(|(report, _)| report).collect();
    (StoredToken { asked, left, missing }, reports)
}

/// Returns a checksum of the client's key prefix and of the nodes' addresses, in the order of the client's list. A
/// client with other nodes or another prefix has another checksum.
fn fingerprint(setup: &Setup) -> u32 {
    let addresses = setup.endpoints.iter().map(|endpoint| &*endpoint.address);
    let parts: Vec<_> = addresses.chain([&*setup.options.key_prefix]).collect();
    text::checksum(&parts.join("\n"))
}
