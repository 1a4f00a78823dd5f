//! Converts requests to commands for a server: each request's script, keys and arguments. `parse.rs` parses
//! the replies.

use crate::config::permits::MAX_PERMITS;
use crate::wire::keys::{FENCE, Keys};
use crate::wire::request::{Request, Subject, Ticket};
use crate::wire::script::{
    ACQUIRE, DOWNGRADE, EXTEND, FORGET, GIVE_BACK, HEAL, INSPECT, Key, LIST, PERMITS_ACQUIRE,
    PERMITS_EXTEND, PERMITS_INSPECT, PERMITS_RELEASE, RAISE, RELEASE, SHARED_ACQUIRE,
    SHARED_EXISTS, SHARED_EXTEND, SHARED_RELEASE, Script, TRANSFER, microseconds, milliseconds,
};
use crate::wire::token::MAX_TOKEN;
use quorlock_protocol::{FENCE_MEMORY, Turns};
use redis::Cmd;
use std::borrow::Cow;
use std::time::Duration;

/// The number of arguments and the number of bytes for which each command reserves memory. These are the largest values
/// for an ACQUIRE or RELEASE of one lock, without the keys. A command with larger arguments allocates again.
const MAX_ARGUMENTS: usize = 8;
const ARGUMENT_BYTES: usize = 160 + MAX_TOKEN;

/// The approximate number of keys that a server looks at for one page of LIST. One page takes the server about a
/// millisecond, during which the server serves no other client.
const PAGE: usize = 500;

/// How a command refers to its script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// EVALSHA: sends only the hash of the script, but fails if the server has not loaded the script.
    Hash,
    /// EVAL: sends the whole source of the script.
    Source,
}

impl Request {
    /// The Redis command for this request.
    pub(crate) fn command(&self, by: By) -> Cmd {
        if let Self::Publish { channel, message, .. } = self {
            let mut cmd = redis::cmd("PUBLISH");
            cmd.arg(&**channel).arg(&**message);
            return cmd;
        }
        let Some(script) = self.script() else {
            let mut cmd = redis::cmd("EXISTS");
            add_keys(&mut cmd, &self.keys(&[Key::Lock]));
            return cmd;
        };
        let mut cmd = invoke(script, by, &self.keys(script.keys));
        self.add_arguments(&mut cmd);
        cmd
    }

    /// The script of this request; `None` if the request needs no script, but only the command EXISTS or PUBLISH.
    fn script(&self) -> Option<&'static Script> {
        Some(match self {
            Self::Acquire { subject, .. } => {
                by_mode(subject, [&ACQUIRE, &SHARED_ACQUIRE, &PERMITS_ACQUIRE])
            }
            Self::Release { subject, .. } => {
                by_mode(subject, [&RELEASE, &SHARED_RELEASE, &PERMITS_RELEASE])
            }
            // The renewer never puts permits and locks into one request, so the first lease decides whether the request
            // is for permits. If one of the locks is shared, the script for shared locks extends all of them, including
            // exclusive locks.
            Self::Extend(leases) => {
                let reads = leases.iter().find(|(subject, _)| subject.is_shared());
                let (subject, _) = reads.or(leases.first())?;
                by_mode(subject, [&EXTEND, &SHARED_EXTEND, &PERMITS_EXTEND])
            }
            Self::Transfer { .. } => &TRANSFER,
            Self::GiveBack(_) => &GIVE_BACK,
            Self::Downgrade { .. } => &DOWNGRADE,
            Self::Raise { .. } => &RAISE,
            Self::Heal(_) => &HEAL,
            Self::Exists(keys) if keys.iter().any(Keys::is_shared) => &SHARED_EXISTS,
            Self::Inspect(_) => &INSPECT,
            Self::InspectPermits { .. } => &PERMITS_INSPECT,
            Self::Forget(_) => &FORGET,
            Self::List { .. } => &LIST,
            Self::Exists(_) | Self::Publish { .. } => return None,
        })
    }

    /// Returns the KEYS of the script: for each resource of the request, the keys that `of_each` names.
    fn keys(&self, of_each: &'static [Key]) -> Vec<Cow<'_, str>> {
        let of = |keys| of_each.iter().map(move |key| key.of(keys));
        match self {
            Self::Acquire { subject, .. }
            | Self::Transfer { subject, .. }
            | Self::GiveBack(subject)
            | Self::Downgrade { subject, .. }
            | Self::Raise { subject, .. }
            | Self::Release { subject, .. } => subject.keys.iter().flat_map(of).collect(),
            Self::Extend(leases) => {
                leases.iter().flat_map(|(subject, _)| subject.keys.iter()).flat_map(of).collect()
            }
            Self::Heal(leases) => {
                leases.iter().flat_map(|(subject, ..)| subject.keys.iter()).flat_map(of).collect()
            }
            Self::Exists(keys) | Self::Inspect(keys) | Self::Forget(keys) => {
                keys.iter().flat_map(of).collect()
            }
            Self::InspectPermits { semaphore } => {
                let common = [&semaphore.queue, &semaphore.lock].map(|key| Cow::Borrowed(&**key));
                let of_slot = |slot| {
                    let lock = format!("{}{slot}", semaphore.fence);
                    let fence = format!("{lock}{FENCE}");
                    [lock, fence].map(Cow::Owned)
                };
                common.into_iter().chain((0..MAX_PERMITS).flat_map(of_slot)).collect()
            }
            Self::List { .. } | Self::Publish { .. } => Vec::new(),
        }
    }

    fn add_arguments(&self, cmd: &mut Cmd) {
        match self {
            Self::Acquire { subject, ttl, proposal, ticket, turns } => {
                cmd.arg(subject.token.as_str()).arg(milliseconds(*ttl)).arg(proposal);
                cmd.arg(counter_ttl(*ttl));
                cmd.arg(subject.permit().map(|permit| (permit.base, permit.limit)));
                if subject.waiter.is_some() {
                    cmd.arg(queue_argument(subject, *ticket, *turns));
                }
            }
            Self::Transfer { subject, ttl, proposal } => {
                cmd.arg(subject.token.as_str()).arg(milliseconds(*ttl)).arg(proposal);
                cmd.arg(counter_ttl(*ttl)).arg(subject.giver().as_str());
                cmd.arg(u8::from(subject.is_upgraded()));
                cmd.arg(subject.permit().map(|permit| permit.base));
            }
            Self::GiveBack(subject) => {
                cmd.arg(subject.token.as_str()).arg(subject.giver().as_str());
                let (until, within) = subject
                    .giver
                    .as_ref()
                    .map_or((0, Duration::ZERO), |given| (given.until, given.within));
                cmd.arg(until).arg(milliseconds(within)).arg(u8::from(subject.is_upgraded()));
                cmd.arg(subject.permit().map(|permit| permit.base));
            }
            Self::Downgrade { subject, turns } => {
                cmd.arg(subject.token.as_str()).arg(queue_argument(subject, None, *turns));
            }
            Self::Raise { subject, ttl, fence } => {
                cmd.arg(subject.token.as_str()).arg(fence).arg(counter_ttl(*ttl));
            }
            Self::Extend(leases) => {
                for (subject, ttl) in leases.iter() {
                    cmd.arg(subject.keys.len()).arg(subject.token.as_str());
                    cmd.arg(milliseconds(*ttl)).arg(counter_ttl(*ttl));
                    cmd.arg(subject.permit().map(|permit| permit.base));
                }
            }
            Self::Heal(leases) => {
                for (subject, ttl, fence) in leases.iter() {
                    cmd.arg(subject.keys.len()).arg(subject.token.as_str());
                    cmd.arg(milliseconds(*ttl)).arg(fence).arg(counter_ttl(*ttl));
                    cmd.arg(subject.giver().as_str()).arg(u8::from(subject.is_upgraded()));
                }
            }
            Self::Release { subject, ticket, turns, keep } => {
                cmd.arg(subject.token.as_str()).arg(subject.permit().map(|permit| permit.base));
                cmd.arg(queue_argument(subject, *ticket, *turns));
                if ticket.is_some() || keep.is_some() {
                    cmd.arg(keep.map_or(0, milliseconds));
                }
            }
            Self::List { prefix, cursor } => {
                cmd.arg(cursor).arg(pattern(prefix)).arg(PAGE);
            }
            Self::Exists(_)
            | Self::Inspect(_)
            | Self::InspectPermits { .. }
            | Self::Forget(_)
            | Self::Publish { .. } => {}
        }
    }
}

/// Chooses one of three scripts: `permits` if the subject consists of permits, `shared` if at least one of its locks is
/// shared, and `locks` if all its locks are exclusive.
fn by_mode(subject: &Subject, [locks, shared, permits]: [&'static Script; 3]) -> &'static Script {
    match subject.permit() {
        Some(_) => permits,
        None if subject.is_shared() => shared,
        None => locks,
    }
}

/// The minimum ttl of a fence counter for a lock of this ttl, in milliseconds.
pub(super) fn counter_ttl(ttl: Duration) -> u64 {
    milliseconds(ttl.saturating_add(FENCE_MEMORY))
}

/// Returns the pattern with which SCAN finds the keys that begin with `prefix`. Escapes the special
/// characters in `prefix`.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::new();
    for letter in prefix.chars() {
        if ['*', '?', '[', ']', '^', '-', '\\'].contains(&letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "*"
}

/// Returns one argument with all values about the queue: see `scripts/queue.lua`.
fn queue_argument(subject: &Subject, ticket: Option<Ticket>, turns: Turns) -> String {
    let (call, memory) = (microseconds(turns.call), milliseconds(turns.memory));
    let Some(waiter) = &subject.waiter else { return format!("{call} {memory}") };
    let ticket = ticket.map_or_else(|| "-".to_owned(), |ticket| ticket.to_string());
    format!("{call} {memory} {} {ticket} {waiter}", microseconds(turns.reserve))
}

fn add_keys(cmd: &mut Cmd, keys: &[Cow<'_, str>]) {
    for key in keys {
        cmd.arg(&**key);
    }
}

pub(super) fn invoke(script: &Script, by: By, keys: &[Cow<'_, str>]) -> Cmd {
    let (name, script) = match by {
        By::Hash => ("EVALSHA", &script.hash),
        By::Source => ("EVAL", &script.source),
    };
    // Reserves room for the arguments that follow, to avoid reallocation.
    let bytes = script.len() + keys.iter().map(|key| key.len()).sum::<usize>() + ARGUMENT_BYTES;
    let mut cmd = Cmd::with_capacity(keys.len() + MAX_ARGUMENTS, bytes);
    cmd.arg(name).arg(script).arg(keys.len());
    add_keys(&mut cmd, keys);
    cmd
}
