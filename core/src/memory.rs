//! In-memory nodes (`memory://name`), for simulations and for users' own unit tests. They answer
//! the same requests as a server does, and expire keys by the same clock that leases are valid by.

use crate::clock;
use crate::protocol::{Moment, next_fence};
use crate::script::{Keys, Reply, Request, Verb};
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The nodes of this process. They live as long as it does, like a server beside it would.
static NODES: Lazy<Mutex<HashMap<String, Arc<MemoryNode>>>> = Lazy::new(Mutex::default);

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
        Arc::clone(lock(&NODES).entry(name.to_owned()).or_default())
    }

    /// What a server would answer; an error text where it would answer with an error.
    pub(crate) fn answer(&self, request: &Request) -> Result<Reply, &'static str> {
        let (keys, token) = (&*request.subject.keys, request.subject.token.as_str());
        let now = clock::now();
        let mut entries = lock(&self.entries);
        let done = match request.verb {
            Verb::Acquire { ttl, proposal } => {
                return entries.acquire(now, keys, token, ttl, proposal);
            }
            Verb::Look => entries.live(now, keys).is_some(),
            Verb::Raise { fence, .. } => {
                let held = entries.held_by(now, keys, token).is_some();
                if held {
                    let last = entries.fences.entry(keys.fence.clone()).or_default();
                    *last = fence.max(*last);
                }
                held
            }
            Verb::Extend { ttl } => match entries.held_by(now, keys, token) {
                None => false,
                Some(lock) => {
                    lock.expires = lock.expires.max(now.plus(ttl));
                    true
                }
            },
            Verb::Release => {
                let held = entries.held_by(now, keys, token).is_some();
                if held {
                    entries.locks.remove(&keys.lock);
                }
                held
            }
        };
        Ok(if done { Reply::Yes } else { Reply::No })
    }
}

impl Entries {
    fn live(&mut self, now: Moment, keys: &Keys) -> Option<&mut Lock> {
        self.locks.get_mut(&keys.lock).filter(|lock| now < lock.expires)
    }

    fn held_by(&mut self, now: Moment, keys: &Keys, token: &str) -> Option<&mut Lock> {
        self.live(now, keys).filter(|lock| lock.token == token)
    }

    fn acquire(
        &mut self,
        now: Moment,
        keys: &Keys,
        token: &str,
        ttl: Duration,
        proposal: u64,
    ) -> Result<Reply, &'static str> {
        if let Some(lock) = self.live(now, keys) {
            return Ok(Reply::Held(Some(lock.expires.since(now))));
        }
        let last = self.fences.get(&keys.fence).copied().unwrap_or_default();
        let fence = next_fence(last, proposal, clock::wall_clock_micros())
            .ok_or("the fence counter is used up")?;
        self.sweep(now);
        self.fences.insert(keys.fence.clone(), fence);
        let lock = Lock { token: token.to_owned(), expires: now.plus(ttl) };
        self.locks.insert(keys.lock.clone(), lock);
        Ok(Reply::Granted(fence))
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
