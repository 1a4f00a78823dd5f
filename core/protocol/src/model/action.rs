//! The steps of the model. `step.rs` says which are possible, and what they change.

use super::settings::Token;

/// One step. The numbers identify the client and the node, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Time passes.
    Tick,
    /// A client sends ACQUIRE to all nodes.
    Start(usize),
    /// A client sends EXTEND to all nodes. Never required: a client may stop extending at any time, for example because
    /// there is no heartbeat.
    Extend(usize),
    /// A client sends HEAL to the nodes that lack its lease.
    Repair(usize),
    /// A client sends RELEASE to all nodes.
    Release(usize),
    /// A client downgrades its lease, or begins to upgrade it.
    ChangeMode(usize),
    /// A client detaches its lease.
    Detach(usize),
    /// A client sends TRANSFER to the nodes that may vote on the adoption of the detached lease.
    Adopt(usize),
    /// The caller of an acquire cancels it.
    Cancel(usize),
    /// A client stops without cleaning up; its requests stay in flight.
    Crash(usize),
    /// The next request of a client reaches a node.
    Request(usize, usize),
    /// The next request of a client reaches a node. The node is paused after it reads its clock and before it writes.
    Pause(usize, usize),
    /// A node refuses the next request of a client, an ACQUIRE, because of the node's queue.
    Refuse(usize, usize),
    /// The next reply of a node reaches a client.
    Reply(usize, usize),
    /// A node does not know the script of the next request, an ACQUIRE or a HEAL; the client sends the request again.
    Again(usize, usize),
    /// The next request on a replaced connection that is still open reaches a node.
    Old(usize, usize),
    /// The next request that was sent on a connection that has since broken reaches a node.
    Late(usize, usize),
    /// A client gives up on a request.
    TimeOut(usize, usize, Awaited),
    /// A client replaces the connection to an unresponsive node. Requests sent on the old connection
    /// are answered when the node resumes.
    Replace(usize, usize),
    /// A connection breaks. `true`: the requests sent on it arrive late; `false`: they are lost.
    Break(usize, usize, bool),
    /// A node restarts; `true` if the node forgets everything.
    Restart(usize, bool),
    /// A client learns of a restart and reconnects.
    Reconnect(usize, usize),
}

/// A request whose answer a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Vote(Token),
    Raise(Token),
    /// The number of the extension.
    Extension(u8),
    Heal(Token),
    /// GIVE BACK of an upgrade.
    GiveBack(Token),
    Release(Token),
}
