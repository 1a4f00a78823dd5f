//! Downgrading a lease: its holder keeps it in shared mode, and lets others share it. `lease.rs` starts this.
//!
//! From the call on, the client takes the lease as shared. The nodes follow one by one: a node that has not applied
//! DOWNGRADE yet keeps more clients out than necessary, and the next EXTEND does the same there.

use crate::command::request::Request;
use crate::error::Result;
use crate::lock::held::{HeldLease, answer_caller};
use crate::runtime::clock;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Sends DOWNGRADE to all nodes. Answers `caller` when a majority has applied it, or no node can any more.
pub(crate) async fn downgrade(held: Arc<HeldLease>, caller: oneshot::Sender<Result<()>>) {
    let mut caller = Some(caller);
    let driver = held.driver();
    let node_timeout = driver.options.node_timeout(held.grant.term.ttl);
    let request = Request::Downgrade { subject: held.subject(), turns: driver.turns() };
    let mut fan_out = driver.broadcast(request.clone(), clock::now(), node_timeout);
    let mut applied = 0;
    while let Some((node, answered)) = fan_out.next().await {
        if answered.is_ok() {
            applied += 1;
        } else {
            driver.deliver(node, request.clone(), node_timeout, held.keys_gone_by());
        }
        if applied >= driver.quorum.size() {
            answer_caller(&mut caller, Ok(()));
        }
    }
    answer_caller(&mut caller, Ok(()));
}
