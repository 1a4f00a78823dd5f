//! The requests that nodes apply, as steps for the trace checker. `steps.rs` writes each step to a file.

use super::node::{Node, Stored};
use crate::wire::answer::Answered;
use crate::wire::keys::Keys;
use crate::wire::reply::Reply;
use crate::wire::request::{Request, Subject};
use crate::wire::token::Token;
use quorlock_protocol::Healed;
use std::sync::Arc;
use std::time::Duration;

/// Returns what a node stores about the resources of a request, as a JSON array. For each resource, the array contains
/// the name, the token, the remaining time of the key, the last fence, and the remaining time of the fence. If readers
/// hold the resource, an array replaces the token: it contains each reader with the remaining time of its share.
pub(super) fn stored(node: &Node, request: &Request) -> String {
    let subjects: Vec<&Arc<Subject>> = match request {
        Request::Acquire { subject, .. }
        | Request::Transfer { subject, .. }
        | Request::GiveBack(subject)
        | Request::Downgrade { subject, .. }
        | Request::Raise { subject, .. }
        | Request::Release { subject, .. } => vec![subject],
        Request::Extend(locks) => locks.iter().map(|(subject, _)| subject).collect(),
        Request::Heal(locks) => locks.iter().map(|(subject, ..)| subject).collect(),
        Request::Exists(keys) | Request::Inspect(keys) | Request::Forget(keys) => {
            return array(keys.iter().map(|keys| about(node, keys)));
        }
        Request::InspectPermits { .. } | Request::List { .. } | Request::Publish { .. } => {
            Vec::new()
        }
    };
    array(subjects.iter().flat_map(|subject| subject.keys.iter()).map(|keys| about(node, keys)))
}

fn about(node: &Node, keys: &Keys) -> String {
    let Stored { token, readers, fence } = node.stored(&keys.lock);
    let (token, left) =
        token.map_or(("null".to_owned(), 0), |(token, left)| (quoted(&token), left.as_nanos()));
    let reader =
        |(token, left): &(Token, Duration)| format!("[{},{}]", quoted(token), left.as_nanos());
    let token = readers.map_or(token, |readers| array(readers.iter().map(reader)));
    let (fence, kept) = fence.unwrap_or_default();
    format!("[{:?},{token},{left},{fence},{}]", keys.lock, kept.as_nanos())
}

/// Returns the step that describes a request that a node has applied. The step contains the locks that the request
/// names, each with its parameters and the answer, and what the node stores now. For an EXTEND, the last element
/// differs from that of every other EXTEND under way. For all other requests, it is 0.
pub(super) fn applied(node: &Node, request: &Request, answered: &Answered) -> String {
    let yes = matches!(answered, Ok(Reply::Yes));
    let (what, locks, batch) = match request {
        Request::Acquire { subject, ttl, proposal, .. }
        | Request::Transfer { subject, ttl, proposal, .. } => {
            let what = match request {
                Request::Acquire { .. } => "acquire",
                _ => "transfer",
            };
            let fence = match answered {
                Ok(Reply::Granted { fence, .. }) => fence.to_string(),
                _ => "null".to_owned(),
            };
            let token = quoted(&subject.token);
            (what, format!("[[{token},{},{proposal},{fence}]]", ttl.as_nanos()), 0)
        }
        Request::Raise { subject, fence, .. } => {
            ("raise", format!("[[{},{fence},{yes}]]", quoted(&subject.token)), 0)
        }
        Request::Downgrade { subject, .. } => {
            ("downgrade", format!("[[{},{yes}]]", quoted(&subject.token)), 0)
        }
        Request::GiveBack(subject) => {
            let left = subject.giver.as_ref().map_or(Duration::ZERO, |given| node.left(given));
            ("give_back", format!("[[{},{},{yes}]]", quoted(&subject.token), left.as_nanos()), 0)
        }
        Request::Release { subject, keep, .. } => {
            let kept = keep.map_or("null".to_owned(), |ttl| ttl.as_nanos().to_string());
            let shared = subject.keys.iter().filter(|keys| keys.is_shared());
            let shared: Vec<_> = shared.map(|keys| &*keys.lock).collect();
            ("release", format!("[[{},{kept},{yes},{shared:?}]]", quoted(&subject.token)), 0)
        }
        Request::Extend(locks) => {
            let each = match answered {
                Ok(Reply::Each(each)) => &each[..],
                _ => &[],
            };
            let lock = |((subject, ttl), done): (&(Arc<Subject>, Duration), &bool)| {
                format!("[{},{},{done}]", quoted(&subject.token), ttl.as_nanos())
            };
            ("extend", array(locks.iter().zip(each).map(lock)), locks.as_ptr().addr())
        }
        Request::Heal(locks) => {
            let each = match answered {
                Ok(Reply::Healed(each)) => &each[..],
                _ => &[],
            };
            let lock =
                |((subject, ttl, fence), healed): (&(Arc<Subject>, Duration, u64), &Healed)| {
                    format!(
                        "[{},{},{fence},\"{healed:?}\"]",
                        quoted(&subject.token),
                        ttl.as_nanos()
                    )
                };
            ("heal", array(locks.iter().zip(each).map(lock)), 0)
        }
        Request::Exists(_)
        | Request::Inspect(_)
        | Request::InspectPermits { .. }
        | Request::List { .. }
        | Request::Publish { .. } => ("read", "[]".to_owned(), 0),
        Request::Forget(_) => ("forget", "[]".to_owned(), 0),
    };
    let stored = stored(node, request);
    format!("\"node\",{},\"{what}\",{locks},{stored},{batch}", node.number)
}

fn array(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(","))
}

fn quoted(token: &Token) -> String {
    format!("{:?}", token.as_str())
}
