//! Rounds with every combination of node behaviours, for up to seven nodes.

use super::{END, TERM, at, digits, orders};
use crate::{Event, Loss, NodeSet, Outcome, Quorum, Round, Vote};
use std::time::Duration;

/// The behaviour of a node. [`Kind::vote`] is the vote that the driver reports for such a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    Taken,
    Down,
    /// Never answers, so its deadline passes.
    Hung,
    /// Grants, but answers only after all nodes that answer promptly.
    Slow,
    /// Grants, but the answer is lost, so its deadline passes.
    ReplyLost,
    /// Grants, but has just restarted, so it is guarded.
    Young,
}

const KINDS: [Kind; 7] =
    [Kind::Free, Kind::Taken, Kind::Down, Kind::Hung, Kind::Slow, Kind::ReplyLost, Kind::Young];

impl Kind {
    fn vote(self) -> Vote {
        match self {
            Kind::Free | Kind::Slow => Vote::Granted { fence: 7 },
            Kind::Taken => Vote::Held { expires_in: Some(Duration::from_secs(1)) },
            Kind::Down => Vote::Refused,
            Kind::Hung | Kind::ReplyLost => Vote::Unknown,
            Kind::Young => Vote::Guarded,
        }
    }

    fn may_have_token(self) -> bool {
        !matches!(self, Kind::Taken | Kind::Down)
    }

    /// The sort key of the vote. Prompt answers come first. The answers of slow nodes come after the missed deadlines
    /// if `slow_last` is `true`, else before them.
    fn turn(self, slow_last: bool) -> usize {
        match self {
            Kind::Free | Kind::Taken | Kind::Down | Kind::Young => 0,
            Kind::Slow if !slow_last => 1,
            Kind::Hung | Kind::ReplyLost => 2,
            Kind::Slow => 3,
        }
    }
}

/// The expected decision. It is computed from the definition of a round, without the code under test.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Won { after: usize },
    Lost { after: usize, named_after: usize, contended: bool },
}

fn expected(kinds: &[Kind], order: &[usize], late_from: usize) -> Expected {
    let nodes = kinds.len();
    let majority = kinds.len() / 2 + 1;
    let mut granted = 0;
    let mut held = 0;
    let mut silent = 0;
    let mut lost = None;
    for (index, node) in order.iter().enumerate() {
        match kinds[*node] {
            Kind::Free | Kind::Slow => granted += 1,
            Kind::Taken => held += 1,
            Kind::Down | Kind::Hung | Kind::ReplyLost | Kind::Young => silent += 1,
        }
        let pending = nodes - index - 1;
        let late = index >= late_from;
        if lost.is_none() && granted >= majority && !late {
            return Expected::Won { after: index };
        }
        if lost.is_none() && (late || granted + pending < majority) {
            lost = Some(index);
        }
        let Some(after) = lost else { continue };
        if granted < majority && granted + held >= majority {
            return Expected::Lost { after, named_after: index, contended: true };
        }
        if granted >= majority || silent > nodes - majority || late {
            return Expected::Lost { after, named_after: index, contended: false };
        }
    }
    panic!("all votes do not decide {kinds:?}");
}

/// Plays a round over nodes of these kinds, and checks every action of the round. Votes from the index `late_from` on
/// arrive after the validity end.
fn play(kinds: &[Kind], order: &[usize], late_from: usize) {
    let quorum = Quorum::over(kinds.len()).expect("valid number of nodes");
    let expected = expected(kinds, order, late_from);
    let mut round = Round::new(quorum, at(0), TERM);
    let mut undone = NodeSet::EMPTY;
    let mut outcomes = Vec::new();
    for (index, &node) in order.iter().enumerate() {
        let now = if index < late_from { at(1) } else { at(END) };
        let actions =
            round.handle(now, Event::Vote { node, vote: kinds[node].vote(), in_order: true });
        assert_eq!(actions.raise, None, "equal fences need no fence round");
        for node in actions.undo.iter() {
            assert!(!undone.contains(node), "{node} is undone twice: {kinds:?}");
            assert!(order[..=index].contains(&node), "{node} is undone before it voted");
            undone.insert(node);
        }
        outcomes.extend(actions.outcome.map(|outcome| (index, outcome)));
        let lost_now = matches!(expected, Expected::Lost { after, .. } if after <= index);
        let voted = order[..=index].iter().copied();
        let must = if lost_now {
            voted.filter(|node| kinds[*node].may_have_token()).collect()
        } else {
            NodeSet::EMPTY
        };
        assert_eq!(undone, must, "undone after vote {index} of {kinds:?} in order {order:?}");
    }
    match (&expected, &outcomes[..]) {
        (Expected::Won { after }, [(index, Outcome::Won { fence: 7, end })]) => {
            assert_eq!((index, *end), (after, at(END)), "{kinds:?} in order {order:?}");
        }
        (Expected::Lost { named_after, contended, .. }, [(index, Outcome::Lost(loss))]) => {
            let is_contended = matches!(loss, Loss::Contended { .. });
            let seen = (*index, is_contended);
            assert_eq!(seen, (*named_after, *contended), "{kinds:?} in order {order:?}");
        }
        _ => panic!("{kinds:?} in order {order:?}: {outcomes:?}, not {expected:?}"),
    }
    undone_when_abandoned(kinds, order);
}

/// Plays the round once for each vote, abandons it after that vote, and checks which nodes are undone.
fn undone_when_abandoned(kinds: &[Kind], order: &[usize]) {
    for abandoned_after in 0..order.len() {
        let mut round = Round::new(Quorum::over(kinds.len()).expect("valid"), at(0), TERM);
        let mut undone = NodeSet::EMPTY;
        let mut won = false;
        let mut must = NodeSet::EMPTY;
        for (index, &node) in order.iter().enumerate() {
            let vote = kinds[node].vote();
            let actions = round.handle(at(1), Event::Vote { node, vote, in_order: true });
            actions.undo.iter().for_each(|node| undone.insert(node));
            won |= matches!(actions.outcome, Some(Outcome::Won { .. }));
            // Grants of a won round are released with the lease, even grants that arrive after the round was abandoned.
            // A request whose result is unknown may be applied after that release, so its node must be undone.
            let is_released =
                won && (index <= abandoned_after || matches!(vote, Vote::Granted { .. }));
            if kinds[node].may_have_token() && !is_released {
                must.insert(node);
            }
            if index == abandoned_after {
                if won {
                    must = NodeSet::EMPTY;
                }
                let actions = round.handle(at(1), Event::Abandon);
                actions.undo.iter().for_each(|node| undone.insert(node));
                assert_eq!(actions.outcome, None);
            }
            assert!(!won || index > abandoned_after || undone.is_empty());
        }
        assert_eq!(undone, must, "{kinds:?} in order {order:?}, abandoned {abandoned_after}");
    }
}

fn sorted(kinds: &[Kind], slow_last: bool, reverse: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    if reverse {
        order.reverse();
    }
    order.sort_by_key(|node| kinds[*node].turn(slow_last));
    order
}

#[test]
fn every_combination_of_up_to_seven_nodes_is_decided_as_early_as_possible() {
    for nodes in 1..=7 {
        for combination in digits(KINDS.len(), nodes) {
            let kinds: Vec<Kind> = combination.iter().map(|kind| KINDS[*kind]).collect();
            // Slow nodes answer in time.
            play(&kinds, &sorted(&kinds, false, false), nodes);
            // Slow nodes answer after the end of the validity.
            let order = sorted(&kinds, true, true);
            let late_from =
                order.iter().position(|node| kinds[*node] == Kind::Slow).unwrap_or(nodes);
            play(&kinds, &order, late_from);
        }
    }
}

#[test]
fn every_order_of_answers_from_up_to_four_nodes_is_decided_as_early_as_possible() {
    for nodes in 1..=4 {
        for combination in digits(KINDS.len(), nodes) {
            let kinds: Vec<Kind> = combination.iter().map(|kind| KINDS[*kind]).collect();
            for order in orders(nodes) {
                play(&kinds, &order, nodes);
            }
        }
    }
}

#[test]
fn an_even_split_is_lost_and_undone() {
    let mut round = Round::new(Quorum::over(2).expect("valid"), at(0), TERM);
    let granted = Vote::Granted { fence: 7 };
    assert_eq!(
        round.handle(at(1), Event::Vote { node: 0, vote: granted, in_order: true }),
        Default::default()
    );
    let held = Vote::Held { expires_in: Some(Duration::from_millis(300)) };
    let actions = round.handle(at(1), Event::Vote { node: 1, vote: held, in_order: true });
    assert_eq!(actions.undo, NodeSet::from_iter([0]));
    let free_in = Some(Duration::from_millis(300));
    assert_eq!(actions.outcome, Some(Outcome::Lost(Loss::Contended { free_in })));
}

#[test]
fn a_round_is_won_just_before_the_validity_end_but_not_at_it() {
    for (now, wins) in [(END - 1, true), (END, false), (END + 1, false)] {
        let mut round = Round::new(Quorum::over(1).expect("valid"), at(0), TERM);
        let vote = Vote::Granted { fence: 7 };
        let actions = round.handle(at(now), Event::Vote { node: 0, vote, in_order: true });
        assert_eq!(matches!(actions.outcome, Some(Outcome::Won { .. })), wins, "at {now}");
        assert_eq!(actions.undo.is_empty(), wins);
    }
}

#[test]
fn a_contended_round_reports_when_enough_keys_will_have_expired() {
    let held = |milliseconds: Option<u64>| Vote::Held {
        expires_in: milliseconds.map(Duration::from_millis),
    };
    let cases = [
        (vec![held(Some(30)), held(Some(10)), held(Some(20))], Some(20)),
        (vec![held(Some(30)), held(None), held(None)], None),
        (vec![Vote::Granted { fence: 7 }, held(Some(40)), held(Some(30))], Some(30)),
    ];
    for (votes, expires) in cases {
        let mut round = Round::new(Quorum::over(3).expect("valid"), at(0), TERM);
        let mut outcome = None;
        // The votes of nodes 2 and 1 decide the round.
        for (node, vote) in votes.into_iter().enumerate().rev() {
            let seen = round.handle(at(1), Event::Vote { node, vote, in_order: true }).outcome;
            outcome = outcome.or(seen);
        }
        if let (Some(Outcome::Lost(Loss::Contended { free_in })), Some(expires)) =
            (outcome, expires)
        {
            assert!(free_in >= Some(Duration::from_millis(expires)), "{free_in:?}");
        } else {
            let never = Outcome::Lost(Loss::Contended { free_in: None });
            assert_eq!((outcome, expires), (Some(never), None));
        }
    }
}

#[test]
fn quorums_are_majorities() {
    let sizes: Vec<_> = (1..=7).filter_map(Quorum::over).map(Quorum::size).collect();
    assert_eq!(sizes, [1, 2, 2, 3, 3, 4, 4]);
    assert!(Quorum::over(0).is_none());
    assert!(Quorum::over(33).is_none());
    for quorum in (1..=32).filter_map(Quorum::over) {
        assert!(2 * quorum.size() > quorum.nodes(), "two majorities must share a node");
        assert_eq!(quorum.size() + quorum.tolerated(), quorum.nodes());
    }
}

#[test]
fn node_sets_contain_the_inserted_nodes() {
    let set: NodeSet = [0, 3, 31].into_iter().collect();
    assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 31]);
    assert!(set.contains(31) && !set.contains(1));
    assert_eq!(set.len(), 3);
    assert!(!set.is_empty() && NodeSet::EMPTY.is_empty());
}
