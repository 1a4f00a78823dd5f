//! Sees all leases of a world at once, which nobody in it can.

use super::process::{Process, within};
use crate::Lease;
use crate::clock;
use crate::held::Held;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Witness {
    resources: Vec<Mutex<Resource>>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Resource {
    /// The leases that may still be valid, and who holds them.
    held: Vec<(Arc<Process>, Arc<Held>)>,
    last_fence: u64,
    fences: HashSet<u64>,
}

impl Witness {
    pub(super) fn new(resources: usize) -> Arc<Self> {
        let resources = (0..resources).map(|_| Mutex::default()).collect();
        Arc::new(Self { resources, is_over: AtomicBool::new(false) })
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

    /// A process was granted a lease. Since a lease that is over never becomes valid again, two can
    /// only be valid together if the first one is valid when the second is granted.
    pub(super) fn granted(&self, process: &Arc<Process>, number: usize, lease: &Lease) {
        let world = &process.world;
        let (name, fence) = (&process.name, lease.fence());
        world.count("leases granted");
        world.tell(format!(
            "{name}: granted {number} with fence {fence}, valid for {:?}",
            lease.remaining()
        ));
        let mut resource = self.resource(number);
        let is_valid = |process: &Arc<Process>, held: &Held| {
            within(process, || held.state().lease.is_valid(clock::now()))
        };
        resource.held.retain(|(process, held)| !process.is_dead() && is_valid(process, held));
        if !resource.fences.insert(fence) {
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
                holder.name, held.won.fence
            ));
        }
        if fence < resource.last_fence {
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
