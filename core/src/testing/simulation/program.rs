//! The program of the simulated processes: acquires, holds and releases locks in every way that a real program may, and
//! checks each result. `semaphores.rs` contains what is different for permits.

use super::process::Process;
use super::scenario::{RETRY_DELAY, Scenario};
use super::witness::{Waiting, Witness};
use crate::runtime::machine::Machine;
use crate::runtime::timer::timeout;
use crate::{Client, ErrorCode, Lease, Mode, Pending};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep as truly;

/// With faults: the maximum time that an operation may take beyond its `wait`. This time covers connecting, a last
/// round, and the time until freezes and partitions end.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Without faults: the maximum time that an operation may take beyond its `wait`. This time covers connecting and a
/// last round.
const CALM_PATIENCE: Duration = Duration::from_millis(100);

/// Without faults: a waiter may be overtaken at most this many times per task of the scenario. Once per task because the
/// waiter may not have joined the queues yet, and once per task because a lease may expire: nodes then notify nobody, so
/// all waiting readers may overtake a writer. Several leases may expire during one wait, so the limit is not exact.
const OVERTAKEN_PER_TASK: usize = 2;

/// The maximum time from the last answer to the report of an error. This time is allowed in addition to the time
/// limits.
const SLACK: Duration = Duration::from_millis(20);

/// The longest time until a client is connected again to a node that is no longer in trouble: a connection attempt in
/// progress, the pause after this attempt, and another attempt.
const RECONNECTED: Duration = Duration::from_millis(2_500);

/// The maximum time for which a node may stay guarded beyond the guard's duration. Servers report their uptime in whole
/// seconds, so clients assume that the true uptime is shorter than reported.
const GUARDED: Duration = Duration::from_millis(2_500);

/// The longest time from the end of a suspension to the report of a loss.
const REPORTED: Duration = Duration::from_secs(2);

/// One task of a process.
pub(super) struct Program {
    pub(super) process: Arc<Process>,
    pub(super) client: Client,
    pub(super) scenario: Arc<Scenario>,
    pub(super) witness: Arc<Witness>,
}

impl Program {
    pub(super) fn random(&self, range: std::ops::Range<u64>) -> u64 {
        self.process.world.random(range)
    }

    pub(super) fn milliseconds(&self, range: std::ops::Range<u64>) -> Duration {
        self.process.world.milliseconds(range)
    }

    pub(super) fn chance(&self, percent: u64) -> bool {
        self.process.world.chance(percent)
    }

    /// Acquires and releases locks until the faults are over.
    pub(super) async fn run(self) {
        while !self.witness.is_over() {
            self.turn().await;
            truly(self.milliseconds(0..40)).await;
        }
    }

    /// Checks that every lock can be acquired and released when there are no faults.
    pub(super) async fn run_undisturbed(self) {
        if self.scenario.permits > 0 {
            self.acquire_all_permits().await;
        }
        for resource in 0..self.scenario.resources {
            let wait = PATIENCE + 2 * self.scenario.ttl;
            match self.client.lock(resource.to_string()).wait(wait).acquire().await {
                Ok(lease) => {
                    self.witness.granted(&self.process, &[resource], &lease);
                    if !lease.release().await {
                        self.wrong(&lease, "was not released, although there was no fault");
                    }
                }
                Err(error) => {
                    self.process.world.violation(format!(
                        "{}: {resource} cannot be acquired, although there is no fault: {error}",
                        self.process.name
                    ));
                }
            }
        }
    }

    async fn turn(&self) {
        if self.chance(30)
            && let Some((lease, resources)) = self.adopt().await
        {
            return self.hold(lease, &resources).await;
        }
        if self.scenario.permits > 0 && self.chance(self.scenario.permits) {
            return self.use_permits().await;
        }
        let resources = self.some_resources();
        let ttl = self.some_ttl();
        let wait = self.some_wait();
        let names: Vec<_> = resources.iter().map(usize::to_string).collect();
        let shared: Vec<_> = names.iter().filter(|_| self.wants_to_read()).cloned().collect();
        let lock = self.client.lock(names.clone()).shared_for(shared).ttl(ttl).wait(wait);
        let lock = lock.auto_extend(self.chance(50)).keep(self.some_keep());
        let waiting = self.witness.waits(&resources, 0);
        if let Some(lease) = self.acquired(lock.acquire(), waiting, wait, &names).await {
            self.witness.granted(&self.process, &resources, &lease);
            self.hold(lease, &resources).await;
        }
    }

    /// Waits for the end of an acquire, or sometimes cancels the acquire. Checks the result. `locks` are the lock keys
    /// that the acquire may have to wait for.
    pub(super) async fn acquired(
        &self,
        acquiring: Pending<crate::Result<Lease>>,
        waiting: Waiting<'_>,
        wait: Duration,
        locks: &[String],
    ) -> Option<Lease> {
        let began = self.process.world.elapsed();
        let acquired = if self.chance(10) {
            // The caller gives up, which cancels the acquire.
            tokio::select! {
                biased;
                acquired = acquiring => acquired,
                () = truly(self.milliseconds(0..30)) => {
                    self.process.world.count("acquires cancelled");
                    return None;
                }
            }
        } else {
            acquiring.await
        };
        self.in_time("an acquire", began, wait);
        match acquired {
            Ok(lease) => {
                let overtaken = waiting.granted(&lease.slots());
                drop(waiting);
                self.in_order(overtaken);
                return Some(lease);
            }
            Err(error) => match error.code() {
                ErrorCode::Timeout => {
                    self.process.world.count("acquires timed out");
                    self.was_held(began, locks);
                }
                ErrorCode::NoQuorum if self.scenario.faults.pause.is_some() => {
                    self.process.world.count("acquires without a quorum");
                    self.was_down();
                }
                _ => self.process.world.violation(format!("{}: {error}", self.process.name)),
            },
        }
        None
    }

    /// Checks an acquire that began at `began` and has just timed out. A node must recently have refused a round of
    /// this acquire, or a round of another waiter of the same client.
    fn was_held(&self, began: Duration, locks: &[String]) {
        let Self { process, scenario, .. } = self;
        let now = process.world.elapsed();
        let longest = RETRY_DELAY.1 + scenario.node_timeout + SLACK;
        let since = now.saturating_sub(longest).max(began.saturating_sub(scenario.node_timeout));
        if !process.has_run_since(since) {
            return process.world.count("errors not checked: the process was stopped");
        }
        let refused = process.world.evidence.last_refusal(&process.name, locks);
        if refused.is_none_or(|refused| refused < since) {
            let name = &process.name;
            let waited = now - began;
            process.world.violation(format!(
                "{name}: the acquire of {locks:?} timed out after {waited:?}, but no node has refused it \
                 since {since:?}; the last refusal was at {refused:?}"
            ));
        }
    }

    /// Checks an acquire that has just failed for lack of a quorum: enough nodes must be in trouble, or have
    /// been in trouble so recently that they might not have recovered.
    fn was_down(&self) {
        let Self { process, scenario, .. } = self;
        let now = process.world.elapsed();
        let guarded = scenario.guard.map_or(Duration::ZERO, |guard| 2 * guard + GUARDED);
        let longest = RETRY_DELAY.1 + scenario.node_timeout + SLACK + RECONNECTED + guarded;
        let since = now.saturating_sub(longest);
        if !process.has_run_since(since) {
            return process.world.count("errors not checked: the process was stopped");
        }
        let evidence = &process.world.evidence;
        let troubled = evidence.troubled(&process.name, since);
        // Raising the fence may need the answers of all nodes that granted, so one node in trouble can be enough for
        // the acquire to fail.
        let raises = scenario.clocks_are_apart() || evidence.has_raised(&process.name, since);
        let needed = if raises { 1 } else { scenario.nodes - scenario.nodes / 2 };
        if troubled < needed {
            process.world.violation(format!(
                "{}: an acquire found too few of {} nodes, but only {troubled} were in trouble since {since:?}",
                process.name, scenario.nodes
            ));
        }
    }

    pub(super) fn some_ttl(&self) -> Duration {
        let longest = self.scenario.ttl.as_millis() as u64;
        self.milliseconds((longest / 2).max(10)..longest + 1)
    }

    /// Returns the time for which an acquire waits, which is sometimes zero.
    pub(super) fn some_wait(&self) -> Duration {
        Duration::from_millis([0, 50, 500, 2_000, 5_000][self.random(0..5) as usize])
    }

    /// Whether to lock a resource in shared mode.
    fn wants_to_read(&self) -> bool {
        self.chance(self.scenario.shared)
    }

    /// Returns how long the nodes keep the key of a released lease: usually zero. Nodes do not notify a waiter when a
    /// kept key expires, so waiters may be served out of order. Runs without faults check the order, so they keep no
    /// key.
    pub(super) fn some_keep(&self) -> Duration {
        let keeps = self.scenario.faults.pause.is_some() && self.chance(20);
        if keeps { self.milliseconds(10..1_000) } else { Duration::ZERO }
    }

    /// Returns one resource, or several in random order.
    fn some_resources(&self) -> Vec<usize> {
        let mut all: Vec<_> = (0..self.scenario.resources).collect();
        let several = if self.chance(25) { self.random(1..4) as usize } else { 1 };
        (0..several.min(all.len()))
            .map(|_| all.swap_remove(self.random(0..all.len() as u64) as usize))
            .collect()
    }

    /// Checks that, without faults, no waiter is overtaken too often.
    fn in_order(&self, overtaken: usize) {
        let most = OVERTAKEN_PER_TASK * self.scenario.processes * self.scenario.tasks;
        if self.scenario.faults.pause.is_none() && overtaken > most {
            let text = format!("{}: a waiter was overtaken {overtaken} times", self.process.name);
            self.process.world.violation(text);
        }
    }

    pub(super) async fn hold(&self, lease: Lease, resources: &[usize]) {
        let mut was_lost = false;
        // Most work is short.
        let longest = [2, 20, (self.scenario.ttl.as_millis() as u64 / 2 + 2).min(1_500)];
        for _ in 0..self.random(0..4) {
            truly(self.milliseconds(0..longest[self.random(0..3) as usize])).await;
            self.check_validity(&lease, &mut was_lost);
            if self.chance(15) {
                let began = self.process.world.elapsed();
                // The new ttl is often longer than the ttl of the lease.
                let ttl = self.chance(30).then_some(self.scenario.ttl);
                let extended = lease.extend(ttl).await;
                self.in_time("an extension", began, Duration::ZERO);
                if extended.is_ok() {
                    self.process.world.count("leases extended by hand");
                    if ttl.is_some_and(|ttl| ttl > lease.ttl()) {
                        self.process.world.count("leases extended for longer");
                    }
                }
            }
        }
        let world = &self.process.world;
        match self.random(0..10) {
            // A lease that is not renewed automatically is eventually lost. The client must then report the loss.
            0 if !self.witness.is_over() => {
                let mut lost = lease.lost();
                let mut is_reported = false;
                let limit = 3 * self.scenario.ttl.as_millis() as u64;
                let limit = self.milliseconds(0..limit.min(6_000));
                tokio::select! {
                    biased;
                    loss = &mut lost => {
                        if loss.is_some() && lease.is_valid() {
                            self.wrong(&lease, "is valid after its loss was reported");
                        }
                        is_reported = true;
                        world.count("losses reported");
                    }
                    () = truly(limit) => {}
                }
                if !is_reported && !lease.is_valid() && timeout(REPORTED, lost).await.is_err() {
                    self.wrong(&lease, "was lost, but the loss was not reported");
                }
            }
            1 => return world.count("leases dropped"),
            4 if lease.slots().is_empty()
                && self.wants_to_read()
                && lease.downgrade().await.is_ok() =>
            {
                world.count("leases downgraded");
            }
            5 | 6 if lease.modes().any(|(_, mode)| mode == Mode::Shared) => {
                if let Some(writer) = self.upgrade(&lease).await {
                    self.witness.granted(&self.process, resources, &writer);
                    return Box::pin(self.hold(writer, resources)).await;
                }
            }
            2 | 3 if self.hand_over(&lease, resources).await => return,
            _ => {}
        }
        self.check_validity(&lease, &mut was_lost);
        let was_valid = lease.is_valid();
        let began = world.elapsed();
        let released = lease.release();
        if lease.is_valid() {
            self.wrong(&lease, "is valid after its release");
        }
        let released = released.await;
        self.in_time("a release", began, Duration::ZERO);
        if released && !was_valid {
            self.wrong(&lease, "was reported as released, although it was not valid");
        }
        if was_valid && !released && self.scenario.faults.pause.is_none() {
            self.wrong(&lease, "was not released, although there was no fault");
        }
        let fence = lease.fences().next().map(|(_, fence)| fence);
        world.log(format!("{}: {fence:?} released: {released}", self.process.name));
        world.count(if was_valid { "leases released" } else { "leases lost" });
    }

    /// Tries to upgrade a shared lease.
    async fn upgrade(&self, lease: &Lease) -> Option<Lease> {
        let world = &self.process.world;
        let began = self.process.world.elapsed();
        let was_valid = lease.is_valid();
        let upgrading = lease.try_upgrade();
        let upgraded = if self.chance(10) {
            // The caller gives up. If the upgrade succeeds nevertheless, the new lease is released.
            tokio::select! {
                biased;
                upgraded = upgrading => upgraded,
                () = truly(self.milliseconds(0..20)) => {
                    world.count("upgrades cancelled");
                    return None;
                }
            }
        } else {
            upgrading.await
        };
        self.in_time("an upgrade", began, Duration::ZERO);
        match upgraded {
            Ok(Some(writer)) => {
                world.count("leases upgraded");
                let is_valid = lease.is_valid();
                self.process.record(&|| format!("\"valid\",{:?},{is_valid}", lease.token()));
                if lease.is_valid() || !was_valid || lease.loss().is_some() {
                    self.wrong(lease, "is valid or counts as lost, although it was upgraded");
                }
                return Some(writer);
            }
            Ok(None) => world.count("upgrades refused"),
            Err(error) => match error.code() {
                ErrorCode::LeaseLost => {}
                ErrorCode::NoQuorum if self.scenario.faults.pause.is_some() => {
                    world.count("upgrades without a quorum");
                }
                _ => self.wrong(lease, &format!("was not upgraded: {error}")),
            },
        }
        None
    }

    fn check_validity(&self, lease: &Lease, was_lost: &mut bool) {
        let is_valid = lease.is_valid();
        self.process.record(&|| format!("\"valid\",{:?},{is_valid}", lease.token()));
        if is_valid && *was_lost {
            self.wrong(lease, "is valid again after it was lost");
        }
        if !is_valid && lease.check().is_ok() {
            self.wrong(lease, "is not valid, but its check succeeds");
        }
        *was_lost |= !is_valid;
    }

    pub(super) fn wrong(&self, lease: &Lease, what: &str) {
        let name = &self.process.name;
        self.process.world.violation(format!("{name}: lease {lease:?} {what}"));
    }

    pub(super) fn in_time(&self, what: &str, began: Duration, wait: Duration) {
        let took = self.process.world.elapsed() - began;
        let patience = match self.scenario.faults.pause {
            Some(_) => PATIENCE,
            None => CALM_PATIENCE,
        };
        if took > wait.mul_f64(2.0) + patience {
            self.process.world.violation(format!("{}: {what} took {took:?}", self.process.name));
        }
    }
}
