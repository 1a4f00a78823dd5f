//! Sends the requests for one token, from its first ACQUIRE to its last RELEASE.
//!
//! The protocol's `Claim` decides which requests to send. The files here send these requests, and pass the nodes'
//! answers to the claim:
//!
//! - [`round`]: one round of ACQUIRE or TRANSFER, with RAISE and the votes that arrive late.
//! - [`held`], with `held/extension.rs` and `held/ending.rs`: the lease of a won round, in the holder's process.
//! - [`release`]: RELEASE of a held lease.
//! - [`extend`] and [`heal`]: EXTEND and HEAL.
//! - [`downgrade`] and [`upgrade`]: changing the mode of a lease.
//! - [`detach`] and [`handover`]: giving a lease up, so that another client can adopt it. The adoption itself is an
//!   acquire: see `acquire/adoption.rs`.
//!
//! This file sends the requests that delete a token's keys or give the keys back. A node gets such a request after all
//! earlier requests of the claim, so none of these sets the key again. The request is repeated until the node answers.
//! Only three such requests are sent elsewhere: the first RELEASE of a held lease (`release.rs`), the GIVE BACK of an
//! upgrade (`held.rs`), and a RELEASE in the search for a duplicate node (`acquire/duplicates.rs`).

pub(crate) mod detach;
pub(crate) mod downgrade;
pub(crate) mod extend;
pub(crate) mod handover;
pub(crate) mod heal;
pub(crate) mod held;
pub(crate) mod release;
pub(crate) mod round;
pub(crate) mod upgrade;

use crate::lock::driver::Driver;
use crate::lock::waiting::waiters::QueueEntry;
use crate::runtime::clock;
use crate::wire::request::{Request, Subject, Ticket};
use quorlock_protocol::{Moment, NodeSet, Term};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

#[cfg(not(test))]
pub(crate) type Claim = quorlock_protocol::Claim<Arc<Subject>>;
/// The protocol's claim. In unit tests, the claim also reports each of its steps.
#[cfg(test)]
pub(crate) use crate::lock::steps::Claim;

pub(crate) type Commands = quorlock_protocol::Commands<Arc<Subject>>;

/// The common arguments of the requests that delete a claim's keys or give the keys back.
pub(crate) struct Cleanup {
    pub(crate) subject: Arc<Subject>,
    pub(crate) term: Term,
    /// How long each try waits for an answer.
    pub(crate) node_timeout: Duration,
    /// The queue entry of the waiter that started the round; `None` if no waiter started a round, or if the
    /// waiter has no entry.
    pub(crate) queue_entry: Option<QueueEntry>,
    /// The subject of the lease that the round upgrades; `None` for a round that is not an upgrade.
    pub(crate) upgraded: Option<Arc<Subject>>,
}

impl Cleanup {
    /// Returns arguments without a queue entry and without an upgraded lease.
    pub(crate) fn of(subject: Arc<Subject>, term: Term, node_timeout: Duration) -> Self {
        Self { subject, term, node_timeout, queue_entry: None, upgraded: None }
    }

    /// Sends the requests of `commands` that delete keys or give keys back. Repeats each request until its node has
    /// answered or the keys have expired. `gone_by` is the time by which the last key of the token has expired. Must be
    /// called on the runtime.
    pub(crate) fn run(&self, driver: &Driver, gone_by: Moment, commands: Commands) {
        let Commands { release, give_back, release_giver, release_both, .. } = commands;
        for node in release.iter() {
            self.release(driver, gone_by, node);
        }
        for node in give_back.iter() {
            let request = Request::GiveBack(Arc::clone(&self.subject));
            driver.deliver(node, [request], self.node_timeout, gone_by);
        }
        self.release_giver(driver, gone_by, release_giver, release_both);
        for (upgrade, node) in commands.release_upgrades {
            let requests = [&upgrade, &self.subject];
            let requests = requests.map(|subject| Request::release(subject, driver.turns()));
            // Keys may last until `gone_by`, and GIVE BACK may restore a key now for a whole ttl: use the later time.
            let gone = gone_by.max(self.term.gone(clock::now()));
            driver.deliver(node, requests, self.node_timeout, gone);
        }
    }

    /// Sends RELEASE to one node, and repeats the request as [`Cleanup::run`] does.
    pub(crate) fn release(&self, driver: &Driver, gone_by: Moment, node: usize) {
        let subject = Arc::clone(&self.subject);
        let turns = driver.turns();
        let entry = self.queue_entry.clone();
        // Created just before the first try, because the waiter may begin another round until then.
        let request = iter::once_with(move || match entry {
            Some(entry) if entry.has_gone_on() => {
                let keys = Arc::clone(&subject.keys);
                let token = subject.token.clone();
                Request::release(&Arc::new(Subject::new(keys, token, None)), turns)
            }
            entry => Request::release_queued(&subject, ticket(entry.as_ref(), node), turns),
        });
        driver.deliver(node, request, self.node_timeout, gone_by);
    }

    /// Releases the keys that the giver (the lease that was to be taken over) may still have on the nodes in `alone`
    /// and in `both`. On the nodes in `both`, first releases the keys of this claim.
    fn release_giver(&self, driver: &Driver, gone_by: Moment, alone: NodeSet, both: NodeSet) {
        let Some(given) = &self.subject.giver else { return };
        if alone.is_empty() && both.is_empty() {
            return;
        }
        // In an upgrade, the giver is the upgraded lease. Use that lease's own subject: if the holder released that
        // lease with `keep`, the subject says how long the nodes keep the keys.
        let giver = self.upgraded.clone().unwrap_or_else(|| {
            let token = (*given.token).clone();
            Arc::new(Subject::new(self.subject.giver_keys(), token, None))
        });
        let giver = Request::release(&giver, driver.turns());
        let gone = Term { ttl: given.within, ..self.term }.gone(clock::now()).max(gone_by);
        for node in alone.iter() {
            driver.deliver(node, [giver.clone()], self.node_timeout, gone);
        }
        for node in both.iter() {
            let requests = [Request::release(&self.subject, driver.turns()), giver.clone()];
            driver.deliver(node, requests, self.node_timeout, gone);
        }
    }
}

/// Returns the ticket to send to a node; `None` if the waiter does not queue on that node, or has stopped waiting.
pub(crate) fn ticket(queue_entry: Option<&QueueEntry>, node: usize) -> Option<Ticket> {
    let is_queued = |entry: &&QueueEntry| entry.nodes.contains(node) && !entry.has_left();
    queue_entry.filter(is_queued).map(|entry| entry.ticket)
}
