//! The modes of a lock, and the set of readers that a node stores for one resource. `sharing.rs` has the rules.

use crate::term::Moment;
use std::time::Duration;

/// How a resource is locked, or is to be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// One token holds the resource.
    Exclusive,
    /// Any number of tokens hold the resource together; their holders are its readers.
    Shared,
    /// One token holds the resource, in place of the token of its only reader: the mode of an upgraded lease.
    Upgraded,
}

/// The set of readers, in the form in which a server stores it.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct Readers<T> {
    /// Each reader with the moment at which its share expires. May contain expired shares.
    pub(super) shares: Vec<(T, Moment)>,
    /// When the node forgets the set.
    pub(super) kept_until: Moment,
}

impl<T> Default for Readers<T> {
    fn default() -> Self {
        Self { shares: Vec::new(), kept_until: Moment::from_origin(Duration::ZERO) }
    }
}

impl<T: PartialEq> Readers<T> {
    pub(super) fn remove(&mut self, token: &T) -> bool {
        let before = self.shares.len();
        self.shares.retain(|(reader, _)| reader != token);
        self.shares.len() < before
    }

    pub(super) fn put(&mut self, token: T, until: Moment) {
        self.remove(&token);
        self.shares.push((token, until));
        // Sorted, so that the model checker treats states as equal that differ only in the order of the shares.
        self.shares.sort_by_key(|(_, until)| *until);
    }
}
