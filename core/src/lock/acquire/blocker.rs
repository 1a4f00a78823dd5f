//! Who blocks an acquire, by the nodes' answers to a lost round. Only used in errors and events.

use crate::command::answer::Answered;
use crate::command::reply::{Refusal, Reply};
use crate::error::duration::HumanDuration;
use std::fmt;
use std::time::Duration;

/// The holder that blocks an acquire.
#[derive(Debug, PartialEq)]
pub(super) struct Blocker<'a> {
    /// The name that the holder gave itself.
    pub(super) name: &'a str,
    /// The time until its last key expires, unless it is extended; `None` if it never does.
    pub(super) expires_in: Option<Duration>,
}

/// Returns the holder that most of the refusing nodes name. `None` if most of them name nobody, or as many
/// name somebody else.
pub(super) fn blocker(answers: &[Option<Answered>]) -> Option<Blocker<'_>> {
    let refusals = || {
        answers.iter().flatten().filter_map(|answered| match answered {
            Ok(Reply::Held(refusal)) => Some(refusal),
            _ => None,
        })
    };
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
        // Rounded up to tenths of a second.
        let tenths = u64::try_from(left.as_millis().div_ceil(100)).unwrap_or(u64::MAX);
        let rounded = Duration::from_millis(tenths.saturating_mul(100));
        let left = if left < Duration::from_secs(1) { left } else { rounded };
        write!(f, " for up to {} more", HumanDuration(left))
    }
}

#[cfg(test)]
mod tests {
    use super::{Answered, Duration, Refusal, Reply, blocker};
    use crate::command::answer::Failure;
    use crate::command::reply::FreePermits;

    /// Returns the answers for one letter per node: `-` grants, `?` does not answer, `.` is held without a
    /// name, any other letter is the name of the holder. The keys expire after 1.01 s, 2.01 s and so on.
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
