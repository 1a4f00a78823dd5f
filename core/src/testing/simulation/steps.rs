//! Writes the steps of a run for the trace checker (`proof/tie`): one JSON array for each step.
//!
//! The environment variable `STEPS` names the directory that gets a file for each world; without it,
//! nothing is written. Nodes report the requests that they apply, and what they store afterwards;
//! `lock/steps.rs` and `node/connect.rs` report what clients decide. Times are in nanoseconds.

use super::node::Node;
use crate::command::answer::Answered;
use crate::command::keys::Keys;
use crate::command::reply::Reply;
use crate::command::request::{Request, Subject};
use crate::command::token::Token;
use quorlock_protocol::Healed;
use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The file of one world.
pub(super) struct Steps(Mutex<LineWriter<File>>);

impl Steps {
    /// Creates the file of the world with this name; `None` if no steps are to be written.
    pub(super) fn of(name: &str) -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os("STEPS")?);
        let file = File::create(directory.join(name.replace("::", "-")).with_extension("jsonl"));
        Some(Self(Mutex::new(LineWriter::new(file.expect("STEPS is a directory")))))
    }

    /// Writes a step that happened at the true time `now`. `step` are the elements after the time.
    pub(super) fn write(&self, now: Duration, step: &str) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "[{},{step}]", now.as_nanos()).expect("the steps can be written");
    }
}

/// What a node stores about the resources of a request, as a JSON array: for each, its name, the token,
/// the time that the key is kept, the last fence, and the time that it is kept.
pub(super) fn stored(node: &Node, request: &Request) -> String {
    let subjects: Vec<&Arc<Subject>> = match request {
        Request::Acquire { subject, .. }
        | Request::Raise { subject, .. }
        | Request::Release { subject, .. } => vec![subject],
        Request::Extend(locks) => locks.iter().map(|(subject, _)| subject).collect(),
        Request::Heal(locks) => locks.iter().map(|(subject, ..)| subject).collect(),
        Request::Exists(keys) | Request::Inspect(keys) | Request::Forget(keys) => {
            return array(keys.iter().map(|keys| about(node, keys)));
        }
        Request::List { .. } => Vec::new(),
    };
    array(subjects.iter().flat_map(|subject| subject.keys.iter()).map(|keys| about(node, keys)))
}

fn about(node: &Node, keys: &Keys) -> String {
    let (lock, fence) = node.stored(&keys.lock);
    let (token, left) =
        lock.map_or(("null".to_owned(), 0), |(token, left)| (quoted(&token), left.as_nanos()));
    let (fence, kept) = fence.unwrap_or_default();
    format!("[{:?},{token},{left},{fence},{}]", keys.lock, kept.as_nanos())
}

/// The step in which a node applies a request that changes what it stores: the locks that the request
/// names, each with its parameters and the answer, and what the node stores now. The last element identifies
/// an EXTEND while it is under way.
pub(super) fn applied(node: &Node, request: &Request, answered: &Answered) -> String {
    let yes = matches!(answered, Ok(Reply::Yes));
    let (what, locks, batch) = match request {
        Request::Acquire { subject, ttl, proposal, .. } => {
            let fence = match answered {
                Ok(Reply::Granted { fence, .. }) => fence.to_string(),
                _ => "null".to_owned(),
            };
            let token = quoted(&subject.token);
            ("acquire", format!("[[{token},{},{proposal},{fence}]]", ttl.as_nanos()), 0)
        }
        Request::Raise { subject, fence, .. } => {
            ("raise", format!("[[{},{fence},{yes}]]", quoted(&subject.token)), 0)
        }
        Request::Release { subject, .. } => {
            ("release", format!("[[{},{yes}]]", quoted(&subject.token)), 0)
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
        Request::Exists(_) | Request::Inspect(_) | Request::List { .. } => {
            ("read", "[]".to_owned(), 0)
        }
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
