//! Chooses the slots of a semaphore that a client tries to acquire.
//!
//! A slot is the number of a permit. This module only guesses which slots may be free: the nodes decide whether to
//! grant a permit. A wrong guess costs a round. The driver (`lock/waiting/permits.rs` of the crate `quorlock`) has one
//! [`Slots`] for each semaphore that a client uses.

use std::collections::BTreeMap;

/// The number of random draws for each wanted slot. If the draws do not find enough slots, the choice takes the lowest
/// slots that this client does not use.
const DRAWS: usize = 16;

/// What a client knows about the slots of one semaphore.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots {
    /// Each slot that leases and rounds of this client use, with the number of those leases and rounds.
    used: BTreeMap<u32, u32>,
    /// Slots that were free when this client last heard of them. The slot that it heard of most recently is the last
    /// one.
    free: Vec<u32>,
    /// Whether too few slots are free for one more waiter, as far as this client knows: see [`Slots::heard_full`] and
    /// [`Slots::heard_spare`].
    is_full: bool,
}

impl Slots {
    /// Chooses `count` different slots below `limit`, and marks them as used until [`Slots::give_back`].
    ///
    /// The choice prefers `hints`, in order; then the slots that this client most recently heard to be free; then slots
    /// drawn at random, so that different clients choose different slots. If there are fewer than `count` slots that
    /// this client does not use, the choice also includes slots that it uses. The nodes refuse a round for such slots,
    /// but the waiter joins the nodes' queues.
    ///
    /// `count` is 1 to `limit`; `random` draws uniformly from all of `u32`.
    pub fn choose(
        &mut self,
        limit: u32,
        count: usize,
        hints: &[u32],
        mut random: impl FnMut() -> u32,
    ) -> Vec<u32> {
        let mut chosen = Vec::with_capacity(count);
        let take = |slot: u32, used: &BTreeMap<u32, u32>, chosen: &mut Vec<u32>| {
            let is_new = slot < limit && !used.contains_key(&slot);
            if chosen.len() < count && is_new && !chosen.contains(&slot) {
                chosen.push(slot);
            }
        };
        for slot in hints {
            take(*slot, &self.used, &mut chosen);
        }
        while chosen.len() < count
            && let Some(slot) = self.free.pop()
        {
            take(slot, &self.used, &mut chosen);
        }
        for _ in 0..DRAWS * count {
            if chosen.len() == count {
                break;
            }
            take(draw(limit, random()), &self.used, &mut chosen);
        }
        (0..limit).for_each(|slot| take(slot, &self.used, &mut chosen));
        let none = BTreeMap::new();
        hints.iter().copied().chain(0..limit).for_each(|slot| take(slot, &none, &mut chosen));
        self.free.retain(|slot| !chosen.contains(slot));
        self.take(&chosen);
        chosen.sort_unstable();
        chosen
    }

    /// Records that a lease or round no longer uses these slots. `are_free`: whether the client has released the slots
    /// on the nodes. If so, other waiters should try them.
    pub fn give_back(&mut self, slots: &[u32], are_free: bool) {
        for slot in slots {
            if let Some(count) = self.used.get_mut(slot) {
                *count -= 1;
                if *count == 0 {
                    self.used.remove(slot);
                }
            }
            if are_free {
                self.heard_free(*slot);
            }
        }
    }

    /// Marks slots as used by one more round or lease of this client.
    pub fn take(&mut self, slots: &[u32]) {
        for slot in slots {
            *self.used.entry(*slot).or_default() += 1;
        }
    }

    /// Records that a slot is free, as far as this client knows.
    pub fn heard_free(&mut self, slot: u32) {
        self.free.retain(|other| *other != slot);
        self.free.push(slot);
    }

    /// Records that too few slots are free for a waiter, as far as the nodes know.
    pub fn heard_full(&mut self) {
        self.is_full = true;
    }

    /// Records that a waiter got its permits, and that none of its rounds found too few free slots.
    pub fn heard_spare(&mut self) {
        self.is_full = false;
    }

    /// Whether one more waiter of this client may try now. `false` if the nodes would probably refuse that waiter's
    /// round, or if this client itself uses as many slots as the limit allows.
    pub fn may_be_spare(&self, limit: u32) -> bool {
        !self.is_full && self.used.len() < limit as usize
    }
}

/// Maps a random number, drawn uniformly from all of `u32`, to a slot below `limit`.
fn draw(limit: u32, random: u32) -> u32 {
    let scaled = (u64::from(random) * u64::from(limit)) >> 32;
    scaled as u32
}

/// Returns the slots that a waiter for `count` permits should try next: those that may be free on a majority, beginning
/// with the slot that most nodes reported. Empty if there are fewer than `count` such slots.
///
/// `reports` has, for each node that refused, the slots that are free there. `silent` is the number of nodes that
/// report nothing, because they granted the round or have not answered. Any slot may be free on those nodes.
pub fn promising(reports: &[&[u32]], silent: usize, majority: usize, count: usize) -> Vec<u32> {
    if reports.len() + silent < majority {
        return Vec::new();
    }
    let mut slots = reports.concat();
    slots.sort_unstable();
    slots.dedup();
    let nodes = |slot: u32| reports.iter().filter(|report| report.contains(&slot)).count();
    slots.retain(|slot| nodes(*slot) + silent >= majority);
    // Slots that equally many nodes report are ordered by their position in the first report that has them. Nodes begin
    // their reports to different clients with different slots, so different clients choose different slots.
    let position = |slot: &u32| {
        reports.iter().find_map(|report| report.iter().position(|other| other == slot))
    };
    slots.sort_by_cached_key(|slot| (std::cmp::Reverse(nodes(*slot)), position(slot)));
    if slots.len() < count { Vec::new() } else { slots }
}

#[cfg(test)]
mod tests {
    use super::{Slots, promising};

    fn draws(numbers: &[u32]) -> impl FnMut() -> u32 {
        let mut numbers: Vec<_> = numbers.iter().rev().copied().collect();
        move || numbers.pop().unwrap_or(0)
    }

    #[test]
    fn hints_go_before_released_slots_and_these_before_random_ones() {
        let mut slots = Slots::default();
        assert_eq!(slots.choose(10, 1, &[7], draws(&[])), [7]);
        assert_eq!(slots.choose(10, 1, &[7, 3], draws(&[])), [3]);
        slots.give_back(&[7], true);
        slots.give_back(&[3], false);
        assert_eq!(slots.choose(10, 1, &[], draws(&[])), [7]);
        // A random number in the middle of its range draws the slot in the middle.
        assert_eq!(slots.choose(10, 1, &[], draws(&[u32::MAX / 2 + 1])), [5]);
    }

    #[test]
    fn slots_of_this_client_are_chosen_only_if_there_are_no_others() {
        let mut slots = Slots::default();
        assert_eq!(slots.choose(3, 2, &[], draws(&[])), [0, 1]);
        assert_eq!(slots.choose(3, 1, &[0, 1], draws(&[])), [2]);
        assert_eq!(slots.choose(3, 1, &[], draws(&[])), [0]);
        assert_eq!(slots.choose(3, 1, &[1], draws(&[])), [1]);
        assert_eq!(slots.choose(3, 3, &[], draws(&[])), [0, 1, 2]);
    }

    #[test]
    fn slots_at_or_above_the_limit_are_never_chosen() {
        let mut slots = Slots::default();
        slots.heard_free(9);
        assert_eq!(slots.choose(3, 1, &[5, 3], draws(&[u32::MAX])), [2]);
        assert_eq!(slots.choose(2, 2, &[], draws(&[])), [0, 1]);
    }

    #[test]
    fn semaphore_is_full_until_somebody_gets_a_permit_without_waiting() {
        let mut slots = Slots::default();
        slots.heard_full();
        slots.give_back(&[1], true);
        assert!(!slots.may_be_spare(10));
        slots.heard_spare();
        assert!(slots.may_be_spare(10));
    }

    #[test]
    fn slot_is_used_until_all_that_use_it_have_given_it_back() {
        let mut slots = Slots::default();
        assert_eq!(slots.choose(1, 1, &[], draws(&[])), [0]);
        // Another waiter of the same client tries the slot, too.
        assert_eq!(slots.choose(1, 1, &[], draws(&[])), [0]);
        slots.give_back(&[0], false);
        assert!(!slots.may_be_spare(1) && slots.may_be_spare(2));
        slots.give_back(&[0], false);
        assert!(slots.may_be_spare(1));
    }

    #[test]
    fn slots_are_promising_if_a_majority_may_have_them_free() {
        let reports: [&[u32]; 3] = [&[4, 1, 2], &[1, 4], &[2]];
        assert_eq!(promising(&reports, 0, 2, 1), [4, 1, 2]);
        assert!(promising(&reports, 0, 3, 1).is_empty());
        assert_eq!(promising(&reports, 1, 3, 2), [4, 1, 2]);
        assert!(promising(&reports, 0, 2, 4).is_empty());
        assert!(promising(&[], 3, 2, 1).is_empty());
    }
}
