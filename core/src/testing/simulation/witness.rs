//! The witness observes all leases of a world and checks exclusion, fences and the order of waiters.

use super::desk::Desk;
use super::process::{Process, within};
use crate::lock::claim::held::HeldLease;
use crate::runtime::clock;
use crate::runtime::machine::Machine;
use crate::{Lease, Mode};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The resource of the semaphore. The programs also use a lock on a resource of this name.
pub(super) const SEMAPHORE: &str = "0";

/// The number of slots of the semaphore: the largest limit that any task uses.
pub(super) const SLOTS: u32 = 4;

/// Observes all leases of a world. Each resource has a number. The slots of the semaphore have the numbers after those
/// of the resources.
pub(super) struct Witness {
    resources: Vec<Mutex<Resource>>,
    /// The number of the first slot.
    first_slot: usize,
    arrivals: Mutex<Arrivals>,
    is_over: AtomicBool,
    fences_grow: bool,
    /// The detached leases.
    pub(super) desk: Desk,
}

#[derive(Default)]
struct Resource {
    /// The leases that may still be valid, with the processes that hold them.
    held: Vec<(Arc<Process>, Arc<HeldLease>)>,
    /// The largest fence of all leases, and the largest fence of the leases that were exclusive when they were granted.
    last_fence: u64,
    last_exclusive: u64,
    /// The fences of all leases. Several shared leases may have the same fence.
    fences: HashSet<u64>,
}

/// The waiters, in the order of arrival.
#[derive(Default)]
struct Arrivals {
    last: u64,
    waiting: BTreeMap<u64, Arrival>,
}

struct Arrival {
    resources: Vec<usize>,
    /// The limit of a waiter for permits. Zero for other waiters.
    limit: u32,
    /// The number of waiters that arrived later and overtook this one.
    overtaken: usize,
}

/// A waiter that has arrived and has not acquired its lock yet. Dropping the value removes the waiter.
pub(super) struct Waiting<'a> {
    witness: &'a Witness,
    number: u64,
}

impl Waiting<'_> {
    /// Records that this waiter got its lock, or these slots, and has thereby overtaken every earlier waiter for one of
    /// the same resources. Returns the largest number of times that any of these earlier waiters has been overtaken so
    /// far. Does not count two kinds of earlier waiters: those for several resources, because another client may hold
    /// one of their other resources for a long time, and those whose limit is too small for any of these slots.
    pub(super) fn granted(&self, slots: &[u32]) -> usize {
        let arrivals = self.witness.arrivals.lock();
        let mut arrivals = arrivals.unwrap_or_else(PoisonError::into_inner);
        let resources = arrivals.waiting[&self.number].resources.clone();
        let earlier = arrivals.waiting.range_mut(..self.number).map(|(_, arrival)| arrival);
        let overtaken = earlier
            .filter(|arrival| matches!(arrival.resources[..], [one] if resources.contains(&one)));
        let overtaken = overtaken
            .filter(|arrival| slots.is_empty() || slots.iter().any(|slot| *slot < arrival.limit));
        let overtaken = overtaken.map(|arrival| {
            arrival.overtaken += 1;
            arrival.overtaken
        });
        overtaken.max().unwrap_or_default()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let arrivals = self.witness.arrivals.lock();
        let mut arrivals = arrivals.unwrap_or_else(PoisonError::into_inner);
        arrivals.waiting.remove(&self.number);
    }
}

impl Witness {
    pub(super) fn new(resources: usize, fences_grow: bool) -> Arc<Self> {
        let first_slot = resources;
        let resources = (0..first_slot + SLOTS as usize).map(|_| Mutex::default()).collect();
        let desk = Desk::default();
        Arc::new(Self {
            resources,
            first_slot,
            arrivals: Mutex::default(),
            is_over: AtomicBool::new(false),
            fences_grow,
            desk,
        })
    }

    fn resource(&self, number: usize) -> MutexGuard<'_, Resource> {
        self.resources[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a slot. `slot(SLOTS)` stands for any slot: waiters for permits wait for this number.
    pub(super) fn slot(&self, slot: u32) -> usize {
        self.first_slot + slot as usize
    }

    /// Ends the simulation: the programs stop after their current lock.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Records that a waiter for these resources has arrived. `limit` is zero unless the waiter waits for permits.
    pub(super) fn waits(&self, numbers: &[usize], limit: u32) -> Waiting<'_> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.last += 1;
        let number = arrivals.last;
        let arrival = Arrival { resources: numbers.to_vec(), limit, overtaken: 0 };
        arrivals.waiting.insert(number, arrival);
        Waiting { witness: self, number }
    }

    /// Records and checks a lease that a process was granted. A lease that has ended never becomes valid
    /// again, so two leases overlap only if the first is valid when the second is granted.
    pub(super) fn granted(&self, process: &Arc<Process>, numbers: &[usize], lease: &Lease) {
        let world = &process.world;
        world.count("leases granted");
        let slots: Vec<_> = lease.slots().into_iter().map(|slot| self.slot(slot)).collect();
        if !slots.is_empty() {
            world.count("leases of permits granted");
            if slots != numbers {
                world.violation(format!("{}: {lease:?} has other permits", process.name));
            }
        }
        if numbers.len() > 1 {
            world.count(match slots.is_empty() {
                true => "leases of several resources granted",
                false => "leases of several permits granted",
            });
        }
        process.record(&|| format!("\"valid\",{:?},{}", lease.token(), lease.is_valid()));
        for number in numbers {
            self.granted_one(process, *number, lease);
        }
    }

    fn granted_one(&self, process: &Arc<Process>, number: usize, lease: &Lease) {
        let world = &process.world;
        let is_slot = number >= self.first_slot;
        let resource_name = if is_slot { SEMAPHORE.to_owned() } else { number.to_string() };
        let fence = lease.fences().find(|(resource, _)| *resource == resource_name);
        let (name, (_, fence)) = (&process.name, fence.expect("the lease has this resource"));
        world.log(format!(
            "{name}: granted {number} with fence {fence}, valid for {:?}",
            lease.remaining()
        ));
        let is_shared = |held: &HeldLease| held.modes().of(&resource_name) == Mode::Shared;
        let held = lease.held().expect("the lease belongs to this process");
        let shares = is_shared(held);
        if shares {
            world.count("shared leases granted");
        }
        let mut resource = self.resource(number);
        let is_valid = |process: &Arc<Process>, held: &HeldLease| {
            within(process, || held.state().claim.lease().is_valid(clock::now()))
        };
        resource.held.retain(|(process, held)| !process.is_dead() && is_valid(process, held));
        if !resource.fences.insert(fence) && self.fences_grow && !shares {
            world.violation(format!("{name} was granted {number} with fence {fence}, again"));
        }
        // If a process was stopped after it won the lock, its lease may have expired, and other processes may have held
        // the lock since.
        if !lease.is_valid() {
            return world.count("leases granted too late");
        }
        for (holder, held) in &resource.held {
            if shares && is_shared(held) {
                world.count("leases shared with another holder");
                continue;
            }
            world.violation(format!(
                "{name} was granted {number} with fence {fence} while {} holds it with {}",
                holder.name, held.grant.fence
            ));
        }
        let last_fence = if shares { resource.last_exclusive } else { resource.last_fence };
        if (fence < last_fence || fence == resource.last_exclusive) && self.fences_grow {
            world.violation(format!(
                "{name} was granted {number} with fence {fence} after one with {last_fence}"
            ));
        }
        resource.last_fence = fence.max(resource.last_fence);
        if !shares {
            resource.last_exclusive = fence.max(resource.last_exclusive);
        }
        resource.held.push((Arc::clone(process), Arc::clone(held)));
    }
}
