//! The processes that the command has started, wherever they have gone: into another process group or session, or away
//! from a parent that has ended. Used by `unix`, on Linux.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, getpid, kill_process,
    set_child_subreaper, waitid,
};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// The maximum number of times that [`Descendants::kill`] looks for processes.
const ROUNDS: u32 = 100;

/// How often [`Descendants::kill`] must find nothing new: a process that starts another one and ends may be missed.
const QUIET_ROUNDS: u32 = 3;

/// The processes below this process, except those that it had before it started the command.
pub(super) struct Descendants {
    /// The processes that were below this process before: a shell may have started them, and then executed `quorlock`.
    before: HashSet<Pid>,
    /// The processes that were asked to end.
    asked: HashSet<Pid>,
}

impl Descendants {
    /// To be called before the command is started. From now on, orphans become children of this process, so that they
    /// remain its descendants.
    pub(super) fn begin() -> Self {
        // If this fails, orphans escape, as on other systems.
        let _ = set_child_subreaper(Some(getpid()));
        let mut descendants = Self { before: HashSet::new(), asked: HashSet::new() };
        descendants.before = descendants.all().into_iter().collect();
        descendants
    }

    /// After the command itself has ended, asks orphans outside of its process group to end, each of them once. Returns
    /// whether any descendant is left.
    pub(super) fn ask_to_end(&mut self, group: Pid) -> bool {
        let orphans = self.children(&mut by_parent());
        for id in &orphans {
            let is_outside = getpgid(Some(*id)).is_ok_and(|its| its != group);
            if is_outside && self.asked.insert(*id) {
                // A stopped process handles SIGTERM only after it is resumed.
                let _ = kill_process(*id, Signal::TERM);
                let _ = kill_process(*id, Signal::CONT);
            }
        }
        !orphans.is_empty()
    }

    /// Kills all of them. Fails if this user may not kill one of them.
    pub(super) fn kill(&self) -> Result<(), Errno> {
        let mut killed = Ok(());
        let mut known = HashSet::new();
        let mut quiet_rounds = 0;
        for _ in 0..ROUNDS {
            let unknown: Vec<_> = self.all().into_iter().filter(|id| known.insert(*id)).collect();
            quiet_rounds = if unknown.is_empty() { quiet_rounds + 1 } else { 0 };
            if quiet_rounds == QUIET_ROUNDS {
                break;
            }
            for id in unknown {
                let sent = kill_process(id, Signal::KILL);
                // The process may have ended.
                if sent.is_err_and(|error| error != Errno::SRCH) {
                    killed = sent;
                }
            }
        }
        killed
    }

    /// Removes and returns the children of this process. Those in its own process group were not started by the
    /// command, which has another one.
    fn children(&self, by_parent: &mut HashMap<Pid, Vec<Pid>>) -> Vec<Pid> {
        let own_group = getpgrp();
        let mut found = by_parent.remove(&getpid()).unwrap_or_default();
        found.retain(|id| !self.before.contains(id) && getpgid(Some(*id)) != Ok(own_group));
        found
    }

    fn all(&self) -> Vec<Pid> {
        let mut by_parent = by_parent();
        let mut found = self.children(&mut by_parent);
        let mut looked_at = 0;
        while let Some(id) = found.get(looked_at) {
            found.extend(by_parent.remove(id).unwrap_or_default());
            looked_at += 1;
        }
        found
    }
}

/// Returns the children of each process, without those that have ended. Empty if this process has no children, as usually
/// at its start, or if `/proc` does not show the processes that this process sees, for example because it belongs to
/// another container.
fn by_parent() -> HashMap<Pid, Vec<Pid>> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if waitid(WaitId::All, only_look).is_err() {
        return children;
    }
    let own = getpid().as_raw_nonzero().to_string();
    if fs::read_link("/proc/self").is_ok_and(|name| name == Path::new(&own)) {
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some((id, parent)) = id.and_then(|id| Pid::from_raw(id).zip(parent(id))) {
                children.entry(parent).or_default().push(id);
            }
        }
    }
    children
}

/// Returns the parent of a process; `None` if the process has ended, or if this user cannot see it.
fn parent(id: i32) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    // The name of the program comes before, in parentheses, and may contain anything.
    let stat = String::from_utf8_lossy(&stat);
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, parent, threads) = (*fields.first()?, fields.get(1)?, *fields.get(17)?);
    // The first thread of a process may end before the others.
    let has_ended = ["Z", "X"].contains(&state) && ["0", "1"].contains(&threads);
    parent.parse().ok().and_then(Pid::from_raw).filter(|_| !has_ended)
}
