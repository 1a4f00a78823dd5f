//! The requests to a node. `commands.rs` converts requests to commands for a server; `memory/entries.rs` answers
//! requests on an in-memory node. `lock`, `client` and `node` create requests.

use crate::runtime::clock;
use crate::wire::keys::{KeyMode, Keys, Permit};
use crate::wire::limits::{INSPECTION, Limit, PAGE, USUAL};
use crate::wire::token::Token;
use quorlock_protocol::{Keep, Turns};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The subject of a request: resources that are locked together, and the token of the round that locks them.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) keys: Arc<[Keys]>,
    pub(crate) token: Token,
    /// The name of this round's waiter in the nodes' queues; `None` if the round does not queue.
    pub(crate) waiter: Option<Arc<str>>,
    /// How long the nodes keep the keys after the release; not set if the release deletes the keys. Once this field is
    /// set, no RELEASE or UNDO of this token deletes a key before the [`Keep`] has ended.
    pub(crate) keep: OnceLock<Keep>,
    /// The lease that this token takes over, if any.
    pub(crate) giver: Option<Given>,
}

/// Compares only the tokens. Two different subjects have the same token only if they belong to the same lease: one for
/// the time before a downgrade, and one for the time after it.
impl PartialEq for Subject {
    fn eq(&self, other: &Self) -> bool {
        self.token == other.token
    }
}

impl Subject {
    pub(crate) fn new(keys: Arc<[Keys]>, token: Token, waiter: Option<Arc<str>>) -> Self {
        Self { keys, token, waiter, keep: OnceLock::new(), giver: None }
    }

    /// Returns the subject of the same lease after a downgrade: the same token and resources, in shared mode.
    pub(crate) fn downgraded(&self) -> Self {
        let keys = self.keys.iter().map(|keys| keys.clone().shared()).collect();
        let token = self.token.clone();
        let waiter = self.waiter.clone();
        Self { giver: self.giver.clone(), ..Self::new(keys, token, waiter) }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.keys.iter().any(Keys::is_shared)
    }

    /// The first permit, for the subject of a semaphore; `None` for the subject of a lock.
    pub(crate) fn permit(&self) -> Option<Permit<'_>> {
        self.keys.first().and_then(Keys::as_permit)
    }

    /// Returns the slots of the permits in ascending order; empty for the subject of a lock.
    pub(crate) fn slots(&self) -> Vec<u32> {
        let mut slots: Vec<_> =
            self.keys.iter().filter_map(Keys::as_permit).map(|permit| permit.slot).collect();
        slots.sort_unstable();
        slots
    }

    pub(crate) fn is_upgraded(&self) -> bool {
        self.keys.iter().any(|keys| matches!(keys.mode, KeyMode::Upgraded { .. }))
    }

    /// Returns the keys for a RELEASE of the giver's token. For an upgrade, returns the upgraded keys in shared mode,
    /// because the giver is still a reader on nodes that did not grant the upgrade.
    pub(crate) fn giver_keys(&self) -> Arc<[Keys]> {
        if self.is_upgraded() {
            let keys = self.keys.iter().map(|keys| match keys.mode {
                KeyMode::Upgraded { .. } => keys.clone().shared(),
                _ => keys.clone(),
            });
            return keys.collect();
        }
        Arc::clone(&self.keys)
    }

    /// Returns the token of the giver; if there is no giver, the token of this subject.
    pub(crate) fn giver(&self) -> &Token {
        self.giver.as_ref().map_or(&self.token, |given| &given.token)
    }
}

/// The lease that another token takes over: a lease that was detached for an adopter, or a reader's lease
/// that is upgraded.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) token: Arc<Token>,
    /// When the time to adopt the lease ends, by the nodes' clocks, in microseconds since the Unix epoch.
    pub(crate) until: u64,
    /// The full time to adopt the lease, counted from the detach. [`Given::left`] never returns more than this, even if
    /// a node's clock is wrong.
    pub(crate) within: Duration,
}

impl Given {
    /// Returns how much time is left to adopt the lease when a node's clock shows `wall`, rounded up to whole
    /// milliseconds as in give_back.lua.
    pub(crate) fn left(&self, wall: u64) -> Duration {
        Duration::from_millis(self.until.saturating_sub(wall).div_ceil(1_000)).min(self.within)
    }
}

/// A waiter's position in the nodes' queues; waiters with smaller tickets are notified first. A ticket is the time of
/// the waiter's arrival by the nodes' clocks, in microseconds since the Unix epoch.
pub(crate) type Ticket = u64;

#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Take the lock with a new token. If the node refuses the lock and there is a ticket, join the queue.
    Acquire {
        subject: Arc<Subject>,
        ttl: Duration,
        proposal: u64,
        ticket: Option<Ticket>,
        turns: Turns,
    },
    /// Take the lock with a new token if the token of the giver holds the lock: ACQUIRE for an adopter or
    /// an upgrade.
    Transfer { subject: Arc<Subject>, ttl: Duration, proposal: u64 },
    /// Undo TRANSFER: on each resource that the new token holds, set the giver's token again, for the time that is left
    /// to adopt the giver's lease.
    GiveBack(Arc<Subject>),
    /// Turn an exclusive lock into a shared one, and notify the readers at the head of the queue.
    Downgrade { subject: Arc<Subject>, turns: Turns },
    /// Raise the stored fence to at least `fence`.
    Raise { subject: Arc<Subject>, ttl: Duration, fence: u64 },
    /// Keep each of these locks for at least this long from now.
    Extend(Arc<[(Arc<Subject>, Duration)]>),
    /// Repair: take each of these locks again, for the given ttl and with the given fence, if the lock is free or if
    /// the giver still holds the lock.
    Heal(Arc<[(Arc<Subject>, Duration, u64)]>),
    /// Delete the token and notify the next waiter: RELEASE, and UNDO of a lost round. With a ticket, the round's own
    /// waiter stays in the queue; otherwise, the waiter leaves the queue. With `keep`, the node keeps the token for
    /// this long instead of deleting it, and does not notify the next waiter.
    Release { subject: Arc<Subject>, ticket: Option<Ticket>, turns: Turns, keep: Option<Duration> },
    /// Report whether another lock prevents locking at least one of these resources, each in the mode that its keys
    /// name.
    Exists(Arc<[Keys]>),
    /// Report everything that is stored about one resource.
    Inspect(Arc<[Keys]>),
    /// Report everything that is stored about a semaphore. `semaphore` has the common keys of its permits: see
    /// [`Keys::semaphore`].
    InspectPermits { semaphore: Arc<Keys> },
    /// Report one page of the lock keys that begin with `prefix`. The cursor of the first page is zero; a zero cursor
    /// in the reply means that there are no more pages.
    List { prefix: Arc<str>, cursor: u64 },
    /// Delete the fence counter of one resource, if the resource is not held and has no waiters.
    Forget(Arc<[Keys]>),
    /// Send a message about a resource to all current subscribers of the channel.
    Publish { keys: Arc<[Keys]>, channel: Arc<str>, message: Arc<str> },
}

impl Request {
    /// Creates a RELEASE or UNDO for a round that has no waiter, or whose waiter leaves the queue.
    pub(crate) fn release(subject: &Arc<Subject>, turns: Turns) -> Self {
        Self::release_queued(subject, None, turns)
    }

    /// Creates a RELEASE or UNDO for a round. If there is a ticket, the round's waiter stays in the queue; otherwise,
    /// it leaves the queue.
    pub(crate) fn release_queued(
        subject: &Arc<Subject>,
        ticket: Option<Ticket>,
        turns: Turns,
    ) -> Self {
        let keep = subject.keep.get().and_then(|keep| keep.ttl(clock::now()));
        Self::Release { subject: Arc::clone(subject), ticket, turns, keep }
    }

    /// Creates a RELEASE that makes a waiter join the queue. If the resource is free, the node immediately notifies the
    /// next waiter. No node stores the token of `subject`, so the RELEASE deletes no lock key.
    pub(crate) fn join(subject: &Arc<Subject>, ticket: Ticket, turns: Turns) -> Self {
        Self::release_queued(subject, Some(ticket), turns)
    }

    /// Creates a RELEASE that makes a waiter leave the queue. No node stores the token of `subject`, so the RELEASE
    /// deletes no lock key.
    pub(crate) fn leave(subject: &Arc<Subject>, turns: Turns) -> Self {
        Self::release_queued(subject, None, turns)
    }

    /// How long the nodes keep the keys after this RELEASE; `None` for a RELEASE that deletes the keys, and for other
    /// requests.
    pub(crate) fn keep(&self) -> Option<Duration> {
        if let Self::Release { keep, .. } = self { *keep } else { None }
    }

    /// Whether the request may create keys.
    pub(crate) fn creates(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Transfer { .. } | Self::Heal(_))
    }

    /// The largest size of the reply.
    pub(crate) fn limit(&self) -> Limit {
        match self {
            Self::Inspect(_) | Self::InspectPermits { .. } => INSPECTION,
            Self::List { .. } => PAGE,
            _ => USUAL,
        }
    }

    /// Whether the client may send the request again if the answer was lost. If so, applying the request twice has the
    /// same effect as applying it once. Returns `false` for:
    ///
    /// - ACQUIRE and TRANSFER: a node must not apply the same request twice (see `Round::could_win_again`).
    /// - HEAL: more HEAL requests follow anyway.
    /// - FORGET: the second FORGET could delete a newer counter.
    /// - PUBLISH: subscribers must not receive the same message twice.
    /// - RELEASE with a ticket: the waiter may have left the queue meanwhile.
    pub(crate) fn may_be_repeated(&self) -> bool {
        match self {
            Self::GiveBack(_)
            | Self::Downgrade { .. }
            | Self::Raise { .. }
            | Self::Extend(_)
            | Self::Release { ticket: None, .. }
            | Self::Exists(_)
            | Self::Inspect(_)
            | Self::InspectPermits { .. }
            | Self::List { .. } => true,
            Self::Acquire { .. }
            | Self::Transfer { .. }
            | Self::Release { ticket: Some(_), .. }
            | Self::Heal(_)
            | Self::Forget(_)
            | Self::Publish { .. } => false,
        }
    }

    /// Returns the request to send in place of this request when it is repeated later. A repeated RELEASE has no
    /// ticket, because the waiter may have left the queue meanwhile. It keeps the keys only for the time that is left.
    pub(crate) fn again(self: &Arc<Self>) -> Arc<Self> {
        match &**self {
            Self::Release { subject, turns, .. } => Arc::new(Self::release(subject, *turns)),
            _ => Arc::clone(self),
        }
    }

    /// The slot of the request's keys in a Redis Cluster, where all keys of a request share one slot. Zero for LIST,
    /// which names no keys and is sent to each master.
    pub(crate) fn slot(&self) -> u16 {
        self.first_key().map_or(0, Keys::slot)
    }

    /// The keys of the first resource or permit; `None` if the request names none.
    pub(crate) fn first_key(&self) -> Option<&Keys> {
        match self {
            Self::Acquire { subject, .. }
            | Self::Transfer { subject, .. }
            | Self::GiveBack(subject)
            | Self::Downgrade { subject, .. }
            | Self::Raise { subject, .. }
            | Self::Release { subject, .. } => subject.keys.first(),
            Self::Extend(leases) => leases.first().and_then(|(subject, _)| subject.keys.first()),
            Self::Heal(leases) => leases.first().and_then(|(subject, ..)| subject.keys.first()),
            Self::Exists(keys)
            | Self::Inspect(keys)
            | Self::Forget(keys)
            | Self::Publish { keys, .. } => keys.first(),
            Self::InspectPermits { semaphore, .. } => Some(&**semaphore),
            Self::List { .. } => None,
        }
    }

    /// Whether the answer depends on what the node remembers. If so, the answer of a guarded node does not count,
    /// because that node may have forgotten leases.
    pub(crate) fn is_vote(&self) -> bool {
        matches!(
            self,
            Self::Acquire { .. }
                | Self::Transfer { .. }
                | Self::Extend(_)
                | Self::Exists(_)
                | Self::Inspect(_)
                | Self::InspectPermits { .. }
        )
    }
}
