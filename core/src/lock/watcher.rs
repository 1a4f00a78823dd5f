//! Those who are notified when a lease is lost.

use crate::error::Error;
use crate::runtime::panics;
use tokio::sync::oneshot;

/// Somebody who wants to know of the loss of a lease.
pub(crate) enum Watcher {
    /// Gets the error, or nothing if the lease is released first.
    Waiting(oneshot::Sender<Option<Error>>),
    /// Is called with the error, or dropped if the lease is released first.
    Callback(Box<dyn FnOnce(Error) + Send>),
}

impl Watcher {
    /// Must be called without a lock held: the callback may use the lease.
    pub(crate) fn notify(self, loss: Option<Error>) {
        panics::contain(|| match (self, loss) {
            // An error means that nobody waits any more.
            (Self::Waiting(waiting), loss) => drop(waiting.send(loss)),
            (Self::Callback(call), Some(loss)) => call(loss),
            (Self::Callback(_), None) => {}
        });
    }
}
