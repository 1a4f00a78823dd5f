//! A simulated server: an in-memory node that has its own clocks, and can freeze and restart.

use super::history::History;
use crate::memory::entries::{MessageCallback, NodeMemory};
use crate::transport::handshake::ServerInfo;
use crate::wire::answer::{Answered, Failure};
use crate::wire::reply::Reply;
use crate::wire::request::{Given, Request};
use crate::wire::token::Token;
use quorlock_protocol::Moment;
use quorlock_protocol::node::entry::Time;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

pub(super) struct Node {
    pub(super) number: usize,
    history: OnceLock<Arc<History>>,
    rate: f64,
    wall_clock_error: i64,
    runs: watch::Sender<bool>,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    entries: NodeMemory,
    is_up: bool,
    /// The number of restarts.
    started: u64,
    /// When the node was last started, by its own clock.
    since: Duration,
    requests: u64,
}

/// What a node stores about a resource: the token and the last fence, each with the time until it expires.
pub(super) struct Stored {
    pub(super) token: Option<(Token, Duration)>,
    /// The readers, in the order of their tokens, if the token is the marker.
    pub(super) readers: Option<Vec<(Token, Duration)>>,
    pub(super) fence: Option<(u64, Duration)>,
}

impl Node {
    pub(super) fn new(number: usize, rate: f64, wall_clock_error: i64) -> Arc<Self> {
        let state = ServerState { is_up: true, ..ServerState::default() };
        Arc::new(Self {
            number,
            history: OnceLock::new(),
            rate,
            wall_clock_error,
            runs: watch::Sender::new(true),
            state: Mutex::new(state),
        })
    }

    pub(super) fn belongs_to(&self, history: &Arc<History>) {
        let _ = self.history.set(Arc::clone(history));
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> &History {
        self.history.get().expect("every node belongs to a world")
    }

    /// The node's own clock. The node started long before the simulation.
    fn clock(&self) -> Duration {
        Duration::from_secs(1_000_000) + self.history().elapsed().mul_f64(self.rate)
    }

    /// Waits until the node is not frozen.
    pub(super) async fn runs(&self) {
        let _ = self.runs.subscribe().wait_for(|runs| *runs).await;
    }

    pub(super) fn freeze(&self) {
        self.runs.send_replace(false);
    }

    pub(super) fn thaw(&self) {
        self.runs.send_replace(true);
    }

    pub(super) fn is_up(&self) -> bool {
        self.state().is_up
    }

    pub(super) fn started(&self) -> u64 {
        self.state().started
    }

    /// What the node stores about a resource.
    pub(super) fn stored(&self, lock: &str) -> Stored {
        let now = Moment::from_origin(self.clock());
        let wall = self.wall_clock();
        let mut state = self.state();
        let entry = &state.entries.record(lock).entry;
        let token = entry.stored_lock(now).map(|(token, left)| (token.clone(), left));
        let readers = entry.is_read(now).then(|| {
            let shares = entry.shares(now).map(|(token, left)| (token.clone(), left));
            let mut readers: Vec<_> = shares.collect();
            readers.sort_unstable_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
            readers
        });
        Stored { token, readers, fence: entry.stored_fence(wall) }
    }

    /// Returns how much time adopters still have if a GIVE BACK arrives at this node now.
    pub(super) fn left(&self, given: &Given) -> Duration {
        given.left(self.wall_clock())
    }

    /// Returns the description of this node for the first line of the file of steps.
    pub(super) fn described(&self) -> String {
        let Self { rate, wall_clock_error, .. } = self;
        format!("[{},{rate},{wall_clock_error}]", self.clock().as_nanos())
    }

    pub(super) fn kill(&self) {
        let mut state = self.state();
        state.is_up = false;
        state.entries.forget_listeners();
    }

    pub(super) fn start(&self, forgets: bool) {
        let since = self.clock();
        let mut state = self.state();
        if forgets {
            state.entries = NodeMemory::default();
        }
        (state.is_up, state.since) = (true, since);
        state.started += 1;
        drop(state);
        let number = self.number;
        self.history().record(|| format!("\"started\",{number},{forgets}"));
    }

    pub(super) fn answer(&self, request: &Request) -> Answered {
        let time = Time { now: Moment::from_origin(self.clock()), wall: self.wall_clock() };
        let answered = {
            let mut state = self.state();
            state.requests += 1;
            state.entries.answer(time, request).map_err(Failure::refused)
        };
        if let (Request::Acquire { subject, .. }, Ok(Reply::Held(_))) = (request, &answered) {
            let history = self.history();
            for keys in subject.keys.iter() {
                let process = history.maker(&subject.token);
                history.evidence.refused(history.elapsed(), process, &keys.lock);
            }
        }
        answered
    }

    fn wall_clock(&self) -> u64 {
        self.history().wall_clock_micros().saturating_add_signed(self.wall_clock_error)
    }

    /// The number of requests that the node has received.
    pub(super) fn requests(&self) -> u64 {
        self.state().requests
    }

    pub(super) fn server_info(&self) -> ServerInfo {
        let now = self.clock();
        let state = self.state();
        let run_id = format!("{} {}", self.number, state.started);
        ServerInfo {
            memory: run_id.clone(),
            run_id,
            uptime: Duration::from_secs((now - state.since).as_secs()),
            is_replica: false,
            clock: Some(self.wall_clock()),
        }
    }

    pub(super) fn listen(&self, channel: &str, listener: MessageCallback) {
        self.state().entries.listen(channel, listener);
    }

    /// Removes some waiters from the queues, moves others, and adds some that do not exist.
    pub(super) fn forge_queues(&self) {
        let now = Moment::from_origin(self.clock());
        let history = self.history();
        let random = |range| history.random(range);
        self.state().entries.forge_queues(now, &random);
    }

    /// Whether any queue has a waiter.
    pub(super) fn has_waiters(&self) -> bool {
        let now = Moment::from_origin(self.clock());
        self.state().entries.has_waiters(now)
    }

    /// The tokens that hold locks on this node.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let now = Moment::from_origin(self.clock());
        self.state().entries.tokens(now)
    }
}
