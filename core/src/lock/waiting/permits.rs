//! Tracks which slots of each semaphore a client uses, and proposes the slots that an acquire tries next.
//!
//! All acquires and leases of a client share one `Slots` for each semaphore; this type of the protocol contains the
//! rule of the choice. `acquire.rs` gets slots from [`PermitChoice`]. The lease of a won round keeps its [`Reserved`]
//! slots until the lease ends. Only the nodes decide who holds a permit.

use crate::config::permits::MAX_PERMITS;
use crate::config::resources::Resources;
use crate::runtime::mutex::Mutex;
use crate::runtime::random;
use crate::telemetry::events;
use crate::wire::answer::{Answered, refusals};
use crate::wire::keys::Keys;
use crate::wire::reply::Reply;
use crate::wire::request::Subject;
use quorlock_protocol::{Quorum, Slots, promising};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// When a client has entries for this many semaphores, it removes the unused entries before it adds another one.
const REMEMBERED: usize = 1_000;

/// The largest number of consecutive rounds that an acquire starts early because nodes reported free slots.
const AT_ONCE: u32 = 16;

/// The semaphores that a client has used, by the key of their index.
#[derive(Default)]
pub(crate) struct Semaphores {
    by_index: Mutex<HashMap<String, Arc<SemaphoreSlots>>>,
}

/// The data of one semaphore, shared by the acquires and leases of a client.
#[derive(Default)]
pub(crate) struct SemaphoreSlots {
    slots: Mutex<Slots>,
    /// The largest limit of another client that was logged so far; zero if none was logged.
    other_limit: AtomicU32,
}

impl Semaphores {
    /// Returns the entry of the semaphore with this index key, and creates the entry if needed. Before it adds an
    /// entry, may remove unused ones.
    fn get(&self, index: &str) -> Arc<SemaphoreSlots> {
        let mut all = self.by_index.lock();
        if let Some(semaphore) = all.get(index) {
            return Arc::clone(semaphore);
        }
        if all.len() >= REMEMBERED {
            all.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        Arc::clone(all.entry(index.to_owned()).or_default())
    }

    /// Reserves the slots of an adopted lease, and returns the reservation; `None` if the lease has no permits.
    pub(crate) fn reserve(&self, subject: &Subject) -> Option<Reserved> {
        let semaphore = self.get(subject.permit()?.index);
        let slots = subject.slots();
        semaphore.slots.lock().take(&slots);
        Some(Reserved { semaphore, slots: Mutex::new(slots) })
    }
}

impl SemaphoreSlots {
    /// Logs a warning if `known`, the number of slots that a node knows, is larger than `limit`: another client then
    /// uses a larger limit. Does not log the same number or a smaller one again.
    fn check_limit(&self, resource: &Resources, limit: u32, known: u32) {
        if known > limit && known > self.other_limit.fetch_max(known, Ordering::Relaxed) {
            events::limits_differ(resource, limit, known);
        }
    }
}

/// Slots that are reserved for a round or a lease of this client. The client's other rounds avoid reserved slots.
/// Dropping this value gives the slots back.
pub(crate) struct Reserved {
    semaphore: Arc<SemaphoreSlots>,
    /// The slots; empty after they were given back.
    slots: Mutex<Vec<u32>>,
}

impl Reserved {
    /// Gives the slots back. `are_free` says whether this client has released the slots on the nodes. If so, the
    /// client's other rounds should try these slots.
    pub(crate) fn give_back(&self, are_free: bool) {
        let slots = std::mem::take(&mut *self.slots.lock());
        self.semaphore.slots.lock().give_back(&slots, are_free);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.give_back(false);
    }
}

/// The permits that an acquire wants, and the slots that nodes have reported to this acquire as free.
pub(crate) struct PermitChoice {
    key_prefix: String,
    resources: Resources,
    pub(crate) limit: u32,
    pub(crate) count: u32,
    semaphore: Arc<SemaphoreSlots>,
    /// Slots that nodes have reported as free to this acquire, the most promising first.
    hints: Vec<u32>,
    /// The slots that nodes have offered since the last round: for each node, its last offer.
    offers: BTreeMap<usize, Vec<u32>>,
    /// The slots that are reserved for the current or last round; `None` before the first round, and after a won round.
    reserved: Option<Reserved>,
    /// How many consecutive rounds were lost although nodes offered slots.
    at_once: u32,
    /// Whether any lost round has shown too few free permits for this acquire.
    has_waited: bool,
}

impl PermitChoice {
    pub(crate) fn new(
        semaphores: &Semaphores,
        key_prefix: &str,
        resources: &Resources,
        (limit, count): (u32, u32),
    ) -> Self {
        let common = Keys::semaphore(key_prefix, &resources[0]);
        Self {
            key_prefix: key_prefix.to_owned(),
            resources: resources.clone(),
            limit,
            count,
            semaphore: semaphores.get(&common.lock),
            hints: Vec::new(),
            offers: BTreeMap::new(),
            reserved: None,
            at_once: 0,
            has_waited: false,
        }
    }

    /// Chooses and reserves the permits to try in the next round, and returns their keys.
    pub(crate) fn choose(&mut self) -> Arc<[Keys]> {
        // Gives back the slots of the last round, which was lost.
        self.reserved = None;
        let mut hints = self.offered_by_at_least(1);
        let count = self.count as usize;
        self.offers.clear();
        hints.append(&mut self.hints);
        let slots = self.semaphore.slots.lock().choose(self.limit, count, &hints, random::random);
        let keys =
            |slot: &u32| Keys::permit(&self.key_prefix, &self.resources[0], *slot, self.limit);
        let keys = slots.iter().map(keys).collect();
        let semaphore = Arc::clone(&self.semaphore);
        self.reserved = Some(Reserved { semaphore, slots: Mutex::new(slots) });
        keys
    }

    /// Whether another waiter of this client may also find free slots, and should therefore try now.
    pub(crate) fn may_be_spare(&self) -> bool {
        self.semaphore.slots.lock().may_be_spare(self.limit)
    }

    /// Records which slots the answers to a lost round report as free. Returns whether the acquire should start a round
    /// for these slots at once.
    ///
    /// A round may be lost before all nodes have answered. A slot that some nodes report as free may also be free on
    /// the nodes that have not answered. If the acquire `waits`, the nodes will notify it of such a slot. An acquire
    /// that does not wait would give up now, so this method then assumes that the slot is free on the nodes that have
    /// not answered.
    pub(crate) fn learn(
        &mut self,
        answers: &[Option<Answered>],
        quorum: Quorum,
        waits: bool,
    ) -> bool {
        let permits: Vec<_> = refusals(answers).map(|(_, refusal)| &refusal.permits).collect();
        let known = permits.iter().map(|permits| permits.known).max().unwrap_or_default();
        let reports: Vec<_> = permits.iter().map(|permits| permits.slots.as_slice()).collect();
        let has_offers = reports.iter().any(|slots| !slots.is_empty());
        self.semaphore.check_limit(&self.resources, self.limit, known);
        let is_silent = |answer: &&Option<Answered>| match answer {
            Some(Ok(Reply::Granted { .. })) => true,
            Some(_) => false,
            None => !waits,
        };
        let silent = answers.iter().filter(is_silent).count();
        self.hints = promising(&reports, silent, quorum.size(), self.count as usize);
        if self.hints.is_empty() {
            self.semaphore.slots.lock().heard_full();
            self.has_waited = true;
        }
        self.at_once = if has_offers { self.at_once + 1 } else { 0 };
        !self.hints.is_empty() && self.counts_offers()
    }

    /// Whether an offer of a node is a reason to try earlier. An offer does not count if many consecutive rounds were
    /// lost in spite of offers: nodes may offer slots that are not free on other nodes.
    fn counts_offers(&self) -> bool {
        self.at_once <= AT_ONCE
    }

    /// Records the slots that a node offered (reported as free) in a refusal. Returns whether the acquire may try
    /// earlier because of the offer.
    pub(crate) fn offered(&mut self, node: usize, slots: &[u32]) -> bool {
        let counts = !slots.is_empty() && self.counts_offers();
        if counts {
            self.offers.insert(node, slots.to_vec());
        }
        counts
    }

    /// Records the slots in a node's notification. `lock` is the lock key of the first slot, followed by the numbers of
    /// the other slots. Returns whether the notification is valid and about this semaphore.
    pub(crate) fn notified(&mut self, node: usize, lock: &str) -> bool {
        let common = Keys::semaphore(&self.key_prefix, &self.resources[0]);
        let Some(slots) = lock.strip_prefix(&common.fence) else { return false };
        let Ok(slots) = slots.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>() else {
            return false;
        };
        let counts = slots.len() <= MAX_PERMITS as usize;
        if counts {
            self.offers.insert(node, slots);
        }
        counts
    }

    /// Whether the slots that a majority of the nodes has offered are enough for the acquire.
    pub(crate) fn nodes_agree(&self, quorum: Quorum) -> bool {
        !self.offered_by_at_least(quorum.size()).is_empty()
    }

    /// Returns the slots that at least this number of nodes have offered since the last round, the most promising
    /// first; empty if there are fewer such slots than the acquire wants.
    fn offered_by_at_least(&self, nodes: usize) -> Vec<u32> {
        let offers: Vec<_> = self.offers.values().map(Vec::as_slice).collect();
        promising(&offers, 0, nodes, self.count as usize)
    }

    /// Returns the reserved slots of the last round, which was won. Unless a lost round has shown too few free permits,
    /// records that other waiters of this client may also find free slots.
    pub(crate) fn win(&mut self) -> Option<Reserved> {
        if !self.has_waited {
            self.semaphore.slots.lock().heard_spare();
        }
        self.reserved.take()
    }
}

#[cfg(test)]
mod tests {
    use super::{PermitChoice, Semaphores};
    use crate::config::resources::Resources;
    use crate::wire::keys::Keys;
    use crate::wire::reply::{FreePermits, Refusal, Reply};
    use quorlock_protocol::Quorum;

    #[test]
    fn the_last_offer_of_each_node_counts() {
        let resources = Resources::from("jobs");
        let mut choice = PermitChoice::new(&Semaphores::default(), "", &resources, (10, 1));
        let quorum = Quorum::over(5).expect("valid");
        for (node, slot) in [(0, 7), (0, 7), (1, 7), (2, 8), (3, 8)] {
            assert!(choice.offered(node, &[slot]));
            assert!(!choice.nodes_agree(quorum), "node {node} offers {slot}");
        }
        // This notification is not about this semaphore.
        assert!(!choice.notified(0, "other"));
        let lock = format!("{}8", Keys::semaphore("", &resources[0]).fence);
        assert!(choice.notified(0, &lock));
        assert!(choice.nodes_agree(quorum));
        assert_eq!(choice.offered_by_at_least(3), [8]);
        let _ = choice.choose();
        assert!(!choice.nodes_agree(quorum), "a round uses up the offers");
    }

    #[test]
    fn acquire_that_does_not_wait_counts_on_nodes_that_have_not_answered() {
        let resources = Resources::from("jobs");
        let mut choice = PermitChoice::new(&Semaphores::default(), "", &resources, (10, 1));
        let quorum = Quorum::over(3).expect("valid");
        let refused = |slots: &[u32]| {
            let permits = FreePermits { slots: slots.to_vec(), known: 10 };
            Some(Ok(Reply::Held(Refusal {
                expires_in: None,
                clock: 0,
                rank: None,
                holder: None,
                permits,
            })))
        };
        let waits = true;
        let tries = false;
        assert!(!choice.learn(&[refused(&[7]), refused(&[]), None], quorum, waits));
        assert!(choice.learn(&[refused(&[7]), refused(&[]), None], quorum, tries));
        assert_eq!(choice.choose()[0].lock, Keys::permit("", &resources[0], 7, 10).lock);
        assert!(!choice.learn(&[refused(&[7]), refused(&[]), refused(&[])], quorum, tries));
        assert!(!choice.learn(&[refused(&[]), refused(&[]), None], quorum, tries));
    }
}
