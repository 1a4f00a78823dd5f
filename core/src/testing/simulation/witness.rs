//! Sees all leases of a world at once, which nobody in it can.

use super::process::{Process, within};
use crate::Lease;
use crate::lock::held::HeldLease;
use crate::runtime::clock;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Witness {
    resources: Vec<Mutex<Resource>>,
    arrivals: Mutex<Arrivals>,
    is_over: AtomicBool,
    fences_grow: bool,
}

#[derive(Default)]
struct Resource {
    /// The leases that may still be valid, and who holds them.
    held: Vec<(Arc<Process>, Arc<HeldLease>)>,
    last_fence: u64,
    fences: HashSet<u64>,
}

/// Who waits, in the order of arrival.
#[derive(Default)]
struct Arrivals {
    last: u64,
    waiting: BTreeMap<u64, Arrival>,
}

struct Arrival {
    resources: Vec<usize>,
    /// By how many that arrived later.
    overtaken: usize,
}

/// Somebody waits, until this is dropped.
pub(super) struct Waiting<'a> {
    witness: &'a Witness,
    number: u64,
}

impl Waiting<'_> {
    /// It was granted what it waited for. Returns how often a waiter for one of this was overtaken at most
    /// that is waiting still. Who waits for several may have to, since one of them is held for long.
    pub(super) fn granted(&self) -> usize {
        let arrivals = self.witness.arrivals.lock();
        let mut arrivals = arrivals.unwrap_or_else(PoisonError::into_inner);
        let resources = arrivals.waiting[&self.number].resources.clone();
        let earlier = arrivals.waiting.range_mut(..self.number).map(|(_, arrival)| arrival);
        let overtaken = earlier
            .filter(|arrival| matches!(arrival.resources[..], [one] if resources.contains(&one)));
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
        let resources = (0..resources).map(|_| Mutex::default()).collect();
        let is_over = AtomicBool::new(false);
        Arc::new(Self { resources, arrivals: Mutex::default(), is_over, fences_grow })
    }

    fn resource(&self, number: usize) -> MutexGuard<'_, Resource> {
        self.resources[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The faults are over: whoever can end is to end.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Somebody begins to wait for these resources.
    pub(super) fn waits(&self, numbers: &[usize]) -> Waiting<'_> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.last += 1;
        let number = arrivals.last;
        arrivals.waiting.insert(number, Arrival { resources: numbers.to_vec(), overtaken: 0 });
        Waiting { witness: self, number }
    }

    /// A process was granted a lease. Since a lease that is over never becomes valid again, two can
    /// only be valid together if the first one is valid when the second is granted.
    pub(super) fn granted(&self, process: &Arc<Process>, numbers: &[usize], lease: &Lease) {
        process.world.count("leases granted");
        if numbers.len() > 1 {
            process.world.count("leases granted of several resources");
        }
        for number in numbers {
            self.granted_one(process, *number, lease);
        }
    }

    fn granted_one(&self, process: &Arc<Process>, number: usize, lease: &Lease) {
        let world = &process.world;
        let fence = lease.fences().find(|(resource, _)| *resource == number.to_string());
        let (name, (_, fence)) = (&process.name, fence.expect("it is of this resource"));
        world.tell(format!(
            "{name}: granted {number} with fence {fence}, valid for {:?}",
            lease.remaining()
        ));
        let mut resource = self.resource(number);
        let is_valid = |process: &Arc<Process>, held: &HeldLease| {
            within(process, || held.state().lease.is_valid(clock::now()))
        };
        resource.held.retain(|(process, held)| !process.is_dead() && is_valid(process, held));
        if !resource.fences.insert(fence) && self.fences_grow {
            world.violation(format!("{name} was granted {number} with fence {fence}, again"));
        }
        // A process that stood still after the lock was won learns of it when it is over, and when
        // others may have had it since.
        if !lease.is_valid() {
            return world.count("leases granted too late");
        }
        for (holder, held) in &resource.held {
            world.violation(format!(
                "{name} was granted {number} with fence {fence} while {} holds it with {}",
                holder.name, held.grant.fence
            ));
        }
        if fence < resource.last_fence && self.fences_grow {
            world.violation(format!(
                "{name} was granted {number} with fence {fence} after one with {}",
                resource.last_fence
            ));
        }
        resource.last_fence = fence.max(resource.last_fence);
        let held = lease.held().expect("it is of this process");
        resource.held.push((Arc::clone(process), Arc::clone(held)));
    }
}
