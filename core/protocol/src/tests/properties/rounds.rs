//! Rounds, with random votes in random order at random times.

use super::{cases, moment, term, up_to};
use crate::{Actions, Event, Loss, Moment, NodeSet, Outcome, Quorum, Round, Term, Vote};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

fn vote() -> impl Strategy<Value = Vote> {
    prop_oneof![
        4 => (1_u64..4).prop_map(|fence| Vote::Granted { fence }),
        2 => proptest::option::of(up_to(Duration::from_secs(10)))
            .prop_map(|expires_in| Vote::Held { expires_in }),
        1 => Just(Vote::Unknown),
        1 => Just(Vote::Refused),
        1 => Just(Vote::Guarded),
    ]
}

fn may_be_applied(vote: Vote) -> bool {
    matches!(vote, Vote::Granted { .. } | Vote::Unknown | Vote::Guarded)
}

/// The vote of a node, whether the node stores a raised fence, and the sort keys of the vote and of the answer to
/// RAISE.
#[derive(Clone, Debug)]
struct Fate {
    vote: Vote,
    stores: bool,
    order: (u32, u32),
}

fn fate() -> impl Strategy<Value = Fate> {
    (vote(), any::<bool>(), any::<(u32, u32)>()).prop_map(|(vote, stores, order)| Fate {
        vote,
        stores,
        order,
    })
}

/// Generates the pauses before the events, as fractions of the ttl. A pause may be zero.
fn pauses() -> impl Strategy<Value = Vec<f64>> {
    vec(prop_oneof![4 => Just(0.0), 2 => 0.0..0.05, 1 => 0.0..1.0], 1..8)
}

struct Watched {
    round: Round,
    quorum: Quorum,
    voted: Vec<Option<Vote>>,
    outcome: Option<Outcome>,
    undone: NodeSet,
    raised: Option<(NodeSet, u64)>,
    stored: usize,
}

impl Watched {
    /// Records the actions of the round and checks that none is repeated.
    fn take(&mut self, actions: Actions) -> Result<(), TestCaseError> {
        if let Some(outcome) = actions.outcome {
            prop_assert!(self.outcome.replace(outcome).is_none(), "decided twice");
        }
        for node in actions.undo.iter() {
            prop_assert!(!self.undone.contains(node), "undone twice");
            prop_assert!(self.voted[node].is_some_and(may_be_applied), "nothing to undo");
            self.undone.insert(node);
        }
        if let Some(raise) = actions.raise {
            prop_assert!(self.raised.replace(raise).is_none(), "raised twice");
        }
        Ok(())
    }

    fn granted(&self) -> Vec<u64> {
        let fence = |vote: &Vote| match vote {
            Vote::Granted { fence } => Some(*fence),
            _ => None,
        };
        self.voted.iter().flatten().filter_map(fence).collect()
    }

    fn applied(&self) -> NodeSet {
        let nodes = 0..self.voted.len();
        nodes.filter(|node| self.voted[*node].is_some_and(may_be_applied)).collect()
    }

    /// Checks the decision against the events so far.
    fn check_outcome(&self, in_time: bool) -> Result<(), TestCaseError> {
        let granted = self.granted();
        let majority = self.quorum.size();
        let silent = |vote: &&Vote| !matches!(vote, Vote::Granted { .. } | Vote::Held { .. });
        match self.outcome {
            Some(Outcome::Won { fence, .. }) => {
                prop_assert!(in_time);
                prop_assert!(granted.len() >= majority);
                prop_assert!(self.undone.is_empty());
                match self.raised {
                    Some((_, raised)) => {
                        prop_assert_eq!(fence, raised);
                        prop_assert!(self.stored >= majority);
                    }
                    None => {
                        let storing = granted.iter().filter(|one| **one == fence).count();
                        prop_assert!(storing >= majority);
                        prop_assert!(granted.iter().all(|one| *one <= fence));
                    }
                }
            }
            Some(Outcome::Lost(Loss::Contended { .. })) => {
                let answers = self.voted.iter().flatten().filter(|vote| !silent(vote)).count();
                prop_assert!(answers >= majority && granted.len() < majority);
            }
            Some(Outcome::Lost(Loss::NoQuorum)) => {
                let silent = self.voted.iter().flatten().filter(silent).count();
                let failed = granted.len() >= majority || silent > self.quorum.tolerated();
                prop_assert!(failed || !in_time);
            }
            None => {}
        }
        Ok(())
    }
}

/// Plays one round. With `abandon`, the round is abandoned after this many events.
fn play(
    sent: Moment,
    term: Term,
    fates: &[Fate],
    pauses: &[f64],
    abandon: Option<usize>,
) -> Result<(), TestCaseError> {
    let quorum = Quorum::over(fates.len()).expect("within the range");
    let mut watched = Watched {
        round: Round::new(quorum, sent, term),
        quorum,
        voted: vec![None; fates.len()],
        outcome: None,
        undone: NodeSet::EMPTY,
        raised: None,
        stored: 0,
    };
    let mut events: Vec<(u32, Event)> = fates
        .iter()
        .enumerate()
        .map(|(node, fate)| (fate.order.0, Event::Vote { node, vote: fate.vote, in_order: true }))
        .collect();
    let mut now = sent;
    let mut number = 0;
    let mut abandoned = false;
    loop {
        events.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        let event = if abandon == Some(number) && !abandoned {
            abandoned = true;
            Event::Abandon
        } else if let Some((_, event)) = events.pop() {
            event
        } else {
            break;
        };
        now = now.plus(term.ttl.mul_f64(pauses[number % pauses.len()]));
        number += 1;
        match event {
            Event::Vote { node, vote, .. } => watched.voted[node] = Some(vote),
            Event::Raised { stored: true, .. } => watched.stored += 1,
            Event::Raised { .. } | Event::Late { .. } | Event::Abandon => {}
        }
        let decided = watched.outcome;
        let asked = watched.raised;
        let actions = watched.round.handle(now, event);
        watched.take(actions)?;
        if decided.is_none() {
            watched.check_outcome(now < term.end(sent))?;
        }
        if abandoned && decided.is_none() {
            prop_assert!(watched.outcome.is_none(), "an abandoned round reports no outcome");
        }
        if asked.is_none()
            && let Some((nodes, fence)) = watched.raised
        {
            prop_assert!(nodes.len() >= quorum.size());
            prop_assert_eq!(Some(fence), watched.granted().into_iter().max());
            for node in nodes.iter() {
                let is_granted = matches!(watched.voted[node], Some(Vote::Granted { .. }));
                prop_assert!(is_granted);
                let stored = fates[node].stores;
                events.push((fates[node].order.1, Event::Raised { node, stored }));
            }
        }
        if matches!(watched.outcome, Some(Outcome::Lost(_))) || (abandoned && decided.is_none()) {
            prop_assert_eq!(watched.undone, watched.applied(), "left behind");
        }
    }
    prop_assert!(watched.outcome.is_some() || abandoned, "never decided");
    let held: NodeSet = (0..fates.len()).filter(|node| may_be_applied(fates[*node].vote)).collect();
    prop_assert_eq!(watched.round.holders(), held);
    Ok(())
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_round_is_decided_once_and_leaves_nothing_behind(
        term in term(), sent in moment(), fates in vec(fate(), 1..=8), pauses in pauses()
    ) {
        play(sent, term, &fates, &pauses, None)?;
    }

    #[test]
    fn an_abandoned_round_leaves_nothing_behind(
        term in term(), sent in moment(), fates in vec(fate(), 1..=8), pauses in pauses(),
        abandon in 0..16_usize,
    ) {
        play(sent, term, &fates, &pauses, Some(abandon))?;
    }
}
