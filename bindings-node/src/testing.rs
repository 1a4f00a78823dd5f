//! The native part of `quorlock/testing`, which `testing.js` calls.
//!
//! Its functions block until the fault or the clock has had its effect, which takes microseconds for each
//! timer of quorlock on the way. It must not hold state of its own.

use crate::convert::{Failure, item, settle};
use napi::bindgen_prelude::{Either, Unknown};
use napi::{Error, Result, Status};
use napi_derive::napi;
use quorlock::{Dialect, Fault};

/// In-memory nodes that tests can make fail.
#[napi]
pub struct TestNodes(quorlock::TestNodes);

#[napi]
impl TestNodes {
    /// The nodes' URLs.
    #[napi(getter, catch_unwind)]
    pub fn urls(&self) -> Vec<String> {
        self.0.urls()
    }

    /// Applies a fault, by its name, to one node or to all.
    #[napi(catch_unwind)]
    pub fn apply(&self, node: Option<u32>, fault: String) -> Result<()> {
        let fault = Fault::named(&fault).ok_or_else(|| Error::from_status(Status::InvalidArg))?;
        self.0.apply(node.map(|node| node as usize), fault).block();
        Ok(())
    }

    /// Lets time pass. Returns a failure if the time is not valid, or the clock cannot be moved.
    #[napi(catch_unwind)]
    pub fn advance(&self, time: Unknown<'_>) -> Result<Option<Failure>> {
        let advanced = self.0.advance_by(Dialect::JavaScript, &item(time)?);
        Ok(advanced.block().err().map(Failure::from))
    }

    /// Moves the clock in one jump. Returns a failure if the time is not valid, or the clock cannot be moved.
    #[napi(catch_unwind)]
    pub fn suspend(&self, time: Unknown<'_>) -> Result<Option<Failure>> {
        let suspended = self.0.suspend_by(Dialect::JavaScript, &item(time)?);
        Ok(suspended.block().err().map(Failure::from))
    }

    /// Makes waiting take no time. Returns a failure if the clock cannot be moved.
    #[napi(catch_unwind)]
    pub fn fast_forward(&self) -> Either<FastForward, Failure> {
        settle(self.0.fast_forward().map(|flying| FastForward(Some(flying))))
    }

    /// Deletes lock keys on all nodes.
    #[napi(catch_unwind)]
    pub fn delete_keys(&self, keys: Vec<String>) {
        self.0.delete_keys(keys);
    }

    /// Lets all leases on these nodes verify that they are held.
    #[napi(catch_unwind)]
    pub fn verify_leases(&self) {
        self.0.verify_leases().block();
    }
}

/// Creates nodes. Returns a failure if the number is out of range.
#[napi(catch_unwind)]
pub fn test_nodes(count: Unknown<'_>) -> Result<Either<TestNodes, Failure>> {
    Ok(settle(quorlock::TestNodes::new_by(Dialect::JavaScript, &item(count)?).map(TestNodes)))
}

/// Makes waiting take no time, until it is stopped or finalized.
#[napi]
pub struct FastForward(Option<quorlock::FastForward>);

#[napi]
impl FastForward {
    #[napi(catch_unwind)]
    pub fn stop(&mut self) {
        self.0 = None;
    }
}
