//! The renewer of one client: extends all leases of the client in time, and reports each loss at the validity end.
//!
//! One task with one timer serves any number of leases. The task runs on quorlock's own runtime, so neither Python's
//! GIL nor a stalled event loop delays it. The task restarts after a panic, and a panic while it handles one lease does
//! not affect the other leases.
//!
//! The protocol's `Upkeep` decides when an extension is due; the renewer keeps the schedule. `lease.rs` adds and
//! removes leases; `client/` closes the renewer with its client.

use crate::error::{Error, Result};
use crate::lock::claim::extend::ExtensionBatch;
use crate::lock::claim::held::HeldLease;
use crate::lock::claim::held::extension::{PendingExtension, RenewalStep};
use crate::lock::driver::Driver;
use crate::runtime;
use crate::runtime::clock;
use crate::runtime::fork::PerProcess;
use crate::runtime::mutex::Mutex;
use crate::runtime::panics;
use crate::runtime::timer::sleep;
use crate::wire::keys::Keys;
use quorlock_protocol::{Extended, Moment, Upkeep};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// All renewers of this process, for [`release_all`].
static RENEWERS: PerProcess<Mutex<Renewers>> = PerProcess::new();

#[derive(Default)]
struct Renewers {
    all: Vec<Weak<Renewer>>,
    /// Set by [`release_all`]. Every client that is created later is closed at once.
    process_is_ending: bool,
}

/// The largest number of resources in one EXTEND, unless a single lease has more: each permit counts as one. A server
/// processes such a request in a fraction of a millisecond.
const BATCH: usize = 64;

/// The longest sleep of the task while a lease is held. While the machine is suspended, the timer stands still, but
/// leases expire. The loss of a lease that expired meanwhile is reported within this time after the machine resumes.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The delay before the renewer handles a lease again after a panic. Such a panic is a bug in quorlock.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// The schedule of the leases of one client. A background task renews the leases according to the schedule.
pub(crate) struct Renewer {
    schedule: Mutex<Schedule>,
    /// Notified when a wake-up before `next_wake` was scheduled, and when the renewer is dropped.
    rescheduled: Arc<Notify>,
    pub(crate) driver: Arc<Driver>,
}

/// The times at which to handle the leases of one client.
#[derive(Default)]
struct Schedule {
    /// The leases to renew or watch, by the IDs that [`Renewer::add`] assigned.
    leases: BTreeMap<u64, ScheduledLease>,
    wakes: BTreeSet<(Moment, u64)>,
    /// The hash of each lock key of the leases, with the ID of its lease. Lets [`Renewer::find`] look at few leases,
    /// however many a client has.
    by_lock: BTreeSet<(u64, u64)>,
    hashing: RandomState,
    /// When the task's timer fires; `None` if the task waits for `rescheduled` only.
    next_wake: Option<Moment>,
    last_id: u64,
    is_running: bool,
}

struct ScheduledLease {
    lease: Arc<HeldLease>,
    /// When to handle the lease next; `None` after the lease has ended.
    wake: Option<Moment>,
    /// The renewer itself after the lease was abandoned; `None` before. This reference keeps the renewer alive until
    /// the lease expires, so that the lease's watchers are notified.
    dropped: Option<Arc<Renewer>>,
}

/// A lease to handle now, with its ID.
type DueLease = (u64, Arc<HeldLease>);

impl Schedule {
    /// Returns the hash of each lock key of a lease.
    fn locks(&self, lease: &HeldLease) -> Vec<u64> {
        lease.grant.subject.keys.iter().map(|keys| self.hashing.hash_one(&keys.lock)).collect()
    }

    fn set_wake(&mut self, id: u64, wake: Option<Moment>) {
        let Some(entry) = self.leases.get_mut(&id) else { return };
        if let Some(moment) = entry.wake.take() {
            self.wakes.remove(&(moment, id));
        }
        entry.wake = wake;
        self.wakes.extend(wake.map(|moment| (moment, id)));
    }

    /// Returns the leases to handle now. Schedules each of them again for [`AFTER_PANIC`] from now, so that the renewer
    /// handles a lease again if a panic interrupts the handling. Without a panic, the time of the lease's next step
    /// replaces that time.
    fn due(&mut self, now: Moment) -> Vec<DueLease> {
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
        let rescheduled = Arc::default();
        let driver = Arc::clone(driver);
        let renewer = Arc::new(Self { schedule: Mutex::default(), rescheduled, driver });
        let process_is_ending = {
            let mut renewers = RENEWERS.get_or_init(Mutex::default).lock();
            renewers.all.retain(|renewer| renewer.strong_count() > 0);
            renewers.all.push(Arc::downgrade(&renewer));
            renewers.process_is_ending
        };
        if process_is_ending {
            renewer.driver.closing.cancel();
        }
        renewer
    }

    /// Starts to renew a lease, and returns the ID that the renewer assigned to the lease. Must be called on the
    /// runtime.
    pub(crate) fn add(self: &Arc<Self>, lease: &Arc<HeldLease>) -> u64 {
        let wake = lease.state().wake();
        let mut schedule = self.schedule.lock();
        schedule.last_id += 1;
        let id = schedule.last_id;
        schedule
            .leases
            .insert(id, ScheduledLease { lease: Arc::clone(lease), wake: None, dropped: None });
        schedule.set_wake(id, Some(wake));
        let locks = schedule.locks(lease);
        schedule.by_lock.extend(locks.into_iter().map(|lock| (lock, id)));
        if !schedule.is_running {
            let renewer = Arc::downgrade(self);
            let rescheduled = Arc::clone(&self.rescheduled);
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

    /// Stops renewing and watching a lease: it was released or given up, or has expired after it was abandoned.
    pub(crate) fn remove(&self, id: u64) {
        let removed = {
            let mut schedule = self.schedule.lock();
            schedule.set_wake(id, None);
            let removed = schedule.leases.remove(&id);
            for lock in
                removed.iter().flat_map(|entry| schedule.locks(&entry.lease)).collect::<Vec<_>>()
            {
                schedule.by_lock.remove(&(lock, id));
            }
            removed
        };
        // The schedule must be unlocked before this drop: `removed` may contain the last reference to the lease.
        drop(removed);
    }

    /// Keeps watching an abandoned lease until it expires: until then, the lease's entry keeps the renewer alive.
    pub(crate) fn abandon(self: &Arc<Self>, id: u64) {
        if let Some(entry) = self.schedule.lock().leases.get_mut(&id) {
            entry.dropped = Some(Arc::clone(self));
        }
    }

    /// Returns a valid lease of this client for which `matches` returns `true`, and which prevents an acquire of any of
    /// these keys.
    pub(crate) fn find(
        &self,
        keys: &[Keys],
        matches: impl Fn(&HeldLease) -> bool,
    ) -> Option<Arc<HeldLease>> {
        let now = clock::now();
        let holds = |held: &HeldLease| {
            let subject = held.subject();
            subject.keys.iter().any(|own| keys.iter().any(|wanted| own.excludes(wanted)))
        };
        let of_locks = {
            let schedule = self.schedule.lock();
            let ids = keys.iter().flat_map(|wanted| {
                let lock = schedule.hashing.hash_one(&wanted.lock);
                schedule.by_lock.range((lock, 0)..=(lock, u64::MAX)).map(|(_, id)| id)
            });
            let leases = ids.filter_map(|id| schedule.leases.get(id));
            leases.map(|entry| Arc::clone(&entry.lease)).collect::<Vec<_>>()
        };
        of_locks.into_iter().find(|held| matches(held) && holds(held) && held.is_valid(now))
    }

    fn leases(&self) -> Vec<Arc<HeldLease>> {
        self.schedule.lock().leases.values().map(|entry| Arc::clone(&entry.lease)).collect()
    }

    /// Releases all leases because their client is closed. Their watchers are notified of a loss.
    pub(crate) fn close(&self) {
        for lease in self.take_all() {
            drop(lease.close());
        }
    }

    fn take_all(&self) -> Vec<Arc<HeldLease>> {
        let mut schedule = self.schedule.lock();
        schedule.wakes.clear();
        schedule.by_lock.clear();
        std::mem::take(&mut schedule.leases).into_values().map(|entry| entry.lease).collect()
    }

    /// Wakes the renewer's task if `wake` is earlier than the task's timer.
    fn wake_for(&self, schedule: &Schedule, wake: Moment) {
        if schedule.next_wake.is_none_or(|next_wake| wake < next_wake) {
            self.rescheduled.notify_one();
        }
    }

    /// Handles all leases that are due. Returns when to run again; `None` if nothing is scheduled.
    fn handle_due(self: &Arc<Self>) -> Option<Moment> {
        let now = clock::now();
        let due = self.schedule.lock().due(now);
        let mut renewals = Vec::new();
        for (id, lease) in due {
            // A panic while this lease is handled must not prevent the renewal of other leases.
            let Some(step) = panics::contain(|| lease.renewal_step()) else { continue };
            match step {
                RenewalStep::Ended if lease.is_dropped() => self.remove(id),
                RenewalStep::Ended => self.schedule.lock().set_wake(id, None),
                RenewalStep::Wait => self.reschedule(id, &lease),
                RenewalStep::Renew(end) => {
                    self.schedule.lock().set_wake(id, Some(end));
                    renewals.push((id, lease));
                }
            }
        }
        self.renew(renewals);
        let mut schedule = self.schedule.lock();
        schedule.next_wake = schedule.wakes.first().map(|(moment, _)| *moment);
        schedule.next_wake
    }

    /// Returns the properties in which all leases of one request must agree:
    ///
    /// - the ttl, because it determines how long the request waits for answers;
    /// - the slot, on a Redis Cluster, because a request may only contain keys of one slot;
    /// - whether the lease has permits, and whether it is shared, because each kind has its own script.
    fn batch_key(&self, (_, lease): &DueLease) -> (Duration, Option<u16>, bool, bool) {
        let subject = lease.subject();
        let slot = self.driver.has_cluster.then(|| lease.slot());
        (lease.grant.term.ttl, slot, subject.permit().is_some(), subject.is_shared())
    }

    /// Renews these leases in batches, with a pause between two batches.
    fn renew(self: &Arc<Self>, mut leases: Vec<DueLease>) {
        leases.sort_by_cached_key(|due| self.batch_key(due));
        let size = |(_, lease): &DueLease| lease.subject().keys.len();
        let agree = |one: &_, next: &_| self.batch_key(one) == self.batch_key(next);
        let batches = batches(&leases, size, agree);
        let ttl = leases.iter().map(|(_, lease)| lease.grant.term.ttl).min().unwrap_or_default();
        let pause = Upkeep::pause(ttl, batches.len().try_into().unwrap_or(u32::MAX));
        for (number, batch) in (0..).zip(batches) {
            let renewal = renew_batch(Arc::downgrade(self), pause * number, batch.to_vec());
            // `close` need not wait for the renewal, so the driver does not track this task: on each connection,
            // RELEASE follows EXTEND and deletes the keys anyway.
            let renewal = self.driver.closing.clone().run_until_cancelled_owned(renewal);
            runtime::detach_urgent(async { renewal.await.unwrap_or_default() });
        }
    }

    /// Begins the renewal of each of these leases that is still due. Returns their IDs and extensions. Schedules the
    /// next step of the other leases.
    fn begin(&self, leases: Vec<DueLease>) -> (Vec<u64>, Vec<PendingExtension>) {
        let now = clock::now();
        let begun = leases.into_iter().filter_map(|(id, lease)| {
            let begun = panics::contain(|| lease.begin_renewal(now));
            match begun {
                Some(Some(item)) => return Some((id, item)),
                // The lease has ended, is being upgraded, or was extended by its holder meanwhile, so handle it again
                // now.
                Some(None) => self.wake_at(id, now),
                None => self.wake_at(id, now.plus(AFTER_PANIC)),
            }
            None
        });
        begun.unzip()
    }

    /// Schedules the next step of the lease again. Called when the time of that step has changed.
    pub(crate) fn wake(&self, id: u64, lease: &HeldLease) {
        let wake = lease.state().wake();
        let mut schedule = self.schedule.lock();
        let Some(entry) = schedule.leases.get(&id) else { return };
        // The lease may have been scheduled for an earlier time meanwhile: keep that time.
        let wake = entry.wake.map_or(wake, |set| set.min(wake));
        schedule.set_wake(id, Some(wake));
        self.wake_for(&schedule, wake);
    }

    /// Schedules the next step of a lease that was handled.
    fn reschedule(&self, id: u64, lease: &HeldLease) {
        let mut wake = lease.state().wake();
        loop {
            self.wake_at(id, wake);
            // `wake_at` may have overwritten an earlier time that a heartbeat has just set, so read the time again. A
            // later heartbeat finds the time that was set here, and replaces it.
            let latest = lease.state().wake();
            if latest >= wake {
                return;
            }
            wake = latest;
        }
    }

    /// Schedules the next step of a lease for `moment`, which replaces the time that was set before. Wakes the
    /// renewer's task if needed.
    fn wake_at(&self, id: u64, moment: Moment) {
        let mut schedule = self.schedule.lock();
        schedule.set_wake(id, Some(moment));
        self.wake_for(&schedule, moment);
    }
}

/// Divides items into batches of consecutive items that `agree`. A batch has at most [`BATCH`] resources, or a single item.
/// `size` returns the number of an item's resources.
fn batches<T>(
    items: &[T],
    size: impl Fn(&T) -> usize,
    agree: impl Fn(&T, &T) -> bool,
) -> Vec<&[T]> {
    let mut resources = items.first().map_or(0, &size);
    let batches = items.chunk_by(|one, next| {
        resources += size(next);
        let fits = resources <= BATCH && agree(one, next);
        if !fits {
            resources = size(next);
        }
        fits
    });
    batches.collect()
}

impl Drop for Renewer {
    fn drop(&mut self) {
        // Wakes the task, which then finds that the renewer was dropped, and ends.
        self.rescheduled.notify_one();
    }
}

/// The renewer's task. Ends when the renewer is dropped or the client is closed.
async fn run(renewer: Weak<Renewer>, rescheduled: Arc<Notify>, closing: CancellationToken) {
    while let Some(strong) = renewer.upgrade() {
        let next = strong.handle_due();
        // The task must not hold a strong reference while it sleeps: otherwise, the renewer would never be dropped.
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

/// Sends one batch of automatic extensions after a delay, and schedules the next step of each lease.
async fn renew_batch(renewer: Weak<Renewer>, delay: Duration, leases: Vec<DueLease>) {
    sleep(delay).await;
    let Some(strong) = renewer.upgrade() else { return };
    let (ids, items) = strong.begin(leases);
    drop(strong);
    if items.is_empty() {
        return;
    }
    let leases: Vec<_> = items.iter().map(|item| Arc::clone(&item.lease)).collect();
    let renewed = |position: usize, extended| {
        let goes_on = leases[position].finish_renewal(extended);
        if let Some(renewer) = renewer.upgrade().filter(|_| goes_on) {
            renewer.reschedule(ids[position], &leases[position]);
        }
    };
    let extending = panics::contained(async {
        let mut extending = ExtensionBatch::start(items, true);
        while let Some(decided) = extending.step().await {
            for (position, extended) in decided {
                renewed(position, extended);
            }
        }
    });
    if extending.await.is_none() {
        // A bug in quorlock. Treat the extensions as undecided, so that they are retried before the
        // leases end.
        (0..leases.len()).for_each(|position| renewed(position, Extended::Undecided));
    }
}

/// Closes all clients of this process and releases every lease they hold. Call it at the end of a
/// process, so that other clients can acquire the locks immediately instead of waiting for the
/// leases to expire.
///
/// Blocks until the nodes have confirmed the releases, for at most `patience` in total.
///
/// Acquires that are running or start later fail with [`ErrorCode::Closed`](crate::ErrorCode::Closed). Holders are not
/// notified of a loss: each lease counts as released by its holder, but the option `keep` does not apply. A detached
/// lease whose text was not taken is also released, if its [`Lease`](crate::Lease) still exists.
pub fn release_all(patience: Duration) {
    let began = Instant::now();
    let renewers: Vec<_> = {
        let mut renewers = RENEWERS.get_or_init(Mutex::default).lock();
        renewers.process_is_ending = true;
        renewers.all.iter().filter_map(Weak::upgrade).collect()
    };
    // Must precede the releases: a release may notify waiters of this process, and these waiters must not win a lock
    // any more.
    renewers.iter().for_each(|renewer| renewer.driver.closing.cancel());
    for lease in renewers.iter().flat_map(|renewer| renewer.take_all()) {
        drop(lease.release(None));
        // A detached lease must be released here: the process ends before anyone takes the lease's text.
        lease.release_untaken();
    }
    let closing: Vec<_> = renewers.iter().map(|renewer| renewer.driver.close()).collect();
    for mut closed in closing {
        let _ = closed.block_for(patience.saturating_sub(began.elapsed()));
    }
}

/// Moves the clock of this process ahead, for tests. Fails while an open client of this process has used a node that is
/// not in-memory. The clock of such a node would not move along: for example, the guard of a restarted node would end
/// too early.
pub(crate) fn move_clock(time: Duration) -> Result<()> {
    // Declared here, so that the references are dropped after the mutex is unlocked.
    let all: Vec<Arc<Renewer>>;
    // Locked during the move, so that no other client begins to use nodes before the move is done.
    let renewers = RENEWERS.get_or_init(Mutex::default).lock();
    all = renewers.all.iter().filter_map(Weak::upgrade).collect();
    for renewer in all.iter().filter(|renewer| !renewer.driver.closing.is_cancelled()) {
        if let Some(node) = renewer.driver.nodes.iter().find(|node| !node.is_in_memory()) {
            return Err(Error::config(format!(
                "the clock cannot be moved, because a client of this process uses {}, whose clock \
                 would not move along: close that client first",
                node.address()
            )));
        }
    }
    clock::move_ahead(time);
    Ok(())
}

/// Returns the leases of all clients of this process for which `matches` returns `true`.
pub(crate) fn leases(matches: impl Fn(&HeldLease) -> bool) -> Vec<Arc<HeldLease>> {
    let renewers: Vec<_> = {
        let renewers = RENEWERS.get_or_init(Mutex::default).lock();
        renewers.all.iter().filter_map(Weak::upgrade).collect()
    };
    let leases = renewers.iter().flat_map(|renewer| renewer.leases());
    leases.filter(|lease| matches(lease)).collect()
}

#[cfg(test)]
mod tests {
    use super::batches;

    #[test]
    fn a_batch_has_few_resources_or_one_lease() {
        let sizes = [64, 1, 62, 1, 1, 1_024, 2, 40];
        let divided = batches(&sizes, |size| *size, |_, _| true);
        assert_eq!(divided, [&[64][..], &[1, 62, 1], &[1], &[1_024], &[2, 40]]);
        assert_eq!(batches(&[1, 1, 2], |_| 1, |one, next| one == next), [&[1, 1][..], &[2]]);
    }
}
