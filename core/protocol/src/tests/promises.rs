//! Checks that a node keeps its promises to leases, for every order of requests to one node, up to a bound on time.
//!
//! A node that grants or confirms a resource promises the resource to the token until the ttl has passed by the node's
//! clock. Until then, the token must hold the resource, whatever requests of other leases arrive. Only a request of the
//! lease itself, or of a lease that takes over this lease, can end the promise earlier. When all promises have ended,
//! the resource must be free. Quorums rely only on these promises and on fences.

use super::at;
use crate::node::entry::Time;
use crate::node::readers::LockMode::{self, Exclusive, Shared, Upgraded};
use crate::node::record::{self, LockRecord, RecordInMode, Wanted};
use crate::turns::Turns;
use crate::{Healed, Moment, Vote};
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const RESOURCES: usize = 2;
const LEASES: usize = 5;
/// The number of ticks that every search covers.
const TICKS: u64 = 5;
/// With these wall clock times, ACQUIRE removes expired shares in every other tick.
const WALL: u64 = 1_600_000_000;
const WALL_TICK: u64 = 16;

/// The mode in which a lease has each resource; `None` if the lease does not have that resource.
type Modes = [Option<LockMode>; RESOURCES];

/// A lease in a search: it is acquired, adopted, or the result of an upgrade. The node grants the lease for `ttl`
/// ticks.
#[derive(Clone, Copy)]
struct Cast {
    modes: Modes,
    ttl: u64,
    /// The position of the lease that this one takes over.
    giver: Option<usize>,
}

const fn lease(modes: Modes, ttl: u64) -> Cast {
    Cast { modes, ttl, giver: None }
}

/// A request, with the position of its lease in the search. Times are in ticks.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// ACQUIRE, or TRANSFER if the lease takes over another one.
    Acquire(usize),
    Extend(usize, u64),
    Heal(usize),
    /// Not a request: the client treats the lease as shared from now on, and nothing arrives at the node.
    Change(usize),
    Downgrade(usize),
    Release(usize),
    /// RELEASE that keeps the key for this many ticks.
    Keep(usize, u64),
    /// The undo of TRANSFER, with the number of ticks for which the giver holds the resources again.
    GiveBack(usize, u64),
}

/// How long the token of a lease must hold one resource, and how long it may hold that resource. Times are in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Promise {
    /// The token must hold the resource until this tick.
    until: u64,
    /// The token may hold the resource until this tick, which is never before `until`.
    latest: u64,
}

#[derive(Clone, Hash)]
struct Node {
    tick: u64,
    records: [LockRecord<u8>; RESOURCES],
    promises: [[Promise; RESOURCES]; LEASES],
    /// Whether the ACQUIRE or TRANSFER of each lease has arrived. A client sends it only once.
    was_asked: [bool; LEASES],
    was_downgraded: [bool; LEASES],
}

fn moment(tick: u64) -> Moment {
    at(1_000 * tick)
}

fn ticks(ticks: u64) -> Duration {
    Duration::from_secs(ticks)
}

fn token(lease: usize) -> u8 {
    u8::try_from(lease).expect("a search has few leases")
}

impl Node {
    fn new() -> Self {
        Self {
            tick: 0,
            records: Default::default(),
            promises: Default::default(),
            was_asked: Default::default(),
            was_downgraded: Default::default(),
        }
    }

    fn now(&self) -> Moment {
        moment(self.tick)
    }

    fn time(&self) -> Time {
        Time { now: self.now(), wall: WALL + WALL_TICK * self.tick }
    }

    fn modes(&self, cast: &[Cast], lease: usize) -> Modes {
        let modes = cast[lease].modes;
        let downgraded = |mode: Option<LockMode>| mode.map(|_| Shared);
        if self.was_downgraded[lease] { modes.map(downgraded) } else { modes }
    }

    fn is_possible(&self, cast: &[Cast], request: Request) -> bool {
        match request {
            Request::Acquire(lease) if self.is_upgrade(cast, lease) => {
                let giver = cast[lease].giver.map(|giver| self.modes(cast, giver));
                let is_shared = giver.is_some_and(|modes| modes.contains(&Some(Shared)));
                is_shared && !self.was_asked[lease]
            }
            Request::Acquire(lease) => !self.was_asked[lease],
            // A client sends these requests after the TRANSFER. A request that arrives before the TRANSFER does
            // nothing, so the search skips that order.
            Request::Extend(lease, _)
            | Request::Heal(lease)
            | Request::Release(lease)
            | Request::Keep(lease, _)
            | Request::GiveBack(lease, _) => cast[lease].giver.is_none() || self.was_asked[lease],
            Request::Change(lease) => !self.was_downgraded[lease],
            Request::Downgrade(lease) => self.was_downgraded[lease],
        }
    }

    /// Applies a request, and records what the node promises with its answer.
    fn apply(&mut self, cast: &[Cast], request: Request) {
        let (Request::Acquire(lease)
        | Request::Extend(lease, _)
        | Request::Heal(lease)
        | Request::Change(lease)
        | Request::Downgrade(lease)
        | Request::Release(lease)
        | Request::Keep(lease, _)
        | Request::GiveBack(lease, _)) = request;
        if let Request::Change(_) = request {
            self.was_downgraded[lease] = true;
        }
        let now = self.now();
        let time = self.time();
        let tick = self.tick;
        let modes = self.modes(cast, lease);
        let Cast { ttl, giver, .. } = cast[lease];
        let own = token(lease);
        let had: [bool; RESOURCES] = std::array::from_fn(|resource| {
            let entry = &self.records[resource].entry;
            modes[resource].is_some_and(|mode| entry.holds(now, &own, mode))
        });
        let targets = self.records.iter_mut().zip(modes);
        let mut targets: Vec<RecordInMode<'_, u8>> =
            targets.filter_map(|(record, mode)| Some((record, mode?))).collect();
        let targets = &mut targets[..];
        let turns = Turns::default();
        let call = |_: usize, _: &str, _| false;
        let resources = (0..RESOURCES).filter(|resource| modes[*resource].is_some());
        match request {
            Request::Acquire(_) => {
                self.was_asked[lease] = true;
                let wanted = Wanted {
                    token: &own,
                    ttl: ticks(ttl),
                    proposal: 0,
                    waiter: None,
                    ticket: None,
                };
                let vote = match giver {
                    None => record::acquire(targets, time, wanted, turns, call),
                    Some(giver) => record::transfer(targets, time, &token(giver), wanted),
                };
                if !matches!(vote, Some(Vote::Granted { .. })) {
                    return;
                }
                for resource in resources {
                    let is_upgrade = self.is_upgrade(cast, lease);
                    let given = giver.map(|giver| &mut self.promises[giver][resource]);
                    let latest = given.map_or(0, |given| match is_upgrade {
                        true => given.latest,
                        false => std::mem::take(given).latest,
                    });
                    let promise = &mut self.promises[lease][resource];
                    promise.until = promise.until.max(tick + ttl);
                    promise.latest = promise.latest.max(latest).max(promise.until);
                }
            }
            Request::Extend(_, ttl) => {
                let is_confirmed = record::act_on_held(targets, now, &own, |entry, mode| {
                    entry.extend_in(time, &own, ticks(ttl), mode)
                });
                for resource in resources.filter(|_| is_confirmed) {
                    let promise = &mut self.promises[lease][resource];
                    assert!(tick < promise.latest, "EXTEND confirms what the token did not hold");
                    promise.until = promise.until.max(tick + ttl);
                    promise.latest = promise.latest.max(promise.until);
                }
            }
            Request::Heal(_) => {
                let healed =
                    record::heal(targets, time, (&own, giver.map(token).as_ref()), ticks(ttl), 0);
                for resource in resources.filter(|_| healed != Healed::Held) {
                    // A client repairs a lease only after it has won the round of that lease. So the giver's lease has
                    // ended.
                    let given = giver.map(|giver| &mut self.promises[giver][resource]);
                    let latest = given.filter(|_| !had[resource]).map(std::mem::take);
                    let latest = latest.map_or(tick + ttl, |given| given.latest.max(tick + ttl));
                    let promise = &mut self.promises[lease][resource];
                    promise.latest = promise.latest.max(latest);
                    if !had[resource] {
                        promise.until = tick + ttl;
                    }
                }
            }
            Request::Change(_) => {}
            Request::Downgrade(_) => {
                record::downgrade(targets, now, (&own, None), turns, call);
            }
            Request::Release(_) => {
                record::release(targets, now, (&own, None), (None, None), turns, call);
                for resource in resources {
                    self.promises[lease][resource] = Promise::default();
                    if self.is_upgrade(cast, lease) && had[resource] {
                        self.promises[giver.expect("an upgrade has one")][resource] =
                            Promise::default();
                    }
                }
            }
            Request::Keep(_, ttl) => {
                let keep = Some(ticks(ttl));
                record::release(targets, now, (&own, keep), (None, None), turns, call);
                for resource in resources {
                    let promise = &mut self.promises[lease][resource];
                    let latest = if had[resource] { tick + ttl } else { 0 };
                    *promise = Promise { until: 0, latest };
                }
            }
            Request::GiveBack(_, left) => {
                let giver = giver.expect("the lease takes over another one");
                record::give_back(targets, now, &own, &token(giver), ticks(left));
                for resource in resources.filter(|resource| had[*resource]) {
                    let lost = std::mem::take(&mut self.promises[lease][resource]);
                    let given = &mut self.promises[giver][resource];
                    given.latest = given.latest.max(lost.latest).max(tick + left);
                }
            }
        }
    }

    /// Removes what no longer matters to the search: all fences, and expired locks, shares and promises. States that
    /// differ only in such data become equal.
    fn tidy(&mut self) {
        let now = self.now();
        for record in &mut self.records {
            let entry = &mut record.entry;
            entry.store_fence(None);
            if entry.token(now).is_none() {
                entry.store_lock(None);
            }
            if entry.stored_readers(now).is_none() {
                entry.delete_readers();
            }
        }
        for promise in self.promises.iter_mut().flatten() {
            if promise.latest <= self.tick {
                *promise = Promise::default();
            } else if promise.until <= self.tick {
                promise.until = 0;
            }
        }
    }

    fn is_upgrade(&self, cast: &[Cast], lease: usize) -> bool {
        cast[lease].modes.contains(&Some(Upgraded))
    }

    /// Panics if a promise is broken, or if a resource is held or kept for longer than promised.
    fn check(&self, cast: &[Cast]) {
        let now = self.now();
        for resource in 0..RESOURCES {
            let entry = &self.records[resource].entry;
            let holds = |lease: usize| {
                let mode = self.modes(cast, lease)[resource];
                mode.is_some_and(|mode| entry.holds(now, &token(lease), mode))
            };
            // If an upgrade was granted, its token keeps other leases out on behalf of the shared lease, too.
            let keeps = |lease: usize| {
                let mut others = 0..cast.len();
                let is_of = |other: usize| cast[other].giver == Some(lease);
                holds(lease)
                    || others
                        .any(|other| is_of(other) && self.is_upgrade(cast, other) && holds(other))
            };
            for lease in 0..cast.len() {
                let Promise { until, latest } = self.promises[lease][resource];
                assert!(self.tick >= until || keeps(lease), "lease {lease} lost {resource}");
                let is_late = self.tick >= latest && holds(lease);
                assert!(!is_late, "lease {lease} still holds {resource}");
            }
            let last = self.promises.iter().map(|promises| promises[resource].latest).max();
            let left = ticks(last.unwrap_or_default().saturating_sub(self.tick));
            assert!(
                entry.expires_in(now).unwrap_or_default() <= left,
                "{resource} is kept too long"
            );
        }
    }
}

/// Tries every sequence of these requests and of ticks. Each request may occur any number of times. Returns the number
/// of distinct states. If a check fails, the panic message shows the shortest sequence that leads to the failure.
fn search(cast: &[Cast], requests: &[Request]) -> usize {
    let mut seen = HashSet::new();
    // All steps tried so far. Each step has the position of the step before it.
    let mut steps: Vec<(Option<Request>, usize)> = vec![(None, 0)];
    let mut nodes = VecDeque::from([(Node::new(), 0)]);
    while let Some((node, place)) = nodes.pop_front() {
        let tick = (node.tick < TICKS).then_some(None);
        let possible = requests.iter().filter(|request| node.is_possible(cast, **request));
        for step in possible.copied().map(Some).chain(tick) {
            let mut next = node.clone();
            let checked = catch_unwind(AssertUnwindSafe(|| {
                match step {
                    Some(request) => next.apply(cast, request),
                    None => next.tick += 1,
                }
                next.check(cast);
            }));
            if checked.is_err() {
                let before = |place: &usize| (*place > 0).then(|| steps[*place].1);
                let path = std::iter::successors(Some(place), before);
                let mut path: Vec<_> = path.map(|place| steps[place].0).collect();
                path.reverse();
                panic!("after {:?}, {step:?}; None is a tick", &path[1..]);
            }
            next.tidy();
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                steps.push((step, place));
                nodes.push_back((next, steps.len() - 1));
            }
        }
    }
    seen.len()
}

#[test]
fn node_keeps_its_promises_to_readers_and_a_writer() {
    let cast = [
        lease([Some(Shared), None], 2),
        lease([Some(Shared), None], 3),
        lease([Some(Exclusive), None], 2),
    ];
    use Request::*;
    let requests = [0, 1, 2].into_iter().flat_map(|lease| {
        [Acquire(lease), Extend(lease, 2), Extend(lease, 3), Heal(lease), Release(lease)]
    });
    let requests: Vec<_> = requests.chain([Keep(0, 1), Keep(1, 3)]).collect();
    println!("{} states", search(&cast, &requests));
}

#[test]
fn node_keeps_its_promises_when_a_share_is_adopted() {
    let cast = [
        lease([Some(Shared), None], 2),
        Cast { giver: Some(0), ..lease([Some(Shared), None], 2) },
        Cast { giver: Some(0), ..lease([Some(Shared), None], 3) },
        lease([Some(Shared), None], 3),
        lease([Some(Exclusive), None], 2),
    ];
    use Request::*;
    let requests = [
        Acquire(0),
        Extend(0, 3),
        Keep(0, 3),
        Acquire(1),
        GiveBack(1, 0),
        GiveBack(1, 2),
        Heal(1),
        Release(1),
        Acquire(2),
        GiveBack(2, 1),
        Acquire(3),
        Extend(3, 3),
        Release(3),
        Acquire(4),
        Release(4),
    ];
    println!("{} states", search(&cast, &requests));
}

/// The lease holds one resource in shared mode and one exclusively, so only the first is upgraded.
#[test]
fn node_keeps_its_promises_when_a_lease_of_mixed_modes_is_upgraded() {
    let cast = [
        lease([Some(Shared), Some(Exclusive)], 2),
        Cast { giver: Some(0), ..lease([Some(Upgraded), Some(Exclusive)], 2) },
        lease([Some(Shared), None], 3),
        lease([Some(Exclusive), None], 2),
        lease([None, Some(Exclusive)], 2),
    ];
    use Request::*;
    let requests = [
        Acquire(0),
        Extend(0, 2),
        Extend(0, 4),
        Heal(0),
        Release(0),
        Acquire(1),
        Extend(1, 2),
        Heal(1),
        Release(1),
        GiveBack(1, 2),
        Acquire(2),
        Release(2),
        Acquire(3),
        Release(3),
        Acquire(4),
        Release(4),
    ];
    println!("{} states", search(&cast, &requests));
}

#[test]
fn node_keeps_its_promises_when_a_lease_is_downgraded_and_upgraded() {
    let cast = [
        lease([Some(Exclusive), Some(Exclusive)], 2),
        Cast { giver: Some(0), ..lease([Some(Upgraded), Some(Upgraded)], 2) },
        lease([Some(Shared), None], 3),
        lease([None, Some(Exclusive)], 2),
    ];
    use Request::*;
    let requests = [
        Acquire(0),
        Change(0),
        Downgrade(0),
        Extend(0, 2),
        Extend(0, 4),
        Heal(0),
        Release(0),
        Acquire(1),
        Extend(1, 2),
        Release(1),
        GiveBack(1, 2),
        Acquire(2),
        Extend(2, 3),
        Release(2),
        Acquire(3),
        Release(3),
    ];
    println!("{} states", search(&cast, &requests));
}
