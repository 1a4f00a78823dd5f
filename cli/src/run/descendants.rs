//! The processes that the command has started, wherever they have gone: into another process group or session, or away
//! from a parent that has ended. Used by `unix`, on Linux.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use std::collections::{HashMap, HashSet};
use std::fs;

/// How often [`kill`] looks for processes that others have started before they were killed.
const ROUNDS: u32 = 100;

/// Makes orphans children of this process, so that they remain its descendants.
pub(super) fn keep() {
    // Without it, orphans escape, as on other systems.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Whether any descendant of this process is left.
pub(super) fn are_left() -> bool {
    !find().is_empty()
}

/// Kills all descendants of this process. Fails if this user may not kill one of them.
pub(super) fn kill() -> Result<(), Errno> {
    let mut killed = Ok(());
    let mut known = HashSet::new();
    for _ in 0..ROUNDS {
        let new: Vec<_> = find().into_iter().filter(|id| known.insert(*id)).collect();
        if new.is_empty() {
            break;
        }
        for id in new {
            if let Err(error @ Errno::PERM) = kill_process(id, Signal::KILL) {
                killed = Err(error);
            }
        }
    }
    killed
}

/// Returns the descendants of this process, without those that have ended and wait for their parents.
fn find() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent(id) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        for id in children.remove(&parent).unwrap_or_default() {
            parents.push(id);
            found.extend(Pid::from_raw(id));
        }
    }
    found
}

/// Returns the parent of a process; `None` if the process has ended.
fn parent(id: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program comes before, in parentheses, and may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let has_ended = fields.next().is_none_or(|state| ["Z", "X"].contains(&state));
    fields.next()?.parse().ok().filter(|_| !has_ended)
}
