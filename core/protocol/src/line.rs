//! The line of those who wait within one client.
//!
//! Of those who wait for the same, only the first contends on the network, and they go in the order
//! in which they came. So any number of waiters are no more load on the nodes than one.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Who waits for what. `R` is what is waited for, all resources of a lock together, and `W` what is
/// known of each waiter.
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
    /// Joins at the end; returns the waiter's number, and whether it is the first.
    pub fn join(&mut self, resource: &R, waiter: W) -> (u64, bool) {
        self.last += 1;
        let waiters = self.waiters.entry(resource.clone()).or_default();
        waiters.insert(self.last, waiter);
        (self.last, waiters.len() == 1)
    }

    /// Leaves, from wherever the waiter stands. Returns the one that is first by this, if there is one.
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

    /// How many there are, whatever they wait for.
    pub fn len(&self) -> usize {
        self.waiters.values().map(BTreeMap::len).sum()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// All who wait for this, the first one first.
    pub fn waiters(&self, resource: &R) -> impl Iterator<Item = &W> {
        self.waiters.get(resource).into_iter().flat_map(BTreeMap::values)
    }

    /// Does something with each of them.
    pub fn each(&mut self, resource: &R, act: impl FnMut(&mut W)) {
        self.waiters.get_mut(resource).into_iter().flat_map(BTreeMap::values_mut).for_each(act);
    }

    /// One waiter.
    pub fn get(&mut self, resource: &R, number: u64) -> Option<&mut W> {
        self.waiters.get_mut(resource)?.get_mut(&number)
    }
}
