//! Elections in simulated programs: candidates are elected, hand over to a named successor, crash and are cut off. Each
//! leader that an observer sees must have a larger fence than the leader before.

use super::life::{Work, simulate};
use super::program::Program;
use crate::{ErrorCode, Lease};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{sleep as truly, timeout as truly_within};

/// The seeds of these worlds. Other tests use other seeds.
const SEEDS: std::ops::Range<u64> = 1_000_000..1_000_060;

/// The resource whose leader is elected.
const ROLE: &str = "0";

impl Program {
    /// Campaigns, leads and observes until the faults are over.
    pub(super) async fn elect(self) {
        tokio::join!(self.campaign(), self.observe());
    }

    async fn campaign(&self) {
        while !self.witness.is_over() {
            let election = self.client.elect(ROLE).holder(&self.process.name);
            let patience = self.milliseconds(0..5_000);
            // A candidate that is not elected in time gives up, which cancels its candidacy.
            match truly_within(patience, election.next()).await {
                Ok(Ok(lease)) => self.lead(lease).await,
                Ok(Err(error)) => {
                    self.process.world.violation(format!("{}: {error}", self.process.name));
                }
                Err(_) => self.process.world.count("candidacies given up"),
            }
            truly(self.milliseconds(0..40)).await;
        }
    }

    async fn lead(&self, lease: Lease) {
        let world = &self.process.world;
        self.witness.granted(&self.process, &[0], &lease);
        truly(self.milliseconds(0..1_000)).await;
        match self.random(0..4) {
            0 => drop(lease),
            1 => drop(lease.release().await),
            _ => {
                // Keys of the lease may stay until they expire: perhaps no candidate adopts the lease, or a candidate
                // adopts it on some nodes only.
                world.handed(lease.token());
                let successor = format!("process {}", self.random(0..6));
                match lease.hand_over(&successor, self.milliseconds(10..500)).await {
                    Ok(taken) => {
                        if taken && !lease.is_detached() {
                            self.wrong(&lease, "was handed over, but has not ended");
                        }
                        world.count(match (taken, lease.is_detached()) {
                            (true, _) => "leaders that handed over",
                            (false, true) => "successors that did not take over",
                            (false, false) => "leaders without a successor",
                        });
                    }
                    Err(error) if error.code() == ErrorCode::LeaseLost => {}
                    Err(_) if self.scenario.faults.pause.is_some() => {}
                    Err(error) => self.wrong(&lease, &format!("cannot be handed over: {error}")),
                }
            }
        }
    }

    async fn observe(&self) {
        let mut leaders = self.client.watch(ROLE);
        let mut last = 0;
        while !self.witness.is_over() {
            let seen = truly_within(Duration::from_secs(1), leaders.next()).await;
            let Ok(seen) = seen else { continue };
            match seen {
                Ok(leader) if leader.fence > last => last = leader.fence,
                Ok(leader) => self.process.world.violation(format!(
                    "{} observed the fence {} after {last}",
                    self.process.name, leader.fence
                )),
                Err(error) => {
                    self.process.world.violation(format!("{}: {error}", self.process.name));
                }
            }
            self.process.world.count("leaders observed");
        }
    }
}

#[test]
fn elections_keep_the_guarantees() {
    let mut counts = BTreeMap::<&str, u64>::new();
    for seed in SEEDS {
        let run = simulate(seed, false, Work::Elect);
        assert!(
            run.violations.is_empty(),
            "seed {seed}, {:#?}:\n{}\n{}",
            run.scenario,
            run.violations.join("\n"),
            simulate(seed, true, Work::Elect).story,
        );
        for (what, count) in run.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{counts:#?}");
    for often in [
        "leaders that handed over",
        "successors that did not take over",
        "leaders without a successor",
        "leaders observed",
        "candidacies given up",
    ] {
        assert!(counts.get(often).is_some_and(|count| *count >= 5), "{often}: {counts:#?}");
    }
}
