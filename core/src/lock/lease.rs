//! The lease that a won acquire hands out.

use crate::config::options::{Dialect, OptionValue};
use crate::error::{Error, ErrorCode, Result};
use crate::lock::extend::extend;
use crate::lock::held::{Grant, HeldLease};
use crate::lock::renewer::Renewer;
use crate::lock::watcher::Watcher;
use crate::runtime::Pending;
use crate::runtime::clock;
use crate::runtime::fork::Owned;
use crate::runtime::panics;
use quorlock_protocol::Term;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A held lock. Whoever has the lease owns it: any thread or task may use it.
///
/// It is extended automatically (unless `auto_extend` is off) until it is released, or has been held
/// for `max_hold`. Dropping a lease releases it in the background, so keep it for as long as the work
/// takes. The compiler warns of a lease that is dropped at once:
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
/// In a forked child, a lease of the parent is over: it is not valid, is not extended, and is not
/// released there. The parent still holds it.
#[must_use = "dropping a lease releases it"]
pub struct Lease {
    grant: Arc<Grant>,
    tracked: Owned<Tracked>,
}

/// What a lease is in the process that holds it.
struct Tracked {
    held: Arc<HeldLease>,
    renewer: Arc<Renewer>,
    id: u64,
}

impl Lease {
    /// Called on the runtime.
    pub(crate) fn new(renewer: &Arc<Renewer>, held: Arc<HeldLease>) -> Self {
        let (grant, id) = (Arc::clone(&held.grant), renewer.add(&held));
        Self { grant, tracked: Owned::new(Tracked { held, renewer: Arc::clone(renewer), id }) }
    }

    /// `None` in a process that inherited the lease.
    pub(crate) fn held(&self) -> Option<&Arc<HeldLease>> {
        self.tracked.get().map(|tracked| &tracked.held)
    }

    /// What is locked.
    pub fn resources(&self) -> &[String] {
        &self.grant.resources
    }

    /// The value of the key on the nodes: 40 hexadecimal digits, different for every lease, and the same
    /// for all of its resources.
    pub fn token(&self) -> &str {
        &self.grant.subject.token
    }

    /// The fencing token: larger than that of every earlier lease of the resource, and below 2^53.
    /// Send it with every write, and let the storage refuse a smaller one than it has seen.
    ///
    /// # Panics
    ///
    /// If it is a lease of several resources: see [`Lease::fences`].
    pub fn fence(&self) -> u64 {
        self.only_fence().unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`Lease::fence`]; an error with [`ErrorCode::Config`] for a lease of several resources.
    ///
    /// # Errors
    ///
    /// See above.
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

    /// The fencing token of each resource.
    pub fn fences(&self) -> impl Iterator<Item = (&str, u64)> {
        // One number serves for all: it is larger than the last one of each.
        self.grant.resources.iter().map(|resource| (&**resource, self.grant.fence))
    }

    /// Whether the lock is held now. Decided by the local clock, without fan_out the nodes; once
    /// `false`, it stays so.
    pub fn is_valid(&self) -> bool {
        self.held().is_some_and(|held| held.state().lease.is_valid(clock::now()))
    }

    /// How much longer the lease is valid, if it is not extended; zero if it is not valid.
    pub fn remaining(&self) -> Duration {
        let Some(held) = self.held() else { return Duration::ZERO };
        let state = held.state();
        let now = clock::now();
        if state.lease.is_valid(now) { state.lease.end().since(now) } else { Duration::ZERO }
    }

    /// Whether [`Lease::release`] was called, or the client was closed.
    pub fn is_released(&self) -> bool {
        self.held().is_some_and(|held| held.state().lease.is_released())
    }

    /// `Ok` while the lease is valid.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::LeaseLost`] from its end on, with the reason.
    pub fn check(&self) -> Result<()> {
        let Some(held) = self.held() else { return Err(self.forked_error()) };
        let state = held.state();
        let now = clock::now();
        state.lease.ended(now).map_or(Ok(()), |ended| Err(held.end_error(&state, now, ended)))
    }

    /// Why the lease was lost: the error if it ended before it was released, or if a majority of
    /// the nodes turned out, at the release, not to hold it; `None` otherwise.
    pub fn loss(&self) -> Option<Error> {
        let Some(held) = self.held() else { return Some(self.forked_error()) };
        held.state().loss(held, clock::now())
    }

    /// Waits for the loss of the lease: the error as soon as it is lost, at its validity end at
    /// the latest; `None` as soon as it is released. Any number of callers may wait.
    pub fn lost(&self) -> Pending<Option<Error>> {
        let Some(held) = self.held() else { return Pending::ready(Some(self.forked_error())) };
        let (sender, receiver) = oneshot::channel();
        held.watch(Watcher::Waiting(sender));
        Pending::new(receiver)
    }

    /// Calls `callback` with the error when the lease is lost, on the thread of quorlock's runtime,
    /// where it must not block; at once, on this thread, if it is lost already. It is dropped when
    /// the lease is released. A panic of it is reported by the panic hook, and has no other effect. For language bindings; [`Lease::lost`] is for programs.
    pub fn on_lost(&self, callback: impl FnOnce(Error) + Send + 'static) {
        match self.held() {
            Some(held) => held.watch(Watcher::Callback(Box::new(callback))),
            None => drop(panics::contain(|| callback(self.forked_error()))),
        }
    }

    /// Extends the lease to `ttl` from now, or by the ttl it was acquired with. It is never made
    /// shorter, and never extended beyond `max_hold`.
    ///
    /// The result is an error with [`ErrorCode::LeaseLost`] if the lease is over, and with
    /// [`ErrorCode::NoQuorum`] if too few nodes confirm, and still do not after `connect_timeout`;
    /// the lease then stands as it was.
    pub fn extend(&self, ttl: Option<Duration>) -> Pending<Result<()>> {
        let seconds = ttl.map(|ttl| OptionValue::Number(ttl.as_secs_f64()));
        self.extend_by(Dialect::Rust, seconds.as_ref())
    }

    /// [`Lease::extend`] with a ttl as a language binding received it.
    pub fn extend_by(&self, dialect: Dialect, ttl: Option<&OptionValue>) -> Pending<Result<()>> {
        let Some(held) = self.held() else {
            return Pending::ready(Err(self.forked_error()));
        };
        let options = &held.driver().options;
        let ttl = match ttl.map(|ttl| options.extension_ttl(dialect, ttl)).transpose() {
            Ok(ttl) => ttl,
            Err(error) => return Pending::ready(Err(error)),
        };
        if let Err(error) = self.check() {
            return Pending::ready(Err(error));
        }
        let (sender, receiver) = oneshot::channel();
        let term = Term { ttl: ttl.unwrap_or(held.grant.term.ttl), ..held.grant.term };
        match held.driver().begin(extend(Arc::clone(held), term, sender)) {
            Ok(()) => Pending::new(receiver),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Releases the lock. It is not valid from this call on, whatever the nodes answer, and nodes
    /// that cannot be reached are told later, in the background.
    ///
    /// `true` if the lease was valid until now and a majority of the nodes confirms it; `false`
    /// if it was lost or released before, or if too few nodes confirm within a third of the ttl (at
    /// most 10 s, at least `node_timeout`). Never an error: the lock is given up in any case.
    pub fn release(&self) -> Pending<bool> {
        let Some(Tracked { held, renewer, id }) = self.tracked.get() else {
            return Pending::ready(false);
        };
        renewer.remove(*id);
        held.release()
    }

    /// Gives up a lease that nothing refers to any more, without releasing it: renewal stops, and the nodes
    /// keep the key until it expires, at [`Lease::remaining`] from now. Dropping the lease does not release it
    /// from then on. For bindings of languages whose garbage collector may take a lease while the work under
    /// it goes on; in Rust, dropping a lease means to release it.
    ///
    /// Returns whether the lease was valid until now. If so, it is counted as `dropped` in
    /// [`Stats`](crate::Stats), the event `lease.dropped` warns of it, and the callbacks of
    /// [`Lease::on_lost`] and waiters of [`Lease::lost`] hear of the loss when it expires. Otherwise
    /// nothing is done. Closing the client, and [`release_all`](crate::release_all), still release it.
    pub fn abandon(&self) -> bool {
        let Some(Tracked { held, renewer, id }) = self.tracked.get() else { return false };
        let is_dropped = held.abandon();
        if is_dropped {
            renewer.abandon(*id);
        }
        is_dropped
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
        if !self.held().is_some_and(|held| held.is_dropped()) {
            drop(self.release());
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resources", &self.grant.resources)
            .field("fence", &self.grant.fence)
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
