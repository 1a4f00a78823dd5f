//! Upgrades a shared lease: tries once to make the lease exclusive, and never waits for other readers.
//!
//! An upgrade is a round with a new token. TRANSFER replaces the shared lease's token with the new token. A node grants
//! the TRANSFER if the lease is the only reader on that node. The exclusive lease thus has a token and a fence of its
//! own. If the round is lost, GIVE BACK makes the shared lease a reader again; until then, the nodes that granted
//! the TRANSFER hold the new token and refuse other clients.

use crate::config::mode::Modes;
use crate::error::{Error, Result};
use crate::lock::claim::handover::Giver;
use crate::lock::claim::held::{Fate, Grant, HeldLease};
use crate::lock::claim::round::{RoundOptions, RunningRound};
use crate::lock::lease::{Lease, Tracked};
use crate::lock::renewer::Renewer;
use crate::runtime::Pending;
use crate::wire::keys::Keys;
use crate::wire::request::{Given, Subject};
use quorlock_protocol::{Event, Loss, Outcome};
use std::sync::Arc;
use tokio::sync::oneshot;

impl Lease {
    /// Tries once to make this shared lease exclusive. If this lease is the only reader on a majority of the nodes,
    /// returns a new, exclusive lease with a larger fence. The shared lease then ends, but does not count as lost. If
    /// other clients hold a resource in shared mode, returns `None`, and the shared lease stays as it is, with the same
    /// validity end. Either all shared resources of the lease are upgraded, or none.
    ///
    /// The call never waits for other readers: two readers that upgrade at the same time would wait for each other
    /// forever. To wait, release the lease and acquire an exclusive one; by then, other clients may have changed the
    /// resource.
    ///
    /// While the upgrade is under way, the lease is not renewed, and can expire. [`Lease::extend`] waits for the end of
    /// the upgrade. A release ends the lease at once, but deletes the keys only after the upgrade. Dropping the
    /// returned [`Pending`] does not cancel the upgrade: if the upgrade succeeds, the new lease is released.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NoQuorum`](crate::ErrorCode::NoQuorum) if too few nodes can vote,
    /// [`ErrorCode::LeaseLost`](crate::ErrorCode::LeaseLost) if the lease has ended, and
    /// [`ErrorCode::Config`](crate::ErrorCode::Config) for a lease that is exclusive, that is being upgraded already,
    /// or that other processes may also have.
    pub fn try_upgrade(&self) -> Pending<Result<Option<Lease>>> {
        self.try_upgrade_as().delivered_by(Lease::deliver)
    }

    /// Like [`Lease::try_upgrade`], for language bindings: if the new lease is dropped, the option `keep` does not apply.
    #[doc(hidden)]
    pub fn try_upgrade_as(&self) -> Pending<Result<Option<Lease>>> {
        let started = Upgrading::begin(self).and_then(|upgrading| {
            let driver = Arc::clone(&upgrading.held.driver);
            driver.begin_for(|caller| upgrade(upgrading, caller))
        });
        Pending::started(started)
    }
}

/// An upgrade that has begun. Dropping this value ends the upgrade, also if the code that runs the upgrade panics.
pub(crate) struct Upgrading {
    held: Arc<HeldLease>,
    renewer: Arc<Renewer>,
    /// The ID that the renewer assigned to the lease.
    id: u64,
    /// The subject of the upgrade's round; `None` before the round, and after the round's keys belong to a new lease or
    /// were given back.
    undecided: Option<Arc<Subject>>,
}

impl Upgrading {
    /// Begins an upgrade. Fails if the lease has ended or cannot be upgraded.
    pub(crate) fn begin(lease: &Lease) -> Result<Self> {
        let Tracked { held, renewer, id } = lease.tracked()?;
        held.begin_upgrade()?;
        Ok(Self { held: Arc::clone(held), renewer: Arc::clone(renewer), id: *id, undecided: None })
    }

    /// Waits until the nodes that can be reached have made the lease a reader again, but at most for `node_timeout`.
    async fn wait_for_keys(&mut self) {
        self.held.wait_a_moment_until(|state| state.claim.has_keys_back()).await;
        self.undecided = None;
    }
}

impl Drop for Upgrading {
    fn drop(&mut self) {
        let held = Arc::clone(&self.held);
        let renewer = Arc::clone(&self.renewer);
        let id = self.id;
        let Some(subject) = self.undecided.take() else { return held.end_upgrade(&renewer, id) };
        // The code that ran the upgrade has panicked, so any node may have granted the upgrade. Give the keys back on
        // all nodes; the lease is renewed again after that.
        let mut upgrading = Self { held, renewer, id, undecided: None };
        self.held.driver.detach(async move {
            let Upgrading { held, .. } = &upgrading;
            let gone_by = held.gone_by();
            held.give_back(&subject, held.driver.quorum.all(), gone_by);
            upgrading.wait_for_keys().await;
        });
    }
}

/// Tries to upgrade a lease, and sends `caller` the new lease; `None` if other clients hold a resource in shared mode.
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

fn start(held: &Arc<HeldLease>) -> Result<RunningRound> {
    let driver = &held.driver;
    let subject = held.subject();
    let Grant { term, max_hold, .. } = *held.grant;
    let keys: Arc<[Keys]> = subject.keys.iter().map(upgraded).collect();
    // The lease relies on the keys that GIVE BACK restores, so the ttl of these keys must not depend on a node's wall
    // clock.
    let given = Given { token: Arc::new(subject.token.clone()), until: u64::MAX, within: term.ttl };
    let giver = Giver { given, voters: driver.quorum.all(), is_over: Arc::default() };
    let options = RoundOptions {
        keys: &keys,
        giver: Some(&giver),
        upgraded: Some(Arc::clone(held)),
        term,
        max_hold,
        node_timeout: held.node_timeout(),
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
    upgrading.undecided = Some(Arc::clone(round.subject()));
    let held = Arc::clone(&upgrading.held);
    let renewer = Arc::clone(&upgrading.renewer);
    let driver = Arc::clone(&held.driver);
    let outcome = tokio::select! {
        biased;
        () = driver.closing.cancelled() => {
            round.handle(Event::Abandon);
            None
        }
        outcome = round.decide() => Some(outcome),
    };
    if let Some(Outcome::Won { fence, .. }) = outcome
        && round.end_upgraded()
    {
        let Grant { term, max_hold, auto_extend, heartbeat_timeout, keep, owner, .. } = *held.grant;
        let grant = Grant {
            resources: held.grant.resources.clone(),
            modes: Modes::default(),
            permits: None,
            subject: Arc::clone(round.subject()),
            fence,
            term,
            sent: round.sent,
            max_hold,
            auto_extend,
            heartbeat_timeout,
            keep,
            owner,
            fate: Fate::default(),
        };
        let (round, new) = round.hold(grant);
        let lease = Lease::new(&renewer, new);
        upgrading.undecided = None;
        driver.detach(round.finish());
        // `Client::close` may have run before this lease was added to the renewer. In that case, `close` has not
        // released this lease, so the caller must not get it.
        if driver.closing.is_cancelled() {
            return Err(Error::closed().about(&held.grant.resources));
        }
        return Ok(Some(lease));
    }
    round.take_ready_answers();
    let error = match outcome {
        None => Some(Error::closed().about(&held.grant.resources)),
        Some(Outcome::Lost(Loss::NoQuorum)) => {
            Some(driver.no_quorum(&held.grant.resources, &round.answers, held.node_timeout()))
        }
        Some(Outcome::Won { .. }) => {
            // The shared lease has ended meanwhile. If the lease was released, that release waits until the keys are
            // given back.
            Some(held.lost_error())
        }
        Some(Outcome::Lost(_)) => None,
    };
    round.cancel_unsent();
    upgrading.wait_for_keys().await;
    round.finish().await;
    error.map_or(Ok(None), Err)
}
