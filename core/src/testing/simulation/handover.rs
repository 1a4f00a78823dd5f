//! Hand-over in simulated programs: tasks detach leases and leave the texts on a desk. Any task of any process may take
//! a text. Several tasks may use the same text.

use super::desk::Handed;
use super::program::Program;
use crate::runtime::machine::Machine;
use crate::{ErrorCode, Lease};
use std::time::Duration;
use tokio::time::sleep as truly;

impl Program {
    /// Detaches a lease and leaves its text on the desk. Returns whether the lease has ended for its holder.
    pub(super) async fn hand_over(&self, lease: &Lease, resources: &[usize]) -> bool {
        let world = &self.process.world;
        let began = world.elapsed();
        let longest = self.scenario.ttl.as_millis() as u64;
        let detaching = lease.detach(self.milliseconds((longest / 2).max(10)..longest + 1));
        let detached = if self.chance(10) {
            // The caller cancels the detach. The lease then stays valid or is released.
            tokio::select! {
                biased;
                detached = detaching => detached,
                () = truly(self.milliseconds(0..20)) => {
                    world.count("detaches cancelled");
                    return lease.is_detached();
                }
            }
        } else {
            detaching.await
        };
        self.in_time("a detach", began, Duration::ZERO);
        match detached {
            Ok(detached) => {
                self.process
                    .record(&|| format!("\"valid\",{:?},{}", lease.token(), lease.is_valid()));
                if lease.is_valid() || lease.check().is_ok() || lease.loss().is_some() {
                    self.wrong(lease, "is valid or counts as lost, although it was detached");
                }
                world.handed(lease.token());
                world.count("leases detached");
                let resources = resources.to_vec();
                let text = detached.into_text();
                self.witness.desk.state().texts.push(Handed { resources, text });
            }
            Err(error) if error.code() == ErrorCode::LeaseLost => {}
            Err(error) if self.scenario.faults.pause.is_none() => {
                self.wrong(
                    lease,
                    &format!("was not detached, although there was no fault: {error}"),
                );
            }
            Err(_) => return false,
        }
        true
    }

    /// Takes a text from the desk, or copies a text that stays there for other tasks. Returns `None` if the desk is
    /// empty.
    fn take_text(&self) -> Option<Handed> {
        let mut desk = self.witness.desk.state();
        let count = desk.texts.len() as u64;
        let place = (count > 0).then(|| self.random(0..count) as usize)?;
        // Often the text stays on the desk, so that several tasks try to adopt the lease.
        let stays = self.chance(50);
        Some(if stays { desk.texts[place].clone() } else { desk.texts.swap_remove(place) })
    }

    /// Adopts a lease from the desk, if there is one. Returns the lease and its resources.
    pub(super) async fn adopt(&self) -> Option<(Lease, Vec<usize>)> {
        let Handed { resources, text } = self.take_text()?;
        let wait = Duration::from_millis([0, 50, 500, 2_000][self.random(0..4) as usize]);
        let adoption = self.client.adopt(&text).wait(wait).auto_extend(self.chance(50));
        let world = &self.process.world;
        let began = self.process.world.elapsed();
        let adopting = adoption.acquire();
        let adopted = if self.chance(15) {
            // The adopter gives up, and others may adopt the lease.
            tokio::select! {
                biased;
                adopted = adopting => adopted,
                () = truly(self.milliseconds(0..30)) => {
                    world.count("adoptions cancelled");
                    return None;
                }
            }
        } else {
            adopting.await
        };
        self.in_time("an adoption", began, wait);
        match adopted {
            Ok(lease) => {
                world.count("leases adopted");
                if !self.witness.desk.state().adopted.insert(text) {
                    self.wrong(&lease, "was adopted a second time");
                }
                self.witness.granted(&self.process, &resources, &lease);
                return Some((lease, resources));
            }
            Err(error) => match error.code() {
                ErrorCode::LeaseLost => world.count("adoptions of lost leases"),
                ErrorCode::Timeout => world.count("adoptions timed out"),
                ErrorCode::NoQuorum if self.scenario.faults.pause.is_some() => {
                    world.count("adoptions without a quorum");
                }
                _ => world.violation(format!("{}: {error}", self.process.name)),
            },
        }
        None
    }
}
