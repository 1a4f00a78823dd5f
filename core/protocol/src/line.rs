//! The local wait queue: the waiters of one client. Waiters for the same resources are in FIFO order.
//!
//! Usually, only the first of the waiters for the same resources contends on the network, so the others cost the nodes
//! nothing. The driver lets more waiters contend only if several may succeed: readers, and waiters for permits. The
//! driver calls this module (`lock/waiting/waiters.rs` of the crate `quorlock`). This module does not wake waiters: the
//! caller notifies the waiter that [`Line::leave`] returns.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The waiters of one client. A value of `R` stands for all the resources of a lock together. `W` is the caller's data
/// about one waiter.
#[derive(Debug)]
pub struct Line<R, W> {
    waiters: HashMap<R, BTreeMap<u64, W>>,
    last: u64,
}

impl<R, W> Default for Line<R, W> {
    fn default() -> Self {
        Self { waiters: HashMap::new(), last: 0 }
    }
}

impl<R: Clone + Eq + Hash, W> Line<R, W> {
    /// Adds a waiter at the end of the queue for `resource`. Returns the waiter's number, unique in this `Line`, and
    /// whether the waiter is first. The first waiter may contend immediately.
    pub fn join(&mut self, resource: &R, waiter: W) -> (u64, bool) {
        self.last += 1;
        let waiters = self.waiters.entry(resource.clone()).or_default();
        waiters.insert(self.last, waiter);
        (self.last, waiters.len() == 1)
    }

    /// Removes a waiter from any position. Returns the waiter that thereby becomes first, if any; the caller must
    /// notify that waiter.
    pub fn leave(&mut self, resource: &R, number: u64) -> Option<&mut W> {
        let waiters = self.waiters.get_mut(resource)?;
        let was_first = waiters.first_key_value().is_some_and(|(first, _)| *first == number);
        waiters.remove(&number);
        if waiters.is_empty() {
            self.waiters.remove(resource);
            return None;
        }
        if !was_first {
            return None;
        }
        self.waiters.get_mut(resource)?.first_entry().map(|first| first.into_mut())
    }

    /// The total number of waiters, for all resources together.
    pub fn len(&self) -> usize {
        self.waiters.values().map(BTreeMap::len).sum()
    }

    /// Whether there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The waiters for `resource`, in order.
    pub fn waiters(&self, resource: &R) -> impl Iterator<Item = &W> {
        self.waiters.get(resource).into_iter().flat_map(BTreeMap::values)
    }

    /// Calls `act` with each waiter for `resource`, in order.
    pub fn each(&mut self, resource: &R, act: impl FnMut(&mut W)) {
        self.waiters.get_mut(resource).into_iter().flat_map(BTreeMap::values_mut).for_each(act);
    }

    /// The next waiter behind the waiter with this number; `None` if this number is the last.
    pub fn after(&mut self, resource: &R, number: u64) -> Option<&mut W> {
        let waiters = self.waiters.get_mut(resource)?;
        waiters.range_mut(number + 1..).next().map(|(_, waiter)| waiter)
    }

    /// The waiter with this number, unless it has left.
    pub fn get(&mut self, resource: &R, number: u64) -> Option<&mut W> {
        self.waiters.get_mut(resource)?.get_mut(&number)
    }
}
