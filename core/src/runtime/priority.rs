//! The scheduling priority of a thread. Called by `executor.rs`.
//!
//! A thread of low priority must not do work that other threads wait for: on a busy machine, the scheduler may suspend
//! such a thread for seconds, even in the middle of driving the runtime or of writing to a connection.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a thread reuses the priority that it has read. The limit is short because another thread may change the
/// priority at any time.
const FRESH: Duration = Duration::from_millis(100);

/// The scheduling priority of a thread: 0 is the system's default, and a larger number means a lower priority. A
/// priority above the default is represented as 0.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Priority(pub(crate) u8);

/// The priority of threads that run only when no other thread does (`SCHED_IDLE`). Lower than the priority of any nice
/// value.
#[cfg(any(target_os = "linux", target_os = "android"))]
const IDLE: u8 = u8::MAX;

impl Priority {
    /// The priority of the calling thread, read at most 100 ms ago; the default priority if the system does not report
    /// one.
    pub(crate) fn of_this_thread() -> Self {
        thread_local! {
            static FOUND: Cell<Option<(Instant, Priority)>> = const { Cell::new(None) };
        }
        let now = Instant::now();
        let found = FOUND.try_with(|found| match found.get() {
            Some((when, priority)) if now.duration_since(when) < FRESH => priority,
            _ => {
                let priority = Self::read();
                found.set(Some((now, priority)));
                priority
            }
        });
        // While a thread ends, it loses its thread-local values, so read the priority from the system instead.
        found.unwrap_or_else(|_| Self::read())
    }

    /// Reads the priority of the calling thread from the system.
    pub(crate) fn read() -> Self {
        // Read from /proc, because `sched_getscheduler` has no safe wrapper, and the result of `pthread_getschedparam`
        // may be out of date.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(priority) = read_stat().as_deref().and_then(parse) {
            return priority;
        }
        Self::default()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn read_stat() -> Option<String> {
    use std::io::Read;
    // The line of the file is always shorter than this buffer, so one read is enough.
    let mut bytes = [0; 2048];
    let mut file = std::fs::File::open("/proc/thread-self/stat").ok()?;
    let length = file.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Parses the priority from a line of `/proc/…/stat`; see proc(5).
#[cfg(any(target_os = "linux", target_os = "android"))]
fn parse(stat: &str) -> Option<Priority> {
    const BATCH: u32 = 3;
    const IDLE_POLICY: u32 = 5;
    // The thread name, in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // proc(5) counts fields from 1; the first one after the thread name is field 3.
    let nice: i8 = fields.nth(19 - 3)?.parse().ok()?;
    let policy: u32 = fields.nth(41 - 19 - 1)?.parse().ok()?;
    let nice = nice.max(0).unsigned_abs();
    Some(Priority(match policy {
        IDLE_POLICY => IDLE,
        // When a thread with the batch policy wakes up, the scheduler puts it behind other threads. So the priority of
        // such a thread counts as one step lower.
        BATCH => nice + 1,
        _ => nice,
    }))
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::{IDLE, Priority, parse};

    fn stat(name: &str, nice: i32, policy: u32) -> String {
        let mut fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        fields[19 - 3] = nice.to_string();
        fields[41 - 3] = policy.to_string();
        format!("4711 ({name}) {}\n", fields.join(" "))
    }

    #[test]
    fn priority_is_parsed_from_proc_stat() {
        for (nice, policy, expected) in
            [(0, 0, 0), (-20, 0, 0), (19, 0, 19), (0, 3, 1), (0, 5, IDLE), (0, 1, 0), (0, 2, 0)]
        {
            assert_eq!(parse(&stat("a) (b 1 2", nice, policy)), Some(Priority(expected)));
        }
        for broken in ["", "1 (name", "1 (name) S 1 2", "1 (name) S x"] {
            assert_eq!(parse(broken), None);
        }
    }

    #[test]
    fn higher_nice_value_is_lower_priority() {
        let ordinary = Priority::read();
        let nice = std::thread::spawn(|| {
            let before = Priority::of_this_thread();
            rustix::process::nice(1).expect("raising the nice value is permitted");
            (before, Priority::read())
        });
        let (before, after) = nice.join().expect("the thread does not panic");
        assert_eq!(before, ordinary);
        assert!(after > before, "{after:?} {before:?}");
    }
}
