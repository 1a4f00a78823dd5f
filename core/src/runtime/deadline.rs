//! Deadlines of requests: one timer for all of a client. A request that is answered in time, as nearly
//! all are, never touches it.

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

/// The deadlines of a client.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    state: Mutex<DeadlineState>,
    /// Notified when one is earlier than the task expects, and in the end.
    sooner: Arc<Notify>,
}

#[derive(Debug, Default)]
struct DeadlineState {
    waiting: BTreeMap<(Moment, u64), Waker>,
    last_id: u64,
    /// When the task will wake up by itself. What it was to wake up for may be gone.
    armed: Option<Moment>,
    is_running: bool,
}

impl Deadlines {
    /// A future that is ready from that moment on.
    pub(crate) fn alarm(self: &Arc<Self>, at: Moment) -> Alarm {
        Alarm { deadlines: Arc::clone(self), at, id: None }
    }

    fn state(&self) -> MutexGuard<'_, DeadlineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(self: &Arc<Self>, at: Moment, id: &mut Option<u64>, waker: &Waker) {
        let mut state = self.state();
        let id = *id.get_or_insert_with(|| {
            state.last_id += 1;
            state.last_id
        });
        state.waiting.insert((at, id), waker.clone());
        if !state.is_running {
            let (deadlines, sooner) = (Arc::downgrade(self), Arc::clone(&self.sooner));
            runtime::serve(move || run(Weak::clone(&deadlines), Arc::clone(&sooner)));
            state.is_running = true;
        } else if state.armed.is_none_or(|armed| at < armed) {
            // Once is enough: the task arms itself anew.
            state.armed = Some(at);
            self.sooner.notify_one();
        }
    }

    /// Wakes whoever's deadline has passed, and returns when to come back.
    fn ring(&self) -> Option<Moment> {
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
        // The task finds out that there are no deadlines any more.
        self.sooner.notify_one();
    }
}

async fn run(deadlines: Weak<Deadlines>, sooner: Arc<Notify>) {
    while let Some(strong) = deadlines.upgrade() {
        let next = strong.ring();
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

/// Ready from a moment on.
pub(crate) struct Alarm {
    deadlines: Arc<Deadlines>,
    at: Moment,
    id: Option<u64>,
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if clock::now() >= self.at {
            return Poll::Ready(());
        }
        let Self { deadlines, at, id } = &mut *self;
        deadlines.wait(*at, id, context.waker());
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
