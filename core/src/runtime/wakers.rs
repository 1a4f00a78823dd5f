//! Wakes the tasks of callers' executors.
//!
//! A waker is the caller's code, and may be slow: it may wait for a lock of its executor or of an
//! interpreter. Renewals cannot wait for it, so a thread of its own calls all wakers. Called by
//! `runtime/mod.rs`.

use crate::runtime::fork::PerProcess;
use crate::runtime::panics;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Wake, Waker};
use std::thread;

/// The wakers to call.
static QUEUE: PerProcess<Sender<Arc<Relayed>>> = PerProcess::new();

/// Wraps a waker of a caller's executor. Waking the result does not wait for it, and contains its
/// panics.
pub(crate) fn relayed(waker: &Waker) -> Waker {
    // If the thread cannot be started, the next call tries again.
    let _ = QUEUE.get_or_try_init(start);
    Waker::from(Arc::new(Relayed(waker.clone())))
}

struct Relayed(Waker);

impl Wake for Relayed {
    fn wake(self: Arc<Self>) {
        #[cfg(test)]
        if crate::runtime::machine::current().is_some() {
            return self.call();
        }
        match QUEUE.get() {
            // Sending fails only if the thread is gone, and so the process is ending.
            Some(queue) => drop(queue.send(self)),
            None => self.call(),
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Arc::clone(self).wake();
    }
}

impl Relayed {
    fn call(self: Arc<Self>) {
        panics::contain(|| self.0.wake_by_ref());
    }
}

fn start() -> io::Result<Sender<Arc<Relayed>>> {
    let (queue, queued) = channel();
    let work = move || queued.into_iter().for_each(Relayed::call);
    thread::Builder::new().name("quorlock-wakers".to_owned()).spawn(work)?;
    Ok(queue)
}

#[cfg(test)]
mod tests {
    use super::relayed;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(30);

    struct Panicking;

    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics");
        }
    }

    /// A waker that waits for permission, and reports whether it got it.
    struct Slow(Mutex<Receiver<()>>, Sender<bool>);

    impl Wake for Slow {
        fn wake(self: Arc<Self>) {
            let permitted = self.0.lock().expect("no panic").recv_timeout(PATIENCE);
            let _ = self.1.send(permitted.is_ok());
        }
    }

    #[test]
    fn waking_does_not_wait_for_a_slow_waker() {
        relayed(&Waker::from(Arc::new(Panicking))).wake();
        let ((permit, permission), (sender, woken)) = (channel(), channel());
        let slow = Waker::from(Arc::new(Slow(Mutex::new(permission), sender)));
        relayed(&slow).wake_by_ref();
        let _ = permit.send(());
        assert_eq!(woken.recv_timeout(2 * PATIENCE), Ok(true));
    }
}
