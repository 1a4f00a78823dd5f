//! Claims: which keys are released or given back, on which nodes, and when.

use super::{END, TERM, at};
use crate::{
    Answer, Claim, Commands, Ended, Event, Extended, Healed, Healing, NodeSet, Obstacle, Origin,
    Outcome, Quorum, StoredToken, Unresumable, Vote,
};
use std::time::Duration;

const GRANTED: Vote = Vote::Granted { fence: 7 };
const HELD: Vote = Vote::Held { expires_in: None };
const PATIENCE: Duration = Duration::from_secs(1);

fn quorum() -> Quorum {
    Quorum::over(3).expect("3 is a valid number of nodes")
}

fn set<const N: usize>(nodes: [usize; N]) -> NodeSet {
    nodes.into_iter().collect()
}

fn release<const N: usize>(nodes: [usize; N]) -> Commands<char> {
    Commands { release: set(nodes), ..Commands::default() }
}

fn give_back<const N: usize>(nodes: [usize; N]) -> Commands<char> {
    Commands { give_back: set(nodes), ..Commands::default() }
}

fn release_both<const N: usize>(nodes: [usize; N]) -> Commands<char> {
    Commands { release_both: set(nodes), ..Commands::default() }
}

fn late(node: usize, vote: Vote) -> Event {
    Event::Late { node, vote }
}

/// A claim over three nodes after these votes, and the commands that the last vote led to.
fn claim<const N: usize>(origin: Origin, votes: [Vote; N]) -> (Claim<char>, Commands<char>) {
    let mut claim = Claim::new('t', quorum(), origin, at(0), TERM, None);
    let mut commands = Commands::default();
    for (node, vote) in votes.into_iter().enumerate() {
        commands = claim.handle(at(0), Event::Vote { node, vote, in_order: true });
    }
    (claim, commands)
}

/// A lease that the first two nodes have granted.
fn lease(origin: Origin) -> Claim<char> {
    let (claim, commands) = claim(origin, [GRANTED, GRANTED]);
    assert!(matches!(commands.outcome, Some(Outcome::Won { .. })));
    claim
}

/// A lease that is being upgraded, the claim of the upgrade after these votes, and the commands that the last vote led
/// to.
fn upgrading<const N: usize>(votes: [Vote; N]) -> (Claim<char>, Claim<char>, Commands<char>) {
    let mut lease = lease(Origin::Acquired);
    assert!(lease.begin_upgrade(at(0), PATIENCE).is_ok());
    let (upgrade, commands) = claim(Origin::Upgraded, votes);
    (lease, upgrade, commands)
}

/// Releases a lease, and ends the release as if all nodes had answered.
fn release_at_once(claim: &mut Claim<char>) -> Commands<char> {
    assert!(claim.release(at(1)).is_some());
    let _ = claim.send_release();
    claim.end_release()
}

#[test]
fn late_grant_of_a_lost_round_is_released() {
    let (mut claim, commands) = claim(Origin::Acquired, [GRANTED, HELD, Vote::Unknown]);
    assert_eq!(commands.release, set([0, 2]));
    assert_eq!(claim.handle(at(1), late(2, GRANTED)), release([2]));
}

#[test]
fn late_refusal_of_a_lost_round_is_not_released() {
    let (mut claim, _) = claim(Origin::Acquired, [HELD, HELD, Vote::Unknown]);
    assert_eq!(claim.handle(at(1), late(2, HELD)), Commands::default());
}

#[test]
fn abandoned_round_is_released_where_it_was_granted() {
    let (mut claim, _) = claim(Origin::Acquired, [GRANTED]);
    assert_eq!(claim.handle(at(1), Event::Abandon), release([0]));
    let vote = Event::Vote { node: 1, vote: GRANTED, in_order: true };
    assert_eq!(claim.handle(at(1), vote), release([1]));
}

#[test]
fn late_grant_of_a_lost_adoption_is_given_back() {
    let (mut claim, commands) = claim(Origin::Adopted, [GRANTED, HELD, Vote::Unknown]);
    assert_eq!(commands.give_back, set([0, 2]));
    assert_eq!(claim.handle(at(1), late(2, GRANTED)), give_back([2]));
}

#[test]
fn nothing_is_given_back_to_a_lease_that_nobody_can_use() {
    let (mut claim, _) = claim(Origin::Adopted, [GRANTED, HELD, Vote::Unknown]);
    assert_eq!(claim.end_giver(), release_both([0, 2]));
    assert_eq!(claim.end_giver(), Commands::default(), "it is known");
    assert_eq!(claim.handle(at(1), late(2, GRANTED)), release_both([2]));
}

#[test]
fn adoption_that_loses_after_its_giver_has_ended_gives_nothing_back() {
    let (mut claim, _) = claim(Origin::Adopted, [GRANTED, HELD]);
    assert_eq!(claim.end_giver(), Commands::default(), "it may still win");
    let last = Event::Vote { node: 2, vote: HELD, in_order: true };
    assert_eq!(claim.handle(at(1), last).release_both, set([0]));
}

#[test]
fn late_grant_joins_a_lease() {
    let mut claim = lease(Origin::Acquired);
    let vote = Event::Vote { node: 2, vote: GRANTED, in_order: true };
    assert_eq!(claim.handle(at(1), vote), Commands::default());
    assert_eq!(claim.lease().sound(), set([0, 1, 2]));
}

#[test]
fn late_grant_of_a_released_lease_is_released_after_every_node_has_answered_that() {
    let (mut claim, _) = claim(Origin::Acquired, [GRANTED, GRANTED, Vote::Unknown]);
    let mut answered = claim.clone();
    assert!(claim.release(at(1)).is_some());
    assert_eq!(claim.send_release(), release([0, 1, 2]));
    assert_eq!(claim.handle(at(2), late(2, GRANTED)), Commands::default());
    assert!(!claim.is_over());
    assert_eq!(claim.end_release(), release([2]));
    assert!(claim.is_over());

    assert_eq!(release_at_once(&mut answered), Commands::default());
    assert_eq!(answered.handle(at(2), late(2, GRANTED)), release([2]));
}

#[test]
fn late_grant_of_an_adopted_lease_is_not_given_back_after_the_release() {
    let (mut claim, _) = claim(Origin::Adopted, [GRANTED, GRANTED, Vote::Unknown]);
    let _ = release_at_once(&mut claim);
    assert_eq!(claim.handle(at(2), late(2, GRANTED)), release([2]));
}

#[test]
fn heal_that_is_answered_after_the_release_is_released() {
    let mut claim = lease(Origin::Acquired);
    let ttl = claim.heal(at(1), set([2])).expect("it is valid");
    let mut answered = claim.clone();
    assert!(claim.release(at(2)).is_some());
    let _ = claim.send_release();
    let healed = Some(Healed::Clean);
    assert_eq!(claim.healed(at(3), (2, ttl), Healing::Answered(healed)), Commands::default());
    assert_eq!(claim.end_release(), release([2]));

    let _ = release_at_once(&mut answered);
    assert_eq!(answered.healed(at(3), (2, ttl), Healing::Open), release([2]));
    let late = Healing::Answered(None);
    assert_eq!(answered.healed(at(4), (2, ttl), late), release([2]), "it is late");
}

#[test]
fn grant_with_a_larger_fence_does_not_count_even_if_it_arrives_during_raise() {
    let granted = |fence| Vote::Granted { fence };
    let (mut claim, commands) = claim(Origin::Acquired, [granted(5), granted(7)]);
    assert_eq!(commands.raise, Some((set([0, 1]), 7)));
    let vote = Event::Vote { node: 2, vote: granted(9), in_order: true };
    assert_eq!(claim.handle(at(0), vote), Commands::default());
    let raised = [0, 1].map(|node| claim.handle(at(0), Event::Raised { node, stored: true }));
    assert!(
        raised
            .iter()
            .any(|commands| matches!(commands.outcome, Some(Outcome::Won { fence: 7, .. })))
    );
    assert_eq!(claim.lease().sound(), set([0, 1]));
    assert!(claim.lease().has_passed());
}

#[test]
fn refused_release_of_an_upgrade_that_is_given_back_shows_no_loss() {
    let (mut lease, mut upgrade, commands) = upgrading([GRANTED, HELD, HELD]);
    assert_eq!(lease.gives_back(&'u', commands.give_back), Commands::default());
    assert_eq!(lease.end_upgrade(at(0)), Commands::default());
    let _ = upgrade.handle(at(0), Event::Abandon);
    let mut release = lease.release(at(1)).expect("it is held");
    let _ = lease.send_release();
    for (node, decided) in [(0, None), (1, None), (2, Some(false))] {
        let answer = if node == 2 { Answer::Yes } else { Answer::No };
        assert_eq!(lease.released(&mut release, node, answer), decided);
    }
    assert_eq!(lease.lease().ended(at(2)), Some(Ended::Released));
}

#[test]
fn heal_that_was_not_sent_is_not_released() {
    let mut claim = lease(Origin::Acquired);
    let before = claim.gone_by();
    let ttl = claim.heal(at(1), set([2])).expect("it is valid");
    let _ = release_at_once(&mut claim);
    assert_eq!(claim.healed(at(50), (2, ttl), Healing::Unsent), Commands::default());
    assert_eq!(claim.gone_by(), before);
}

#[test]
fn heal_of_a_held_lease_is_not_released() {
    let mut claim = lease(Origin::Acquired);
    let ttl = claim.heal(at(1), set([2])).expect("it is valid");
    assert_eq!(claim.silent(), set([2]));
    let commands = claim.healed(at(2), (2, ttl), Healing::Answered(Some(Healed::Clean)));
    assert_eq!((commands, claim.lease().sound()), (Commands::default(), set([0, 1, 2])));
}

#[test]
fn lost_upgrade_gives_back_wherever_it_may_have_the_keys_or_yet_get_them() {
    let (.., commands) = upgrading([HELD, HELD]);
    assert_eq!(commands.give_back, set([2]), "the third node has not voted");
    let (.., commands) = upgrading([GRANTED, HELD, Vote::Guarded]);
    assert_eq!(commands.give_back, set([0, 2]));
    let (_, mut upgrade, _) = upgrading([HELD]);
    assert_eq!(upgrade.handle(at(1), Event::Abandon).give_back, set([1, 2]));
}

#[test]
fn late_grant_of_a_lost_upgrade_is_given_back() {
    let (_, mut upgrade, _) = upgrading([HELD, HELD, Vote::Unknown]);
    assert_eq!(upgrade.handle(at(1), late(2, GRANTED)), give_back([2]));
}

#[test]
fn late_grant_of_a_lost_upgrade_is_released_after_the_release_of_its_lease() {
    let (mut lease, mut upgrade, _) = upgrading([HELD, HELD, Vote::Unknown]);
    let _ = lease.end_upgrade(at(1));
    assert!(!lease.is_deleted());
    assert!(lease.release(at(1)).is_some());
    assert!(!lease.is_deleted());
    let _ = lease.send_release();
    assert!(lease.is_deleted());
    assert_eq!(upgrade.end_giver(), Commands::default());
    assert_eq!(upgrade.handle(at(2), late(2, GRANTED)), release_both([2]));
    let expected = Commands { release_upgrades: vec![('u', 2)], ..Commands::default() };
    assert_eq!(lease.gives_back(&'u', set([2])), expected);
}

#[test]
fn detached_lease_is_not_deleted_by_its_failed_upgrade() {
    let (mut lease, ..) = upgrading([HELD, HELD, Vote::Unknown]);
    let _ = lease.end_upgrade(at(1));
    assert!(lease.detach(at(1)).is_ok());
    assert!(lease.is_over() && !lease.is_deleted());
}

#[test]
fn lease_that_is_lost_during_its_upgrade_is_released_at_the_end_of_that() {
    let (mut lease, _, commands) = upgrading([HELD, HELD]);
    assert_eq!(lease.gives_back(&'u', commands.give_back), Commands::default());
    let mut answered = lease.clone();
    let expected = Commands { release_upgrades: vec![('u', 2)], ..release([0, 1, 2]) };
    assert_eq!(lease.end_upgrade(at(END)), expected);

    answered.gave_back(at(1), &'u', 2);
    assert!(answered.has_keys_back());
    assert_eq!(answered.end_upgrade(at(END)), release([0, 1, 2]));
    assert!(answered.is_deleted() && answered.release(at(END)).is_some());
}

#[test]
fn valid_lease_keeps_its_keys_at_the_end_of_an_upgrade() {
    let (mut lease, _, commands) = upgrading([HELD, HELD]);
    assert_eq!(lease.gives_back(&'u', commands.give_back), Commands::default());
    assert!(!lease.has_keys_back());
    assert_eq!(lease.end_upgrade(at(END - 1)), Commands::default());
}

#[test]
fn release_during_an_upgrade_waits_for_the_end_of_that() {
    let (mut lease, _, commands) = upgrading([HELD, HELD]);
    assert_eq!(lease.gives_back(&'u', commands.give_back), Commands::default());
    assert!(lease.release(at(1)).is_some_and(|release| release.was_valid()));
    assert!(!lease.lease().is_valid(at(1)) && !lease.is_deleted());
    assert_eq!(lease.end_upgrade(at(2)), Commands::default());
    let expected = Commands { release_upgrades: vec![('u', 2)], ..release([0, 1, 2]) };
    assert_eq!(lease.send_release(), expected);
}

#[test]
fn refusal_of_a_node_that_may_give_the_keys_back_does_not_count() {
    let (mut lease, _, commands) = upgrading([GRANTED, HELD, HELD]);
    assert_eq!(lease.gives_back(&'u', commands.give_back), Commands::default());
    let _ = lease.end_upgrade(at(1));
    let mut extension = lease.extend(at(1), TERM, PATIENCE).expect("valid");
    assert_eq!(lease.extended(at(1), &mut extension, 0, Answer::No), None);
    assert_eq!(lease.extended(at(1), &mut extension, 1, Answer::No), None);
    assert!(lease.lease().is_valid(at(1)), "node 0 may still give the key back");
    lease.gave_back(at(2), &'u', 0);
    let mut extension = lease.extend(at(2), TERM, PATIENCE).expect("valid");
    assert_eq!(lease.extended(at(2), &mut extension, 1, Answer::No), None);
    let decided = lease.extended(at(2), &mut extension, 0, Answer::No);
    assert_eq!(decided, Some(Extended::Lost));
}

#[test]
fn extension_that_began_before_a_downgrade_is_undecided() {
    for answer in [Answer::No, Answer::Yes] {
        let mut lease = lease(Origin::Acquired);
        let mut extension = lease.extend(at(1), TERM, PATIENCE).expect("valid");
        assert!(lease.downgrade(at(1), 't').is_ok());
        for node in 0..3 {
            let decided = lease.extended(at(1), &mut extension, node, answer);
            assert_eq!(decided, Some(Extended::Undecided));
        }
        assert_eq!(lease.lease().end(), at(END));
        let mut extension = lease.extend(at(2), TERM, PATIENCE).expect("valid");
        let decided = [0, 1].map(|node| lease.extended(at(2), &mut extension, node, Answer::Yes));
        assert_eq!(decided, [None, Some(Extended::Confirmed)]);
    }
}

#[test]
fn won_upgrade_ends_its_lease() {
    let (mut lease, mut upgrade, _) = upgrading([GRANTED, GRANTED]);
    assert_eq!(lease.upgraded(at(1), &mut upgrade), Ok(()));
    assert!(upgrade.lease().is_valid(at(1)));
    assert_eq!(lease.lease().ended(at(1)), Some(Ended::Upgraded));
    assert!(lease.is_over() && lease.is_deleted());
    assert_eq!(lease.end_upgrade(at(1)), Commands::default());
}

#[test]
fn earlier_upgrade_gives_nothing_back_to_a_lease_that_was_upgraded() {
    let (mut lease, _, commands) = upgrading([HELD, HELD]);
    assert_eq!(lease.gives_back(&'u', commands.give_back), Commands::default());
    let _ = lease.end_upgrade(at(1));
    assert!(lease.begin_upgrade(at(2), PATIENCE).is_ok());
    let (mut upgrade, _) = claim(Origin::Upgraded, [GRANTED, GRANTED]);
    assert_eq!(lease.upgraded(at(3), &mut upgrade), Ok(()));
    let expected = Commands { release_upgrades: vec![('u', 2)], ..Commands::default() };
    assert_eq!(lease.end_upgrade(at(3)), expected);
}

#[test]
fn won_upgrade_of_a_lease_that_has_ended_gives_back() {
    let (mut lease, mut upgrade, _) = upgrading([GRANTED, HELD, GRANTED]);
    assert!(lease.release(at(1)).is_some());
    assert_eq!(lease.upgraded(at(1), &mut upgrade), Err(give_back([0, 2])));
    assert!(!upgrade.lease().is_valid(at(1)));
}

#[test]
fn release_deletes_what_is_left_of_the_giver() {
    let left = [
        (Origin::Adopted, set([2])),
        (Origin::Upgraded, set([2])),
        (Origin::Acquired, NodeSet::EMPTY),
    ];
    for (origin, giver) in left {
        let mut claim = lease(origin);
        assert!(claim.release(at(1)).is_some());
        assert_eq!(claim.send_release().release_giver, giver);
    }
}

#[test]
fn late_extension_does_not_outlast_the_time_for_which_keys_are_kept() {
    for answer in [Answer::Yes, Answer::Unknown, Answer::No] {
        let second = if answer == Answer::No { release([]) } else { release([1]) };
        let mut claim = lease(Origin::Acquired);
        let releasing = claim.release(at(1)).expect("it is not released yet");
        assert_eq!(claim.extended_after_release(1, answer), release([]), "the keys are deleted");
        assert!(claim.keep_keys(&releasing, at(1), TERM).is_some());
        let mut released = claim.clone();
        let _ = claim.send_release();
        assert_eq!(claim.extended_after_release(1, answer), release([]), "RELEASE is under way");
        assert_eq!(claim.end_release(), second);
        let _ = (released.send_release(), released.end_release());
        assert_eq!(released.extended_after_release(1, answer), second);
    }
}

#[test]
fn second_release_does_nothing() {
    let mut claim = lease(Origin::Acquired);
    assert!(claim.release(at(1)).is_some());
    assert!(claim.release(at(1)).is_none() && claim.close(at(1)).is_none());
}

#[test]
fn refused_release_shows_that_the_lease_was_lost() {
    let mut claim = lease(Origin::Acquired);
    let mut release = claim.release(at(1)).expect("it is not released");
    assert_eq!(claim.released(&mut release, 0, Answer::No), None);
    assert_eq!(claim.released(&mut release, 1, Answer::No), Some(false));
    assert_eq!(claim.lease().ended(at(1)), Some(Ended::Taken));
}

#[test]
fn detached_lease_leaves_its_giver_nowhere() {
    let mut claim = lease(Origin::Adopted);
    let expected = Commands { release_giver: set([2]), ..Commands::default() };
    assert_eq!(claim.detach(at(1)), Ok(expected));
    assert_eq!(claim.lease().ended(at(1)), Some(Ended::Detached));
}

#[test]
fn late_grant_of_a_detached_lease_is_released() {
    let (mut claim, _) = claim(Origin::Acquired, [GRANTED, GRANTED, Vote::Unknown]);
    assert_eq!(claim.silent(), set([2]));
    assert_eq!(claim.detach(at(1)), Ok(Commands::default()));
    assert_eq!(claim.handle(at(2), late(2, GRANTED)), release([2]));
}

#[test]
fn lease_is_not_detached_if_too_many_nodes_may_yet_set_its_keys() {
    let mut claim = lease(Origin::Acquired);
    assert!(claim.heal(at(1), set([0])).is_some());
    assert_eq!(claim.detach(at(1)), Err(Obstacle::Silent(set([0, 2]))));
    assert!(claim.lease().is_valid(at(1)));
}

#[test]
fn lease_that_is_being_upgraded_or_has_ended_is_not_changed() {
    let mut claim = lease(Origin::Acquired);
    let mut expired = claim.clone();
    assert!(claim.begin_upgrade(at(1), PATIENCE).is_ok());
    let has_ended = Obstacle::Ended(Ended::Expired);
    assert_eq!(claim.detach(at(1)), Err(Obstacle::Upgrading));
    assert_eq!(claim.downgrade(at(1), 't'), Err(Obstacle::Upgrading));
    assert_eq!(claim.begin_upgrade(at(1), PATIENCE), Err(Obstacle::Upgrading));
    assert_eq!(expired.detach(at(END)), Err(has_ended));
    assert_eq!(expired.downgrade(at(END), 't'), Err(has_ended));
    assert_eq!(expired.begin_upgrade(at(END), PATIENCE), Err(has_ended));
}

#[test]
fn requests_after_a_downgrade_name_its_subject() {
    let mut claim = lease(Origin::Acquired);
    assert_eq!(claim.downgrade(at(1), 's'), Ok(()));
    assert_eq!(claim.subject(), &'s');
}

#[test]
fn detached_lease_that_nobody_adopts_is_deleted() {
    let (mut lease, _, commands) = upgrading([HELD, HELD]);
    assert_eq!(lease.gives_back(&'u', commands.give_back), Commands::default());
    let _ = lease.end_upgrade(at(1));
    assert!(lease.detach(at(1)).is_ok() && !lease.is_deleted());
    let expected = Commands { release_upgrades: vec![('u', 2)], ..release([0, 1, 2]) };
    assert_eq!(lease.delete(), expected);
    assert!(lease.is_deleted());
}

/// Resumes a lease that all three nodes have granted. The nodes in `holders` still hold the key; the nodes in `missing`
/// do not.
fn resume(holders: &[usize], missing: NodeSet, now: u64) -> Result<Claim<char>, Unresumable> {
    let left = holders.iter().map(|node| (*node, TERM.ttl)).collect();
    let stored = StoredToken { asked: at(0), left, missing };
    Claim::resume('t', quorum(), quorum().all(), 7, TERM, &stored, at(now))
}

#[test]
fn resumed_lease_is_released_where_it_may_be() {
    let claim = resume(&[0, 1], NodeSet::EMPTY, 1).expect("a majority holds the key");
    assert_eq!(claim.holders(), set([0, 1, 2]));
}

#[test]
fn lease_that_may_be_elsewhere_is_neither_repaired_nor_changed() {
    let mut kept = lease(Origin::Acquired);
    assert_eq!(kept.pass_on(at(1)), Ok(set([0, 1])));
    let resumed = resume(&[0, 1], set([2]), 1).expect("a majority holds the key");
    for mut claim in [kept, resumed] {
        assert!(claim.lease().is_valid(at(1)) && claim.is_elsewhere());
        assert_eq!(claim.heal(at(1), set([2])), None);
        assert_eq!(claim.detach(at(1)), Err(Obstacle::Elsewhere));
        assert_eq!(claim.downgrade(at(1), 't'), Err(Obstacle::Elsewhere));
        assert_eq!(claim.begin_upgrade(at(1), PATIENCE), Err(Obstacle::Elsewhere));
    }
}

#[test]
fn lease_that_other_nodes_may_still_hold_has_not_ended() {
    let short = Duration::from_millis(1);
    for (left, is_known) in [
        (vec![(0, short), (1, TERM.ttl)], false),
        (vec![(0, short), (1, short)], true),
        (vec![(1, TERM.ttl)], false),
    ] {
        let stored = StoredToken { asked: at(0), left, missing: NodeSet::EMPTY };
        let resumed = Claim::resume('t', quorum(), quorum().all(), 7, TERM, &stored, at(2));
        let ended = Some(Unresumable::Ended(set([])));
        assert_eq!(resumed.err(), if is_known { ended } else { Some(Unresumable::Unknown) });
    }
}

#[test]
fn lease_is_passed_on_only_if_no_request_of_an_upgrade_is_under_way() {
    let (mut lease, _, commands) = upgrading([HELD, HELD]);
    assert_eq!(lease.pass_on(at(1)), Err(Obstacle::Upgrading));
    assert_eq!(lease.gives_back(&'u', commands.give_back), Commands::default());
    let _ = lease.end_upgrade(at(1));
    assert_eq!(lease.pass_on(at(1)), Err(Obstacle::Upgrading));
    for node in 0..3 {
        lease.gave_back(at(1), &'u', node);
    }
    assert_eq!(lease.pass_on(at(END)), Err(Obstacle::Ended(Ended::Expired)));
    assert!(!lease.is_elsewhere());
    assert!(lease.pass_on(at(1)).is_ok() && lease.is_elsewhere());
}

#[test]
fn lease_is_resumed_only_while_a_majority_holds_it() {
    assert!(resume(&[0, 1], NodeSet::EMPTY, 1).is_ok());
    assert_eq!(resume(&[0], set([1, 2]), 1).err(), Some(Unresumable::Ended(set([0]))));
    let stored =
        StoredToken { asked: at(0), left: vec![(0, TERM.ttl), (2, TERM.ttl)], missing: set([1]) };
    let of_two = Claim::resume('t', quorum(), set([0, 1]), 7, TERM, &stored, at(1));
    assert_eq!(of_two.err(), Some(Unresumable::Ended(set([]))), "others may count the third node");
    assert_eq!(resume(&[0, 1], set([2]), END).err(), Some(Unresumable::Ended(set([]))));
    assert_eq!(resume(&[0], set([2]), 1).err(), Some(Unresumable::Unknown));
}

#[test]
fn round_of_a_lease_is_forgotten_when_every_node_has_voted() {
    for (vote, is_forgotten) in [(GRANTED, true), (HELD, true), (Vote::Unknown, false)] {
        let (mut claim, _) = claim(Origin::Acquired, [GRANTED, GRANTED, vote]);
        assert_eq!(claim.round().is_none(), is_forgotten, "{vote:?}");
        let _ = claim.handle(at(1), late(2, HELD));
        assert!(claim.round().is_none());
    }
    let (lost, _) = claim(Origin::Acquired, [HELD, HELD, HELD]);
    assert!(lost.round().is_some(), "its votes say whether another round could win");
}

#[test]
fn late_vote_of_a_forgotten_lease_is_released_if_it_may_have_the_keys() {
    for (vote, must_release) in
        [(GRANTED, true), (Vote::Guarded, true), (Vote::Unknown, true), (HELD, false)]
    {
        assert_eq!(Claim::<char>::must_release_forgotten(vote), must_release, "{vote:?}");
    }
}

#[test]
fn keys_are_gone_a_term_after_the_last_request_can_arrive() {
    let mut claim = lease(Origin::Acquired);
    assert_eq!(claim.gone_by(), TERM.gone(at(0)));
    let extension = claim.extend(at(1_000), TERM, PATIENCE).expect("it is valid");
    assert_eq!((extension.sent(), extension.patience()), (at(1_000), PATIENCE));
    assert_eq!(claim.gone_by(), TERM.gone(at(2_000)));
    assert!(claim.begin_upgrade(at(3_000), PATIENCE).is_ok());
    assert_eq!(claim.gone_by(), TERM.gone(at(5_000)));
}

#[test]
fn extension_waits_for_no_node_beyond_the_end_of_the_lease() {
    let mut claim = lease(Origin::Acquired);
    let extension = claim.extend(at(END - 10), TERM, PATIENCE).expect("it is valid");
    assert_eq!(extension.patience(), Duration::from_millis(10));
}
