//! The error table: one for all languages. Each binding maps [`ErrorCode`] to a class of its own
//! and copies the fields; the texts are written here and in `options.rs` only.

pub(crate) mod duration;

use serde::Serialize;
use std::fmt;

/// What kind of error it is. The names are the same in every language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// A bad URL, option or node list.
    Config,
    /// Others held the lock for the whole `wait`.
    Timeout,
    /// Too few nodes could vote: unreachable, timed out, guarded or refusing.
    NoQuorum,
    /// The lease ended before the work did.
    LeaseLost,
    /// The client is closed.
    Closed,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [ErrorCode; 5] =
        [Self::Config, Self::Timeout, Self::NoQuorum, Self::LeaseLost, Self::Closed];

    /// The code as programs see it, such as `NO_QUORUM`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "CONFIG",
            Self::Timeout => "TIMEOUT",
            Self::NoQuorum => "NO_QUORUM",
            Self::LeaseLost => "LEASE_LOST",
            Self::Closed => "CLOSED",
        }
    }

    /// The name of the class in Python and Node.js, such as `QuorumError`.
    pub fn class(self) -> &'static str {
        match self {
            Self::Config => "ConfigError",
            Self::Timeout => "LockTimeoutError",
            Self::NoQuorum => "QuorumError",
            Self::LeaseLost => "LeaseLostError",
            Self::Closed => "ClosedError",
        }
    }
}

/// What became of a request to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NodeOutcome {
    /// It granted the lock.
    Granted,
    /// Somebody else holds the key there, or a value of another type stands in its place.
    Held,
    /// It did what was asked of a lease, or had nothing to object.
    Confirmed,
    /// It does not hold this lease's key.
    Missing,
    /// It did not answer within `node_timeout`; the request may still be applied.
    Timeout,
    /// The connection broke before the answer came; the request may have been applied.
    Disconnected,
    /// There was no connection to send the request on.
    Unreachable,
    /// It answered, but may have restarted not long ago: its word does not count before it has
    /// been up for `restart_guard`.
    Guarded,
    /// It is the same server as another node.
    Duplicate,
    /// It is loading its data (`LOADING`).
    Loading,
    /// It is a replica (`READONLY`), such as a master that was demoted.
    Readonly,
    /// It is a replica that has lost its master (`MASTERDOWN`).
    Masterdown,
    /// Its memory is used up (`OOM`).
    Oom,
    /// It can't save its data, and is set to take no writes then (`MISCONF`).
    Misconf,
    /// The user is not permitted to run what is needed, or not on this key (`NOPERM`).
    Noperm,
    /// It answered with any other error.
    Refused,
    /// It had not answered yet when the decision was made without it.
    Pending,
}

impl NodeOutcome {
    /// All outcomes.
    pub const ALL: [NodeOutcome; 17] = [
        Self::Granted,
        Self::Held,
        Self::Confirmed,
        Self::Missing,
        Self::Timeout,
        Self::Disconnected,
        Self::Unreachable,
        Self::Guarded,
        Self::Duplicate,
        Self::Loading,
        Self::Readonly,
        Self::Masterdown,
        Self::Oom,
        Self::Misconf,
        Self::Noperm,
        Self::Refused,
        Self::Pending,
    ];

    /// The outcome as programs see it, such as `held`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Held => "held",
            Self::Confirmed => "confirmed",
            Self::Missing => "missing",
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
            Self::Unreachable => "unreachable",
            Self::Guarded => "guarded",
            Self::Duplicate => "duplicate",
            Self::Loading => "loading",
            Self::Readonly => "readonly",
            Self::Masterdown => "masterdown",
            Self::Oom => "oom",
            Self::Misconf => "misconf",
            Self::Noperm => "noperm",
            Self::Refused => "refused",
            Self::Pending => "pending",
        }
    }
}

/// One node's part in an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node's URL, without user and password.
    pub address: String,
    /// What became of the request.
    pub outcome: NodeOutcome,
    /// More about it, such as the server's error text; may be empty.
    pub detail: String,
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.outcome.as_str())?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

/// An error of quorlock.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    code: ErrorCode,
    message: String,
    resources: Vec<String>,
    nodes: Vec<NodeReport>,
}

/// A `Result` with quorlock's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner { code, message, resources: Vec::new(), nodes: Vec::new() }))
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Config, message)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorCode::Closed, "the client is closed")
    }

    pub(crate) fn about(mut self, resources: &[String]) -> Self {
        self.0.resources = resources.to_vec();
        self
    }

    pub(crate) fn with_nodes(mut self, nodes: Vec<NodeReport>) -> Self {
        self.0.nodes = nodes;
        self
    }

    /// The kind of error.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// What happened, in a sentence, without the nodes' parts.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The resources it is about; empty if it is about none.
    pub fn resources(&self) -> &[String] {
        &self.0.resources
    }

    /// What became of the request at each node; empty if none was asked.
    pub fn nodes(&self) -> &[NodeReport] {
        &self.0.nodes
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        let mut separator = " [";
        for node in &self.0.nodes {
            write!(f, "{separator}{node}")?;
            separator = "; ";
        }
        if self.0.nodes.is_empty() { Ok(()) } else { f.write_str("]") }
    }
}

impl std::error::Error for Error {}

/// What is wrong with two nodes that are one server, by their positions (from 0) and addresses.
pub(crate) fn same_server(one: (usize, &str), other: (usize, &str)) -> String {
    let ((first, first_address), (second, second_address)) = (one.min(other), one.max(other));
    format!(
        "nodes {} ({first_address}) and {} ({second_address}) are the same server, whose vote \
         would count twice",
        first + 1,
        second + 1,
    )
}
