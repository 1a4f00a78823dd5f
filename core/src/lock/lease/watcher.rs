//! A watcher of a lease: a callback or a waiting caller that is notified when the lease is lost.
//!
//! `lease.rs` creates watchers. `held/ending.rs` stores them and notifies each of them once.

use crate::error::Error;
use crate::runtime::panics;
use tokio::sync::oneshot;

/// Is notified once, when its lease ends.
pub(crate) enum Watcher {
    /// Receives the error if the lease is lost, and `None` if it is released.
    Waiting(oneshot::Sender<Option<Error>>),
    /// Called with the error if the lease is lost; dropped without a call if it is released.
    Callback(Box<dyn FnOnce(Error) + Send>),
}

impl Watcher {
    /// Notifies the watcher; `None` means that the lease was released. Must be called without a
    /// mutex held: the callback may use the lease.
    pub(crate) fn notify(self, loss: Option<Error>) {
        panics::contain(|| match (self, loss) {
            // Fails only if the caller has stopped waiting.
            (Self::Waiting(waiting), loss) => drop(waiting.send(loss)),
            (Self::Callback(call), Some(loss)) => call(loss),
            (Self::Callback(_), None) => {}
        });
    }
}
