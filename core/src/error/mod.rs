//! The error type of the public API, shared by all languages.
//!
//! This module owns [`ErrorCode`], [`NodeOutcome`] and [`Error`]. Each language binding maps an [`ErrorCode`] to one of
//! its exception classes and copies the fields of the error. This module must not depend on any other module of this
//! crate; every other module may create errors with it.

pub(crate) mod duration;
pub(crate) mod printable;

use printable::printable;
use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// The kind of an [`Error`]. The codes are the same in every language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// A URL, an option or the list of nodes is invalid.
    Config,
    /// Other leases held the lock for the whole `wait`.
    Timeout,
    /// Too few nodes could vote: the other nodes were unreachable, did not answer in time, were guarded, or answered
    /// with an error.
    NoQuorum,
    /// The lease ended before its holder released it.
    LeaseLost,
    /// The client is closed.
    Closed,
}

impl ErrorCode {
    /// Every code, in declaration order.
    pub const ALL: [ErrorCode; 5] =
        [Self::Config, Self::Timeout, Self::NoQuorum, Self::LeaseLost, Self::Closed];

    /// The code as a stable string for programs, such as `NO_QUORUM`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "CONFIG",
            Self::Timeout => "TIMEOUT",
            Self::NoQuorum => "NO_QUORUM",
            Self::LeaseLost => "LEASE_LOST",
            Self::Closed => "CLOSED",
        }
    }

    /// The name of the exception class in Python and Node.js, such as `QuorumError`.
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

/// The outcome of a request at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NodeOutcome {
    /// The node granted the lock.
    Granted,
    /// Another token holds the key on this node, or the key has a value that is not a string.
    Held,
    /// The node did what the request asked for, or has no state that conflicts with the request.
    Confirmed,
    /// The node does not hold this lease's key.
    Missing,
    /// The node did not answer within `node_timeout`. The node may still apply the request.
    Timeout,
    /// The connection broke before the answer arrived. The node may have applied the request.
    Disconnected,
    /// There was no connection on which to send the request.
    Unreachable,
    /// The node answered but may have restarted recently, so its vote does not count until the node has been up for
    /// `restart_guard`.
    Guarded,
    /// The node is the same server as another node of the list.
    Duplicate,
    /// The node is loading its data (`LOADING`).
    Loading,
    /// The node is a replica (`READONLY`), for example a demoted master.
    Readonly,
    /// The node is a replica that has lost its master (`MASTERDOWN`).
    Masterdown,
    /// The node has run out of memory (`OOM`).
    Oom,
    /// The node cannot save its data and is configured to refuse writes in that case (`MISCONF`).
    Misconf,
    /// The user lacks permission for a required command, or for this key (`NOPERM`).
    Noperm,
    /// The node answered with any other error.
    Refused,
    /// The result of the operation was known before the node answered.
    Pending,
}

impl NodeOutcome {
    /// Every outcome, in declaration order.
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

    /// The outcome as a stable string for programs, such as `held`.
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

/// The outcome of an operation at one node, as part of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node's URL, without user and password.
    pub address: String,
    /// The outcome of the request at this node.
    pub outcome: NodeOutcome,
    /// Details, such as the server's error text; may be empty.
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

/// The error type of this crate. Its `Display` text is the message followed by the node reports.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: ErrorCode,
    message: String,
    resources: Vec<String>,
    nodes: Vec<NodeReport>,
    holder: Option<String>,
    reason: Option<&'static str>,
    /// The byte range of the words in `message` that name another lease of this client.
    own_lease: Option<Range<usize>>,
}

/// A `Result` with quorlock's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        // The message may repeat text from a server or a user, so make it printable.
        let message: String = message.into();
        let message = printable(&message).into_owned();
        let (resources, nodes, holder, reason, own_lease) = Default::default();
        Self(Box::new(Inner { code, message, resources, nodes, holder, reason, own_lease }))
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

    pub(crate) fn with_holder(mut self, holder: Option<String>) -> Self {
        self.0.holder = holder;
        self
    }

    pub(crate) fn with_reason(mut self, reason: &'static str) -> Self {
        self.0.reason = Some(reason);
        self
    }

    /// Records the byte range of the words in the message that name another lease of this client.
    pub(crate) fn with_own_lease(mut self, place: Option<Range<usize>>) -> Self {
        self.0.own_lease = place;
        self
    }

    /// The kind of error.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// What happened, in one sentence, without the node reports.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The message, and how many nodes had each outcome. The summary omits the nodes' addresses, so it can be shown to
    /// anyone, for example in an HTTP response.
    pub fn summary(&self) -> String {
        let count = |outcome: NodeOutcome| {
            let count = self.0.nodes.iter().filter(|node| node.outcome == outcome).count();
            (count > 0).then(|| format!("{count} {}", outcome.as_str()))
        };
        let counts: Vec<_> = NodeOutcome::ALL.into_iter().filter_map(count).collect();
        match &*counts {
            [] => self.0.message.clone(),
            counts => format!("{} [{}]", self.0.message, counts.join(", ")),
        }
    }

    /// The resources that the error concerns; empty if it concerns none.
    pub fn resources(&self) -> &[String] {
        &self.0.resources
    }

    /// The outcome at each node; empty if no request was sent.
    pub fn nodes(&self) -> &[NodeReport] {
        &self.0.nodes
    }

    /// Returns the text of the error, with `own_lease` in place of the words "another lease of this client". For a
    /// program whose client serves several callers, such as `quorlock serve`. There, these words would mislead a
    /// caller, because the lease may belong to another caller.
    #[doc(hidden)]
    pub fn text_naming(&self, own_lease: &str) -> String {
        let mut text = self.to_string();
        let place = self.0.own_lease.clone();
        if let Some(place) = place {
            text.replace_range(place, own_lease);
        }
        text
    }

    /// The name of the holder that blocked an acquire, for an error with [`ErrorCode::Timeout`]. `None` if the holder
    /// has no name, if the nodes do not agree on one holder, and for all other errors.
    ///
    /// The holder chooses its own name, so use the name only to show it to people.
    pub fn holder(&self) -> Option<&str> {
        self.0.holder.as_deref()
    }

    /// Why a lease ended, as a stable string for programs, for an error with [`ErrorCode::LeaseLost`] about a lease of
    /// this client: `expired` (it was not extended in time), `max_hold`, `no_heartbeat`, `taken` (a majority of the
    /// nodes does not hold it any more), `closed`, `released`, `detached` or `upgraded`. `None` for all other errors.
    pub fn reason(&self) -> Option<&'static str> {
        self.0.reason
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

/// Shows the code and the text, because Rust prints the `Debug` form of an error that `main` returns.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.code())
    }
}

impl std::error::Error for Error {}

/// Returns the part of a message that says how many nodes are needed.
pub(crate) fn needed(nodes: usize) -> String {
    match nodes {
        1 => "1 is needed".to_owned(),
        _ => format!("{nodes} are needed"),
    }
}

/// The message for duplicate nodes. Each node is given as its position (from 0) and its address.
pub(crate) fn same_server(one: (usize, &str), other: (usize, &str)) -> String {
    let (first, first_address) = one.min(other);
    let (second, second_address) = one.max(other);
    format!(
        "nodes {} ({first_address}) and {} ({second_address}) are the same server, whose vote \
         would count twice",
        first + 1,
        second + 1,
    )
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorCode, NodeOutcome, NodeReport};

    #[test]
    fn summary_counts_outcomes_and_names_no_node() {
        let report = |(address, outcome): (&str, _)| {
            let (address, detail) = (address.to_owned(), format!("details of {address}"));
            NodeReport { address, outcome, detail }
        };
        let nodes = [
            ("redis://a", NodeOutcome::Unreachable),
            ("redis://b", NodeOutcome::Granted),
            ("redis://c", NodeOutcome::Unreachable),
        ];
        let error = Error::new(ErrorCode::NoQuorum, "too few nodes");
        assert_eq!(error.summary(), "too few nodes");
        let error = error.with_nodes(nodes.map(report).to_vec());
        assert_eq!(error.summary(), "too few nodes [1 granted, 2 unreachable]");
        assert_eq!(error.message(), "too few nodes");
        assert!(error.to_string().contains("redis://a: unreachable (details of redis://a)"));
    }

    #[test]
    fn error_that_main_returns_is_printed_as_text() {
        let error = Error::closed().about(&["orders:42".to_owned()]);
        assert_eq!(format!("Error: {error:?}"), "Error: Closed: the client is closed");
    }
}
