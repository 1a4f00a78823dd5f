//! The searches and their bounds.

use super::action::Action::{
    self, Cancel, ChangeMode, Extend, Reconnect, Replace, Reply, Request, Restart, Start, Tick,
};
use super::happens;
use super::scope::Scope;
use super::settings::{
    ALL_CLOCKS, BROKEN_CLOCKS, Check, Faults, LONG_TERM, LONG_TICK, NODES, NODES_FAST, SHORT_TICK,
    TERM,
};

/// The error of a clock that is far behind, in microseconds.
const BEHIND: i64 = i64::MIN / 2;
/// The error of a clock that is far ahead, in microseconds: more than the ttl plus `FENCE_MEMORY`.
const AHEAD: i64 = 100_000_000;
/// The error of a proposal that is ahead but within `FENCE_WINDOW`, in microseconds: nodes accept such a proposal.
const NEAR: i64 = 1_500_000;
/// The errors of the nodes' clocks. One clock is so far ahead that its node rejects every proposal that the other nodes
/// accept.
const SKEWED: [i64; NODES] = [AHEAD, 0, 0];

/// The first client holds a lease, which two nodes have granted. The ACQUIRE is still under way to the third node.
const HELD: &[Action] = &[Start(0), Request(0, 0), Reply(0, 0), Request(0, 1), Reply(0, 1)];

/// Continues [`HELD`]: a tick later, two nodes have granted the ACQUIRE of the second client.
const JOINED: &[Action] = &[
    Start(0),
    Request(0, 0),
    Reply(0, 0),
    Request(0, 1),
    Reply(0, 1),
    Tick,
    Start(1),
    Request(1, 1),
    Reply(1, 1),
    Request(1, 2),
    Reply(1, 2),
];

/// Continues [`HELD`]: two nodes have extended the lease.
const EXTENDED: &[Action] = &[
    Start(0),
    Request(0, 0),
    Reply(0, 0),
    Request(0, 1),
    Reply(0, 1),
    Extend(0),
    Request(0, 0),
    Reply(0, 0),
    Request(0, 1),
    Reply(0, 1),
];

/// Continues [`HELD`]: the client has begun and cancelled an upgrade of the lease. The TRANSFER to one node is stuck on
/// a replaced connection.
const STUCK: &[Action] = &[
    Start(0),
    Request(0, 0),
    Reply(0, 0),
    Request(0, 1),
    Reply(0, 1),
    ChangeMode(0),
    Replace(0, 0),
    Cancel(0),
];

/// Continues [`HELD`]: one of the two nodes has restarted empty. All clients have noticed the restart. A tick later,
/// the ACQUIRE of the second client has reached both nodes, and the vote of the node that did not restart has arrived.
const EMPTIED: &[Action] = &[
    Start(0),
    Request(0, 0),
    Reply(0, 0),
    Request(0, 1),
    Reply(0, 1),
    Restart(0, true),
    Reconnect(0, 0),
    Reconnect(1, 0),
    Reconnect(2, 0),
    Tick,
    Start(1),
    Request(1, 0),
    Request(1, 1),
    Reply(1, 1),
];

/// Continues [`HELD`]: one of the two nodes has restarted empty. The third client has won the vote of that node and the
/// vote of the third node.
const TAKEN: &[Action] = &[
    Start(0),
    Request(0, 0),
    Reply(0, 0),
    Request(0, 1),
    Reply(0, 1),
    Restart(0, true),
    Reconnect(0, 0),
    Reconnect(1, 0),
    Reconnect(2, 0),
    Start(2),
    Request(2, 0),
    Reply(2, 0),
    Request(2, 2),
    Reply(2, 2),
];

const NONE: Faults = Faults {
    timeouts: 0,
    breaks: 0,
    restarts: 0,
    memory_losses: 0,
    crashes: 0,
    cancels: 0,
    refusals: 0,
    unknowns: 0,
    replacements: 0,
    pauses: 0,
};

impl Scope {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            begins: &[],
            rounds: &[1, 1],
            extensions: 0,
            extension: TERM,
            changes: 0,
            repairs: 0,
            releases: true,
            hand_over: false,
            readers: &[],
            ticks: 2,
            faults: NONE,
            guard: false,
            clocks: NODES_FAST,
            wall_clocks: [0; 3],
            wall_tick: SHORT_TICK,
            node_clocks: [0; NODES],
            counters: [0; NODES],
            check: Check::Exclusion,
            happens: Vec::new(),
        }
    }
}

/// Returns all searches, the quicker ones first. If `deep` is `true`, the searches go further and take several times as
/// long.
pub(super) fn scopes(deep: bool) -> Vec<Scope> {
    let further = u8::from(deep);
    let odd_proposals = [0, BEHIND, NEAR];
    vec![
        Scope {
            rounds: &[2, 1],
            ticks: 0,
            faults: Faults { cancels: further, ..NONE },
            wall_clocks: odd_proposals,
            happens: vec![happens::THIRD_WINS, happens::FENCE_IS_RAISED],
            ..Scope::new("rounds: clients retry, proposals are wrong")
        },
        Scope {
            releases: deep,
            ticks: 2 + further,
            wall_tick: LONG_TICK,
            wall_clocks: odd_proposals,
            node_clocks: SKEWED,
            happens: vec![happens::FENCE_IS_RAISED, happens::FORGOTTEN],
            ..Scope::new("expiry: counters are forgotten, the nodes' clocks are far apart")
        },
        Scope {
            ticks: 0,
            faults: Faults { breaks: 1 + further, ..NONE },
            wall_clocks: [BEHIND; 3],
            counters: [5, 0, 0],
            happens: vec![happens::SECOND_WINS, happens::FENCE_IS_RAISED],
            ..Scope::new("fences: counters differ, proposals are behind, connections break")
        },
        Scope {
            rounds: &[1, 1, 1],
            releases: deep,
            ticks: 0,
            wall_clocks: odd_proposals,
            happens: vec![happens::SPLIT, happens::FENCE_IS_RAISED],
            ..Scope::new("three clients: split votes, proposals are wrong")
        },
        Scope {
            releases: false,
            ticks: 1 + further,
            clocks: BROKEN_CLOCKS,
            wall_clocks: [BEHIND; 3],
            counters: [1, 0, 0],
            check: Check::Uniqueness,
            happens: vec![happens::SECOND_WINS, happens::OVERLAP],
            ..Scope::new("broken clocks: nodes expire keys far too early")
        },
        Scope {
            guard: true,
            rounds: &[1],
            extensions: 1 + further,
            ticks: 3 + further,
            faults: Faults { memory_losses: 1 + further, ..NONE },
            happens: vec![happens::HEALED, happens::EXTENDED],
            ..Scope::new("alone: nodes restart empty, a lease repairs them until it ends")
        },
        Scope {
            rounds: &[2, 1],
            ticks: further,
            faults: Faults { refusals: 2, cancels: further, ..NONE },
            happens: vec![happens::SECOND_WINS, happens::THIRD_WINS, happens::UNDONE],
            ..Scope::new("queues: nodes refuse arbitrary clients")
        },
        Scope {
            ticks: 1 + further,
            faults: Faults { timeouts: 2, ..NONE },
            happens: vec![happens::SECOND_WINS, happens::UNDONE],
            ..Scope::new("timeouts: clients give up on requests")
        },
        Scope {
            rounds: if deep { &[2, 1] } else { &[1, 1] },
            repairs: 1,
            ticks: further,
            faults: Faults { unknowns: 1 + further, ..NONE },
            happens: vec![happens::SECOND_WINS, happens::SENT_AGAIN],
            ..Scope::new("scripts: nodes do not know a script, requests are sent again")
        },
        Scope {
            ticks: further,
            faults: Faults { timeouts: 1 + further, replacements: 1, ..NONE },
            happens: vec![
                happens::SECOND_WINS,
                happens::UNDONE,
                happens::LATE,
                happens::RELEASED_AGAIN,
            ],
            ..Scope::new("silence: connections are replaced, their requests arrive late")
        },
        Scope {
            ticks: 1 + further,
            faults: Faults { breaks: 1, ..NONE },
            happens: vec![happens::OVERTAKEN],
            ..Scope::new("breaks: connections break, requests are lost or arrive late")
        },
        Scope {
            faults: Faults { crashes: 1, cancels: 1, ..NONE },
            clocks: if deep { ALL_CLOCKS } else { NODES_FAST },
            happens: vec![happens::SECOND_WINS, happens::UNDONE],
            ..Scope::new("crashes: clients crash, callers cancel")
        },
        Scope {
            releases: false,
            ticks: 1 + further,
            faults: Faults { restarts: 1, ..NONE },
            happens: vec![happens::SECOND_WINS],
            ..Scope::new("restarts: nodes restart and remember")
        },
        Scope {
            clocks: ALL_CLOCKS,
            happens: vec![happens::SECOND_WINS, happens::UNDONE],
            ..Scope::new("clocks: two clients, clock rates differ as far as allowed")
        },
        Scope {
            begins: if deep { &[] } else { HELD },
            guard: true,
            extensions: 1,
            releases: false,
            ticks: 1 + further,
            faults: Faults { memory_losses: 1, ..NONE },
            happens: vec![happens::HEALED],
            repairs: 1,
            ..Scope::new("healing: nodes restart empty, a lease is extended and repairs them")
        },
        Scope {
            extensions: 1,
            repairs: 1,
            releases: true,
            ticks: further,
            faults: Faults { memory_losses: 1, ..NONE },
            check: Check::Truth,
            happens: vec![happens::HEALED, happens::OVERLAP],
            ..Scope::new("takeover: a node restarts empty without a guard")
        },
        Scope {
            begins: if deep { &[] } else { HELD },
            extensions: 1,
            releases: deep,
            ticks: 3,
            happens: vec![happens::EXTENDED, happens::SECOND_WINS],
            ..Scope::new("extension: a lease is extended")
        },
        Scope {
            begins: if deep { &[] } else { HELD },
            extensions: 1,
            releases: false,
            ticks: 2 + further,
            faults: Faults { pauses: 1, ..NONE },
            happens: vec![happens::OUTLASTS, happens::EXTENDED],
            ..Scope::new("pauses: a node is paused while it extends or grants")
        },
        Scope {
            begins: if deep { HELD } else { JOINED },
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            releases: false,
            ticks: 2,
            faults: Faults { pauses: 1, ..NONE },
            happens: vec![happens::OUTLASTS, happens::READ],
            ..Scope::new("pauses: a node is paused while it lets a reader in")
        },
        Scope {
            guard: true,
            releases: false,
            ticks: 2 + further,
            faults: Faults { memory_losses: 1, ..NONE },
            happens: vec![happens::REMEMBERED],
            ..Scope::new("memory loss: nodes restart empty, the guard is on")
        },
        Scope {
            rounds: &[1, 1, 1],
            hand_over: true,
            releases: deep,
            ticks: 0,
            wall_clocks: odd_proposals,
            happens: vec![happens::ADOPTED, happens::GIVEN_BACK, happens::SILENT],
            ..Scope::new("hand-over: two adopters split the nodes")
        },
        Scope {
            hand_over: true,
            ticks: 1 + further,
            faults: Faults { breaks: 1, crashes: further, cancels: 1, ..NONE },
            happens: vec![happens::ADOPTED, happens::GIVEN_BACK, happens::SILENT],
            ..Scope::new("hand-over: connections break, requests of the giver arrive late")
        },
        Scope {
            hand_over: true,
            rounds: &[1, 1],
            repairs: 1,
            releases: false,
            ticks: 1 + further,
            guard: true,
            faults: Faults { memory_losses: 1, crashes: 1, ..NONE },
            happens: vec![happens::ADOPTED],
            ..Scope::new("hand-over: nodes restart empty, the giver crashes")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            releases: deep,
            ticks: 0,
            wall_clocks: if deep { odd_proposals } else { [0; 3] },
            happens: vec![happens::READ, happens::WRITTEN],
            ..Scope::new("readers: two readers and a writer")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            begins: if deep { HELD } else { JOINED },
            releases: false,
            ticks: 3,
            happens: vec![happens::READ, happens::SHARE_ENDS, happens::WRITTEN_LAST],
            ..Scope::new("readers: shares end one after the other")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            begins: if deep { HELD } else { JOINED },
            releases: false,
            ticks: 3,
            wall_clocks: odd_proposals,
            counters: [5, 0, 0],
            happens: vec![happens::WRITTEN_LAST, happens::FENCE_IS_RAISED],
            ..Scope::new("readers: shares end, counters and proposals differ")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            begins: HELD,
            ticks: further,
            happens: vec![happens::READ, happens::RELEASED_BESIDE, happens::WRITTEN],
            ..Scope::new("readers: a share is released, another one stays")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            begins: JOINED,
            extensions: 1,
            releases: deep,
            ticks: 3,
            happens: vec![happens::READ, happens::EXTENDED, happens::SHARE_ENDS],
            ..Scope::new("readers: a share is extended, another one ends")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            begins: HELD,
            repairs: 1,
            ticks: 0,
            happens: vec![happens::HEALED_LATE],
            ..Scope::new("readers: a share is repaired")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            begins: EMPTIED,
            guard: true,
            extensions: 1,
            repairs: 1,
            releases: false,
            ticks: 2,
            faults: Faults { memory_losses: 1, ..NONE },
            happens: vec![happens::HEALED_BESIDE],
            ..Scope::new("readers: nodes restart empty, a share is extended and repaired")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            begins: TAKEN,
            extensions: 1,
            ticks: further,
            faults: Faults { memory_losses: 1, ..NONE },
            check: Check::Truth,
            happens: vec![happens::OVERLAP],
            ..Scope::new("readers: a node restarts empty without a guard")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            begins: HELD,
            ticks: further,
            faults: Faults { unknowns: 1, ..NONE },
            happens: vec![happens::JOINED_LATE],
            ..Scope::new("readers: requests are sent again")
        },
        Scope {
            rounds: if deep { &[1, 1, 1] } else { &[1, 1] },
            readers: if deep { &[0, 1] } else { &[0] },
            begins: if deep { HELD } else { &[] },
            ticks: 0,
            faults: Faults { timeouts: u8::from(!deep), replacements: 1, ..NONE },
            happens: match deep {
                true => vec![happens::JOINED_LATE],
                false => vec![happens::WRITTEN, happens::UNDONE, happens::LATE],
            },
            ..Scope::new("readers: connections are replaced, their requests arrive late")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[1],
            begins: HELD,
            changes: 2,
            releases: false,
            ticks: further,
            happens: vec![happens::SHARED, happens::UPGRADED],
            ..Scope::new("changes of mode: a lease is downgraded and upgraded")
        },
        Scope {
            rounds: &[1, 1, 1],
            readers: &[0, 1],
            begins: HELD,
            changes: 1,
            releases: false,
            ticks: further,
            happens: vec![happens::UPGRADED, happens::GIVEN_BACK],
            ..Scope::new("changes of mode: a lease is upgraded")
        },
        Scope {
            rounds: if deep { &[1, 1, 1] } else { &[1, 1] },
            readers: if deep { &[0, 1] } else { &[0] },
            begins: EXTENDED,
            changes: 1,
            extensions: 1,
            extension: LONG_TERM,
            releases: false,
            ticks: 2 + further,
            faults: Faults { cancels: 1, timeouts: further, ..NONE },
            happens: vec![happens::UPGRADED, happens::STILL_LONG],
            ..Scope::new("changes of mode: a lease is upgraded after an extension")
        },
        Scope {
            rounds: if deep { &[1, 1] } else { &[1] },
            readers: &[0],
            begins: STUCK,
            changes: 1,
            extensions: 1,
            extension: LONG_TERM,
            ticks: 2 + further,
            faults: Faults { cancels: 1, replacements: 1, timeouts: 1, ..NONE },
            happens: vec![happens::STUCK, happens::RELEASE_WAITS, happens::UPGRADE_RELEASED],
            ..Scope::new("changes of mode: an upgrade arrives after an extension")
        },
        Scope {
            rounds: &[1],
            readers: &[0],
            begins: STUCK,
            changes: 2,
            ticks: further,
            faults: Faults { cancels: 1, replacements: 1, timeouts: 1, ..NONE },
            happens: vec![happens::UPGRADED, happens::UPGRADE_RELEASED],
            ..Scope::new("changes of mode: a lease is upgraded again after a failed upgrade")
        },
        Scope {
            readers: &[0, 1],
            begins: HELD,
            changes: 1,
            hand_over: true,
            releases: deep,
            ticks: further,
            faults: Faults { cancels: 1, replacements: 1, ..NONE },
            happens: vec![happens::ADOPTED, happens::ADOPTED_AFTER_UPGRADE],
            ..Scope::new("changes of mode: a lease is handed over after a failed upgrade")
        },
        Scope {
            guard: true,
            readers: &[0],
            begins: HELD,
            changes: 1,
            ticks: 1 + further,
            faults: Faults { memory_losses: 1, cancels: further, ..NONE },
            happens: vec![happens::UPGRADED, happens::GIVEN_BACK, happens::RELEASE_WAITS],
            ..Scope::new("changes of mode: nodes restart empty, a lease is upgraded")
        },
        Scope {
            readers: &[0, 1],
            begins: HELD,
            changes: 1,
            ticks: further,
            faults: Faults { cancels: 1, ..NONE },
            happens: vec![happens::UPGRADED, happens::GIVEN_BACK, happens::RELEASE_WAITS],
            ..Scope::new("changes of mode: a lease is released while or after it is upgraded")
        },
        Scope {
            readers: &[0, 1],
            hand_over: true,
            repairs: further,
            ticks: further,
            faults: Faults { breaks: 1, cancels: further, ..NONE },
            happens: vec![happens::ADOPTED, happens::GIVEN_BACK],
            ..Scope::new("readers: a share is adopted")
        },
    ]
}
