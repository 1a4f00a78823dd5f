//! The native part of `quorlock/testing`, which `testing.js` calls.
//!
//! Its functions block until the fault or the clock has had its effect, which takes microseconds for each
//! timer of quorlock on the way. It must not hold state of its own.

use crate::convert::{Failure, settle};
use napi::bindgen_prelude::Either;
use napi::{Error, Result, Status};
use napi_derive::napi;
use quorlock::Fault;
use std::time::Duration;

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

    /// Lets time pass. Returns a failure if the clock cannot be moved.
    #[napi(catch_unwind)]
    pub fn advance(&self, milliseconds: f64) -> Result<Option<Failure>> {
        Ok(self.0.advance(duration(milliseconds)?).block().err().map(Failure::from))
    }

    /// Moves the clock in one jump. Returns a failure if the clock cannot be moved.
    #[napi(catch_unwind)]
    pub fn suspend(&self, milliseconds: f64) -> Result<Option<Failure>> {
        Ok(self.0.suspend(duration(milliseconds)?).block().err().map(Failure::from))
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
pub fn test_nodes(count: u32) -> Either<TestNodes, Failure> {
    settle(quorlock::TestNodes::new(count as usize).map(TestNodes))
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

fn duration(milliseconds: f64) -> Result<Duration> {
    let duration = Duration::try_from_secs_f64(milliseconds / 1e3);
    duration.map_err(|error| Error::new(Status::InvalidArg, error.to_string()))
}
