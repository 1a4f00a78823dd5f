//! Looks after all leases of a client: extends them in time, and tells when one is lost.
//!
//! One task with one timer does it for any number of leases. It runs on quorlock's own runtime, so
//! neither Python's GIL nor a stalled event loop can hold it up.

use crate::clock;
use crate::driver::Driver;
use crate::extend::Extending;
use crate::held::{Held, Tending};
use crate::protocol::Moment;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

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
    leases: HashMap<u64, (Arc<Held>, Option<Moment>)>,
    wakes: BTreeSet<(Moment, u64)>,
    /// When the task will wake up by itself; `None` while there is nothing to wait for.
    armed: Option<Moment>,
    next_id: u64,
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
    pub(crate) fn new(closing: CancellationToken) -> Self {
        Self { schedule: Mutex::default(), sooner: Arc::default(), closing }
    }

    /// A number for a new lease.
    pub(crate) fn next_id(&self) -> u64 {
        let mut schedule = self.schedule();
        schedule.next_id += 1;
        schedule.next_id
    }

    /// Begins to look after a lease. Called on the runtime.
    pub(crate) fn add(&self, driver: &Arc<Driver>, lease: &Arc<Held>, wake: Moment) {
        let mut schedule = self.schedule();
        schedule.leases.insert(lease.id, (Arc::clone(lease), None));
        schedule.set(lease.id, Some(wake));
        if !schedule.is_running {
            schedule.is_running = true;
            let task = run(Arc::downgrade(driver), Arc::clone(&self.sooner), self.closing.clone());
            tokio::spawn(task);
        }
        if schedule.armed.is_none_or(|armed| wake < armed) {
            self.sooner.notify_one();
        }
    }

    /// Stops looking after a lease.
    pub(crate) fn remove(&self, id: u64) {
        let mut schedule = self.schedule();
        schedule.set(id, None);
        schedule.leases.remove(&id);
    }

    /// Ends the task. Called when the driver is gone.
    pub(crate) fn end(&self) {
        self.sooner.notify_one();
    }

    /// All leases that are not released.
    pub(crate) fn all(&self) -> Vec<Arc<Held>> {
        self.schedule().leases.values().map(|(lease, _)| Arc::clone(lease)).collect()
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is due, and returns when to come back.
    fn tend(&self, driver: &Arc<Driver>) -> Option<Moment> {
        let now = clock::now();
        let due = self.schedule().due(now);
        let mut extensions = Vec::new();
        for (id, lease) in due {
            let wake = match lease.tend(now) {
                Tending::Over => None,
                Tending::Wait(until) => Some(until),
                Tending::Extend(extension, end) => {
                    extensions.push(extension);
                    Some(end)
                }
            };
            self.schedule().set(id, wake);
        }
        while !extensions.is_empty() {
            let rest = extensions.split_off(extensions.len().min(BATCH));
            let extending = Extending::start(driver, extensions);
            // Not for `close` to wait for: the release comes behind the extension, and is enough.
            let extend = extend(Arc::downgrade(driver), extending);
            tokio::spawn(self.closing.clone().run_until_cancelled_owned(extend));
            extensions = rest;
        }
        let mut schedule = self.schedule();
        schedule.armed = schedule.wakes.first().map(|(moment, _)| *moment);
        schedule.armed
    }
}

async fn run(driver: Weak<Driver>, sooner: Arc<Notify>, closing: CancellationToken) {
    while let Some(strong) = driver.upgrade() {
        let next = strong.keeper.tend(&strong);
        // The task must not keep alive what nobody uses any more.
        drop(strong);
        let pause = async {
            match next {
                Some(next) => sleep(next.since(clock::now()).min(LONGEST_SLEEP)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sooner.notified() => {}
            () = closing.cancelled() => return,
            () = pause => {}
        }
    }
}

/// Sees automatic extensions through.
async fn extend(driver: Weak<Driver>, mut extending: Extending) {
    while extending.step().await {
        for (lease, extended) in extending.take_decided() {
            let Some(wake) = lease.tended(extended) else { continue };
            let Some(driver) = driver.upgrade() else { return };
            let mut schedule = driver.keeper.schedule();
            schedule.set(lease.id, Some(wake));
            if schedule.armed.is_none_or(|armed| wake < armed) {
                driver.keeper.sooner.notify_one();
            }
        }
    }
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
