//! In-memory nodes (`memory://name`), for simulations and for users' own unit tests. They answer
//! the same requests as a server does, and expire keys by the same clock that leases are valid by.

use crate::clock;
use crate::entry::Entry;
use crate::fork::PerProcess;
use crate::protocol::{Moment, Vote};
use crate::request::{Keys, Reply, Request, Subject};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The nodes of this process. They live as long as it does, like a server beside it would.
static NODES: PerProcess<Mutex<HashMap<String, Arc<MemoryNode>>>> = PerProcess::new();

#[derive(Debug, Default)]
pub(crate) struct MemoryNode {
    entries: Mutex<Entries>,
}

/// What a node keeps, by the lock key.
#[derive(Debug, Default)]
pub(crate) struct Entries(HashMap<String, Entry<String>>);

impl MemoryNode {
    /// The node of this name.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        Arc::clone(lock(NODES.get_or_init(Mutex::default)).entry(name.to_owned()).or_default())
    }

    /// What a server would answer; an error text where it would answer with an error.
    pub(crate) fn answer(&self, request: &Request) -> Result<Reply, &'static str> {
        lock(&self.entries).answer(clock::now(), clock::wall_clock_micros(), request)
    }
}

impl Entries {
    /// Answers a request at this time of the node's clocks; `wall_clock` is in microseconds.
    pub(crate) fn answer(
        &mut self,
        now: Moment,
        wall_clock: u64,
        request: &Request,
    ) -> Result<Reply, &'static str> {
        let done = match request {
            Request::Acquire { subject, ttl, proposal } => {
                let entry = self.entry(&subject.keys);
                let is_own = entry.token(now) == Some(&subject.token);
                return match entry.acquire(now, &subject.token, *ttl, *proposal, wall_clock) {
                    Some(Vote::Granted { fence }) => Ok(Reply::Granted(fence)),
                    Some(Vote::Held { .. }) if is_own => Ok(Reply::Own),
                    Some(Vote::Held { expires_in }) => Ok(Reply::Held(expires_in)),
                    _ => Err("the fence counter is used up"),
                };
            }
            Request::Extend(locks) => {
                let extend = |(subject, ttl): &(Arc<Subject>, _)| {
                    let entry = self.known(&subject.keys);
                    entry.is_some_and(|entry| entry.extend(now, &subject.token, *ttl))
                };
                return Ok(Reply::Each(locks.iter().map(extend).collect()));
            }
            Request::Heal(locks) => {
                let heal = |(subject, ttl, fence): &(Arc<Subject>, _, _)| {
                    self.entry(&subject.keys).heal(now, &subject.token, *ttl, *fence)
                };
                return Ok(Reply::Each(locks.iter().map(heal).collect()));
            }
            Request::Raise { subject, fence, .. } => {
                let entry = self.known(&subject.keys);
                entry.is_some_and(|entry| entry.raise(now, &subject.token, *fence))
            }
            Request::Release(subject) => {
                let entry = self.known(&subject.keys);
                entry.is_some_and(|entry| entry.release(now, &subject.token))
            }
            Request::Look(keys) => self.known(keys).is_some_and(|entry| entry.token(now).is_some()),
        };
        Ok(if done { Reply::Yes } else { Reply::No })
    }

    /// The tokens that are there.
    #[cfg(test)]
    pub(crate) fn tokens(&self, now: Moment) -> Vec<String> {
        self.0.values().filter_map(|entry| entry.token(now).cloned()).collect()
    }

    fn known(&mut self, keys: &Keys) -> Option<&mut Entry<String>> {
        self.0.get_mut(&keys.lock)
    }

    fn entry(&mut self, keys: &Keys) -> &mut Entry<String> {
        self.0.entry(keys.lock.clone()).or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
