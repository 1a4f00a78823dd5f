//! What a node has for a connection.

use super::Node;
use super::map::Map;
use crate::answer::Failure;
use crate::protocol::Moment;
use crate::stats::NodeState;
use crate::wire::Wire;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

#[derive(Clone, Debug)]
pub(super) enum Slot {
    /// Nothing was asked of the node yet.
    Idle,
    /// Connecting, with a chance of success: requests wait for it.
    Connecting,
    Up(Arc<Link>),
    /// A cluster, whose masters are connected to on their own.
    Routed(Arc<Map>),
    /// The last attempt failed, another one is made in the background: requests fail at once.
    Down(Failure),
    /// The client is closed.
    Closed,
}

/// A connection in use.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) wire: Wire,
    /// Tells this connection from those before and after it.
    pub(super) id: Arc<()>,
    pub(super) since: Moment,
    pub(super) timeouts: AtomicU32,
    /// The cluster whose server it is to, if any.
    pub(super) owner: Weak<Node>,
}

impl Slot {
    /// Whether requests can be sent.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Up(_) | Self::Routed(_))
    }

    pub(super) fn is(&self, link: &Link) -> bool {
        self.has(&link.id)
    }

    pub(super) fn state(&self) -> NodeState {
        match self {
            Self::Idle => NodeState::Idle,
            Self::Connecting => NodeState::Connecting,
            Self::Up(_) | Self::Routed(_) => NodeState::Up,
            Self::Down(_) => NodeState::Down,
            Self::Closed => NodeState::Closed,
        }
    }

    pub(super) fn link(&self) -> Option<Arc<Link>> {
        match self {
            Self::Up(link) => Some(Arc::clone(link)),
            _ => None,
        }
    }

    pub(super) fn has(&self, id: &Arc<()>) -> bool {
        matches!(self, Self::Up(current) if Arc::ptr_eq(&current.id, id))
    }
}
