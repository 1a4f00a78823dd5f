//! A single sequence of steps, longer than any sequence that the quick searches reach.

use super::action::Action::{self, *};
use super::scopes::scopes;
use stateright::Model;

/// The round of client 1 is slow. A node that granted this round restarts and forgets the grant. Client 0 then repairs
/// its own lease on that node and extends the lease, while client 1 is about to win a majority.
#[test]
fn a_node_that_may_have_forgotten_a_grant_does_not_confirm_a_lease() {
    let scope = scopes(true).into_iter().find(|scope| scope.name.starts_with("healing"));
    let scope = scope.expect("a search is named healing");
    let story: &[Action] = &[
        Start(0),
        Request(0, 1),
        Request(0, 2),
        Reply(0, 1),
        Reply(0, 2),
        Tick,
        Start(1),
        Request(1, 0),
        Reply(1, 0),
        // Node 0 refuses, which completes the round of client 0.
        Request(0, 0),
        Reply(0, 0),
        Restart(0, true),
        Reconnect(0, 0),
        Repair(0),
        Request(0, 0),
        Reply(0, 0),
        Extend(0),
        Request(0, 0),
        Reply(0, 0),
        Request(0, 1),
        Reply(0, 1),
        Tick,
        // The key of client 0 has expired on node 2, because the EXTEND has not arrived there.
        Request(1, 2),
        Reply(1, 2),
    ];
    let mut world = scope.init_states().remove(0);
    for action in story {
        let mut possible = Vec::new();
        scope.actions(&world, &mut possible);
        assert!(possible.contains(action), "{action:?} is not possible, only {possible:?}");
        world = scope.next_state(&world, action.clone()).expect("the action is possible");
        assert!(world.valid().count() <= 1, "two leases are valid");
    }
    assert_eq!(world.valid().map(|held| held.token).collect::<Vec<_>>(), [2]);
}
