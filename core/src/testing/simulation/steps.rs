//! Writes the steps of a run for the trace checker (`proof/tie`): one JSON array for each step.
//!
//! The environment variable `STEPS` names the directory that gets a file for each world; without it,
//! nothing is written. Nodes report the requests that they apply, and what they store afterwards;
//! `lock/steps.rs` and `node/connect.rs` report what clients decide. Times are in nanoseconds.

use super::node::Node;
use crate::command::answer::Answered;
use crate::command::reply::Reply;
use crate::command::request::{Request, Subject};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The file of one world.
pub(super) struct Steps(Mutex<BufWriter<File>>);

impl Steps {
    /// Creates the file of the world with this name; `None` if no steps are to be written.
    pub(super) fn of(name: &str) -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os("STEPS")?);
        let file = File::create(directory.join(name.replace("::", "-")).with_extension("jsonl"));
        Some(Self(Mutex::new(BufWriter::new(file.expect("STEPS is a directory")))))
    }

    /// Writes a step that happened at the true time `now`. `step` are the elements after the time.
    pub(super) fn write(&self, now: Duration, step: &str) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "[{},{step}]", now.as_nanos()).expect("the steps can be written");
    }
}

/// The step in which a node applies a request. `batch` identifies an EXTEND while it is under way.
pub(super) fn applied(node: &Node, request: &Request, answered: &Answered, late: bool) -> String {
    let mut step = format!("\"node\",{},", node.number);
    match request {
        Request::Acquire { subject, ttl, proposal, .. } => {
            let fence = match answered {
                Ok(Reply::Granted { fence, .. }) => Some(*fence),
                _ => None,
            };
            let ttl = ttl.as_nanos();
            let _ = write!(step, "\"acquire\",[[{:?},{ttl},", subject.token.as_str());
            let _ = write!(step, "{proposal},{}]],", optional(fence));
            add_keys(&mut step, node, [subject]);
        }
        Request::Raise { subject, fence, .. } => {
            let done = matches!(answered, Ok(Reply::Yes));
            let _ = write!(step, "\"raise\",[[{:?},{fence},{done}]],", subject.token.as_str());
            add_keys(&mut step, node, [subject]);
        }
        Request::Release { subject, .. } => {
            let done = matches!(answered, Ok(Reply::Yes));
            let _ = write!(step, "\"release\",[[{:?},{done}]],", subject.token.as_str());
            add_keys(&mut step, node, [subject]);
        }
        Request::Extend(locks) => {
            step += "\"extend\",[";
            for (position, (subject, ttl)) in locks.iter().enumerate() {
                let done = match answered {
                    Ok(Reply::Each(each)) => each[position],
                    _ => false,
                };
                let comma = if position > 0 { "," } else { "" };
                let (token, ttl) = (subject.token.as_str(), ttl.as_nanos());
                let _ = write!(step, "{comma}[{token:?},{ttl},{done}]");
            }
            step += "],";
            add_keys(&mut step, node, locks.iter().map(|(subject, _)| subject));
            let _ = write!(step, ",{}", locks.as_ptr().addr());
        }
        Request::Heal(locks) => {
            step += "\"heal\",[";
            for (position, (subject, ttl, fence)) in locks.iter().enumerate() {
                let healed = match answered {
                    Ok(Reply::Healed(healed)) => format!("{:?}", healed[position]),
                    _ => "Refused".to_owned(),
                };
                let comma = if position > 0 { "," } else { "" };
                let (token, ttl) = (subject.token.as_str(), ttl.as_nanos());
                let _ = write!(step, "{comma}[{token:?},{ttl},{fence},{healed:?}]");
            }
            step += "],";
            add_keys(&mut step, node, locks.iter().map(|(subject, ..)| subject));
        }
        Request::Exists(_) | Request::Inspect(_) | Request::List { .. } => step += "\"read\"",
        Request::Forget(_) => step += "\"forget\"",
    }
    if late {
        step += ",\"late\"";
    }
    step
}

/// Adds what the node stores now: the resource, the token, the time that it is kept, and the same of
/// the fence.
fn add_keys<'a>(
    step: &mut String,
    node: &Node,
    subjects: impl IntoIterator<Item = &'a std::sync::Arc<Subject>>,
) {
    *step += "[";
    let all = subjects.into_iter().flat_map(|subject| subject.keys.iter());
    for (position, keys) in all.enumerate() {
        let comma = if position > 0 { "," } else { "" };
        let (lock, fence) = node.stored(&keys.lock);
        let _ = write!(step, "{comma}[{:?},", keys.lock);
        let _ = match lock {
            Some((token, left)) => write!(step, "{:?},{}", token.as_str(), left.as_nanos()),
            None => write!(step, "null,0"),
        };
        let (fence, left) = fence.unwrap_or_default();
        let _ = write!(step, ",{fence},{}]", left.as_nanos());
    }
    *step += "]";
}

fn optional(number: Option<u64>) -> String {
    number.map_or("null".to_owned(), |number| number.to_string())
}
