//! Waiting for a lock: the line within the client, and the calls of the nodes.

use crate::answer::Answered;
use crate::clock;
use crate::listening::{Listening, Open};
use crate::protocol::{Line, Moment, NodeClocks};
use crate::queue;
use crate::request::Keys;
use crate::round::Queued;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Where the waiters of one client are.
pub(crate) struct Waiters {
    state: Mutex<State>,
    listening: Arc<Listening>,
}

struct State {
    line: Line<Arc<[Keys]>, Waiter>,
    clocks: NodeClocks,
}

/// What others know of a waiter.
struct Waiter {
    arrived: Moment,
    /// `None` once it was told.
    turn: Option<oneshot::Sender<Turn>>,
    /// What came of the last round of those who were first in its line.
    news: News,
}

/// What the first in line knows, and leaves to the next.
#[derive(Clone, Default)]
pub(crate) struct News {
    /// The answers in the last round.
    pub(crate) answers: Arc<[Option<Answered>]>,
    /// Since when too few nodes can vote.
    pub(crate) outage: Option<Moment>,
}

enum Turn {
    First,
    /// Too few nodes can vote, and others have tried for long enough.
    Hopeless,
}

/// What a waiter hears while it waits to try again.
pub(crate) enum Heard {
    /// The resource with this lock key is free on this node, and it is this waiter's turn.
    Call { node: usize, lock: String },
    /// It is in no queue of this node, or may have lost its place, and can join now.
    Unqueued(usize),
}

type Mailbox = (mpsc::UnboundedSender<Heard>, mpsc::UnboundedReceiver<Heard>);

/// A waiter's place in its client's line. It leaves the line when this is dropped.
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    keys: Arc<[Keys]>,
    number: u64,
    arrived: Moment,
    turn: oneshot::Receiver<Turn>,
    /// Once it contends with other clients.
    calls: Option<Mailbox>,
    /// Once it has to wait.
    open: Option<Open>,
    alive: Arc<()>,
    /// Whether others stood before it when it came.
    stood_behind: bool,
}

impl Waiters {
    pub(crate) fn new(nodes: usize, listening: Arc<Listening>) -> Arc<Self> {
        let state = State { line: Line::default(), clocks: NodeClocks::new(nodes) };
        Arc::new(Self { state: Mutex::new(state), listening })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the line of those who wait for the same.
    pub(crate) fn join(self: &Arc<Self>, keys: &Arc<[Keys]>, arrived: Moment) -> Place {
        let (sender, turn) = oneshot::channel();
        let waiter = Waiter { arrived, turn: Some(sender), news: News::default() };
        let (number, is_first) = {
            let mut state = self.state();
            let (number, is_first) = state.line.join(keys, waiter);
            if is_first && let Some(waiter) = state.line.get(keys, number) {
                waiter.tell(Turn::First);
            }
            (number, is_first)
        };
        let (waiters, keys) = (Arc::clone(self), Arc::clone(keys));
        let alive = Arc::new(());
        let (calls, open, stood_behind) = (None, None, !is_first);
        Place { waiters, keys, number, arrived, turn, calls, open, alive, stood_behind }
    }

    /// How many wait, or will if they do not win at once.
    pub(crate) fn count(&self) -> u64 {
        self.state().line.len() as u64
    }

    /// A node told the time by its clock, in microseconds.
    pub(crate) fn saw_clock(&self, node: usize, micros: u64) {
        self.state().clocks.saw(clock::now(), node, micros);
    }
}

impl Waiter {
    fn tell(&mut self, turn: Turn) {
        if let Some(sender) = self.turn.take() {
            // An error means that it is about to leave.
            let _ = sender.send(turn);
        }
    }
}

impl Place {
    /// Whether others of this client were before it.
    pub(crate) fn stood_behind(&self) -> bool {
        self.stood_behind
    }

    /// Waits until it is first. Returns whether there is any hope to win then.
    pub(crate) async fn is_first(&mut self) -> bool {
        // It cannot fail: a waiter is in the line until its place is dropped.
        !matches!((&mut self.turn).await, Ok(Turn::Hopeless))
    }

    /// What the first in line has found out.
    pub(crate) fn news(&self) -> News {
        let state = self.waiters.state();
        state.line.waiters(&self.keys).next().map(|first| first.news.clone()).unwrap_or_default()
    }

    /// What came of a round, for those behind.
    pub(crate) fn tell(&self, news: News) {
        if let Some(waiter) = self.waiters.state().line.get(&self.keys, self.number) {
            waiter.news = news;
        }
    }

    /// Too few nodes can vote: those who have been waiting since then need not find out for themselves.
    pub(crate) fn give_up_with_others(&self, since: Moment) {
        self.waiters.state().line.each(&self.keys, |waiter| {
            if waiter.arrived <= since {
                waiter.tell(Turn::Hopeless);
            }
        });
    }

    /// It has to wait: calls are to be heard.
    pub(crate) fn listen(&mut self) {
        self.hear();
        let listening = &self.waiters.listening;
        self.open.get_or_insert_with(|| listening.keep_open());
    }

    /// Listens from the beginning if calls are heard already, for others. It may not have to wait, so
    /// that is no reason to go on with it.
    pub(crate) fn listen_with_others(&mut self) {
        if !self.waiters.listening.up().is_empty() {
            self.hear();
        }
    }

    fn hear(&mut self) {
        self.calls.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.waiters.listening.begin(self.number, sender.clone());
            (sender, receiver)
        });
    }

    /// Lets it hear something else, later.
    pub(crate) fn sender(&self) -> Option<mpsc::UnboundedSender<Heard>> {
        self.calls.as_ref().map(|(sender, _)| sender.clone())
    }

    /// Waits for the next call.
    pub(crate) async fn heard(&mut self) -> Heard {
        match &mut self.calls {
            Some((_, calls)) => match calls.recv().await {
                Some(heard) => heard,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Where it stands in the nodes' queues; `None` if it does not listen, or as long as no node has told
    /// the time.
    pub(crate) fn queued(&self) -> Option<Queued> {
        self.calls.as_ref()?;
        let listening = &self.waiters.listening;
        Some(Queued {
            waiter: queue::name(listening.channel(), self.number),
            ticket: self.waiters.state().clocks.ticket(self.arrived)?,
            nodes: listening.up(),
            waits: Arc::downgrade(&self.alive),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.calls.is_some() {
            self.waiters.listening.end(self.number);
        }
        let mut state = self.waiters.state();
        let news = state.line.get(&self.keys, self.number).map(|waiter| waiter.news.clone());
        if let Some(next) = state.line.leave(&self.keys, self.number) {
            next.news = news.unwrap_or_default();
            next.tell(Turn::First);
        }
    }
}
