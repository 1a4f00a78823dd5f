//! Waiting for a lock: the line within the client, and the calls of the nodes.

use crate::command::answer::Answered;
use crate::command::keys::Keys;
use crate::command::request::Ticket;
use crate::lock::listener::{Heard, Listening, Open};
use crate::node::clocks::Clocks;
use quorlock_protocol::node::queue;
use quorlock_protocol::{Line, Moment, NodeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, mpsc, oneshot};

/// Where the waiters of one client are.
pub(crate) struct Waiters {
    line: Mutex<Line<Arc<[Keys]>, Waiter>>,
    clocks: Arc<Clocks>,
    listening: Arc<Listening>,
    /// Notified with all news.
    told: Notify,
}

/// What others know of a waiter.
struct Waiter {
    arrived: Moment,
    /// `None` once it was told.
    turn: Option<oneshot::Sender<Turn>>,
    /// What came of the last round of those who were first in its line.
    news: News,
    /// Notified when it should try now, if it is first: another one needs to know.
    hurry: Arc<Notify>,
}

/// What the first in line knows, and leaves to the next.
#[derive(Clone, Default)]
pub(crate) struct News {
    /// The answers in the last round.
    pub(crate) answers: Arc<[Option<Answered>]>,
    /// Since when too few nodes can vote.
    pub(crate) outage: Option<Moment>,
    /// When that round ended; `None` if there was none yet.
    pub(crate) at: Option<Moment>,
}

enum Turn {
    First,
    /// Too few nodes can vote, and others have tried for long enough.
    Hopeless,
}

type Mailbox = (mpsc::UnboundedSender<Heard>, mpsc::UnboundedReceiver<Heard>);

/// Where a waiter stands in the nodes' queues if the round is lost.
pub(crate) struct Queued {
    pub(crate) waiter: Arc<str>,
    pub(crate) ticket: Ticket,
    /// On these nodes.
    pub(crate) nodes: NodeSet,
    /// Gone when it does not wait any more.
    pub(crate) waits: Weak<()>,
}

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
    hurry: Arc<Notify>,
    /// Whether others stood before it when it came.
    stood_behind: bool,
}

impl Waiters {
    pub(crate) fn new(clocks: Arc<Clocks>, listening: Arc<Listening>) -> Arc<Self> {
        Arc::new(Self { line: Mutex::default(), clocks, listening, told: Notify::new() })
    }

    fn line(&self) -> MutexGuard<'_, Line<Arc<[Keys]>, Waiter>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the line of those who wait for the same.
    pub(crate) fn join(self: &Arc<Self>, keys: &Arc<[Keys]>, arrived: Moment) -> Place {
        let (sender, turn) = oneshot::channel();
        let hurry = Arc::new(Notify::new());
        let (news, turn_sender) = (News::default(), Some(sender));
        let waiter = Waiter { arrived, turn: turn_sender, news, hurry: Arc::clone(&hurry) };
        let (number, is_first) = {
            let mut line = self.line();
            let (number, is_first) = line.join(keys, waiter);
            if is_first && let Some(waiter) = line.get(keys, number) {
                waiter.tell(Turn::First);
            }
            (number, is_first)
        };
        let (waiters, keys) = (Arc::clone(self), Arc::clone(keys));
        let alive = Arc::new(());
        let (calls, open, stood_behind) = (None, None, !is_first);
        Place { waiters, keys, number, arrived, turn, calls, open, alive, hurry, stood_behind }
    }

    /// How many wait, or will if they do not win at once.
    pub(crate) fn count(&self) -> u64 {
        self.line().len() as u64
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

    /// Waits, after the end of its wait, until the first in line has news from `since` or later, and returns
    /// `None`; or until it is first itself, and returns what [`Place::is_first`] does. So that many waits that
    /// end together cost one round, the first in line is asked to try now.
    pub(crate) async fn is_informed(&mut self, since: Moment) -> Option<bool> {
        let waiters = Arc::clone(&self.waiters);
        loop {
            let told = waiters.told.notified();
            if self.news().at.is_some_and(|at| at >= since) {
                return None;
            }
            if let Some(first) = waiters.line().waiters(&self.keys).next() {
                first.hurry.notify_one();
            }
            tokio::select! {
                biased;
                has_hope = self.is_first() => return Some(has_hope),
                () = told => {}
            }
        }
    }

    /// Is notified when it should try now, because another waiter needs to know.
    pub(crate) fn hurry(&self) -> Arc<Notify> {
        Arc::clone(&self.hurry)
    }

    /// What the first in line has found out.
    pub(crate) fn news(&self) -> News {
        let line = self.waiters.line();
        line.waiters(&self.keys).next().map(|first| first.news.clone()).unwrap_or_default()
    }

    /// What came of a round, for those behind.
    pub(crate) fn tell(&self, news: News) {
        if let Some(waiter) = self.waiters.line().get(&self.keys, self.number) {
            waiter.news = news;
        }
        self.waiters.told.notify_waiters();
    }

    /// Too few nodes can vote: those who have been waiting since then need not find out for themselves.
    pub(crate) fn give_up_with_others(&self, since: Moment) {
        self.waiters.line().each(&self.keys, |waiter| {
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
            ticket: self.waiters.clocks.at(self.arrived)?,
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
        let mut line = self.waiters.line();
        let news = line.get(&self.keys, self.number).map(|waiter| waiter.news.clone());
        if let Some(next) = line.leave(&self.keys, self.number) {
            next.news = news.unwrap_or_default();
            next.tell(Turn::First);
        }
    }
}
