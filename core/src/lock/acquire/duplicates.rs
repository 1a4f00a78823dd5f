//! Searches for the duplicate of a node if the servers do not report their ids.
//!
//! Two nodes that are one server would have two votes but one memory. An acquire calls this module when a node answers
//! that it already holds the acquire's token, although the token was sent to this node only once. The result goes to
//! `node/identity.rs`.

use crate::error::Result;
use crate::lock::claim::{Cleanup, Commands};
use crate::lock::driver::Driver;
use crate::runtime::clock;
use crate::wire::reply::Reply;
use crate::wire::request::{Request, Subject};
use crate::wire::token::Token;
use quorlock_protocol::Term;
use std::sync::Arc;
use std::time::Duration;

/// Searches for the node that is the same server as `node`, and reports the result to `node/identity.rs`. `node` has
/// answered that it already held the token of `subject` when the ACQUIRE of this token arrived.
///
/// First releases the token of `subject` on `node`. Then sends ACQUIRE with a fresh token to `node`, and after the
/// answer also to all nodes. The duplicate of `node` answers that it holds the fresh token already. Finally releases
/// the fresh token on all nodes, in the background. Fails only if no random token can be generated.
pub(crate) async fn find_duplicate(
    driver: &Arc<Driver>,
    node: usize,
    subject: Arc<Subject>,
    term: Term,
    patience: Duration,
) -> Result<()> {
    let now = clock::now();
    let keys = Arc::clone(&subject.keys);
    let release = Request::release(&subject, driver.turns());
    let _ = driver.nodes[node].call(release, now, patience).await;
    let token = Token::new(subject.token.holder().unwrap_or_default())?;
    let subject = Arc::new(Subject::new(keys, token, None));
    let ttl = term.ttl;
    let proposal = driver.clocks.proposal(now);
    let turns = driver.turns();
    let request =
        Request::Acquire { subject: Arc::clone(&subject), ttl, proposal, ticket: None, turns };
    let first = driver.nodes[node].call(request.clone(), now, patience).await;
    let mut duplicate = None;
    // If `node` does not grant the ACQUIRE, for example because another client holds the resource, the duplicate stays
    // unknown until the next attempt.
    if let Ok(Reply::Granted { .. } | Reply::Uncounted(..)) = first {
        let mut fan_out = driver.broadcast(request, now, patience);
        while let Some((other, answered)) = fan_out.next().await {
            let knows = matches!(answered, Ok(Reply::Own));
            duplicate = if knows && other != node { Some(other) } else { duplicate };
        }
    }
    let commands = Commands { release: driver.quorum.all(), ..Commands::default() };
    Cleanup::of(subject, term, patience).run(driver, term.gone(clock::now()), commands);
    driver.identities.found_duplicate(node, duplicate);
    Ok(())
}
