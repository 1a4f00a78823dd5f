//! The public handle of a lease.
//!
//! A thin layer over [`HeldLease`]: defines what happens when the handle is dropped, and after a fork. Acquires create
//! leases; programs and bindings use them. No rule of the lock belongs here.

pub(crate) mod owner;

use crate::config::mode::Mode;
use crate::config::options::Options;
use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, ErrorCode, Result};
use crate::lock::claim::detach::{Detached, detach};
use crate::lock::claim::downgrade::downgrade;
use crate::lock::claim::extend::extend;
use crate::lock::claim::held::{Grant, HANDED_OVER, HeldLease, Watcher};
use crate::lock::driver::run_for;
use crate::lock::election::hand_over;
use crate::lock::renewer::Renewer;
use crate::runtime::Pending;
use crate::runtime::clock;
use crate::runtime::fork::Owned;
use crate::runtime::panics;
use quorlock_protocol::{NodeSet, Term};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A held lock. The lease belongs to the code that has the handle: any thread or task may use the lease.
///
/// Unless `auto_extend` is off, the lease is renewed until it is released or has been held for `max_hold`. Dropping the
/// handle releases the lease in the background, so keep the handle until the work is done. The compiler warns about a
/// lease that is dropped at once:
///
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # async fn run(client: quorlock::Client) -> quorlock::Result<()> {
/// client.lock("orders:42").acquire().await?;
/// // The lock is released already.
/// # Ok(())
/// # }
/// ```
///
/// In a forked child process, a lease of the parent is not valid. The child neither renews nor releases the lease; the
/// parent still holds it.
#[must_use = "dropping a lease releases it"]
pub struct Lease {
    grant: Arc<Grant>,
    tracked: Owned<Tracked>,
    /// Whether the option `keep` also applies when the handle is dropped: see [`Lease::release_and_keep`]. `false`
    /// until the program has received the lease: if the acquire is cancelled before that, the nodes must not keep the
    /// keys.
    keeps_when_dropped: bool,
}

/// The part of a lease that only exists in the process that acquired it.
pub(super) struct Tracked {
    pub(super) held: Arc<HeldLease>,
    pub(super) renewer: Arc<Renewer>,
    /// The ID that the renewer assigned to the lease.
    pub(super) id: u64,
}

impl Lease {
    /// Adds the lease to the renewer. Must be called on the runtime.
    pub(crate) fn new(renewer: &Arc<Renewer>, held: Arc<HeldLease>) -> Self {
        let grant = Arc::clone(&held.grant);
        let id = renewer.add(&held);
        let tracked = Owned::new(Tracked { held, renewer: Arc::clone(renewer), id });
        Self { grant, tracked, keeps_when_dropped: false }
    }

    /// Like [`Lock::deliver`](crate::Lock::deliver), for a result that may be no lease.
    pub(crate) fn deliver(acquired: &mut Result<Option<Self>>) {
        if let Ok(Some(lease)) = acquired {
            lease.keep_when_dropped();
        }
    }

    /// Makes the option `keep` also apply when the handle is dropped. Called when a Rust program receives the lease.
    /// Bindings do not call this method, because they release the lease at the end of their own blocks.
    pub(crate) fn keep_when_dropped(&mut self) {
        self.keeps_when_dropped = true;
    }

    /// Returns the state that the handle shares with background tasks; `None` in a forked child process.
    pub(crate) fn held(&self) -> Option<&Arc<HeldLease>> {
        self.tracked.get().map(|tracked| &tracked.held)
    }

    /// The locked resources, in the order in which they were given.
    pub fn resources(&self) -> &[String] {
        &self.grant.resources
    }

    /// The first of [`Lease::resources`]: the only one, unless several resources were locked together.
    pub fn resource(&self) -> &str {
        self.grant.resources.first().expect("a lease has at least one resource")
    }

    /// The ttl with which the lease was acquired. A later [`Lease::extend`] does not change this value.
    pub fn ttl(&self) -> Duration {
        self.grant.term.ttl
    }

    /// The value of the key on the nodes: 40 random hexadecimal digits and, if the lease has a [name](Lease::holder),
    /// `;` and the name. Each lease has its own token, which is the same for all resources of the lease. The token is a
    /// secret: anyone who has the token can release the lock.
    pub fn token(&self) -> &str {
        self.grant.subject.token.as_str()
    }

    /// The holder name of the lease, `hostname:pid` by default; empty if the lease has no name. Other clients see this
    /// name while they wait for the lease to end.
    pub fn holder(&self) -> &str {
        self.grant.holder()
    }

    /// The fencing token: larger than the fence of every earlier exclusive lease of the resource, and below 2^53. Send
    /// the fence with every write, and let the storage reject each write whose fence is smaller than the largest fence
    /// that the storage has seen.
    ///
    /// # Panics
    ///
    /// If the lease has several resources: use [`Lease::fences`].
    pub fn fence(&self) -> u64 {
        self.only_fence().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the fencing token, like [`Lease::fence`], but does not panic.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`] if the lease has several resources.
    pub fn only_fence(&self) -> Result<u64> {
        let resources = &self.grant.resources;
        match resources.len() {
            1 => Ok(self.grant.fence),
            _ => Err(Error::config(format!(
                "the lease of {resources} has a fence for each of them: use `fences`"
            ))
            .about(resources)),
        }
    }

    /// The slots of the permits, in order; empty if this is not a lease of a semaphore. Each slot is smaller than the
    /// semaphore's limit. No other holder has the same slot, so a slot can serve as a worker number.
    pub fn slots(&self) -> Vec<u32> {
        self.grant.subject.slots()
    }

    /// Returns the slot of a lease that has exactly one slot.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`] if the lease has several slots, or none.
    pub fn only_slot(&self) -> Result<u32> {
        let resources = &self.grant.resources;
        let slots = self.slots();
        let mistake = match slots[..] {
            [slot] => return Ok(slot),
            [] => format!("the lease of {resources} has no slot: it is a lease of a lock"),
            _ => format!("the lease of {resources} has {} slots: use `slots`", slots.len()),
        };
        Err(Error::config(mistake).about(resources))
    }

    /// Returns each resource with its mode.
    pub fn modes(&self) -> impl Iterator<Item = (&str, Mode)> {
        let modes = self.held().map_or_else(|| self.grant.modes.clone(), |held| held.modes());
        self.grant.resources.iter().map(move |resource| (&**resource, modes.of(resource)))
    }

    /// The mode of the resources; `None` if the resources have different modes.
    pub fn mode(&self) -> Option<Mode> {
        let mut modes = self.modes().map(|(_, mode)| mode);
        let first = modes.next()?;
        modes.all(|mode| mode == first).then_some(first)
    }

    /// Returns each resource with its fencing token.
    pub fn fences(&self) -> impl Iterator<Item = (&str, u64)> {
        // All resources have the same fence, which is larger than the last fence of each resource.
        self.grant.resources.iter().map(|resource| (&**resource, self.grant.fence))
    }

    /// Whether the lease is valid now. Only compares the validity end with the local clock, and sends nothing to the
    /// nodes. A lease that is not valid never becomes valid again.
    pub fn is_valid(&self) -> bool {
        self.held().is_some_and(|held| held.state().claim.lease().is_valid(clock::now()))
    }

    /// Returns the time for which the lease stays valid without a further extension; zero if the lease is not valid.
    pub fn remaining(&self) -> Duration {
        let Some(held) = self.held() else { return Duration::ZERO };
        let state = held.state();
        let now = clock::now();
        if state.claim.lease().is_valid(now) {
            state.claim.lease().end().since(now)
        } else {
            Duration::ZERO
        }
    }

    /// Whether `max_hold` prevents any extension beyond the current validity end.
    #[doc(hidden)]
    pub fn is_at_limit(&self) -> bool {
        self.held().is_some_and(|held| held.state().claim.lease().is_at_limit())
    }

    /// Whether the lease was released or detached, or ended because its client was closed.
    pub fn is_released(&self) -> bool {
        self.held().is_some_and(|held| held.state().claim.lease().is_released())
    }

    /// Returns `Ok` while the lease is valid. Counts as a [heartbeat](Lease::heartbeat).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::LeaseLost`], with the [reason](Error::reason), if the lease has ended.
    pub fn check(&self) -> Result<()> {
        let Tracked { held, renewer, id } = self.tracked()?;
        let is_rescheduled = {
            let mut state = held.state();
            let now = clock::now();
            if let Some(ended) = state.claim.lease().ended(now) {
                return Err(held.end_error(&state, now, ended));
            }
            state.beat(now)
        };
        if is_rescheduled {
            renewer.wake(*id, held);
        }
        Ok(())
    }

    /// Reports that the work under the lock still goes on. A lease with a
    /// [`heartbeat_timeout`](crate::Lock::heartbeat_timeout) is renewed only while its last heartbeat is younger than
    /// this timeout. [`Lease::check`] and [`Lease::extend`] also count as heartbeats, and the acquire counts as the
    /// first heartbeat. Any thread may call this method. The method sends nothing.
    ///
    /// If renewal has stopped because there was no heartbeat, and the lease is still valid, this call starts a renewal
    /// at once.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::LeaseLost`], with the [reason](Error::reason), if the lease has ended.
    pub fn heartbeat(&self) -> Result<()> {
        self.check()
    }

    /// Returns the error if the lease was lost. A lease is lost if it ends before its release, or if the release finds
    /// that a majority of the nodes does not hold the key. `None` if the lease is valid, or was released, detached or
    /// upgraded in time.
    pub fn loss(&self) -> Option<Error> {
        let Some(held) = self.held() else { return Some(self.forked_error()) };
        held.state().loss(held, clock::now())
    }

    /// Waits until the lease ends. The result is an error if the lease is lost, and `None` if the lease is released,
    /// detached or upgraded. A loss is reported at the validity end at the latest. Any number of callers may wait;
    /// dropping the returned [`Pending`] stops the wait.
    pub fn lost(&self) -> Pending<Option<Error>> {
        let Some(held) = self.held() else { return Pending::ready(Some(self.forked_error())) };
        let (sender, receiver) = oneshot::channel();
        held.watch(Watcher::Waiting(sender));
        Pending::open_ended(receiver)
    }

    /// Calls `callback` with the error when the lease is lost. If the lease is lost already, the callback runs
    /// immediately, on this thread. Otherwise, the callback runs on a thread that drives quorlock's runtime, or on the
    /// thread that closes the client. The callback must not block.
    ///
    /// The callback is dropped without a call when the lease is released, detached or upgraded. If the callback panics,
    /// the panic hook reports the panic; the panic has no other effect. This method is for language bindings; programs
    /// use [`Lease::lost`].
    pub fn on_lost(&self, callback: impl FnOnce(Error) + Send + 'static) {
        match self.held() {
            Some(held) => held.watch(Watcher::Callback(Box::new(callback))),
            None => drop(panics::contain(|| callback(self.forked_error()))),
        }
    }

    /// Extends the lease to `ttl` from now; `None` uses the ttl of the acquire. Never shortens the lease, and
    /// never extends it beyond `max_hold`.
    ///
    /// The error is [`ErrorCode::LeaseLost`] if the lease has ended. The error is [`ErrorCode::NoQuorum`] if too few
    /// nodes confirm within `connect_timeout`; the validity end is then unchanged. The error is [`ErrorCode::Config`]
    /// if `ttl` is out of range.
    pub fn extend(&self, ttl: Option<Duration>) -> Pending<Result<()>> {
        let seconds = ttl.map(OptionValue::seconds);
        self.extend_by(Dialect::Rust, seconds.as_ref())
    }

    /// Like [`Lease::extend`], but takes `ttl` as `dialect` writes it. For language bindings.
    pub fn extend_by(&self, dialect: Dialect, ttl: Option<&OptionValue>) -> Pending<Result<()>> {
        Pending::started(self.tracked().and_then(|Tracked { held, .. }| {
            let options = &held.driver.options;
            let own = held.grant.term.ttl;
            let ttl = match ttl {
                Some(ttl) => options.extension_ttl(dialect, ttl)?,
                // A resumed lease has the ttl of the client that acquired it.
                None => options.check_guard("the ttl of the lease", own).map(|()| own)?,
            };
            self.check()?;
            let term = Term { ttl, ..held.grant.term };
            held.driver.begin_for(|caller| extend(Arc::clone(held), term, caller))
        }))
    }

    /// Releases the lock. The lease is not valid after this call, whatever the nodes answer. Nodes that cannot be
    /// reached get the RELEASE request later, in the background.
    ///
    /// The result is `true` if the lease is valid when this method is called, and a majority of the nodes confirms the
    /// release in time. Otherwise, the result is `false`, never an error. The time limit is a third of the ttl (at most
    /// 10 s), or `node_timeout` if that is longer. Dropping the returned [`Pending`] does not cancel the release.
    ///
    /// If the lock has the option `keep`, the nodes keep the key for that time: see [`Lease::release_and_keep`].
    pub fn release(&self) -> Pending<bool> {
        self.end(self.grant.keep)
    }

    /// Releases the lock like [`Lease::release`], but the nodes keep the key for the time `keep` from now on. `keep` is
    /// 10 ms to 24 h, or zero for an ordinary release. This argument overrides the option `keep` of the lock.
    ///
    /// Use this method for a job that several hosts start at a fixed time, each by its own clock: a host whose clock is
    /// late finds the lock held, and does not run the job a second time. Until the time has passed, others see the key
    /// as held by this holder. Nothing renews or repairs the key, so a node that restarts without persistence loses the
    /// key early.
    ///
    /// The nodes keep the key only if the lease is valid at the release. The nodes do not keep the key if the lease is
    /// lost, the acquire is cancelled, the client is closed, or the process ends. Dropping the handle is a release with
    /// the option `keep` of the lock.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`] if `keep` is out of range. In this case, the lease is not released.
    pub fn release_and_keep(&self, keep: Duration) -> Result<Pending<bool>> {
        self.release_by(Dialect::Rust, Some(&OptionValue::seconds(keep)))
    }

    /// Like [`Lease::release_and_keep`], but takes `keep` as `dialect` writes it; `None` uses the option `keep` of the
    /// lock. For language bindings.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Config`] if `keep` is not valid.
    pub fn release_by(
        &self,
        dialect: Dialect,
        keep: Option<&OptionValue>,
    ) -> Result<Pending<bool>> {
        let keep = match keep {
            Some(keep) => Options::keep(dialect, keep)?,
            None => self.grant.keep,
        };
        Ok(self.end(keep))
    }

    fn end(&self, keep: Option<Duration>) -> Pending<bool> {
        let Some(Tracked { held, renewer, id }) = self.tracked.get() else {
            return Pending::ready(false);
        };
        renewer.remove(*id);
        held.release(keep)
    }

    /// Gives the lease up, so that another client can adopt it, in this or another process and in any language.
    /// [`Detached::into_text`] returns the text for [`Client::adopt`](crate::Client::adopt).
    ///
    /// First extends the lease to at least `within` from now, but not beyond `max_hold`: an adopter has this time, or
    /// the rest of the ttl if that is longer. Then the lease ends for its holder: it is not valid any more, is not
    /// renewed, and does not count as lost. The holder must have finished all writes before the lease ends. The
    /// resource stays locked until the lease is adopted or expires.
    ///
    /// If the extension fails, the error is that of [`Lease::extend`], and the lease stays valid. If the caller drops
    /// the returned [`Pending`] before the result is ready, the lease either stays valid or is released.
    ///
    /// The error is [`ErrorCode::Config`] if `within` is not a valid ttl. The error is also [`ErrorCode::Config`] for a
    /// lease of [`Client::keep`](crate::Client::keep) or [`Client::resume`](crate::Client::resume), because other
    /// processes may also have that lease.
    pub fn detach(&self, within: Duration) -> Pending<Result<Detached>> {
        self.detach_by(Dialect::Rust, Some(&OptionValue::seconds(within)))
    }

    /// Like [`Lease::detach`], but takes `within` as `dialect` writes it. `None` means 30 s, or `restart_guard` if that
    /// is shorter. For language bindings.
    pub fn detach_by(
        &self,
        dialect: Dialect,
        within: Option<&OptionValue>,
    ) -> Pending<Result<Detached>> {
        Pending::started(self.tracked().and_then(|Tracked { held, .. }| {
            let within = held.driver.options.within(dialect, within)?;
            held.check_hand_over()?;
            let term = Term { ttl: within, ..held.grant.term };
            held.driver.begin_for(|caller| run_for(caller, detach(Arc::clone(held), term)))
        }))
    }

    /// Hands the lease over to the candidate with the holder name `successor` in an [election](crate::Client::elect),
    /// without a gap in which nobody holds the lock. The result is `true` if the candidate has adopted the lease.
    ///
    /// If no node knows of such a candidate, the result is `false`, and the lease stays valid. Otherwise the lease ends
    /// as in [`Lease::detach`], so its holder must have finished all writes. If the candidate then disappears, or does
    /// not adopt the lease before `within` has passed, the result is `false`, and the lock is released.
    ///
    /// If ending the lease fails, the error is that of [`Lease::detach`], and the lease stays valid. The error is
    /// [`ErrorCode::Config`] if `successor` or `within` is invalid, or if the lease is shared, has several resources,
    /// or is a lease of a semaphore. If the caller drops the returned [`Pending`] before the lease has ended, the lease
    /// stays valid.
    pub fn hand_over(&self, successor: &str, within: Duration) -> Pending<Result<bool>> {
        let name = OptionValue::Text(successor.to_owned());
        self.hand_over_by(Dialect::Rust, &name, Some(&OptionValue::seconds(within)))
    }

    /// Like [`Lease::hand_over`], but takes the arguments as `dialect` writes them. For language bindings.
    ///
    /// If `within` is `None`, the time is the ttl of the acquire: a candidate that does not adopt the lease then costs
    /// as much time as a leader that crashes.
    pub fn hand_over_by(
        &self,
        dialect: Dialect,
        successor: &OptionValue,
        within: Option<&OptionValue>,
    ) -> Pending<Result<bool>> {
        Pending::started(self.tracked().and_then(|Tracked { held, .. }| {
            let term = held.grant.term;
            let options = &held.driver.options;
            let successor = Options::successor(dialect, successor)?;
            let within = within.map(|within| options.within(dialect, Some(within))).transpose()?;
            let mistake = if self.resources().len() > 1 {
                Some("a candidate has one resource")
            } else if !self.slots().is_empty() {
                Some("it is a permit of a semaphore, and no leader's lease")
            } else if self.mode() == Some(Mode::Shared) {
                Some("it is shared")
            } else {
                None
            };
            if let Some(mistake) = mistake {
                return Err(held.mistake(HANDED_OVER, mistake));
            }
            held.check_hand_over()?;
            let term = Term { ttl: within.unwrap_or(term.ttl), ..term };
            held.driver.begin_for(|caller| hand_over(Arc::clone(held), successor, term, caller))
        }))
    }

    /// Records that the lease is released at the end of a block, such as a `with` statement, and not before. If the
    /// lease is shared, an acquire [within](crate::Lock::within) this block fails instead of waiting for this lease,
    /// because it would wait for itself. For language bindings.
    #[doc(hidden)]
    pub fn enter_block(&self, block: NonZeroU64) {
        if let Some(held) = self.held() {
            held.enter_block(block);
        }
    }

    /// Makes the lease shared, so that other clients can also hold the resource in shared mode. Waiting readers are
    /// notified. The fence stays the same. A lease of several resources becomes shared for all of them. If the lease is
    /// shared already, this method does nothing.
    ///
    /// The lease counts as shared from this call on. The result is ready when a majority of the nodes has applied the
    /// change, when every node has answered, or when `node_timeout` has passed. The other nodes follow in the
    /// background. The result is an error with [`ErrorCode::LeaseLost`] if the lease has ended, and with
    /// [`ErrorCode::Config`] if the lease has permits of a semaphore or is being upgraded. Dropping the returned
    /// [`Pending`] does not cancel the change.
    pub fn downgrade(&self) -> Pending<Result<()>> {
        Pending::started(self.tracked().and_then(|Tracked { held, .. }| {
            if !held.begin_downgrade()? {
                return Ok(Pending::ready(Ok(())));
            }
            held.driver.begin_for(|caller| downgrade(Arc::clone(held), caller))
        }))
    }

    /// Whether the lease was detached, so that another client can adopt it.
    pub fn is_detached(&self) -> bool {
        self.held().is_some_and(|held| held.is_detached())
    }

    /// Gives up the lease without releasing it, so that another process can resume the lease. Renewal stops. After this
    /// call, neither dropping the handle nor closing the client releases the lease. Returns the nodes that count
    /// towards the lease's majority.
    pub(crate) fn pass_on(&self) -> Result<NodeSet> {
        let tracked = self.tracked()?;
        let sound = tracked.held.pass_on()?;
        tracked.renewer.remove(tracked.id);
        Ok(sound)
    }

    /// Gives up a lease without releasing it: renewal stops, and the nodes keep the key until it expires, shortly after
    /// [`Lease::remaining`] has passed. Dropping the handle after this call does not release the lease either.
    ///
    /// For bindings of languages whose garbage collector may collect the handle while the work still runs. In
    /// Rust, dropping the handle releases the lease.
    ///
    /// Returns `true` if the lease was still valid and had not been abandoned before. Otherwise, returns `false` and
    /// has no effect.
    ///
    /// [`Stats`](crate::Stats) counts an abandoned lease as `dropped`, and the event `lease.dropped` warns about it.
    /// Callbacks of [`Lease::on_lost`] and waiters of [`Lease::lost`] are notified when the lease expires. Closing the
    /// client and [`release_all`](crate::release_all) still release the lease.
    pub fn abandon(&self) -> bool {
        let Some(Tracked { held, renewer, id }) = self.tracked.get() else { return false };
        let is_dropped = held.abandon();
        if is_dropped {
            renewer.abandon(*id);
        }
        is_dropped
    }

    /// Returns the state of the lease and its renewer; an error in a process that was forked from the holder's process.
    pub(super) fn tracked(&self) -> Result<&Tracked> {
        self.tracked.get().ok_or_else(|| self.forked_error())
    }

    fn forked_error(&self) -> Error {
        let resources = &self.grant.resources;
        let message =
            format!("the lease of {resources} is held by the process that forked this one");
        Error::new(ErrorCode::LeaseLost, message).about(resources)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(Tracked { held, renewer, id }) = self.tracked.get() else { return };
        if held.is_dropped() {
            // The renewer watches the lease until it expires, or no longer has it.
        } else if held.is_released() {
            renewer.remove(*id);
        } else if held.state().claim.is_elsewhere() {
            // Another process may use the lease, so only `release` releases it.
            if self.pass_on().is_err() {
                renewer.remove(*id);
            }
        } else {
            drop(self.end(self.grant.keep.filter(|_| self.keeps_when_dropped)));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resources", &self.grant.resources)
            .field("fence", &self.grant.fence)
            .field("holder", &self.holder())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
