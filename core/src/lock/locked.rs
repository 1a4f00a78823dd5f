//! A look at whether somebody holds a lock. It changes nothing, and nothing relies on it.

use crate::command::answer::Answered;
use crate::command::keys::Keys;
use crate::command::reply::Reply;
use crate::command::request::Request;
use crate::config::resources::Resources;
use crate::error::Result;
use crate::lock::driver::Driver;
use crate::runtime::clock;
use quorlock_protocol::Quorum;
use std::sync::Arc;
use std::time::Duration;

/// Asks the nodes whether anybody holds any of the resources.
pub(crate) async fn locked(
    driver: &Driver,
    resources: &Resources,
    keys: Arc<[Keys]>,
    patience: Duration,
) -> Result<bool> {
    driver.ready().await.map_err(|error| error.about(resources))?;
    let mut fan_out = driver.broadcast(Request::Exists(keys), clock::now(), patience);
    let mut answers = vec![None; driver.nodes.len()];
    let mut tally = HolderTally::default();
    while let Some((node, answered)) = fan_out.next().await {
        tally.add(&answered);
        answers[node] = Some(answered);
        match tally.decide(driver.quorum) {
            None => {}
            Some(Some(locked)) => return Ok(locked),
            Some(None) => break,
        }
    }
    Err(driver.no_quorum(resources, &answers))
}

/// How many nodes said what.
#[derive(Default)]
struct HolderTally {
    held: usize,
    free: usize,
    unknown: usize,
}

impl HolderTally {
    fn add(&mut self, answered: &Answered) {
        match answered {
            Ok(Reply::Yes) => self.held += 1,
            Ok(Reply::No) => self.free += 1,
            // Also of a node that may have forgotten the key.
            _ => self.unknown += 1,
        }
    }

    /// `Some` once it is decided: whether so many nodes are held that no majority is free, or
    /// `Some(None)` if too few answered to tell.
    fn decide(&self, quorum: Quorum) -> Option<Option<bool>> {
        let all = self.held + self.free + self.unknown == quorum.nodes();
        if self.free >= quorum.size() {
            Some(Some(false))
        } else if self.held > quorum.tolerated() {
            Some(Some(true))
        } else if self.unknown > quorum.tolerated() {
            Some(None)
        } else {
            all.then_some(Some(true))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HolderTally, Quorum};

    #[test]
    fn a_look_is_decided_as_soon_as_nothing_can_change_it() {
        for nodes in 1..=7 {
            let quorum = Quorum::over(nodes).expect("valid");
            for held in 0..=nodes {
                for free in 0..=nodes - held {
                    for unknown in 0..=nodes - held - free {
                        let tally = HolderTally { held, free, unknown };
                        let left = nodes - held - free - unknown;
                        let decision = tally.decide(quorum);
                        let says_free = free >= quorum.size();
                        let never_free = free + left + unknown < quorum.size();
                        let too_few = unknown > quorum.tolerated();
                        let expected = match (says_free, never_free, too_few) {
                            (true, ..) => Some(Some(false)),
                            (_, true, _) => Some(Some(true)),
                            (.., true) => Some(None),
                            // Too few are free, and others might be.
                            _ => (left == 0).then_some(Some(true)),
                        };
                        assert_eq!(decision, expected, "{held} {free} {unknown} of {nodes}");
                    }
                }
            }
        }
    }
}
