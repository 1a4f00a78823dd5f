//! A story that lies deeper than the quick searches go.

use super::scopes::scopes;
use super::step::Action::{self, *};
use stateright::Model;

/// A slow round of one client has a grant that its node forgets in a restart. The other client's lease
/// is spread to that node, and extended where the slow round is about to win its majority.
#[test]
fn a_lease_does_not_rely_on_a_node_that_may_have_forgotten_a_grant() {
    let scope = scopes(true).into_iter().find(|scope| scope.name.starts_with("healing"));
    let scope = scope.expect("there is such a search");
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
        // It is not free: that completes the first client's round.
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
        // The key of the first client has expired here, since the extension is still on its way.
        Request(1, 2),
        Reply(1, 2),
    ];
    let mut world = scope.init_states().remove(0);
    for action in story {
        let mut possible = Vec::new();
        scope.actions(&world, &mut possible);
        assert!(possible.contains(action), "{action:?} is not possible, but {possible:?}");
        world = scope.next_state(&world, action.clone()).expect("it is possible");
        assert!(world.valid().count() <= 1, "two leases are valid");
    }
    assert_eq!(world.valid().map(|held| held.token).collect::<Vec<_>>(), [2]);
}
