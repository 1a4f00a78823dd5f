//! The lease that a won acquire hands out.

use crate::acquire::{no_quorum, reports};
use crate::client::Core;
use crate::clock;
use crate::error::{Error, ErrorCode, Result};
use crate::node::{Answered, answer};
use crate::options::{self, Dialect, Human, OptionValue};
use crate::protocol::{self, Extended, Loss, Moment, Next, NodeSet, Term, Waiting};
use crate::runtime::Pending;
use crate::script::{Request, Subject, Verb};
use crate::token;
use futures_util::stream::StreamExt;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// A held lock. Whoever has the lease owns it: any thread or task may use it.
///
/// A dropped lease is released in the background.
pub struct Lease {
    shared: Arc<Shared>,
}

/// What a lease shares with the tasks that work for it.
pub(crate) struct Shared {
    pub(crate) id: u64,
    core: Arc<Core>,
    resource: Arc<str>,
    subject: Arc<Subject>,
    ttl: Duration,
    fence: u64,
    state: Mutex<State>,
}

struct State {
    lease: protocol::Lease,
    /// By when every node has forgotten the key of itself.
    gone: Moment,
    /// The nodes that have the key or may come to have it.
    holders: NodeSet,
    /// Why the lease was over before it was released; found out at the release, at the latest.
    loss: Option<Error>,
}

/// What a round won.
pub(crate) struct Won {
    pub(crate) subject: Arc<Subject>,
    pub(crate) term: Term,
    pub(crate) fence: u64,
    pub(crate) end: Moment,
    pub(crate) holders: NodeSet,
}

impl Lease {
    pub(crate) fn new(core: &Arc<Core>, resource: Arc<str>, won: Won) -> (Self, Arc<Shared>) {
        let Won { subject, term, fence, end, holders } = won;
        let lease = protocol::Lease::new(core.quorum, end);
        let state = State { lease, gone: term.gone(clock::now()), holders, loss: None };
        let shared = Arc::new(Shared {
            id: core.next_lease(),
            core: Arc::clone(core),
            resource,
            subject,
            ttl: term.ttl,
            fence,
            state: Mutex::new(state),
        });
        core.register(&shared);
        (Self { shared: Arc::clone(&shared) }, shared)
    }

    /// What is locked.
    pub fn resource(&self) -> &str {
        &self.shared.resource
    }

    /// The value of the key on the nodes: 40 hexadecimal digits, different for every lease.
    pub fn token(&self) -> &str {
        &self.shared.subject.token
    }

    /// The fencing token: larger than that of every earlier lease of the resource, and below 2^53.
    /// Send it with every write, and let the storage refuse a smaller one than it has seen.
    pub fn fence(&self) -> u64 {
        self.shared.fence
    }

    /// Whether the lock is held now. Decided by the local clock, without asking the nodes; once
    /// `false`, it stays so.
    pub fn is_valid(&self) -> bool {
        self.shared.state().lease.is_valid(clock::now())
    }

    /// How much longer the lease is valid; zero if it is not.
    pub fn remaining(&self) -> Duration {
        let now = clock::now();
        let state = self.shared.state();
        if state.lease.is_valid(now) { state.lease.end().since(now) } else { Duration::ZERO }
    }

    /// Whether [`Lease::release`] was called, or the client was closed.
    pub fn is_released(&self) -> bool {
        self.shared.is_released()
    }

    /// `Ok` while the lease is valid.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::LeaseLost`] from its end on, with the reason.
    pub fn check(&self) -> Result<()> {
        let state = self.shared.state();
        let now = clock::now();
        if state.lease.is_valid(now) { Ok(()) } else { Err(self.shared.over(now, &state.lease)) }
    }

    /// Why the lease was lost: the error if it ended before it was released, or if a majority of
    /// the nodes turned out, at the release, not to hold it; `None` otherwise.
    pub fn loss(&self) -> Option<Error> {
        let state = self.shared.state();
        let now = clock::now();
        let lost = || state.lease.is_lost(now).then(|| self.shared.over(now, &state.lease));
        state.loss.clone().or_else(lost)
    }

    /// Extends the lease to `ttl` from now, or by the ttl it was acquired with. It is never made
    /// shorter.
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
        let ttl = match ttl.map(|ttl| options::extension_ttl(dialect, ttl)) {
            None => self.shared.ttl,
            Some(Ok(ttl)) => ttl,
            Some(Err(error)) => return Pending::ready(Err(error)),
        };
        let (sender, receiver) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let task = async move { shared.extend(ttl, sender).await };
        match self.shared.core.spawn(task) {
            Ok(()) => Pending::new(receiver),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Releases the lock. It is not valid from this call on, whatever the nodes answer, and nodes
    /// that cannot be reached are told later, in the background.
    ///
    /// `true` if the lease was valid until now and a majority of the nodes confirms it; `false`
    /// if it was lost or released before, or if too few nodes confirm. Never an error: the lock
    /// is given up in any case.
    pub fn release(&self) -> Pending<bool> {
        self.shared.release()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.shared.is_released() {
            drop(self.shared.release());
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resource", &self.resource())
            .field("fence", &self.fence())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn is_released(&self) -> bool {
        self.state().lease.is_released()
    }

    pub(crate) fn set_holders(&self, holders: NodeSet) {
        self.state().holders = holders;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, verb: Verb) -> Request {
        Request { subject: Arc::clone(&self.subject), verb }
    }

    fn node_timeout(&self) -> Duration {
        self.core.options.node_timeout(self.ttl)
    }

    /// The error for a lease that is over.
    fn over(&self, now: Moment, lease: &protocol::Lease) -> Error {
        let resource = &*self.resource;
        let why = if lease.is_released() {
            "was released".to_owned()
        } else if now >= lease.end() {
            format!("ended {} ago, without being extended in time", Human(now.since(lease.end())))
        } else {
            return self.taken();
        };
        Error::new(ErrorCode::LeaseLost, format!("the lease of {resource:?} {why}"))
            .with_resource(resource)
    }

    fn taken(&self) -> Error {
        let resource = &*self.resource;
        let message = format!(
            "the lease of {resource:?} was lost: a majority of the nodes does not hold it any more"
        );
        Error::new(ErrorCode::LeaseLost, message).with_resource(resource)
    }

    async fn extend(self: Arc<Self>, ttl: Duration, caller: oneshot::Sender<Result<()>>) {
        let mut caller = Some(caller);
        let core = &self.core;
        let (term, delay) = (core.options.term(ttl), core.options.retry_delay);
        let mut waiting = Waiting::new(clock::now(), None, core.options.connect_timeout, delay);
        loop {
            let sent = clock::now();
            let begun = {
                let mut state = self.state();
                let begun = state.lease.extend(sent, term);
                let patience = self.node_timeout().min(state.lease.end().since(sent));
                state.gone = state.gone.max(term.gone(sent.plus(patience)));
                begun
                    .map(|extension| (extension, patience))
                    .ok_or_else(|| self.over(sent, &state.lease))
            };
            let (mut extension, patience) = match begun {
                Ok(begun) => begun,
                Err(error) => return tell(&mut caller, Err(error)),
            };
            let mut answers: Vec<Option<Answered>> = vec![None; core.nodes.len()];
            let mut calls = core.call_all(&self.request(Verb::Extend { ttl }), patience);
            let mut extended = Extended::Undecided;
            while let Some((node, answered)) = calls.next().await {
                let answer = answer(&answered);
                answers[node] = Some(answered);
                let now = clock::now();
                let decided = self.state().lease.extended(now, &mut extension, node, answer);
                if let Some(decided) = decided {
                    extended = decided;
                    break;
                }
            }
            let result = match extended {
                Extended::Confirmed => Ok(()),
                Extended::Lost => {
                    let error = self.over(clock::now(), &self.state().lease);
                    Err(error.with_nodes(reports(core, &answers)))
                }
                Extended::Undecided => {
                    let now = clock::now();
                    match waiting.after(now, sent, Loss::NoQuorum, token::random()) {
                        Next::GiveUp => Err(no_quorum(core, &self.resource, &answers)),
                        Next::TryAt(moment) => {
                            sleep(moment.since(now)).await;
                            continue;
                        }
                    }
                }
            };
            tell(&mut caller, result);
            // The nodes that the decision did not wait for are extended as well.
            while calls.next().await.is_some() {}
            return;
        }
    }

    /// Keeps on releasing a node that did not answer, until its key has expired of itself.
    fn deliver(&self, node: usize, request: &Request, patience: Duration) {
        let (holds, gone) = {
            let state = self.state();
            (state.holders.contains(node), state.gone)
        };
        if holds {
            self.core.deliver(node, request.clone(), patience, gone);
        }
    }

    pub(crate) fn release(self: &Arc<Self>) -> Pending<bool> {
        let now = clock::now();
        let mut release = {
            let mut state = self.state();
            if state.lease.is_lost(now) {
                state.loss = Some(self.over(now, &state.lease));
            }
            state.lease.release(now)
        };
        self.core.unregister(self.id);
        let (sender, receiver) = oneshot::channel();
        let mut caller = Some(sender);
        if !release.was_valid() {
            tell(&mut caller, false);
        }
        let shared = Arc::clone(self);
        let task = async move {
            let (core, patience) = (&shared.core, shared.node_timeout());
            let request = shared.request(Verb::Release);
            let mut calls = core.call_all(&request, patience);
            while let Some((node, answered)) = calls.next().await {
                if answered.is_err() {
                    shared.deliver(node, &request, patience);
                }
                if let Some(released) = release.released(core.quorum, node, answer(&answered)) {
                    if release.was_valid() && release.is_disowned(core.quorum) {
                        shared.state().loss.get_or_insert_with(|| shared.taken());
                    }
                    tell(&mut caller, released);
                }
            }
        };
        match self.core.spawn(task) {
            Ok(()) => Pending::new(receiver),
            Err(_) => Pending::ready(false),
        }
    }
}

/// Tells the caller, once.
fn tell<T>(caller: &mut Option<oneshot::Sender<T>>, result: T) {
    if let Some(caller) = caller.take() {
        // An error means that nobody waits any more.
        let _ = caller.send(result);
    }
}
