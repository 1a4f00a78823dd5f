//! The time and the random numbers of a simulated world, its history, and the violations found in it.

use super::evidence::Evidence;
use super::steps::Steps;
use crate::runtime::random::TOKEN_BYTES;
use crate::wire::request::Request;
use crate::wire::token::Token;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The initial wall clock, in microseconds since the Unix epoch.
const EPOCH: u64 = 1_750_000_000_000_000;

/// More polls of tasks than any simulation needs. A simulation that reaches this number has a task in an endless loop.
const MOST_STEPS: u64 = 50_000_000;

pub(super) struct History {
    began: Instant,
    is_traced: bool,
    pub(super) evidence: Evidence,
    /// The file to which the steps are written. `None` if no steps are written.
    steps: Option<Steps>,
    state: Mutex<HistoryState>,
}

struct HistoryState {
    random: fastrand::Rng,
    steps: u64,
    story: Vec<(Duration, String)>,
    violations: Vec<(Duration, String)>,
    /// Maps the random digits of each token to the process that made the token.
    makers: HashMap<String, String>,
    /// Tokens that a node received on a connection that had broken already, and the tokens of detached leases.
    late: HashSet<Token>,
    /// The names of the processes that were killed.
    killed: HashSet<String>,
    counts: BTreeMap<&'static str, u64>,
}

impl History {
    /// `name` is the name of the file of steps.
    pub(super) fn new(random: fastrand::Rng, is_traced: bool, name: &str) -> Self {
        Self {
            steps: Steps::of(name),
            began: Instant::now(),
            is_traced,
            evidence: Evidence::default(),
            state: Mutex::new(HistoryState {
                random,
                steps: 0,
                story: Vec::new(),
                violations: Vec::new(),
                makers: HashMap::new(),
                late: HashSet::new(),
                killed: HashSet::new(),
                counts: BTreeMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, HistoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true time since the beginning of the world.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn wall_clock_micros(&self) -> u64 {
        EPOCH + u64::try_from(self.elapsed().as_micros()).expect("a short time")
    }

    pub(super) fn random(&self, range: Range<u64>) -> u64 {
        self.state().random.u64(range.start..range.end.max(range.start + 1))
    }

    /// Returns `true` with a probability of `percent` per cent.
    pub(super) fn chance(&self, percent: u64) -> bool {
        self.random(0..100) < percent
    }

    pub(super) fn milliseconds(&self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.random(range))
    }

    pub(super) fn fill(&self, bytes: &mut [u8]) {
        self.state().random.fill(bytes);
    }

    /// Records which process made a token: `bytes` are random bytes that the process `maker` drew. Does nothing if
    /// there are too few bytes for a token.
    pub(super) fn made(&self, bytes: &[u8], maker: &str) {
        if bytes.len() < TOKEN_BYTES {
            return;
        }
        let token = bytes.iter().fold(String::new(), |mut token, byte| {
            let _ = write!(token, "{byte:02x}");
            token
        });
        self.state().makers.insert(token, maker.to_owned());
    }

    pub(super) fn maker(&self, token: &Token) -> String {
        let digits = token.as_str().get(..2 * TOKEN_BYTES).unwrap_or_default();
        self.state().makers.get(digits).cloned().unwrap_or_default()
    }

    /// Records that a node received this request after the sender had learned that the connection was broken. The undo
    /// on the next connection may have overtaken the request, so the request's key may stay until the ttl ends.
    pub(super) fn came_late(&self, request: &Request) {
        let mut state = self.state();
        match request {
            Request::Acquire { subject, .. } | Request::Transfer { subject, .. } => {
                state.late.insert(subject.token.clone());
            }
            Request::Heal(locks) => {
                state.late.extend(locks.iter().map(|(subject, ..)| subject.token.clone()));
            }
            _ => return,
        }
        drop(state);
        self.count("requests that arrived late");
    }

    /// Whether keys with this token may be left at the end.
    pub(super) fn is_late(&self, token: &Token) -> bool {
        self.state().late.contains(token)
    }

    /// Records that a lease with this token was detached. Its keys may stay until they expire: perhaps no client adopts
    /// the lease, or a client adopts it on some nodes only.
    pub(super) fn handed(&self, token: &str) {
        self.state().late.insert(token.into());
    }

    /// Records that a process was killed. Such a process may leave keys on the nodes.
    pub(super) fn killed(&self, process: &str) {
        self.state().killed.insert(process.to_owned());
    }

    pub(super) fn was_killed(&self, process: &str) -> bool {
        self.state().killed.contains(process)
    }

    pub(super) fn count_step(&self) {
        let mut state = self.state();
        state.steps += 1;
        assert!(state.steps < MOST_STEPS, "the simulation does not end");
    }

    pub(super) fn count(&self, what: &'static str) {
        *self.state().counts.entry(what).or_default() += 1;
    }

    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.state().counts.clone()
    }

    /// Adds an event to the history.
    pub(super) fn log(&self, what: String) {
        let now = self.elapsed();
        self.state().story.push((now, what));
    }

    /// Adds a detailed event to the history, only if a single seed is run.
    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            self.log(what());
        }
    }

    /// Writes a step of the protocol, if steps are written. `step` returns the elements of its JSON array.
    pub(super) fn record(&self, step: impl FnOnce() -> String) {
        self.record_at(self.elapsed(), step);
    }

    /// Whether steps are written.
    pub(super) fn is_recorded(&self) -> bool {
        self.steps.is_some()
    }

    /// Like [`History::record`], for a step at another true time.
    pub(super) fn record_at(&self, now: Duration, step: impl FnOnce() -> String) {
        if let Some(steps) = &self.steps {
            steps.write(now, &step());
        }
    }

    /// Records a violation of a guarantee.
    pub(super) fn violation(&self, what: String) {
        self.log(format!("VIOLATION: {what}"));
        let now = self.elapsed();
        self.state().violations.push((now, what));
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.state().violations.iter().map(|(_, what)| what.clone()).collect()
    }

    /// The history up to the first violation.
    pub(super) fn story(&self) -> String {
        let state = self.state();
        let until = state.violations.first().map_or(Duration::MAX, |(at, _)| *at);
        let events = state.story.iter().filter(|(at, _)| *at <= until);
        let line = |(at, what): &(Duration, String)| format!("{:>9.3} s  {what}", at.as_secs_f64());
        events.map(line).collect::<Vec<_>>().join("\n")
    }
}
