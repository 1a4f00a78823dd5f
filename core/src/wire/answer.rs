//! The outcome of a request to one node: a reply or a failure. Converts outcomes to the types of the protocol and to
//! the types of errors. Called by all modules that send requests or handle their outcomes.

use crate::error::duration::HumanDuration;
use crate::error::printable::printable;
use crate::error::{NodeOutcome, NodeReport};
use crate::runtime::clock;
use crate::wire::reply::{Refusal, Reply};
use quorlock_protocol::{Answer, Vote};
use std::fmt;
use std::time::Duration;

/// The text that marks a failure whose cause is data that no Redis or Valkey server would send. The detail of such a
/// failure contains this text; a colon and more text may follow.
pub(crate) const NONSENSE: &str = "the answer makes no sense";

/// Advice at the end of a failure's detail if a server cannot be reached whose address no URL contains.
pub(crate) const NAMED: &str = "; not the URL, but the cluster or the sentinels name this address: see that this client \
                                can reach it, or let them announce another one (cluster-announce-ip, replica-announce-ip)";

/// Why a request has no usable reply: its connection failed, or the node answered with an error.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) outcome: NodeOutcome,
    pub(crate) detail: String,
    /// Whether the node may have received the request.
    pub(crate) sent: bool,
}

pub(crate) type Answered = Result<Reply, Failure>;

/// Returns the refusals among the nodes' answers, each with its node.
pub(crate) fn refusals(answers: &[Option<Answered>]) -> impl Iterator<Item = (usize, &Refusal)> {
    answers.iter().enumerate().filter_map(|(node, answered)| match answered {
        Some(Ok(Reply::Held(refusal))) => Some((node, refusal)),
        _ => None,
    })
}

impl Failure {
    /// Creates a failure. Makes `detail` printable, because `detail` may contain a server's text.
    pub(crate) fn new(outcome: NodeOutcome, detail: &str, sent: bool) -> Self {
        Self { outcome, detail: printable(detail).into_owned(), sent }
    }

    pub(crate) fn unreachable(detail: impl Into<String>) -> Self {
        Self::new(NodeOutcome::Unreachable, &detail.into(), false)
    }

    /// Creates the failure of a request that the node answered with an error.
    pub(crate) fn refused(detail: impl Into<String>) -> Self {
        Self::new(NodeOutcome::Refused, &detail.into(), true)
    }

    /// Creates the failure of a request that the node answered with data that no Redis or Valkey server would send.
    pub(crate) fn nonsense() -> Self {
        Self { outcome: NodeOutcome::Disconnected, detail: NONSENSE.to_owned(), sent: true }
    }

    /// Creates the failure of a request that was part of a batch. The node did not run the request, and the client
    /// could not send the request alone.
    pub(crate) fn not_done() -> Self {
        let detail = "the node did not run the request, and the client could not send it again";
        Self::new(NodeOutcome::Refused, detail, true)
    }

    /// Creates the failure of a request on a connection that had been idle, and that was replaced because no answer
    /// arrived.
    pub(crate) fn silent() -> Self {
        let detail = "its connection had been idle, and does not answer any more".to_owned();
        Self { outcome: NodeOutcome::Disconnected, detail, sent: true }
    }

    /// Creates the failure of a request, or of an attempt to connect, that took longer than `limit`. `what`: the
    /// beginning of the detail, such as "no answer". `sent`: whether the node may have received a request.
    pub(crate) fn timeout(what: &str, limit: Duration, sent: bool) -> Self {
        let detail = format!("{what} within {} ms", limit.as_millis());
        Self { outcome: NodeOutcome::Timeout, detail, sent }
    }

    /// Returns advice if the failure is typical of a common mistake in the configuration of a node, and `None`
    /// otherwise.
    fn advice(&self) -> Option<&'static str> {
        let detail = &*self.detail;
        match self.outcome {
            // No URL contains the address, so advice about the URL would be wrong.
            _ if detail.contains(NAMED) => None,
            NodeOutcome::Unreachable if detail.contains("Connection refused") => {
                Some("see that the server runs, and that the URL names its host and port")
            }
            NodeOutcome::Unreachable if detail.contains("failed to lookup address") => {
                Some("see that the host in the URL is right")
            }
            NodeOutcome::Refused if detail.contains("NOAUTH ") => Some(
                "the URL must have the password: redis://user:password@host, or redis://:password@host",
            ),
            // The login comes from the function in `credentials`, so advice about the URL would be wrong.
            NodeOutcome::Refused if detail.contains("the option credentials") => None,
            NodeOutcome::Refused if detail.contains("WRONGPASS ") => {
                Some("see that the user and the password in the URL are right, and percent-encoded")
            }
            _ => None,
        }
    }

    /// Adds the address of the server to the detail. Used if the URL of the node does not contain this address.
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        Self::new(self.outcome, &format!("{place}: {}", self.detail), self.sent)
    }

    /// Whether another server may have taken over from the server that failed.
    pub(crate) fn may_have_moved(&self) -> bool {
        use NodeOutcome::{Misconf, Noperm, Oom, Refused};
        match self.outcome {
            Oom | Misconf | Noperm => false,
            Refused => {
                let codes = ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"];
                codes.iter().any(|code| self.detail.starts_with(code))
            }
            _ => true,
        }
    }

    /// Whether the server sent data that no Redis or Valkey server would send, or data that no request asked for.
    pub(crate) fn is_nonsense(&self) -> bool {
        self.is_transport() && self.detail.contains(NONSENSE)
    }

    /// Whether the connection ended before the answer arrived, for a reason other than [nonsense](Self::is_nonsense).
    pub(crate) fn is_lost_connection(&self) -> bool {
        self.outcome == NodeOutcome::Disconnected && !self.is_nonsense()
    }

    /// Whether the connection failed. If not, the node answered with an error.
    pub(crate) fn is_transport(&self) -> bool {
        use NodeOutcome::{Disconnected, Timeout, Unreachable};
        matches!(self.outcome, Disconnected | Timeout | Unreachable)
    }
}

/// Whether this outcome implies that the node's memory is being replaced: the server loads its data, or is a replica.
pub(crate) fn implies_new_memory(outcome: NodeOutcome) -> bool {
    use NodeOutcome::{Loading, Masterdown, Readonly};
    matches!(outcome, Loading | Readonly | Masterdown)
}

/// Whether the node may apply the request later, although `answered` is a failure: the request was sent, and then the
/// connection failed or no answer arrived in time.
pub(crate) fn may_be_applied_later(answered: &Answered) -> bool {
    answered.as_ref().is_err_and(|failure| failure.sent && failure.is_transport())
}

/// Returns the node's vote: the outcome of ACQUIRE or TRANSFER in the form that the protocol counts.
pub(crate) fn vote(answered: &Answered) -> Vote {
    match answered {
        Ok(Reply::Uncounted(reply, _)) => reply.vote().uncounted(),
        Ok(reply) => reply.vote(),
        Err(_) if may_be_applied_later(answered) => Vote::Unknown,
        Err(_) => Vote::Refused,
    }
}

/// Converts a node's answer to EXTEND or RELEASE for one lock to the protocol's [`Answer`].
pub(crate) fn answer(answered: &Answered) -> Answer {
    match answered {
        Ok(Reply::Uncounted(reply, _)) => reply.answer().uncounted(),
        Ok(reply) => reply.answer(),
        Err(_) => Answer::Unknown,
    }
}

/// Returns the outcome for one lock of a request that concerns many locks. `position` is the position of this lock in
/// the request.
pub(crate) fn about(answered: &Answered, position: usize) -> Answered {
    answered.as_ref().map(|reply| reply.about(position)).map_err(Clone::clone)
}

/// Whether the node answered and its answer counts as a vote.
pub(crate) fn is_counted(answered: &Answered) -> bool {
    !matches!(answered, Err(_) | Ok(Reply::Uncounted(..) | Reply::Own))
}

/// Returns the outcome in the form in which errors and counters show it.
pub(crate) fn outcome(answered: &Answered) -> NodeOutcome {
    match answered {
        Ok(reply) => reply.outcome(),
        Err(failure) => failure.outcome,
    }
}

/// Returns what an error reports about a node. `answered` is `None` if the node has not answered yet.
pub(crate) fn report(address: &str, answered: Option<&Answered>) -> NodeReport {
    let detail = match answered {
        Some(Ok(Reply::Held(Refusal { expires_in: Some(left), .. }))) => {
            format!("expires in {} ms", left.as_millis())
        }
        Some(Ok(Reply::Held(_))) => "never expires".to_owned(),
        Some(Ok(Reply::Own)) => "the same server as another node".to_owned(),
        Some(Ok(Reply::Uncounted(_, from))) => {
            let left = HumanDuration(from.since(clock::now()));
            format!("it may have restarted not long ago; its votes count in {left}")
        }
        Some(Err(failure)) => match failure.advice() {
            Some(advice) => format!("{}; {advice}", failure.detail),
            None => failure.detail.clone(),
        },
        _ => String::new(),
    };
    let outcome = answered.map_or(NodeOutcome::Pending, outcome);
    NodeReport { address: address.to_owned(), outcome, detail }
}

#[cfg(test)]
mod tests {
    use super::{Failure, NAMED, answer};
    use crate::wire::reply::Reply;
    use quorlock_protocol::{Answer, Moment};

    #[test]
    fn advice_about_the_url_is_only_for_addresses_in_it() {
        let refused = "Connection refused (os error 111)";
        assert!(
            Failure::unreachable(refused).advice().is_some_and(|advice| advice.contains("the URL"))
        );
        assert_eq!(
            Failure::unreachable(format!("172.17.0.2:6379: {refused}{NAMED}")).advice(),
            None
        );
    }

    #[test]
    fn guarded_node_confirms_no_lease_of_an_extension() {
        let each = Box::new(Reply::Each(vec![true, false]));
        let guarded = Reply::Uncounted(each, Moment::from_origin(std::time::Duration::MAX));
        let [held, missing] = [0, 1].map(|position| guarded.about(position));
        assert!(matches!(held, Reply::Uncounted(..)), "an error says that it is guarded");
        assert_eq!(answer(&Ok(held)), Answer::Unknown);
        // A missing key counts even if the node is guarded.
        assert_eq!(answer(&Ok(missing)), Answer::No);
    }
}
