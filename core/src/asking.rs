//! Requests under way to several nodes, with one deadline: what they were sent on, and their answers.

use crate::answer::{Answered, Failure};
use crate::clock;
use crate::deadline::{Alarm, Deadlines};
use crate::node::{Link, Node};
use crate::protocol::Moment;
use crate::request::Request;
use crate::script::By;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Servers that send a request to one another do so in vain.
const MOST_HOPS: u8 = 8;

/// A request that goes to several nodes, and is packed once for all.
pub(crate) struct Parcel {
    pub(crate) request: Arc<Request>,
    packed: OnceCell<Vec<u8>>,
}

impl From<Arc<Request>> for Parcel {
    fn from(request: Arc<Request>) -> Self {
        Self { request, packed: OnceCell::new() }
    }
}

impl From<Request> for Parcel {
    fn from(request: Request) -> Self {
        Arc::new(request).into()
    }
}

impl Parcel {
    pub(crate) fn packed(&self) -> &[u8] {
        self.packed.get_or_init(|| self.request.command(By::Hash).get_packed_command())
    }
}

/// Requests under way, with one deadline for all. When it is dropped, nobody waits for the answers, and
/// what could not be sent yet is not sent.
pub(crate) struct Asking {
    began: Moment,
    asked: Moment,
    patience: Duration,
    alarm: Alarm,
    board: Arc<Board>,
    /// What waits for a connection.
    unsent: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Asking {
    /// Nothing is asked yet; up to so many nodes will be. The requests are part of something begun at
    /// `began`, and are to be answered within `patience` from now.
    pub(crate) fn new(
        deadlines: &Arc<Deadlines>,
        began: Moment,
        patience: Duration,
        nodes: usize,
    ) -> Self {
        let asked = clock::now();
        Self {
            began,
            asked,
            patience,
            alarm: deadlines.alarm(asked.plus(patience)),
            board: Arc::new(Board::of(nodes)),
            unsent: FuturesUnordered::new(),
        }
    }

    /// Sends a request to a node: at once, if it is connected.
    pub(crate) fn ask(&mut self, node: &Arc<Node>, parcel: &Parcel) {
        let entry = self.board.add(Arc::clone(node), Arc::clone(&parcel.request));
        let sink = Sink { board: Arc::clone(&self.board), entry, hops: 0 };
        self.unsent.extend(node.send(parcel, sink));
    }

    /// Waits for an answer, with its node's position; `None` if there is none to come.
    pub(crate) async fn next(&mut self) -> Option<(usize, Answered)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Answered)>> {
        while let Poll::Ready(Some(())) = self.unsent.poll_next_unpin(context) {}
        let taken = match self.board.take_answered(context.waker()) {
            Poll::Ready(Some(taken)) => taken,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending if Pin::new(&mut self.alarm).poll(context).is_pending() => {
                return Poll::Pending;
            }
            Poll::Pending => {
                // What was not sent by now never will be.
                self.unsent.clear();
                match self.board.take_unanswered() {
                    Some(taken) => taken,
                    // It came in just now.
                    None => return self.poll_next(context),
                }
            }
        };
        let Taken { node, request, link, was_sent, answered } = taken;
        // What had to wait for its connection is counted with that.
        let took = (was_sent && answered.is_some()).then(|| clock::now().since(self.asked));
        let answered =
            answered.unwrap_or_else(|| Err(Failure::timeout("no answer", self.patience, was_sent)));
        let answered = node.answered(&request, self.began, took, &link, answered);
        Poll::Ready(Some((node.position(), answered)))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Answers that are still to come keep the board.
        self.board.clear();
    }
}

/// Where answers come in.
struct Board(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    entries: Vec<Entry>,
    waker: Option<Waker>,
}

struct Entry {
    node: Arc<Node>,
    request: Arc<Request>,
    /// What it was sent on. That keeps the sink, and so must not be kept here.
    link: Weak<Link>,
    was_sent: bool,
    state: State,
}

impl Entry {
    /// Whether somebody waits for the answer.
    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }
}

enum State {
    Open,
    Answered(Answered),
    /// Its answer was taken, or its time was up.
    Closed,
}

/// What there is to know of a request that is over; there is no answer if its time was up.
struct Taken {
    node: Arc<Node>,
    request: Arc<Request>,
    link: Weak<Link>,
    was_sent: bool,
    answered: Option<Answered>,
}

impl Board {
    fn of(nodes: usize) -> Self {
        Self(Mutex::new(Entries { entries: Vec::with_capacity(nodes), waker: None }))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, node: Arc<Node>, request: Arc<Request>) -> usize {
        let (link, state) = (Weak::new(), State::Open);
        let entries = &mut self.lock().entries;
        entries.push(Entry { node, request, link, was_sent: false, state });
        entries.len() - 1
    }

    /// Takes one that is answered; `None` if all were taken.
    fn take_answered(&self, waker: &Waker) -> Poll<Option<Taken>> {
        let mut board = self.lock();
        if let Some(taken) = board.take(|state| matches!(state, State::Answered(_))) {
            return Poll::Ready(Some(taken));
        }
        if !board.entries.iter().any(Entry::is_open) {
            return Poll::Ready(None);
        }
        match &mut board.waker {
            Some(known) => known.clone_from(waker),
            unknown => *unknown = Some(waker.clone()),
        }
        Poll::Pending
    }

    fn take_unanswered(&self) -> Option<Taken> {
        self.lock().take(|state| matches!(state, State::Open))
    }

    fn clear(&self) {
        *self.lock() = Entries::default();
    }
}

impl Entries {
    fn take(&mut self, which: impl Fn(&State) -> bool) -> Option<Taken> {
        let entry = self.entries.iter_mut().find(|entry| which(&entry.state))?;
        let answered = match mem::replace(&mut entry.state, State::Closed) {
            State::Answered(answered) => Some(answered),
            State::Open | State::Closed => None,
        };
        Some(Taken {
            node: Arc::clone(&entry.node),
            request: Arc::clone(&entry.request),
            link: mem::take(&mut entry.link),
            was_sent: entry.was_sent,
            answered,
        })
    }
}

/// Where the answer to one request goes.
pub(crate) struct Sink {
    board: Arc<Board>,
    entry: usize,
    /// How often it was sent elsewhere.
    hops: u8,
}

impl Sink {
    /// The request goes to this node instead: another one of the same position.
    pub(crate) fn goes_to(&self, node: &Arc<Node>) {
        if let Some(entry) = self.board.lock().entries.get_mut(self.entry) {
            entry.node = Arc::clone(node);
        }
    }

    /// The request is sent once more, elsewhere. Fails if that happens too often.
    pub(crate) fn hop(&mut self) -> bool {
        self.hops += 1;
        self.hops <= MOST_HOPS
    }

    /// The request is to be put on this connection now. Returns whether somebody still waits for the answer:
    /// else it is not, since what takes it back may be there already.
    #[must_use]
    pub(crate) fn goes_on(&self, link: &Arc<Link>) -> bool {
        let mut board = self.board.lock();
        let entry = board.entries.get_mut(self.entry).filter(|entry| entry.is_open());
        let Some(entry) = entry else { return false };
        (entry.link, entry.was_sent) = (Arc::downgrade(link), true);
        true
    }

    /// What it was sent on, and what was asked, while somebody waits for the answer.
    pub(crate) fn asked(&self) -> Option<(Arc<Link>, Arc<Request>)> {
        let board = self.board.lock();
        let entry = board.entries.get(self.entry).filter(|entry| entry.is_open())?;
        Some((entry.link.upgrade()?, Arc::clone(&entry.request)))
    }

    pub(crate) fn answer(self, answered: Answered) {
        self.answer_to(|_| answered);
    }

    /// Tells the answer, which may depend on what was asked.
    pub(crate) fn answer_to(self, answered: impl FnOnce(&Request) -> Answered) {
        let waker = {
            let mut board = self.board.lock();
            match board.entries.get_mut(self.entry) {
                Some(entry) if entry.is_open() => {
                    entry.state = State::Answered(answered(&entry.request));
                }
                // Nobody waits for it any more.
                _ => return,
            }
            board.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
