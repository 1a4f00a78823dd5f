//! Looks after all leases of a client: extends them in time, and tells when one is lost.
//!
//! One task with one timer does it for any number of leases. It runs on quorlock's own runtime, so
//! neither Python's GIL nor a stalled event loop can hold it up. It is a service that begins again after a
//! panic, and a panic over one lease keeps none of the others from being extended.

use crate::command::keys::Keys;
use crate::lock::driver::Driver;
use crate::lock::extend::ExtensionBatch;
use crate::lock::held::HeldLease;
use crate::lock::held::extension::{PendingExtension, RenewalStep};
use crate::runtime;
use crate::runtime::clock;
use crate::runtime::fork::PerProcess;
use crate::runtime::panics;
use crate::runtime::timer::sleep;
use quorlock_protocol::{Extended, Moment};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The renewers of this process, for [`release_all`].
static RENEWERS: PerProcess<Mutex<Renewers>> = PerProcess::new();

#[derive(Default)]
struct Renewers {
    all: Vec<Weak<Renewer>>,
    /// Whether the process is about to end, so that nothing is acquired any more.
    process_is_ending: bool,
}

/// So many leases are extended by one request. It keeps a server busy for a fraction of a
/// millisecond.
const BATCH: usize = 64;

/// The longest sleep while a lease is held. Timers stand still while the machine is suspended, and
/// leases do not; after it resumes, the loss of a lease is told within this time.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// When a lease is looked at again after a panic, which is a mistake in quorlock.
const AFTER_PANIC: Duration = Duration::from_millis(10);

pub(crate) struct Renewer {
    schedule: Mutex<Schedule>,
    /// Notified when something is to be done earlier than the task expects, and in the end.
    rescheduled: Arc<Notify>,
    driver: Arc<Driver>,
}

#[derive(Default)]
struct Schedule {
    /// Leases that are not released.
    leases: BTreeMap<u64, Entry>,
    wakes: BTreeSet<(Moment, u64)>,
    /// When the task will wake up by itself; `None` while there is nothing to wait for.
    next_wake: Option<Moment>,
    last_id: u64,
    is_running: bool,
}

struct Entry {
    lease: Arc<HeldLease>,
    /// When to look at it; `None` once it is lost.
    wake: Option<Moment>,
    /// Set once the lease is dropped. Nothing else may keep the renewer alive then, and the watchers
    /// still have to hear when the lease expires.
    dropped: Option<Arc<Renewer>>,
}

impl Schedule {
    fn set_wake(&mut self, id: u64, wake: Option<Moment>) {
        let Some(entry) = self.leases.get_mut(&id) else { return };
        if let Some(moment) = entry.wake.take() {
            self.wakes.remove(&(moment, id));
        }
        entry.wake = wake;
        self.wakes.extend(wake.map(|moment| (moment, id)));
    }

    /// The leases to look at now. Until their next moment is set, they are to be looked at again soon: a
    /// panic meanwhile must not make anybody forget them.
    fn due(&mut self, now: Moment) -> Vec<(u64, Arc<HeldLease>)> {
        let mut due = Vec::new();
        while let Some(&(moment, id)) = self.wakes.first()
            && moment <= now
        {
            self.set_wake(id, Some(now.plus(AFTER_PANIC)));
            due.extend(self.leases.get(&id).map(|entry| (id, Arc::clone(&entry.lease))));
        }
        due
    }
}

impl Renewer {
    pub(crate) fn new(driver: &Arc<Driver>) -> Arc<Self> {
        let (schedule, rescheduled, driver) =
            (Mutex::default(), Arc::default(), Arc::clone(driver));
        let renewer = Arc::new(Self { schedule, rescheduled, driver });
        let mut renewers = lock(RENEWERS.get_or_init(Mutex::default));
        renewers.all.retain(|renewer| renewer.strong_count() > 0);
        renewers.all.push(Arc::downgrade(&renewer));
        if renewers.process_is_ending {
            renewer.driver.closing.cancel();
        }
        renewer
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Begins to look after a lease; returns its number. Called on the runtime.
    pub(crate) fn add(self: &Arc<Self>, lease: &Arc<HeldLease>) -> u64 {
        let wake = lease.state().wake();
        let mut schedule = lock(&self.schedule);
        schedule.last_id += 1;
        let id = schedule.last_id;
        schedule.leases.insert(id, Entry { lease: Arc::clone(lease), wake: None, dropped: None });
        schedule.set_wake(id, Some(wake));
        if !schedule.is_running {
            let (renewer, rescheduled) = (Arc::downgrade(self), Arc::clone(&self.rescheduled));
            let closing = self.driver.closing.clone();
            let start = move || {
                run(
                    Weak::clone(&renewer),
                    Arc::clone(&rescheduled),
                    CancellationToken::clone(&closing),
                )
            };
            runtime::serve(start);
            schedule.is_running = true;
        }
        self.wake_for(&schedule, wake);
        id
    }

    /// Stops looking after a lease, because it is released, or was dropped and has expired.
    pub(crate) fn remove(&self, id: u64) {
        let mut schedule = lock(&self.schedule);
        schedule.set_wake(id, None);
        schedule.leases.remove(&id);
    }

    /// Looks after a lease that was dropped until it expires.
    pub(crate) fn abandon(self: &Arc<Self>, id: u64) {
        if let Some(entry) = lock(&self.schedule).leases.get_mut(&id) {
            entry.dropped = Some(Arc::clone(self));
        }
    }

    /// A lease that holds one of these resources and for which `matches` is true.
    pub(crate) fn find(
        &self,
        keys: &[Keys],
        matches: impl Fn(&HeldLease) -> bool,
    ) -> Option<Arc<HeldLease>> {
        let now = clock::now();
        let holds = |held: &HeldLease| held.grant.subject.keys.iter().any(|key| keys.contains(key));
        let schedule = lock(&self.schedule);
        let mut leases = schedule.leases.values().map(|entry| &entry.lease);
        let found = leases.find(|held| matches(held) && holds(held) && held.is_valid(now));
        found.map(Arc::clone)
    }

    /// Ends and releases all leases, because their client is closed.
    pub(crate) fn close(&self) {
        for lease in self.take_all() {
            drop(lease.close());
        }
    }

    /// All leases, which are to be released now.
    fn take_all(&self) -> Vec<Arc<HeldLease>> {
        let mut schedule = lock(&self.schedule);
        schedule.wakes.clear();
        std::mem::take(&mut schedule.leases).into_values().map(|entry| entry.lease).collect()
    }

    fn wake_for(&self, schedule: &Schedule, wake: Moment) {
        if schedule.next_wake.is_none_or(|next_wake| wake < next_wake) {
            self.rescheduled.notify_one();
        }
    }

    /// Does what is due, and returns when to come back.
    fn renew_if_due(self: &Arc<Self>) -> Option<Moment> {
        let now = clock::now();
        let due = lock(&self.schedule).due(now);
        let (mut ids, mut items) = (Vec::new(), Vec::new());
        for (id, lease) in due {
            // The others are looked after, whatever this one does.
            let Some(step) = panics::contain(|| lease.renew_if_due(now)) else { continue };
            let wake = match step {
                RenewalStep::Ended if lease.is_dropped() => {
                    self.remove(id);
                    continue;
                }
                RenewalStep::Ended => None,
                RenewalStep::Wait(until) => Some(until),
                RenewalStep::Extend(item, end) => {
                    ids.push(id);
                    items.push(item);
                    Some(end)
                }
            };
            lock(&self.schedule).set_wake(id, wake);
        }
        while !items.is_empty() {
            // On a Redis Cluster, a request is about one slot.
            let slot = |item: &PendingExtension| {
                item.lease.driver().has_cluster.then(|| item.lease.slot())
            };
            let first = slot(&items[0]);
            let same_slot = items.iter().take_while(|item| slot(item) == first).count();
            let batch = same_slot.min(BATCH);
            let (later_ids, later) = (ids.split_off(batch), items.split_off(batch));
            let renewal = renew_batch(Arc::downgrade(self), ids, items);
            // Not for `close` to wait for: the release comes behind the extension, and is enough.
            let renewal = self.driver.closing.clone().run_until_cancelled_owned(renewal);
            runtime::detach(async { renewal.await.unwrap_or_default() });
            (ids, items) = (later_ids, later);
        }
        let mut schedule = lock(&self.schedule);
        schedule.next_wake = schedule.wakes.first().map(|(moment, _)| *moment);
        schedule.next_wake
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        // The task finds out that it has nothing to keep any more.
        self.rescheduled.notify_one();
    }
}

async fn run(renewer: Weak<Renewer>, rescheduled: Arc<Notify>, closing: CancellationToken) {
    while let Some(strong) = renewer.upgrade() {
        let next = strong.renew_if_due();
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
            () = rescheduled.notified() => {}
            () = pause => {}
        }
    }
}

/// Sends automatic extensions, and sees them through.
async fn renew_batch(renewer: Weak<Renewer>, ids: Vec<u64>, items: Vec<PendingExtension>) {
    let leases: Vec<_> = items.iter().map(|item| Arc::clone(&item.lease)).collect();
    let renewed = |position: usize, extended| {
        let Some(wake) = leases[position].finish_renewal(extended) else { return };
        let Some(renewer) = renewer.upgrade() else { return };
        let mut schedule = lock(&renewer.schedule);
        schedule.set_wake(ids[position], Some(wake));
        renewer.wake_for(&schedule, wake);
    };
    let extending = panics::contained(async {
        let mut extending = ExtensionBatch::start(items);
        while extending.step().await {
            for (position, _, extended) in extending.take_decided() {
                renewed(position, extended);
            }
        }
    });
    if extending.await.is_none() {
        // A mistake in quorlock. What it left undecided is tried again, before the leases end.
        (0..leases.len()).for_each(|position| renewed(position, Extended::Undecided));
    }
}

/// For the end of a process: closes all clients of this process, and releases every lease that is held,
/// so that others need not wait for the leases to expire. Waits until the nodes have confirmed that, for at
/// most `patience` in all.
///
/// Acquires under way, and later ones, end with [`ErrorCode::Closed`](crate::ErrorCode::Closed). Holders are
/// not told of a loss: this counts as a release by each of them.
pub fn release_all(patience: Duration) {
    let began = Instant::now();
    let renewers: Vec<_> = {
        let mut renewers = lock(RENEWERS.get_or_init(Mutex::default));
        renewers.process_is_ending = true;
        renewers.all.iter().filter_map(Weak::upgrade).collect()
    };
    // Before any release: it notifies the waiters of this process, too, and none of them may win.
    renewers.iter().for_each(|renewer| renewer.driver.closing.cancel());
    for lease in renewers.iter().flat_map(|renewer| renewer.take_all()) {
        drop(lease.release());
    }
    let closing: Vec<_> = renewers.iter().map(|renewer| renewer.driver.close()).collect();
    for mut closed in closing {
        let _ = closed.wait(patience.saturating_sub(began.elapsed()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
