//! Looks after all leases of a client: extends them in time, and tells when one is lost.
//!
//! One task with one timer does it for any number of leases. It runs on quorlock's own runtime, so
//! neither Python's GIL nor a stalled event loop can hold it up.

use crate::clock;
use crate::extend::Extending;
use crate::fork::PerProcess;
use crate::held::{Held, Item, Tending};
use crate::protocol::Moment;
use crate::runtime;
use crate::timer::sleep;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The keepers of this process, for [`release_all`].
static KEEPERS: PerProcess<Mutex<Vec<Weak<Keeper>>>> = PerProcess::new();

/// So many leases are extended by one request. It keeps a server busy for a fraction of a
/// millisecond.
const BATCH: usize = 64;

/// The longest sleep while a lease is held. Timers stand still while the machine is suspended, and
/// leases do not; after it resumes, the loss of a lease is told within this time.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

pub(crate) struct Keeper {
    schedule: Mutex<Schedule>,
    /// Notified when something is to be done earlier than the task expects, and in the end.
    sooner: Arc<Notify>,
    closing: CancellationToken,
}

#[derive(Default)]
struct Schedule {
    /// Leases that are not released, and when to look at each; `None` once it is lost.
    leases: BTreeMap<u64, (Arc<Held>, Option<Moment>)>,
    wakes: BTreeSet<(Moment, u64)>,
    /// When the task will wake up by itself; `None` while there is nothing to wait for.
    armed: Option<Moment>,
    last_id: u64,
    is_running: bool,
}

impl Schedule {
    fn set(&mut self, id: u64, wake: Option<Moment>) {
        let Some((_, scheduled)) = self.leases.get_mut(&id) else { return };
        if let Some(moment) = scheduled.take() {
            self.wakes.remove(&(moment, id));
        }
        *scheduled = wake;
        self.wakes.extend(wake.map(|moment| (moment, id)));
    }

    /// The leases to look at now.
    fn due(&mut self, now: Moment) -> Vec<(u64, Arc<Held>)> {
        let mut due = Vec::new();
        while let Some(&(moment, id)) = self.wakes.first()
            && moment <= now
        {
            self.set(id, None);
            due.extend(self.leases.get(&id).map(|(lease, _)| (id, Arc::clone(lease))));
        }
        due
    }
}

impl Keeper {
    pub(crate) fn new(closing: CancellationToken) -> Arc<Self> {
        let keeper = Arc::new(Self { schedule: Mutex::default(), sooner: Arc::default(), closing });
        let mut keepers = lock(KEEPERS.get_or_init(Mutex::default));
        keepers.retain(|keeper| keeper.strong_count() > 0);
        keepers.push(Arc::downgrade(&keeper));
        keeper
    }

    /// Begins to look after a lease; returns its number. Called on the runtime.
    pub(crate) fn add(self: &Arc<Self>, lease: &Arc<Held>) -> u64 {
        let wake = lease.state().wake();
        let mut schedule = lock(&self.schedule);
        schedule.last_id += 1;
        let id = schedule.last_id;
        schedule.leases.insert(id, (Arc::clone(lease), None));
        schedule.set(id, Some(wake));
        if !schedule.is_running {
            schedule.is_running = true;
            let task = run(Arc::downgrade(self), Arc::clone(&self.sooner), self.closing.clone());
            // The runtime is there: this runs on it.
            let _ = runtime::spawn(task);
        }
        self.wake_for(&schedule, wake);
        id
    }

    /// Stops looking after a lease, because it is released.
    pub(crate) fn remove(&self, id: u64) {
        let mut schedule = lock(&self.schedule);
        schedule.set(id, None);
        schedule.leases.remove(&id);
    }

    /// Ends and releases all leases, because their client is closed.
    pub(crate) fn close(&self) {
        for lease in self.take() {
            drop(lease.close());
        }
    }

    /// All leases, which are to be released now.
    fn take(&self) -> Vec<Arc<Held>> {
        let mut schedule = lock(&self.schedule);
        schedule.wakes.clear();
        std::mem::take(&mut schedule.leases).into_values().map(|(lease, _)| lease).collect()
    }

    fn wake_for(&self, schedule: &Schedule, wake: Moment) {
        if schedule.armed.is_none_or(|armed| wake < armed) {
            self.sooner.notify_one();
        }
    }

    /// Does what is due, and returns when to come back.
    fn tend(self: &Arc<Self>) -> Option<Moment> {
        let now = clock::now();
        let due = lock(&self.schedule).due(now);
        let (mut ids, mut items) = (Vec::new(), Vec::new());
        for (id, lease) in due {
            let wake = match lease.tend(now) {
                Tending::Over => None,
                Tending::Wait(until) => Some(until),
                Tending::Extend(item, end) => {
                    ids.push(id);
                    items.push(item);
                    Some(end)
                }
            };
            lock(&self.schedule).set(id, wake);
        }
        while !items.is_empty() {
            // On a Redis Cluster, a request is about one slot.
            let slot = |item: &Item| item.lease.driver().has_cluster.then(|| item.lease.slot());
            let first = slot(&items[0]);
            let alike = items.iter().take_while(|item| slot(item) == first).count();
            let batch = alike.min(BATCH);
            let (later_ids, later) = (ids.split_off(batch), items.split_off(batch));
            let extend = extend(Arc::downgrade(self), ids, Extending::start(items));
            // Not for `close` to wait for: the release comes behind the extension, and is enough.
            let _ = runtime::spawn(self.closing.clone().run_until_cancelled_owned(extend));
            (ids, items) = (later_ids, later);
        }
        let mut schedule = lock(&self.schedule);
        schedule.armed = schedule.wakes.first().map(|(moment, _)| *moment);
        schedule.armed
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The task finds out that it has nothing to keep any more.
        self.sooner.notify_one();
    }
}

async fn run(keeper: Weak<Keeper>, sooner: Arc<Notify>, closing: CancellationToken) {
    while let Some(strong) = keeper.upgrade() {
        let next = strong.tend();
        // The task must not keep alive what nobody uses any more.
        drop(strong);
        let pause = async {
            match next {
                Some(next) => sleep(next.since(clock::now()).min(LONGEST_SLEEP)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            () = sooner.notified() => {}
            () = pause => {}
        }
    }
}

/// Sees automatic extensions through.
async fn extend(keeper: Weak<Keeper>, ids: Vec<u64>, mut extending: Extending) {
    while extending.step().await {
        for (position, lease, extended) in extending.take_decided() {
            let Some(wake) = lease.tended(extended) else { continue };
            let Some(keeper) = keeper.upgrade() else { return };
            let mut schedule = lock(&keeper.schedule);
            schedule.set(ids[position], Some(wake));
            keeper.wake_for(&schedule, wake);
        }
    }
}

/// Releases every lease that is held in this process, of all clients, and waits for a majority of
/// the nodes to confirm, for at most `patience` in all. For the end of a process: others need not
/// wait for the leases to expire then.
pub fn release_all(patience: Duration) {
    let Some(keepers) = KEEPERS.get() else { return };
    let keepers: Vec<_> = lock(keepers).iter().filter_map(Weak::upgrade).collect();
    let began = Instant::now();
    let leases = keepers.iter().flat_map(|keeper| keeper.take());
    let releases: Vec<_> = leases.map(|lease| lease.release()).collect();
    for mut release in releases {
        let _ = release.wait(patience.saturating_sub(began.elapsed()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use crate::clock::suspended::suspend;
    use crate::{Client, ErrorCode, Lease};
    use std::time::{Duration, Instant};

    const TTL: Duration = Duration::from_secs(60);
    const PATIENCE: Duration = Duration::from_secs(60);

    fn hold() -> Lease {
        let nodes = ["memory://suspend-1", "memory://suspend-2", "memory://suspend-3"];
        let client = Client::builder().nodes(nodes).ttl(TTL).build().expect("valid");
        client.lock("r").acquire().wait(PATIENCE).expect("in time").expect("free")
    }

    #[test]
    fn a_suspended_machine_wakes_up_to_the_truth() {
        // Suspended for a part of the validity: the extension that is overdue is made up for.
        let lease = hold();
        let before = lease.remaining();
        suspend(TTL / 2);
        assert!(lease.is_valid() && lease.remaining() <= before - TTL / 2);
        let began = Instant::now();
        while lease.remaining() < before - TTL / 12 {
            assert!(began.elapsed() < PATIENCE, "it is not extended: {:?}", lease.remaining());
            std::thread::sleep(Duration::from_millis(5));
        }

        // Suspended for longer: the first look tells the truth, before any timer has fired.
        let mut lost = lease.lost();
        suspend(TTL);
        assert!(!lease.is_valid());
        let error = lease.check().expect_err("it is over");
        assert_eq!(error.code(), ErrorCode::LeaseLost);
        assert!(lost.wait(PATIENCE).expect("it is told").is_some());
        assert!(!lease.is_valid());
        assert!(!lease.release().wait(PATIENCE).expect("in time"));

        // The nodes have forgotten it, and somebody else may have the lock.
        assert!(hold().fence() > lease.fence());
    }
}
