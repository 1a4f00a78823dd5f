//! Request deadlines: one timer for all requests of a client. Called by `node/fanout.rs`.
//!
//! Nearly all requests are answered before their deadline. To keep them cheap, adding or removing a deadline rarely
//! wakes the timer task. At a deadline, this module only wakes the waiting task, which decides what to do.

use crate::runtime;
use crate::runtime::clock;
use crate::runtime::panics;
use crate::runtime::timer::sleep;
use quorlock_protocol::Moment;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// The deadlines of one client.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    state: Mutex<DeadlineState>,
    /// Notified when the timer task must wake up earlier than planned, and when the `Deadlines` is dropped.
    sooner: Arc<Notify>,
}

#[derive(Debug, Default)]
struct DeadlineState {
    waiting: BTreeMap<(Moment, u64), Waker>,
    last_id: u64,
    /// The moment for which the timer of the timer task is set; `None` if it is not set. The deadline at this moment
    /// may have been removed since.
    armed: Option<Moment>,
    is_running: bool,
}

impl Deadlines {
    /// Returns a future that completes at `at`.
    pub(crate) fn alarm(self: &Arc<Self>, at: Moment) -> Alarm {
        Alarm { deadlines: Arc::clone(self), at, id: None }
    }

    fn state(&self) -> MutexGuard<'_, DeadlineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(self: &Arc<Self>, now: Moment, at: Moment, id: &mut Option<u64>, waker: &Waker) {
        let mut state = self.state();
        let id = *id.get_or_insert_with(|| {
            state.last_id += 1;
            state.last_id
        });
        state.waiting.insert((at, id), waker.clone());
        if !state.is_running {
            let deadlines = Arc::downgrade(self);
            let sooner = Arc::clone(&self.sooner);
            runtime::serve(move || run(Weak::clone(&deadlines), Arc::clone(&sooner)));
            state.is_running = true;
        } else if state.armed.is_none_or(|armed| at < armed || armed <= now) {
            // Wake the timer task, so that it sets its timer again. This is necessary even for a later deadline if
            // `armed` has passed: the timer may be late, because it may stand still while the machine is suspended.
            state.armed = Some(at);
            self.sooner.notify_one();
        }
    }

    /// Wakes all tasks whose deadline has passed. Returns the next deadline, and records that the timer is set for it.
    fn wake_due(&self) -> Option<Moment> {
        let now = clock::now();
        let mut due = Vec::new();
        let armed = {
            let mut state = self.state();
            while let Some(first) = state.waiting.first_entry()
                && first.key().0 <= now
            {
                due.push(first.remove());
            }
            state.armed = state.waiting.first_key_value().map(|((at, _), _)| *at);
            state.armed
        };
        for waker in due {
            panics::contain(|| waker.wake());
        }
        armed
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        // Wakes the timer task, which then ends because the `Deadlines` is gone.
        self.sooner.notify_one();
    }
}

async fn run(deadlines: Weak<Deadlines>, sooner: Arc<Notify>) {
    while let Some(strong) = deadlines.upgrade() {
        let next = strong.wake_due();
        drop(strong);
        match next {
            Some(at) => tokio::select! {
                biased;
                () = sooner.notified() => {}
                () = sleep(at.since(clock::now())) => {}
            },
            None => sooner.notified().await,
        }
    }
}

/// A future that completes at a given moment.
pub(crate) struct Alarm {
    deadlines: Arc<Deadlines>,
    at: Moment,
    id: Option<u64>,
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now = clock::now();
        if now >= self.at {
            return Poll::Ready(());
        }
        let Self { deadlines, at, id } = &mut *self;
        deadlines.wait(now, *at, id, context.waker());
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.deadlines.state().waiting.remove(&(self.at, id));
        }
    }
}
