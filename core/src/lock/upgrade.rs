//! Upgrading a shared lease: one try to make it exclusive, which never waits for other readers.
//!
//! An upgrade is a round of a new token that takes the place of the shared lease with TRANSFER: a node grants it if the
//! lease is the only reader there. So the exclusive lease has a fence of its own. If the round is lost, GIVE BACK makes
//! the lease a reader again; until then, the new token keeps others out for it.

use crate::command::keys::Keys;
use crate::command::request::{Given, Request, Subject};
use crate::config::mode::Modes;
use crate::error::{Error, Result};
use crate::lock::handover::Giver;
use crate::lock::held::{FailedUpgrade, Grant, HeldLease};
use crate::lock::lease::Lease;
use crate::lock::renewer::Renewer;
use crate::lock::round::{RoundOptions, RunningRound};
use crate::runtime::Pending;
use crate::runtime::clock;
use quorlock_protocol::{Event, Loss, Outcome};
use std::sync::Arc;
use tokio::sync::oneshot;

impl Lease {
    /// Tries once to make a shared lease exclusive. If it is the only reader on a majority of the nodes, returns an
    /// exclusive lease with a larger fence, and this one ends; it does not count as lost. If others read a resource,
    /// returns `None`, and the lease stays as it is, with the same validity end. All shared resources of the lease are upgraded, or none.
    ///
    /// It never waits for the other readers: two readers that waited for each other would wait for ever. Release the
    /// lease and acquire an exclusive one instead; the resource may have changed by then.
    ///
    /// While the upgrade is under way, the lease is not renewed, and can end. [`Lease::extend`] waits for the end of the
    /// upgrade. A release ends the lease at once, and deletes the keys after that. Dropping the result does not cancel the
    /// upgrade: if it succeeds, the new lease is released.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum) if too few nodes can vote,
    /// [`ErrorCode::LeaseLost`](crate::ErrorCode::LeaseLost) if the lease has ended, and
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for an exclusive lease, one that is being
    /// upgraded already, and one that other processes may have.
    pub fn try_upgrade(&self) -> Pending<Result<Option<Lease>>> {
        let upgrading = match Upgrading::begin(self) {
            Ok(upgrading) => upgrading,
            Err(error) => return Pending::ready(Err(error)),
        };
        let driver = Arc::clone(upgrading.held.driver());
        let (sender, receiver) = oneshot::channel();
        match driver.begin(upgrade(upgrading, sender)) {
            Ok(()) => Pending::new(receiver),
            Err(error) => Pending::ready(Err(error)),
        }
    }
}

/// An upgrade under way. Dropping it ends the upgrade, also if the code that runs it has panicked.
pub(crate) struct Upgrading {
    held: Arc<HeldLease>,
    renewer: Arc<Renewer>,
    /// The round of the upgrade, until its keys belong to a new lease or are given back.
    undecided: Option<Arc<Subject>>,
}

impl Upgrading {
    /// Begins an upgrade. Fails if the lease has ended or cannot be upgraded.
    pub(crate) fn begin(lease: &Lease) -> Result<Self> {
        let (held, renewer) = lease.upgradable()?;
        held.begin_upgrade()?;
        Ok(Self { held: Arc::clone(held), renewer: Arc::clone(renewer), undecided: None })
    }
}

impl Drop for Upgrading {
    fn drop(&mut self) {
        let held = Arc::clone(&self.held);
        let renewer = Arc::clone(&self.renewer);
        let Some(subject) = self.undecided.take() else { return held.end_upgrade(&renewer) };
        // The renewal of a lease goes on when it has its keys again.
        let undoing = Self { held, renewer, undecided: None };
        self.held.driver().detach(async move { give_back(&undoing.held, subject).await });
    }
}

/// Tries to upgrade a lease, and answers `caller`: `None` if others read a resource.
pub(crate) async fn upgrade(
    mut upgrading: Upgrading,
    caller: oneshot::Sender<Result<Option<Lease>>>,
) {
    let result = match start(&upgrading.held) {
        Ok(round) => run(&mut upgrading, round).await,
        Err(error) => Err(error),
    };
    drop(upgrading);
    // Sending fails if the caller is gone. Dropping the new lease then releases it.
    let _ = caller.send(result);
}

fn start(held: &HeldLease) -> Result<RunningRound> {
    let driver = held.driver();
    let subject = held.subject();
    let term = held.grant.term;
    let keys: Arc<[Keys]> = subject.keys.iter().map(upgraded).collect();
    // The lease relies on what GIVE BACK restores, so that does not depend on a node's wall clock.
    let given = Given { token: Arc::new(subject.token.clone()), until: u64::MAX, within: term.ttl };
    let giver = Giver { given, voters: driver.quorum.all() };
    let options = RoundOptions {
        keys: &keys,
        giver: Some(&giver),
        term,
        node_timeout: driver.options.node_timeout(term.ttl),
        turns: driver.turns(),
        queue_entry: None,
        holder: held.grant.holder(),
    };
    RunningRound::start(driver, options)
}

fn upgraded(keys: &Keys) -> Keys {
    if keys.is_shared() { keys.clone().upgraded() } else { keys.clone() }
}

async fn run(upgrading: &mut Upgrading, mut round: RunningRound) -> Result<Option<Lease>> {
    upgrading.undecided = Some(Arc::clone(&round.subject));
    let held = Arc::clone(&upgrading.held);
    let renewer = Arc::clone(&upgrading.renewer);
    let driver = Arc::clone(held.driver());
    let outcome = tokio::select! {
        biased;
        () = driver.closing.cancelled() => {
            round.handle(Event::Abandon);
            None
        }
        outcome = round.decide() => Some(outcome),
    };
    if let Some(Outcome::Won { fence, end }) = outcome
        && held.end_for_upgrade()
    {
        #[cfg(test)]
        crate::lock::steps::upgraded(&round.subject);
        let grant = Grant {
            resources: held.grant.resources.clone(),
            modes: Modes::default(),
            permits: None,
            subject: Arc::clone(&round.subject),
            fence,
            term: held.grant.term,
            sent: round.sent,
            end,
            max_hold: held.grant.max_hold,
            auto_extend: held.grant.auto_extend,
            keep: held.grant.keep,
            is_resumed: false,
            owner: held.grant.owner,
        };
        let new = HeldLease::new(&driver, grant, round.votes());
        let lease = Lease::new(&renewer, Arc::clone(&new));
        upgrading.undecided = None;
        driver.detach(round.finish(Some(new)));
        // `Client::close` releases the leases it finds. It may have run before this lease was added.
        if driver.closing.is_cancelled() {
            return Err(Error::closed().about(&held.grant.resources));
        }
        return Ok(Some(lease));
    }
    round.take_ready_answers();
    let error = match outcome {
        None => Some(Error::closed().about(&held.grant.resources)),
        Some(Outcome::Lost(Loss::NoQuorum)) => Some(driver.no_quorum(
            &held.grant.resources,
            &round.answers,
            driver.options.node_timeout(held.grant.term.ttl),
        )),
        // The shared lease has ended meanwhile. If it was released, that waits for what is given back.
        Some(Outcome::Won { .. }) => Some(held.lost_error()),
        Some(Outcome::Lost(_)) => None,
    };
    round.cancel_unsent();
    give_back(&held, Arc::clone(&round.subject)).await;
    upgrading.undecided = None;
    round.finish(None).await;
    error.map_or(Ok(None), Err)
}

/// Undoes the round of an upgrade, and waits until the nodes that can be reached have made the lease a reader again.
async fn give_back(held: &HeldLease, subject: Arc<Subject>) {
    #[cfg(test)]
    crate::lock::steps::finished(&subject);
    let driver = held.driver();
    let request = Request::GiveBack(Arc::clone(&subject));
    let node_timeout = driver.options.node_timeout(held.grant.term.ttl);
    let upgrade = FailedUpgrade(subject);
    held.state().footprint.sent_give_back(&upgrade, driver.quorum.all());
    let mut fan_out = driver.broadcast(request, clock::now(), node_timeout);
    while let Some((node, answered)) = fan_out.next().await {
        if answered.is_ok() {
            held.state().footprint.answered_give_back(&upgrade, node);
        }
    }
}
