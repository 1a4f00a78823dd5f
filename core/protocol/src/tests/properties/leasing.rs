//! Leases, with random sequences of extensions, answers, releases and closes.

use super::super::granted_by_all;
use super::{cases, moment, term, up_to};
use crate::{Answer, Extended, Extension, Moment, Quorum, Release, Term, Upkeep};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes: this fraction of the ttl.
    Pass(f64),
    Extend(Term),
    /// A node answers an extension that it has not answered yet. `back` is 0 for the latest extension, 1 for the
    /// extension before that, and so on.
    Answer {
        back: usize,
        node: usize,
        answer: Answer,
    },
    Release,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let answer =
        prop_oneof![3 => Just(Answer::Yes), 1 => Just(Answer::No), 1 => Just(Answer::Unknown)];
    prop_oneof![
        20 => prop_oneof![0.0..0.1, 0.0..1.0].prop_map(Step::Pass),
        20 => term().prop_map(Step::Extend),
        80 => (0..3_usize, 0..8_usize, answer)
            .prop_map(|(back, node, answer)| Step::Answer { back, node, answer }),
        1 => Just(Step::Release),
        1 => Just(Step::Close),
    ]
}

/// An extension in progress, with its parameters and answers.
struct Asked {
    extension: Extension,
    sent: Moment,
    term: Term,
    answers: Vec<Option<Answer>>,
}

impl Asked {
    fn count(&self, which: Answer) -> usize {
        self.answers.iter().flatten().filter(|answer| **answer == which).count()
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_lost_lease_is_never_valid_again(
        term in term(), sent in moment(), nodes in 1..=8_usize,
        max_hold in proptest::option::of(up_to(Duration::from_secs(3600))),
        steps in vec(step(), 1..80),
    ) {
        let quorum = Quorum::over(nodes).expect("within the range");
        let limit = max_hold.map(|hold| sent.plus(hold));
        let mut lease = granted_by_all(quorum, term.end(sent), limit);
        let mut now = sent;
        let mut asked: Vec<Asked> = Vec::new();
        let mut over = !lease.is_valid(now);
        // A node that refused an extension no longer counts, because this test repairs no node.
        let mut sound = vec![true; nodes];
        for step in steps {
            let end = lease.end();
            match step {
                Step::Pass(part) => now = now.plus(term.ttl.mul_f64(part)),
                Step::Extend(term) => {
                    let extension = lease.extend(now, term);
                    prop_assert_eq!(extension.is_some(), lease.is_valid(now));
                    asked.extend(extension.map(|extension| Asked {
                        extension, sent: now, term, answers: vec![None; nodes],
                    }));
                }
                Step::Answer { back, node, answer } => {
                    let count = asked.len();
                    let Some(asked) = count.checked_sub(back + 1).map(|place| &mut asked[place])
                    else { continue };
                    let node = node % nodes;
                    if asked.answers[node].is_some() {
                        continue;
                    }
                    sound[node] &= answer != Answer::No;
                    let weighed = match answer {
                        Answer::Yes if !sound[node] => Answer::Unknown,
                        other => other,
                    };
                    asked.answers[node] = Some(weighed);
                    let was_valid = lease.is_valid(now);
                    let decided = lease.extended(now, &mut asked.extension, node, answer);
                    let yes = asked.count(Answer::Yes);
                    let no = asked.count(Answer::No);
                    let complete = asked.answers.iter().all(Option::is_some);
                    let expected = match (was_valid, yes >= quorum.size()) {
                        (false, _) => Some(Extended::Lost),
                        _ if no > quorum.tolerated() => Some(Extended::Lost),
                        (_, true) => Some(Extended::Confirmed),
                        _ => complete.then_some(Extended::Undecided),
                    };
                    prop_assert_eq!(decided, expected);
                    if decided == Some(Extended::Confirmed) {
                        prop_assert!(lease.end() <= end.max(asked.term.end(asked.sent)));
                        let missing = asked.extension.take_missing();
                        prop_assert!(missing.iter().all(|n| asked.answers[n] != Some(Answer::Yes)));
                    } else {
                        prop_assert_eq!(lease.end(), end, "only a confirmation may move the end");
                    }
                }
                Step::Release => drop(lease.release(now)),
                Step::Close => drop(lease.close(now)),
            }
            prop_assert!(lease.end() >= end);
            if let Some(limit) = limit {
                prop_assert!(lease.end() == end || lease.end() <= limit);
            }
            let valid = lease.is_valid(now);
            prop_assert!(!(over && valid), "an ended lease became valid again");
            prop_assert!(!valid || now < lease.end());
            prop_assert_eq!(lease.heal(now, term).is_some(), valid);
            over |= !valid;
        }
    }

    #[test]
    fn a_release_is_confirmed_by_a_majority_only(
        term in term(), sent in moment(), waited in 0.0..1.2,
        answers in vec(prop_oneof![Just(Answer::Yes), Just(Answer::No), Just(Answer::Unknown)], 1..=8),
    ) {
        let quorum = Quorum::over(answers.len()).expect("within the range");
        let mut lease = granted_by_all(quorum, term.end(sent), None);
        let now = sent.plus(term.ttl.mul_f64(waited));
        let was_valid = lease.is_valid(now);
        let mut release: Release = lease.release(now);
        prop_assert!(!lease.is_valid(now));
        prop_assert_eq!(release.was_valid(), was_valid);
        let confirmed = answers.iter().filter(|answer| **answer == Answer::Yes).count();
        let mut decided = None;
        for (node, answer) in answers.into_iter().enumerate() {
            let decision = lease.released(&mut release, node, answer);
            prop_assert!(decided.is_none() || decision == decided, "the decision changed");
            decided = decision;
        }
        prop_assert_eq!(decided, Some(was_valid && confirmed >= quorum.size()));
    }

    #[test]
    fn a_renewal_is_due_before_the_validity_end(term in term(), sent in moment(), max_hold in up_to(Duration::from_secs(3600))) {
        let quorum = Quorum::over(1).expect("within the range");
        let upkeep = Upkeep::new(term);
        let lease = granted_by_all(quorum, term.end(sent), Some(sent.plus(max_hold)));
        prop_assert!(upkeep.term().patience() <= term.ttl);
        if let Some(due) = upkeep.due(&lease) {
            prop_assert!(due < lease.end());
            prop_assert!(due >= sent.plus(term.ttl / 3));
        }
    }
}
