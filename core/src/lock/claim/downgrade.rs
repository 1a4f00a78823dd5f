//! Downgrades a lease: the holder keeps the lease in shared mode, and lets others share the resource. `lease.rs` starts
//! downgrades.
//!
//! The client treats the lease as shared from the call on. The nodes follow one by one: until DOWNGRADE or the next
//! EXTEND reaches a node, that node still keeps other readers out.

use crate::error::Result;
use crate::lock::claim::held::{HeldLease, answer_caller};
use crate::runtime::clock;
use crate::wire::request::Request;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Sends DOWNGRADE to all nodes. Answers `caller` when a majority has applied the request, or when every node has
/// answered or timed out.
pub(crate) async fn downgrade(held: Arc<HeldLease>, caller: oneshot::Sender<Result<()>>) {
    let mut caller = Some(caller);
    let driver = &held.driver;
    let node_timeout = held.node_timeout();
    let request = Request::Downgrade { subject: held.subject(), turns: driver.turns() };
    let mut fan_out = driver.broadcast(request.clone(), clock::now(), node_timeout);
    let mut applied = 0;
    while let Some((node, answered)) = fan_out.next().await {
        if answered.is_ok() {
            applied += 1;
        } else {
            let gone_by = held.gone_by();
            driver.deliver(node, [request.clone()], node_timeout, gone_by);
        }
        if applied >= driver.quorum.size() {
            answer_caller(&mut caller, Ok(()));
        }
    }
    answer_caller(&mut caller, Ok(()));
}
