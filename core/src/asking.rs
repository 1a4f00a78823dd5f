//! Requests under way to several nodes, with one deadline: what they were sent on, and their answers.
//!
//! A request that may create keys concerns its sender beyond the deadline: the node may still apply it.
//! So its connection stays open until it is answered, even if the node uses another one by then.

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
///
/// [`Asking::next`] returns each request's answer, or that its deadline has passed. After all of these,
/// [`Asking::late`] returns the answers that requests which may create keys get after their deadline.
pub(crate) struct Asking {
    began: Moment,
    asked: Moment,
    patience: Duration,
    alarm: Alarm,
    board: Arc<Board>,
    /// What waits for a connection.
    unsent: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// What became of a request by its deadline.
pub(crate) struct Told {
    /// The node's position.
    pub(crate) node: usize,
    pub(crate) answered: Answered,
    /// Whether the node processed it before everything that was sent to this node later. Not so if it
    /// was sent a second time, or if the node uses another connection by now.
    pub(crate) in_order: bool,
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
        let sink = Sink::new(&self.board, entry);
        self.unsent.extend(node.send(parcel, sink));
    }

    /// Waits for an answer, with its node's position; `None` if there is none to come.
    pub(crate) async fn next(&mut self) -> Option<(usize, Answered)> {
        self.told().await.map(|told| (told.node, told.answered))
    }

    /// Waits for an answer as [`Asking::next`] does, and also returns whether it came in order.
    pub(crate) async fn told(&mut self) -> Option<Told> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Whether requests that may create keys were sent, and not answered by their deadline.
    pub(crate) fn has_late(&self) -> bool {
        self.board.lock().entries.iter().any(|entry| matches!(entry.state, State::Late(_)))
    }

    /// Waits for the answer to such a request, which is an error if its connection breaks first; `None` if
    /// there is none to come. The wait has no deadline.
    pub(crate) async fn late(&mut self) -> Option<(usize, Answered)> {
        poll_fn(|context| self.board.take_late(context.waker())).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Told>> {
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
        let Taken { node, request, link, was_sent, in_order, answered } = taken;
        let in_order = in_order && answered.is_some() && node.uses(&link);
        // What had to wait for its connection is counted with that.
        let took = (was_sent && answered.is_some()).then(|| clock::now().since(self.asked));
        let answered =
            answered.unwrap_or_else(|| Err(Failure::timeout("no answer", self.patience, was_sent)));
        let answered = node.answered(&request, self.began, took, &link, answered);
        Poll::Ready(Some(Told { node: node.position(), answered, in_order }))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Answers that are still to come keep the board, which keeps the connections they come on.
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
    /// What it was sent on. That keeps the sink, which keeps the board, until it is answered.
    link: Weak<Link>,
    /// The same, if the request may create keys and is not answered yet. The [`Asking`] ends that cycle
    /// when it is dropped.
    kept: Option<Arc<Link>>,
    was_sent: bool,
    /// Whether it was sent just once.
    in_order: bool,
    /// Whether its sink is there, which an answer can come to.
    has_sink: bool,
    state: State,
}

impl Entry {
    /// Whether somebody waits for the answer.
    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Whether the node may still apply it and answer.
    fn may_come_late(&self) -> bool {
        self.was_sent && self.has_sink && self.request.creates()
    }
}

enum State {
    Open,
    Answered(Answered),
    /// Its time was up, but the node may still apply it. The answer, if it has come meanwhile.
    Late(Option<Answered>),
    /// Its answer was taken, or its time was up.
    Closed,
}

/// What there is to know of a request that is over; there is no answer if its time was up.
struct Taken {
    node: Arc<Node>,
    request: Arc<Request>,
    link: Weak<Link>,
    was_sent: bool,
    in_order: bool,
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
        let (link, kept, state) = (Weak::new(), None, State::Open);
        let (was_sent, in_order, has_sink) = (false, true, true);
        let entries = &mut self.lock().entries;
        entries.push(Entry { node, request, link, kept, was_sent, in_order, has_sink, state });
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
        board.wake_later(waker);
        Poll::Pending
    }

    fn take_unanswered(&self) -> Option<Taken> {
        self.lock().take(|state| matches!(state, State::Open))
    }

    /// Takes one that was answered after its deadline; `None` if there is none to wait for.
    fn take_late(&self, waker: &Waker) -> Poll<Option<(usize, Answered)>> {
        let mut board = self.lock();
        let mut is_awaited = false;
        for entry in &mut board.entries {
            let State::Late(answered) = &mut entry.state else { continue };
            let Some(answered) = answered.take() else {
                is_awaited = true;
                continue;
            };
            entry.state = State::Closed;
            return Poll::Ready(Some((entry.node.position(), answered)));
        }
        if !is_awaited {
            return Poll::Ready(None);
        }
        board.wake_later(waker);
        Poll::Pending
    }

    fn clear(&self) {
        let entries = mem::take(&mut *self.lock());
        // May close connections, without the lock.
        drop(entries);
    }
}

impl Entries {
    fn take(&mut self, which: impl Fn(&State) -> bool) -> Option<Taken> {
        let entry = self.entries.iter_mut().find(|entry| which(&entry.state))?;
        let answered = match mem::replace(&mut entry.state, State::Closed) {
            State::Answered(answered) => Some(answered),
            State::Open if entry.may_come_late() => {
                entry.state = State::Late(None);
                None
            }
            State::Open | State::Late(_) | State::Closed => None,
        };
        Some(Taken {
            node: Arc::clone(&entry.node),
            request: Arc::clone(&entry.request),
            link: mem::take(&mut entry.link),
            was_sent: entry.was_sent,
            in_order: entry.in_order,
            answered,
        })
    }

    fn wake_later(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            unknown => *unknown = Some(waker.clone()),
        }
    }
}

/// Where the answer to one request goes.
pub(crate) struct Sink {
    board: Arc<Board>,
    entry: usize,
    /// How often it was sent elsewhere.
    hops: u8,
    has_answered: bool,
}

impl Sink {
    fn new(board: &Arc<Board>, entry: usize) -> Self {
        Self { board: Arc::clone(board), entry, hops: 0, has_answered: false }
    }

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
        // What was sent meanwhile is before it.
        entry.in_order &= !entry.was_sent;
        (entry.link, entry.was_sent) = (Arc::downgrade(link), true);
        entry.kept = entry.request.creates().then(|| Arc::clone(link));
        true
    }

    /// There was no room for the request on the connection: it was not sent.
    pub(crate) fn comes_back(&self) {
        if let Some(entry) = self.board.lock().entries.get_mut(self.entry) {
            (entry.link, entry.was_sent, entry.kept) = (Weak::new(), false, None);
        }
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
    pub(crate) fn answer_to(mut self, answered: impl FnOnce(&Request) -> Answered) {
        self.has_answered = true;
        let (kept, waker) = {
            let mut board = self.board.lock();
            // Else nobody waits for it any more.
            let Some(entry) = board.entries.get_mut(self.entry) else { return };
            match &mut entry.state {
                State::Open => entry.state = State::Answered(answered(&entry.request)),
                State::Late(late) => *late = Some(answered(&entry.request)),
                State::Answered(_) | State::Closed => return,
            }
            (entry.kept.take(), board.waker.take())
        };
        // May close the connection.
        drop(kept);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.has_answered {
            return;
        }
        // The request was not sent, or not again: no answer comes.
        let (kept, waker) = {
            let mut board = self.board.lock();
            let Some(entry) = board.entries.get_mut(self.entry) else { return };
            entry.has_sink = false;
            if !matches!(entry.state, State::Late(_)) {
                return;
            }
            entry.state = State::Closed;
            (entry.kept.take(), board.waker.take())
        };
        drop(kept);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
