//! Who is connected to the daemon, and the leases of each connection.
//!
//! A connection owns its leases: dropping its [`Connection`] releases them. Other connections only read them.

use crate::serve::budget::{Budget, CONNECTION, LeaseShares, Share, renewals};
use crate::serve::command::{Id, Refusal};
use quorlock::{Client, Error, Lease, Stats};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// The number of bits of the first number of a connection. It and all that follow are exact in a double, as which some
/// clients read them.
const NUMBER_BITS: u32 = 52;

/// How many clients the status of the daemon describes: those that connected first. It must take as long for many clients as
/// for few, because each of them can ask for it.
const DESCRIBED: usize = 1000;

/// All connections.
pub(crate) struct Clients {
    connected: Mutex<BTreeMap<u64, Arc<Shared>>>,
    /// Notified when no connection is left.
    idle: Notify,
    /// The memory for all connections.
    pub(crate) budget: Arc<Budget>,
    /// The renewals of all leases.
    pub(crate) renewals: Arc<Budget>,
    /// How many leases all connections have.
    leases: AtomicUsize,
    /// How many connections wait for something.
    waiting: AtomicUsize,
    /// The number of the first connection. It is random, so that a daemon never issues the id of a lease again that an
    /// earlier one has issued: a client that reconnects by itself would mistake another lease for its own.
    first: u64,
    /// The number of the next connection.
    next: AtomicU64,
    /// How many clients were turned away because there were too many, or for want of memory.
    pub(crate) refused: AtomicU64,
}

/// The process at the other end, as the system knows it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Peer {
    pub(crate) pid: Option<i32>,
    pub(crate) uid: Option<u32>,
}

/// The part of a connection that others can see.
struct Shared {
    peer: Peer,
    /// Milliseconds since 1970.
    since: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    name: String,
    /// The leases, and what each takes.
    leases: BTreeMap<u64, (Arc<Lease>, LeaseShares)>,
    /// The number of the last lease.
    last: u64,
    /// What the connection waits for.
    waiting: Option<String>,
}

/// One connection. Dropping it removes it from [`Clients`], and releases its leases.
pub(crate) struct Connection {
    pub(crate) number: u64,
    clients: Arc<Clients>,
    shared: Arc<Shared>,
    _memory: Share,
}

impl Clients {
    pub(crate) fn new(budget: Arc<Budget>) -> Result<Self, getrandom::Error> {
        let first = (getrandom::u64()? >> (u64::BITS - NUMBER_BITS)) + 1;
        Ok(Self {
            connected: Mutex::default(),
            idle: Notify::new(),
            budget,
            renewals: renewals(),
            leases: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            first,
            next: AtomicU64::new(first),
            refused: AtomicU64::new(0),
        })
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.connected).len()
    }

    /// Waits until no connection is left.
    pub(crate) async fn none_left(&self) {
        loop {
            // Listen before counting, so that an end in between is noticed.
            let idle = self.idle.notified();
            if self.count() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Returns how many valid leases all connections have.
    pub(crate) fn valid_leases(&self) -> usize {
        let connected = lock(&self.connected);
        let count = |shared: &Arc<Shared>| {
            shared.state().leases.values().filter(|(lease, _)| lease.is_valid()).count()
        };
        connected.values().map(count).sum()
    }

    /// Takes the memory of one more connection.
    pub(crate) fn memory_for_connection(&self) -> Option<Share> {
        self.budget.take(CONNECTION).ok()
    }

    /// Adds a connection with its memory.
    pub(crate) fn connect(self: &Arc<Self>, peer: Peer, memory: Share) -> Connection {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        let shared = Arc::new(Shared { peer, since, state: Mutex::default() });
        lock(&self.connected).insert(number, Arc::clone(&shared));
        Connection { number, clients: Arc::clone(self), shared, _memory: memory }
    }

    /// Returns a lease of any connection; `None` if it was released or detached. Refuses an id that was never issued.
    pub(crate) fn find(&self, id: Id) -> Result<Option<Arc<Lease>>, Refusal> {
        self.check(id)?;
        let shared = lock(&self.connected).get(&id.connection).map(Arc::clone);
        let Some(shared) = shared else { return Ok(None) };
        let state = shared.state();
        state.check(id)?;
        Ok(state.lease(id))
    }

    /// Refuses an id whose connection this daemon has never had.
    fn check(&self, id: Id) -> Result<(), Refusal> {
        if (self.first..self.next.load(Ordering::Relaxed)).contains(&id.connection) {
            return Ok(());
        }
        Err(format!(
            "ERR this daemon has not issued lease {id}: the leases of an earlier daemon ended with it"
        ))
    }

    /// Returns the status of the daemon, as JSON.
    pub(crate) fn describe(&self, client: &Client, is_draining: bool) -> String {
        let (connected, described): (usize, Vec<_>) = {
            let connected = lock(&self.connected);
            let first = connected.iter().take(DESCRIBED);
            (connected.len(), first.map(|(number, shared)| (*number, Arc::clone(shared))).collect())
        };
        let clients: Vec<_> =
            described.iter().map(|(number, shared)| shared.describe(*number)).collect();
        let described = Described {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            is_draining,
            connected,
            connections: self.next.load(Ordering::Relaxed) - self.first,
            refused: self.refused.load(Ordering::Relaxed),
            leases: self.leases.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            memory: self.budget.used(),
            max_memory: self.budget.limit(),
            clients,
            stats: client.stats(),
        };
        serde_json::to_string(&described).expect("there is nothing in it that JSON can't hold")
    }
}

/// The daemon, as JSON.
#[derive(Serialize)]
struct Described {
    pid: u32,
    version: &'static str,
    is_draining: bool,
    connected: usize,
    /// How many there were since the start.
    connections: u64,
    /// How many were turned away because there were too many, or for want of memory.
    refused: u64,
    leases: usize,
    waiting: usize,
    /// The bytes that all clients use, and may use.
    memory: usize,
    max_memory: usize,
    /// Those that connected first.
    clients: Vec<DescribedClient>,
    stats: Stats,
}

#[derive(Serialize)]
struct DescribedClient {
    id: u64,
    pid: Option<i32>,
    uid: Option<u32>,
    name: String,
    connected_since_ms: u64,
    leases: usize,
    waiting: Option<String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn describe(&self, id: u64) -> DescribedClient {
        let (Peer { pid, uid }, state) = (self.peer, self.state());
        let name = state.name.clone();
        let leases = state.leases.len();
        let waiting = state.waiting.clone();
        DescribedClient { id, pid, uid, name, connected_since_ms: self.since, leases, waiting }
    }
}

impl Connection {
    pub(crate) fn peer(&self) -> Peer {
        self.shared.peer
    }

    pub(crate) fn name(&self) -> String {
        self.shared.state().name.clone()
    }

    pub(crate) fn set_name(&self, name: String) {
        self.shared.state().name = name;
    }

    /// Says what the connection waits for, or that it does not wait any more.
    pub(crate) fn set_waiting(&self, waiting: Option<String>) {
        let count = &self.clients.waiting;
        let waits = waiting.is_some();
        match (std::mem::replace(&mut self.shared.state().waiting, waiting).is_some(), waits) {
            (false, true) => drop(count.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(count.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    pub(crate) fn leases(&self) -> usize {
        self.shared.state().leases.len()
    }

    /// Returns one of the leases that are valid.
    pub(crate) fn valid_lease(&self) -> Option<Arc<Lease>> {
        let state = self.shared.state();
        let mut leases = state.leases.values().map(|(lease, _)| lease);
        leases.find(|lease| lease.is_valid()).map(Arc::clone)
    }

    /// Adds a lease, with what it takes, and returns its id.
    pub(crate) fn add(&self, lease: Lease, shares: LeaseShares) -> (Id, Arc<Lease>) {
        let lease = Arc::new(lease);
        let mut state = self.shared.state();
        state.last += 1;
        let id = Id { connection: self.number, number: state.last };
        state.leases.insert(id.number, (Arc::clone(&lease), shares));
        self.clients.leases.fetch_add(1, Ordering::Relaxed);
        (id, lease)
    }

    /// Returns a lease of this connection; `None` if it was released or detached.
    pub(crate) fn own(&self, id: Id) -> Result<Option<Arc<Lease>>, Refusal> {
        Ok(self.state_for(id)?.lease(id))
    }

    /// Like [`Connection::own`], and forgets the lease. Returns what it takes, too.
    pub(crate) fn take(&self, id: Id) -> Result<Option<(Arc<Lease>, LeaseShares)>, Refusal> {
        let taken = self.state_for(id)?.leases.remove(&id.number);
        self.clients.leases.fetch_sub(usize::from(taken.is_some()), Ordering::Relaxed);
        Ok(taken)
    }

    /// Refuses an id that this connection has not issued.
    fn state_for(&self, id: Id) -> Result<MutexGuard<'_, State>, Refusal> {
        let own = self.number;
        if id.connection != own {
            self.clients.check(id)?;
            return Err(format!(
                "ERR lease {id} belongs to another connection, and this is connection {own}: use one connection from \
                 LOCK to UNLOCK, and not one of a pool for each command"
            ));
        }
        let state = self.shared.state();
        state.check(id)?;
        Ok(state)
    }
}

impl State {
    fn lease(&self, id: Id) -> Option<Arc<Lease>> {
        self.leases.get(&id.number).map(|(lease, _)| Arc::clone(lease))
    }

    /// Refuses an id that was never issued.
    fn check(&self, id: Id) -> Result<(), Refusal> {
        if (1..=self.last).contains(&id.number) { Ok(()) } else { Err(no_lease(id)) }
    }
}

fn no_lease(id: Id) -> Refusal {
    format!("ERR there is no lease {id}")
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.set_waiting(None);
        let leases = std::mem::take(&mut self.shared.state().leases);
        self.clients.leases.fetch_sub(leases.len(), Ordering::Relaxed);
        for (lease, shares) in leases.into_values() {
            let releasing = lease.release();
            let release = async move {
                releasing.await;
                drop((lease, shares));
            };
            // It goes on in the background anyway. The daemon has a runtime.
            let _ = Client::spawn(release);
        }
        let mut connected = lock(&self.clients.connected);
        connected.remove(&self.number);
        if connected.is_empty() {
            self.clients.idle.notify_waiters();
        }
    }
}

/// Lost leases of which the client is yet to be told. The core reports losses on a thread of its own.
#[derive(Default)]
pub(crate) struct Losses {
    lost: Mutex<Vec<(Id, Error)>>,
    pub(crate) notify: Notify,
}

impl Losses {
    /// Reports the loss of the lease here, too.
    pub(crate) fn watch(self: &Arc<Self>, id: Id, lease: &Lease) {
        let losses = Arc::clone(self);
        lease.on_lost(move |error| {
            lock(&losses.lost).push((id, error));
            losses.notify.notify_one();
        });
    }

    pub(crate) fn take(&self) -> Vec<(Id, Error)> {
        std::mem::take(&mut lock(&self.lost))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
