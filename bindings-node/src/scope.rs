//! The identity of the caller, which the core compares with that of the holders. `holding.js` and `lease.js` keep track
//! of the blocks.

use quorlock::Owner;
use std::num::NonZeroU64;

/// All asynchronous functions run on one thread, so the caller cannot be identified.
pub(crate) const NO_OWNER: Option<Owner> = None;

/// Returns the block of this number, which counts from 1.
pub(crate) fn block(number: f64) -> Option<NonZeroU64> {
    NonZeroU64::new(number as u64)
}
