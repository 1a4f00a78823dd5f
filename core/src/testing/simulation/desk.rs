//! The desk on which simulated programs leave the texts of detached leases.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The texts of detached leases.
#[derive(Default)]
pub(super) struct Desk(Mutex<DeskState>);

#[derive(Default)]
pub(super) struct DeskState {
    pub(super) texts: Vec<Handed>,
    /// The texts that were adopted.
    pub(super) adopted: HashSet<String>,
}

/// A lease to adopt.
#[derive(Clone)]
pub(super) struct Handed {
    /// The numbers by which the witness knows the resources.
    pub(super) resources: Vec<usize>,
    pub(super) text: String,
}

impl Desk {
    pub(super) fn state(&self) -> MutexGuard<'_, DeskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
