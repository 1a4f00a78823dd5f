//! The identity of the caller, which the core compares with that of the holders. `holding.js` and `lease.js` keep track
//! of the blocks.

use quorlock::Owner;

/// All asynchronous functions run on one thread, so the caller cannot be identified, unless it is in a block.
pub(crate) const NO_OWNER: Option<Owner> = None;

/// Returns the owner that stands for the block of this number.
pub(crate) fn owner(block: f64) -> Owner {
    Owner::Foreign(block as u64)
}
