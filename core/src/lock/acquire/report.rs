//! What an acquire reports about its last round: the errors, and the holder that blocks the acquire.

use super::Acquire;
use super::adoption::not_given;
use crate::config::resources::Resources;
use crate::error::duration::HumanDuration;
use crate::error::{Error, ErrorCode, needed};
use crate::lock::waiting::permits::PermitChoice;
use crate::wire::answer::{Answered, refusals};
use crate::wire::reply::{Holder, Refusal, Reply};
use quorlock_protocol::{Loss, NotGiven, Untransferable};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

impl Acquire {
    pub(super) fn lost_to_others(
        &self,
        why: Untransferable,
        answers: &[Option<Answered>],
    ) -> Error {
        let resources = &self.resources;
        let why = reason(why, answers);
        let message = format!("the lease of {resources} cannot be adopted any more: {why}");
        Error::new(ErrorCode::LeaseLost, message)
            .about(resources)
            .with_nodes(self.driver.reports(answers))
    }

    /// Returns the error for a lost round. On contention, the error names the holder, and says whether another lease of
    /// this client holds the resource.
    pub(super) fn loss_error(&self, loss: Loss, answers: &[Option<Answered>]) -> Error {
        if loss == Loss::NoQuorum {
            return self.driver.no_quorum(&self.resources, answers, self.node_timeout);
        }
        if self.is_taken() {
            return self.lost_to_others(Untransferable::Taken, answers);
        }
        let waited = self.wait.filter(|wait| !wait.is_zero());
        let blocker = blocker(answers);
        let (message, own_lease) = match &self.permits {
            Some(permits) => (permits_message(&self.resources, permits, waited), None),
            None => self.held_message(answers, waited, blocker.as_ref()),
        };
        Error::new(ErrorCode::Timeout, message)
            .about(&self.resources)
            .with_nodes(self.driver.reports(answers))
            .with_holder(blocker.map(|blocker| blocker.name.to_owned()))
            .with_own_lease(own_lease)
    }

    /// Returns the message that others hold the lock, and the place of [`OTHER_LEASE`] in it; `None` if no other lease
    /// of this client holds the lock. `waited` is `None` for a single try.
    fn held_message(
        &self,
        answers: &[Option<Answered>],
        waited: Option<Duration>,
        blocker: Option<&Blocker<'_>>,
    ) -> (String, Option<Range<usize>>) {
        let granted = |answer: &&Answered| matches!(answer, Ok(Reply::Granted { .. }));
        let granted = answers.iter().flatten().filter(granted).count();
        let own = self.renewer.find(&self.keys, |_| true);
        let held = match (&own, waited) {
            (Some(own), waited) => {
                let dropped =
                    if own.is_dropped() { ", dropped without being released" } else { "" };
                let after = waited
                    .map_or_else(String::new, |wait| format!(" after {}", HumanDuration(wait)));
                let fence = own.grant.fence;
                format!("is held by another lease of this client (fence {fence}{dropped}){after}")
            }
            (None, Some(wait)) => {
                let now =
                    blocker.map_or_else(String::new, |blocker| format!(", and is now {blocker}"));
                format!("was held by others for the whole wait of {}{now}", HumanDuration(wait))
            }
            (None, None) => match blocker {
                Some(blocker) => format!("is {blocker}"),
                None => "is held by others".to_owned(),
            },
        };
        let nodes = self.driver.quorum.nodes();
        let needed = needed(self.driver.quorum.size());
        let message =
            format!("{} {held}: {granted} of {nodes} nodes granted it, {needed}", self.resources);
        let own_lease = own.and_then(|_| {
            let behind = self.resources.to_string().len();
            let start = behind + message[behind..].find(OTHER_LEASE)?;
            Some(start..start + OTHER_LEASE.len())
        });
        (message, own_lease)
    }
}

/// The words in a `Timeout` error for another lease of the same client. A program may replace these words.
const OTHER_LEASE: &str = "another lease of this client";

fn permits_message(
    resources: &Resources,
    permits: &PermitChoice,
    waited: Option<Duration>,
) -> String {
    let wanted = match permits.count {
        1 => format!("no permit of {resources} was free"),
        count => format!("{count} permits of {resources} were not free"),
    };
    let within = waited
        .map_or_else(String::new, |wait| format!(" within the wait of {}", HumanDuration(wait)));
    format!("{wanted}{within}: its limit is {}", permits.limit)
}

/// Returns the part of an error message that says why a lease cannot be adopted any more.
pub(super) fn reason(why: Untransferable, answers: &[Option<Answered>]) -> String {
    match why {
        Untransferable::Gone => {
            "it has expired, was released, was adopted and has ended since, or too many nodes have lost it".to_owned()
        }
        Untransferable::Taken => {
            let holder = holder_name(answers);
            let (who, have) = holder.as_deref().map_or(("others", "have"), |name| (name, "has"));
            format!("{who} {have} adopted it, or acquired the lock after it ended")
        }
        Untransferable::Unclear => {
            "others hold the lock in shared mode: it was adopted, was released, or has expired".to_owned()
        }
    }
}

/// Returns the name of the holder that the largest number of refusing nodes report; `None` if these nodes report no
/// holder with a name.
fn holder_name(answers: &[Option<Answered>]) -> Option<String> {
    let holders: Vec<_> = answers.iter().flatten().filter_map(not_given).collect();
    let count = |holder: &NotGiven<Holder>| holders.iter().filter(|other| *other == holder).count();
    match holders.iter().max_by_key(|holder| count(holder))? {
        NotGiven::Token(Holder::Token(token)) => token.holder().map(str::to_owned),
        _ => None,
    }
}

/// The holder that blocks an acquire, according to the nodes that refused the last round.
#[derive(Debug, PartialEq)]
pub(super) struct Blocker<'a> {
    /// The name that the holder gave itself.
    pub(super) name: &'a str,
    /// The time until the last key of the holder expires, unless the holder extends its lease; `None` if a key never
    /// expires.
    pub(super) expires_in: Option<Duration>,
}

/// Returns the holder that the largest number of refusing nodes name. `None` if there is a tie, or if the largest group
/// of refusing nodes names no holder.
pub(super) fn blocker(answers: &[Option<Answered>]) -> Option<Blocker<'_>> {
    let refusals = || refusals(answers).map(|(_, refusal)| refusal);
    let count = |name: &Option<_>| refusals().filter(|refusal| refusal.holder == *name).count();
    let name = refusals().map(|refusal| &refusal.holder).max_by_key(|name| count(name))?;
    let is_tied = |other: &Refusal| other.holder != *name && count(&other.holder) == count(name);
    if refusals().any(is_tied) {
        return None;
    }
    let named = refusals().filter(|refusal| refusal.holder == *name);
    let expires_in = named.map(|refusal| refusal.expires_in).collect::<Option<Vec<_>>>();
    Some(Blocker {
        name: name.as_deref()?,
        expires_in: expires_in.and_then(|all| all.into_iter().max()),
    })
}

impl fmt::Display for Blocker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held by {}", self.name)?;
        let Some(left) = self.expires_in else { return Ok(()) };
        // A time of at least one second is rounded up to tenths of a second.
        let tenths = u64::try_from(left.as_millis().div_ceil(100)).unwrap_or(u64::MAX);
        let rounded = Duration::from_millis(tenths.saturating_mul(100));
        let left = if left < Duration::from_secs(1) { left } else { rounded };
        write!(f, " for up to {} more", HumanDuration(left))
    }
}

#[cfg(test)]
mod tests {
    use super::{Answered, Duration, Refusal, Reply, blocker};
    use crate::wire::answer::Failure;
    use crate::wire::reply::FreePermits;

    /// Returns one answer for each character: `-` is a node that grants, `?` a node that does not answer, and `.` a
    /// node with a holder that has no name. Any other letter is the name of the node's holder. The first node's key
    /// expires after 1.01 s, the second node's key after 2.01 s, and so on.
    fn answers(nodes: &str) -> Vec<Option<Answered>> {
        let answer = |(at, letter): (usize, char)| match letter {
            '-' => Some(Ok(Reply::Granted { fence: 1, clock: 1 })),
            '?' => Some(Err(Failure::unreachable("down"))),
            letter => Some(Ok(Reply::Held(Refusal {
                permits: FreePermits::default(),
                expires_in: Some(Duration::from_millis(1_000 * (at as u64 + 1) + 10)),
                clock: 1,
                rank: None,
                holder: (letter != '.').then(|| letter.to_string().into()),
            }))),
        };
        nodes.chars().enumerate().map(answer).collect()
    }

    #[test]
    fn holder_is_the_one_that_most_refusing_nodes_name() {
        let expected = [
            ("aaa", Some("held by a for up to 3.1 s more")),
            ("aab", Some("held by a for up to 2.1 s more")),
            ("a.a", Some("held by a for up to 3.1 s more")),
            ("-ba", None),
            ("a..", None),
            ("a.", None),
            ("...", None),
            ("---", None),
            ("a--", Some("held by a for up to 1.1 s more")),
            ("?a?", Some("held by a for up to 2.1 s more")),
            ("abcab", None),
            ("abcaa", Some("held by a for up to 5.1 s more")),
            ("", None),
        ];
        for (nodes, expected) in expected {
            let answers = answers(nodes);
            let blocker = blocker(&answers).map(|blocker| blocker.to_string());
            assert_eq!(blocker.as_deref(), expected, "{nodes}");
        }
    }

    #[test]
    fn key_that_never_expires_has_no_time() {
        let mut answers = answers("aaa");
        let Some(Some(Ok(Reply::Held(refusal)))) = answers.first_mut() else { unreachable!() };
        refusal.expires_in = None;
        assert_eq!(
            blocker(&answers).map(|blocker| blocker.to_string()).as_deref(),
            Some("held by a")
        );
    }
}
