//! In-memory nodes (`memory://name`), for simulations and for users' own unit tests. They answer
//! the same requests as a server does, and expire keys by the same clock that leases are valid by.

use crate::clock;
use crate::fork::PerProcess;
use crate::protocol::{Moment, next_fence};
use crate::request::{Keys, Reply, Request, Subject};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The nodes of this process. They live as long as it does, like a server beside it would.
static NODES: PerProcess<Mutex<HashMap<String, Arc<MemoryNode>>>> = PerProcess::new();

/// Expired entries are swept when there are this many entries, and twice as many as were left by
/// the sweep before.
const FIRST_SWEEP: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct MemoryNode {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    locks: HashMap<String, Lock>,
    /// Fence counters never expire here; they are forgotten with the process.
    fences: HashMap<String, u64>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Lock {
    token: String,
    expires: Moment,
}

impl MemoryNode {
    /// The node of this name.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        Arc::clone(lock(NODES.get_or_init(Mutex::default)).entry(name.to_owned()).or_default())
    }

    /// What a server would answer; an error text where it would answer with an error.
    pub(crate) fn answer(&self, request: &Request) -> Result<Reply, &'static str> {
        let now = clock::now();
        let mut entries = lock(&self.entries);
        let done = match request {
            Request::Acquire { subject, ttl, proposal } => {
                return entries.acquire(now, subject, *ttl, *proposal);
            }
            Request::Extend(locks) => {
                let done = locks.iter().map(|(subject, ttl)| entries.extend(now, subject, *ttl));
                return Ok(Reply::Each(done.collect()));
            }
            Request::Heal(locks) => {
                let done = locks
                    .iter()
                    .map(|(subject, ttl, fence)| entries.heal(now, subject, *ttl, *fence));
                return Ok(Reply::Each(done.collect()));
            }
            Request::Raise { subject, fence, .. } => {
                let held = entries.held_by(now, subject).is_some();
                if held {
                    entries.raise(subject, *fence);
                }
                held
            }
            Request::Release(subject) => {
                let held = entries.held_by(now, subject).is_some();
                if held {
                    entries.locks.remove(&subject.keys.lock);
                }
                held
            }
            Request::Look(keys) => entries.live(now, keys).is_some(),
        };
        Ok(if done { Reply::Yes } else { Reply::No })
    }
}

impl Entries {
    fn live(&mut self, now: Moment, keys: &Keys) -> Option<&mut Lock> {
        self.locks.get_mut(&keys.lock).filter(|lock| now < lock.expires)
    }

    fn held_by(&mut self, now: Moment, subject: &Subject) -> Option<&mut Lock> {
        self.live(now, &subject.keys).filter(|lock| lock.token == subject.token)
    }

    fn acquire(
        &mut self,
        now: Moment,
        subject: &Subject,
        ttl: Duration,
        proposal: u64,
    ) -> Result<Reply, &'static str> {
        let Subject { keys, token } = subject;
        if let Some(lock) = self.live(now, keys) {
            return Ok(Reply::Held(Some(lock.expires.since(now))));
        }
        let last = self.fences.get(&keys.fence).copied().unwrap_or_default();
        let fence = next_fence(last, proposal, clock::wall_clock_micros())
            .ok_or("the fence counter is used up")?;
        self.sweep(now);
        self.fences.insert(keys.fence.clone(), fence);
        let lock = Lock { token: token.clone(), expires: now.plus(ttl) };
        self.locks.insert(keys.lock.clone(), lock);
        Ok(Reply::Granted(fence))
    }

    fn extend(&mut self, now: Moment, subject: &Subject, ttl: Duration) -> bool {
        let held = self.held_by(now, subject);
        held.map(|lock| lock.expires = lock.expires.max(now.plus(ttl))).is_some()
    }

    fn heal(&mut self, now: Moment, subject: &Subject, ttl: Duration, fence: u64) -> bool {
        if self.live(now, &subject.keys).is_some() {
            return false;
        }
        self.raise(subject, fence);
        let lock = Lock { token: subject.token.clone(), expires: now.plus(ttl) };
        self.locks.insert(subject.keys.lock.clone(), lock);
        true
    }

    fn raise(&mut self, subject: &Subject, fence: u64) {
        let last = self.fences.entry(subject.keys.fence.clone()).or_default();
        *last = fence.max(*last);
    }

    fn sweep(&mut self, now: Moment) {
        if self.locks.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.locks.retain(|_, lock| now < lock.expires);
            self.sweep_at = 2 * self.locks.len();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
