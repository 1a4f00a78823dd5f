//! Semaphores in simulated programs: tasks acquire permits, with different limits. For the witness, each slot is a
//! separate resource. As long as no slot is held twice, the number of held permits never exceeds the largest limit.

use super::program::{PATIENCE, Program};
use super::witness::{SEMAPHORE, SLOTS};
use crate::wire::keys::Keys;

/// The limits that tasks use. Most tasks use the same limit.
const LIMITS: [u32; 5] = [3, 3, 3, 2, SLOTS];

impl Program {
    /// Acquires one or two permits, and holds them.
    pub(super) async fn use_permits(&self) {
        let limit = LIMITS[self.random(0..LIMITS.len() as u64) as usize];
        let count = if self.chance(30) { 2 } else { 1 };
        let ttl = self.some_ttl();
        let wait = self.some_wait();
        let semaphore = self.client.semaphore(SEMAPHORE, limit).permits(count).ttl(ttl).wait(wait);
        let semaphore = semaphore.auto_extend(self.chance(50)).keep(self.some_keep());
        let waiting = self.witness.waits(&[self.witness.slot(SLOTS)], limit);
        let acquiring = semaphore.acquire();
        if let Some(lease) = self.acquired(acquiring, waiting, wait, &slot_keys()).await {
            let slots = lease.slots();
            if slots.len() != count as usize || slots.iter().any(|slot| *slot >= limit) {
                return self.wrong(&lease, &format!("is not one of {count} permits below {limit}"));
            }
            let numbers: Vec<_> = slots.into_iter().map(|slot| self.witness.slot(slot)).collect();
            self.witness.granted(&self.process, &numbers, &lease);
            self.hold(lease, &numbers).await;
        }
    }

    /// Checks, while there are no faults, that all permits become free within the longest ttl, and that a task can then
    /// acquire and release all permits.
    pub(super) async fn acquire_all_permits(&self) {
        let wait = self.scenario.ttl + PATIENCE;
        let semaphore = self.client.semaphore(SEMAPHORE, SLOTS).permits(SLOTS).wait(wait);
        match semaphore.acquire().await {
            Ok(lease) => {
                let numbers: Vec<_> = (0..SLOTS).map(|slot| self.witness.slot(slot)).collect();
                self.witness.granted(&self.process, &numbers, &lease);
                if !lease.release().await {
                    self.wrong(&lease, "was not released, although there was no fault");
                }
            }
            Err(error) => self.process.world.violation(format!(
                "{}: not all permits can be acquired, although there is no fault: {error}",
                self.process.name
            )),
        }
    }
}

/// Returns the lock keys of all slots.
fn slot_keys() -> Vec<String> {
    (0..SLOTS).map(|slot| Keys::permit("", SEMAPHORE, slot, SLOTS).lock).collect()
}
