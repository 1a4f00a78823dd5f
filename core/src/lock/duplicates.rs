//! Finds out which two nodes are one server, where the servers do not tell who they are.

use crate::command::reply::Reply;
use crate::command::request::{Request, Subject};
use crate::error::Result;
use crate::lock::driver::Driver;
use crate::runtime::clock;
use crate::runtime::random;
use quorlock_protocol::Term;
use std::sync::Arc;
use std::time::Duration;

/// `node` answered that it holds the token of `subject`, which was sent to it but once: another one
/// is the same server. Takes the lock there once more, and sees which other node knows of it.
pub(crate) async fn find_duplicate(
    driver: &Arc<Driver>,
    node: usize,
    subject: Arc<Subject>,
    term: Term,
    patience: Duration,
) -> Result<()> {
    let now = clock::now();
    let keys = Arc::clone(&subject.keys);
    let release = |subject| Request::release(subject, driver.turns());
    let _ = driver.call(node, release(&subject), now, patience).await;
    let subject = Arc::new(Subject { keys, token: random::token()?, waiter: None });
    let (ttl, proposal) = (term.ttl, driver.clocks.proposal(now));
    let (ticket, turns) = (None, driver.turns());
    let request = Request::Acquire { subject: Arc::clone(&subject), ttl, proposal, ticket, turns };
    let first = driver.call(node, request.clone(), now, patience).await;
    let mut duplicate = None;
    // Others may have been quicker. Then the one stays unnamed until the next time.
    if let Ok(Reply::Granted { .. } | Reply::Uncounted(..)) = first {
        let mut fan_out = driver.broadcast(request, now, patience);
        while let Some((other, answered)) = fan_out.next().await {
            let knows = matches!(answered, Ok(Reply::Own));
            duplicate = if knows && other != node { Some(other) } else { duplicate };
        }
    }
    let horizon = term.gone(clock::now());
    for node in 0..driver.nodes.len() {
        driver.deliver(node, release(&subject), patience, horizon);
    }
    driver.identities.found_duplicate(node, duplicate);
    Ok(())
}
