//! A watcher of a lease: a waiting caller that is notified when the lease ends, or a callback that is called if the
//! lease is lost.
//!
//! `lease.rs` creates watchers. `held/ending.rs` stores them and notifies each of them once.

use crate::error::Error;
use crate::runtime::panics;
use tokio::sync::oneshot;

/// A watcher of one lease. Notified once, when the lease ends.
pub(crate) enum Watcher {
    /// Receives the error if the lease is lost, and `None` if the lease ends in another way.
    Waiting(oneshot::Sender<Option<Error>>),
    /// Called with the error if the lease is lost; dropped without a call if the lease ends in another way.
    Callback(Box<dyn FnOnce(Error) + Send>),
}

impl Watcher {
    /// Notifies the watcher. `loss` is `None` if the lease was not lost. The caller must not hold a mutex, because the
    /// callback may use the lease.
    pub(crate) fn notify(self, loss: Option<Error>) {
        panics::contain(|| match (self, loss) {
            // Fails only if the caller has stopped waiting.
            (Self::Waiting(waiting), loss) => drop(waiting.send(loss)),
            (Self::Callback(call), Some(loss)) => call(loss),
            (Self::Callback(_), None) => {}
        });
    }
}
